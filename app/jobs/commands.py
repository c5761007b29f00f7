"""What a caller asks of a job, of whatever kind it is. Nothing here commits."""

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import JobHasModel, JobIsPart, JobNotFinished
from app.jobs import parents, states
from app.jobs.workers import check_room
from app.settings import get_settings
from app.storage import blobs
from app.storage.enums import FINISHED, PARENTS
from app.storage.tables import (
    Attempt,
    Event,
    Job,
    PredictionFault,
    Report,
    TrainedModel,
)


def cancel(session: Session, job: Job) -> bool:
    """End it and keep nothing: at once if it waits, else as its worker hears of it.

    Of a parent, all its children. False if it has ended, or is cancelled already.
    """
    return _ask(session, job, states.cancel, parents.cancel)


def stop(session: Session, job: Job) -> bool:
    """End training now, and keep the best epoch so far; False if it does not run."""
    return _ask(session, job, states.stop, parents.stop)


def retry(session: Session, job: Job) -> bool:
    """Run a failed or cancelled job again, from its checkpoint if there is one.

    Of a parent, those of its children that have not succeeded.
    """
    if (parent := _lock_parent(session, job)) is not None:
        if parent.status in FINISHED:
            raise JobIsPart(f"the job is a part of {parent.id}, which has ended")
    moved = _ask(session, job, states.retry, parents.retry)
    if moved:
        check_room(session, job.workspace_id, 0, get_settings())
    return moved


Move = Callable[[Session, Job], bool]


def _ask(session: Session, job: Job, move: Move, move_parent: Move) -> bool:
    """Move it, and bring its parent in line."""
    if job.kind in PARENTS:
        moved = move_parent(session, job)
    else:
        _lock_parent(session, job)
        moved = move(session, job)
        if moved and job.parent_id is not None:
            parents.follow(session, job)
    if job in session:  # a worker has its own copy
        session.refresh(job)
    return moved


def _lock_parent(session: Session, job: Job) -> Job | None:
    """Before the job's own row, so that nobody waits for us in a circle."""
    if job.parent_id is None:
        return None
    parent = session.get_one(Job, job.parent_id)
    parents.lock_row(session, parent)
    return parent


def find_model_id(session: Session, job: Job) -> str | None:
    """The model that it made; of a tune job, the one that its winner became."""
    statement = sa.select(TrainedModel.id)
    if job.kind in PARENTS:
        statement = statement.join(Job, Job.id == TrainedModel.job_id)
        return session.scalar(statement.where(Job.parent_id == job.id))
    return session.scalar(statement.where(TrainedModel.job_id == job.id))


def delete(session: Session, job: Job) -> None:
    """Delete a job that has ended, and its children with it."""
    parents.lock_row(session, job)  # and its children after it
    if job.status not in FINISHED:
        raise JobNotFinished(
            f"the job is {job.status}; it can be deleted when it has ended",
            job_status=job.status,
        )
    model_id = find_model_id(session, job)
    if model_id is not None:
        raise JobHasModel(f"the job made {model_id}; delete the model first")
    if job.parent_id is not None:
        raise JobIsPart(f"the job is a part of {job.parent_id}; delete that")
    _delete(session, [Job.parent_id == job.id])
    _delete(session, [Job.id == job.id])


def _delete(session: Session, which: Sequence[sa.ColumnElement[bool]]) -> None:
    """Those jobs and all that is about them."""
    rows = session.execute(
        sa.select(Job.workspace_id, Job.checkpoint_sha256)
        .where(*which, Job.checkpoint_sha256.is_not(None))
        .order_by(Job.checkpoint_sha256)
    ).all()
    ids = sa.select(Job.id).where(*which).scalar_subquery()
    for table in (Report, Attempt, Event, PredictionFault):
        session.execute(sa.delete(table).where(table.job_id.in_(ids)))
    session.execute(sa.delete(Job).where(*which))
    for workspace_id, sha256 in rows:
        assert sha256 is not None
        blobs.remove_unused(session, workspace_id, sha256)
