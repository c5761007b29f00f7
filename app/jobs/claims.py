"""Which job a worker takes next: workspaces by turns, and no look at all that waits.

Each step is a search in one index (`ix_jobs_next`), so that a claim takes as long with
a hundred thousand queued jobs as with ten.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.jobs.moves import record
from app.storage import db
from app.storage.enums import EventType, JobKind, JobPhase, JobStatus
from app.storage.tables import Attempt, Job

Conditions = Sequence[sa.ColumnElement[bool]]


def claim(
    session: Session,
    *,
    queue: str,
    owner: str,
    lease_seconds: float,
    job_id: str | None = None,
) -> Job | None:
    """Take the next queued job, if there is any.

    Workspaces take turns: the one that was served longest ago comes first. Of a
    workspace, the named job comes first, then jobs on their own, the oldest first, and
    then the cells of sweeps, of which there may be thousands.
    """
    for workspace_id in list_by_turn(session, queue):
        queued = waits(queue, workspace_id)
        for conditions in _list_choices(session, queued, job_id):
            job = _take(session, conditions, owner, lease_seconds)
            if job is not None:
                return job
    return None


def waits(queue: str, workspace_id: str | None = None) -> list[sa.ColumnElement[bool]]:
    """Whether a job is queued there, for a worker."""
    conditions = [
        Job.status == JobStatus.QUEUED,
        Job.queue == queue,
        Job.kind == JobKind.TRAIN,
    ]
    if workspace_id is not None:
        conditions.append(Job.workspace_id == workspace_id)
    return conditions


def list_by_turn(session: Session, queue: str) -> Sequence[str]:
    """Workspaces with queued jobs; first those that were never served."""
    waiting = _distinct(Job.workspace_id, waits(queue))
    served_at = (
        sa.select(sa.func.max(Attempt.claimed_at))
        .where(Attempt.workspace_id == waiting.c.value)
        .scalar_subquery()
    )
    return session.scalars(
        sa.select(waiting.c.value)
        .where(waiting.c.value.is_not(None))
        .order_by(served_at.is_not(None), served_at, waiting.c.value)
    ).all()


def _list_choices(
    session: Session, queued: Conditions, job_id: str | None
) -> Sequence[Conditions]:
    """Conditions on the next job of a workspace; whoever meets the first is taken."""
    parent = aliased(Job)
    parents = _distinct(Job.parent_id, [*queued, Job.parent_id.is_not(None)])
    parent_ids = session.scalars(
        sa.select(parent.id)
        .join(parents, parents.c.value == parent.id)
        .order_by(parent.created_at, parent.id)
    )
    named = [[*queued, Job.id == job_id]] if job_id is not None else []
    alone = [*queued, Job.parent_id.is_(None)]
    return [*named, alone, *([*queued, Job.parent_id == id_] for id_ in parent_ids)]


def _distinct(
    column: sa.orm.InstrumentedAttribute[Any], conditions: Conditions
) -> sa.CTE:
    """The distinct values of a column, from one to the next in the index; the last of
    them is null."""
    least = sa.select(sa.func.min(column).label("value")).where(*conditions)
    values = least.cte("waiting", recursive=True)
    following = (
        sa.select(sa.func.min(column))
        .where(*conditions, column > values.c.value)
        .correlate(values)
        .scalar_subquery()
    )
    return values.union_all(
        sa.select(following).where(values.c.value.is_not(None)).select_from(values)
    )


def _take(
    session: Session, conditions: Conditions, owner: str, lease_seconds: float
) -> Job | None:
    """Claim the first job that meets the conditions and that nobody else claims now."""
    first = (
        sa.select(Job.id)
        .where(*conditions)
        # Those on their own have no parent and no position: this is their age. Both
        # are named for the index to be used as it is.
        .order_by(Job.parent_id, Job.position, Job.created_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    moment = db.now(session)
    job = session.scalar(
        sa.update(Job)
        .where(Job.id == first, Job.status == JobStatus.QUEUED)
        .values(
            status=sa.case(
                (Job.is_stop_requested, JobStatus.STOPPING.value),
                else_=JobStatus.RUNNING.value,
            ),
            phase=JobPhase.PREPARING,
            attempt=Job.attempt + 1,
            lease_owner=owner,
            lease_expires_at=moment + timedelta(seconds=lease_seconds),
            started_at=sa.func.coalesce(Job.started_at, moment),
            event_seq=Job.event_seq + 1,
        )
        .returning(Job)
        .execution_options(populate_existing=True)
    )
    if job is not None:
        session.add(
            Attempt(
                job_id=job.id,
                number=job.attempt,
                workspace_id=job.workspace_id,
                owner=owner,
                claimed_at=moment,
            )
        )
        event = (EventType.RUNNING, {"attempt": job.attempt, "worker": owner})
        record(session, [(job.id, job.workspace_id, job.event_seq)], [event])
    return job
