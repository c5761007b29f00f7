"""The guarded UPDATE that every move of a job is, and the events that tell of it.

Nothing here commits: whoever opened the transaction does.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import webhooks
from app.storage import db
from app.storage.enums import HELD, EventType, JobStatus
from app.storage.tables import Base, Event, Job

NewEvent = tuple[EventType | str, dict[str, Any]]
"""The type and the data of an event."""


def held_by(job: Job) -> list[sa.ColumnElement[bool]]:
    """The condition that an attempt still holds its job."""
    return [Job.id == job.id, Job.attempt == job.attempt, Job.status.in_(HELD)]


def move(
    session: Session,
    job: Job,
    statuses: Sequence[JobStatus],
    events: Sequence[NewEvent],
    **values: Any,
) -> bool:
    """Write as the job's attempt; False, and nothing written, if it may not."""
    conditions = [*held_by(job), Job.status.in_(statuses)]
    return write(session, job, conditions, events, **values)


def move_all(
    session: Session,
    which: Sequence[sa.ColumnElement[bool]],
    event: NewEvent,
    **values: Any,
) -> int:
    """Write all those jobs, whoever holds them, with an event each; how many."""
    rows = session.execute(
        sa.update(Job)
        .where(*which)
        .values(**values, event_seq=Job.event_seq + 1)
        .returning(Job.id, Job.workspace_id, Job.event_seq)
        .execution_options(synchronize_session=False)
    ).all()
    firsts = [(job_id, workspace_id, seq) for job_id, workspace_id, seq in rows]
    record(session, firsts, [event])
    return len(rows)


def requeued(session: Session) -> dict[str, Any]:
    """Values of a job that comes back to the queue."""
    return {"status": JobStatus.QUEUED, "queued_at": db.now(session)}


def write(
    session: Session,
    job: Job,
    conditions: Sequence[sa.ColumnElement[bool]],
    events: Sequence[NewEvent],
    **values: Any,
) -> bool:
    """Write one job with any number of events, if the conditions hold."""
    seq = session.scalar(
        sa.update(Job)
        .where(*conditions)
        .values(**values, event_seq=Job.event_seq + len(events))
        .returning(Job.event_seq)
        .execution_options(synchronize_session=False)
    )
    if seq is None:
        return False
    record(session, [(job.id, job.workspace_id, seq - len(events) + 1)], events)
    return True


def record(
    session: Session,
    rows: Sequence[tuple[str, str, int]],
    events: Sequence[NewEvent],
) -> None:
    """The same events of each of the jobs, in the transaction that took the numbers.

    Args:
        rows: the id, the workspace and the number of the first event.
    """
    if not rows or not events:
        return
    moment = db.now(session)
    session.execute(
        sa.insert(_EVENTS),
        [
            {
                "job_id": job_id,
                "workspace_id": workspace_id,
                "seq": first + i,
                "type": EventType(kind),
                "data": data,
                "created_at": moment,
            }
            for job_id, workspace_id, first in rows
            for i, (kind, data) in enumerate(events)
        ],
    )
    for i, (kind, data) in enumerate(events):
        told = [
            (job_id, workspace_id, first + i) for job_id, workspace_id, first in rows
        ]
        webhooks.announce_ends(session, told, EventType(kind), data)


_EVENTS = Base.metadata.tables[Event.__tablename__]
"""Plain rows in place of objects: of thousands, that takes half the time."""
