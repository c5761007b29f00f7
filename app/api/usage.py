"""What the workspace keeps, and how much it may."""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.access import Reader
from app.api.deps import ReadSessionDep, SettingsDep
from app.api.responses import problems
from app.storage import usage

router = APIRouter(tags=["access"])


class KeptRead(BaseModel):
    """Rows of a kind, and the bytes of their files."""

    count: int
    bytes: int


class Quotas(BaseModel):
    """How much the workspace may have; null: any number."""

    max_stored_bytes: int | None = Field(description="Beyond, uploads get a 507.")
    max_models: int | None = Field(description="Beyond, jobs get a 429.")
    max_queued_jobs: int = Field(description="Beyond, jobs get a 429.")


class KeptDays(BaseModel):
    """After how many days something goes by itself; null: never."""

    datasets: float | None = Field(description="Those that no job uses.")
    failed_jobs: float | None = Field(description="Failed or cancelled.")
    events: float | None = Field(description="Of jobs that have ended; the last stays.")
    attempts: float | None = Field(description="The same.")


class UsageRead(BaseModel):
    """What the workspace keeps."""

    bytes: int = Field(description="Of all files; the same bytes count once.")
    files: int
    datasets: KeptRead
    models: KeptRead
    checkpoints: KeptRead
    jobs: dict[str, int] = Field(description="By status, runs of sweeps included.")
    quotas: Quotas
    kept_days: KeptDays


@router.get(
    "/usage",
    response_model=UsageRead,
    summary="What the workspace keeps, and may keep",
    responses=problems(),
)
def read_usage(
    session: ReadSessionDep, settings: SettingsDep, caller: Reader
) -> UsageRead:
    """Counted as it is asked for."""
    own = settings.for_workspace(caller.workspace_id)
    total = usage.count_bytes(session, caller.workspace_id)
    kinds = usage.count_kinds(session, caller.workspace_id)
    return UsageRead(
        bytes=total.bytes,
        files=total.count,
        **{name: KeptRead(**asdict(kept)) for name, kept in kinds.items()},
        jobs=usage.count_jobs(session, caller.workspace_id),
        quotas=Quotas(
            max_stored_bytes=int(own.max_stored_bytes) or None,
            max_models=int(own.max_models) or None,
            max_queued_jobs=int(own.max_queued_jobs),
        ),
        kept_days=KeptDays(
            datasets=own.keep_datasets_days or None,
            failed_jobs=own.keep_failed_jobs_days or None,
            events=own.keep_events_days or None,
            attempts=own.keep_attempts_days or None,
        ),
    )
