"""Making a model of a cell of a sweep, of a trial of a search, or of a model."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import Invalid, WrongJobKind, WrongJobStatus
from app.jobs import states
from app.jobs.make import make_like
from app.jobs.planning import read_cells
from app.jobs.workers import check_room
from app.settings import get_settings
from app.storage.enums import JobKind, JobRole
from app.storage.tables import Job, TrainedModel
from lometab.space import CATBOOST

_PARTS = {JobKind.SWEEP: JobRole.CELL, JobKind.TUNE: JobRole.TRIAL}


def promote_run(
    session: Session,
    job: Job,
    *,
    cell: int | None = None,
    trial: int | None = None,
    n_seeds: int = 1,
    name: str | None = None,
    tags: Sequence[str] = (),
) -> Job:
    """A train job with the settings of the cell or the trial, and its first seed.

    It goes on from the weights of that run if they are kept.
    """
    role = _PARTS.get(job.kind)
    if role is None:
        raise WrongJobKind(f"a job of the kind '{job.kind}' has nothing to promote")
    asked = {JobRole.CELL: cell, JobRole.TRIAL: trial}
    number = asked[role]
    if number is None or (cell is not None and trial is not None):
        raise Invalid(
            f"set `{role}`, and nothing else, to the number of the {role} that shall "
            "become a model"
        )
    run = _find_run(session, job, role, number)
    made = make_like(
        job,
        role=JobRole.TRAIN,
        config={**run.config, "n_seeds": n_seeds},
        number=number,
        promoted_from=job.id,
        name=name,
        tags=list(tags),
        warnings=job.warnings,
        checkpoint_sha256=run.checkpoint_sha256 if run.outcome else None,
    )
    states.add(session, made)
    check_room(session, job.workspace_id, 0, get_settings())
    return made


def prune_model(
    session: Session,
    model: TrainedModel,
    *,
    members: str | int,
    name: str | None = None,
    tags: Sequence[str] = (),
) -> Job:
    """A job that makes a model of some of a model's members; nothing is trained.

    Args:
        name: of which the model becomes the next version; None: of its own name.
    """
    job = session.get_one(Job, model.job_id)
    k = (model.facts or {}).get("k")
    if isinstance(members, int) and k is not None and members > k:
        raise Invalid(f"the model has {k} members, and {members} cannot be kept")
    made = make_like(
        job,
        role=JobRole.TRAIN,
        config={**job.config, "members": members},
        made_of={"model_id": model.id, "onnx_sha256": model.onnx_sha256},
        name=name or model.name,
        tags=list(tags),
        warnings=job.warnings,
    )
    states.add(session, made)
    check_room(session, job.workspace_id, 0, get_settings())
    return made


def _find_run(session: Session, job: Job, role: JobRole, number: int) -> Job:
    """The run of the first seed, locked: its weights must not be dropped meanwhile."""
    n_known = count_parts(job.config)
    if number >= n_known:
        raise Invalid(f"there is no {role} {number}; they are 0 to {n_known - 1}")
    run = session.scalars(
        sa.select(Job)
        .where(
            Job.parent_id == job.id,
            Job.role == role,
            Job.number == number,
            Job.repeat == 0,
        )
        .with_for_update()
    ).one()
    if run.settings is None:
        raise WrongJobStatus(
            f"trial {number} has no settings yet", job_status=run.status
        )
    if run.settings == CATBOOST:
        raise Invalid(
            f"cell {number} is CatBoost, which is there for comparison; promote a "
            "cell of the ensemble or of one of its variants"
        )
    return run


def count_parts(config: dict[str, Any]) -> int:
    """How many cells or trials a parent has."""
    if "tune" in config:
        return int(config["tune"]["n_trials"])
    return len(read_cells(config))
