"""What a workspace keeps, and how much more it may."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import QuotaExceeded, TooManyModels
from app.settings import Settings
from app.storage.tables import Blob, Dataset, Job, TrainedModel


@dataclass(frozen=True)
class Kept:
    """Rows of a kind, and the bytes of their files."""

    count: int
    bytes: int


def count_bytes(session: Session, workspace_id: str) -> Kept:
    """All files: those that two rows refer to once."""
    row = session.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(Blob.size), 0)).where(
            Blob.workspace_id == workspace_id
        )
    ).one()
    return Kept(row[0], int(row[1]))


def count_kinds(session: Session, workspace_id: str) -> dict[str, Kept]:
    """Datasets, models and checkpoints; a file of two of them counts for both."""
    kinds: dict[str, tuple[Any, Any]] = {
        "datasets": (Dataset, Dataset.table_sha256),
        "models": (TrainedModel, TrainedModel.onnx_sha256),
        "checkpoints": (Job, Job.checkpoint_sha256),
    }
    found = {}
    for name, (table, column) in kinds.items():
        row = session.execute(
            sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(Blob.size), 0))
            .select_from(table)
            .join(
                Blob,
                sa.and_(Blob.workspace_id == table.workspace_id, Blob.sha256 == column),
            )
            .where(table.workspace_id == workspace_id)
        ).one()
        found[name] = Kept(row[0], int(row[1]))
    return found


def count_jobs(session: Session, workspace_id: str) -> dict[str, int]:
    """Jobs by status."""
    rows = session.execute(
        sa.select(Job.status, sa.func.count())
        .where(Job.workspace_id == workspace_id)
        .group_by(Job.status)
    )
    return {str(status): count for status, count in rows}


def check_bytes(
    session: Session, settings: Settings, workspace_id: str, n_bytes: int
) -> None:
    """Raise QuotaExceeded if a workspace may not keep so many bytes more.

    Requests at the same moment may each find room. What a job that runs makes is kept
    in any case: it is refused before it begins, not after hours.
    """
    limit = settings.for_workspace(workspace_id).max_stored_bytes
    if not limit:
        return
    used = count_bytes(session, workspace_id).bytes
    if used >= limit or used + n_bytes > limit:
        raise QuotaExceeded(
            f"the workspace keeps {used} bytes and {n_bytes} would come to them, where "
            f"the limit is {limit:.0f}; delete datasets, jobs and models that are not "
            "needed (`GET /usage` says what there is)"
        )


def check_models(session: Session, settings: Settings, workspace_id: str) -> None:
    """Raise TooManyModels if a workspace may have no more models."""
    limit = settings.for_workspace(workspace_id).max_models
    if not limit:
        return
    n_models = session.scalar(
        sa.select(sa.func.count()).where(TrainedModel.workspace_id == workspace_id)
    )
    if (n_models or 0) >= limit:
        raise TooManyModels(
            f"the workspace has {n_models} models, where the limit is {limit:.0f}; "
            "delete some that are not needed"
        )
