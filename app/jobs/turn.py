"""When a queued job begins: its place in the queue, and a guess at the time."""

from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.workers import count_workers
from app.storage import db
from app.storage.enums import JobKind, JobStatus
from app.storage.tables import Job

_N_RECENT = 20


class Turn(NamedTuple):
    place: int
    """1: the next one that a worker of its queue takes."""
    begins_at: datetime | None
    """By how long the last jobs of the workspace took; None if there are none, or no
    worker lives."""


def find_turn(session: Session, job: Job, *, heard_within: float) -> Turn:
    """The turn of a job that is queued.

    Workspaces take turns, so that of each other one as many come first as of its own,
    if it has so many.
    """
    place = _count_before(session, job) + 1
    waits = (
        sa.select(sa.func.count().label("n"))
        .where(
            Job.status == JobStatus.QUEUED,
            Job.queue == job.queue,
            Job.kind == JobKind.TRAIN,
            Job.workspace_id != job.workspace_id,
        )
        .group_by(Job.workspace_id)
        .subquery()
    )
    least = sa.case((waits.c.n < place, waits.c.n), else_=place)
    n_others = session.scalar(sa.select(sa.func.coalesce(sa.func.sum(least), 0)))
    place += int(n_others or 0)
    n_workers = count_workers(session, job.queue, heard_within=heard_within)
    seconds = _find_usual_seconds(session, job)
    if not n_workers or seconds is None:
        return Turn(place, None)
    rounds = place / n_workers
    return Turn(place, db.now(session) + timedelta(seconds=rounds * seconds))


def _count_before(session: Session, job: Job) -> int:
    """Jobs of its workspace that are claimed before it: see app.jobs.claims."""
    waits = [
        Job.status == JobStatus.QUEUED,
        Job.queue == job.queue,
        Job.kind == JobKind.TRAIN,
        Job.workspace_id == job.workspace_id,
    ]
    is_older = sa.tuple_(Job.created_at, Job.id) < sa.tuple_(
        sa.literal(job.created_at, Job.created_at.type), sa.literal(job.id)
    )
    is_alone = Job.parent_id.is_(None)
    if job.parent_id is None:
        before: sa.ColumnElement[bool] = sa.and_(is_alone, is_older)
    else:
        position = job.position or 0
        is_sibling = sa.and_(Job.parent_id == job.parent_id, Job.position < position)
        is_of_older = sa.and_(Job.parent_id != job.parent_id, is_older)
        before = sa.or_(is_alone, is_sibling, is_of_older)
    count = session.scalar(
        sa.select(sa.func.count()).select_from(Job).where(*waits, before)
    )
    return count or 0


def _find_usual_seconds(session: Session, job: Job) -> float | None:
    """How long the last jobs of the workspace took."""
    rows = session.execute(
        sa.select(Job.started_at, Job.finished_at)
        .where(
            Job.workspace_id == job.workspace_id,
            Job.status == JobStatus.SUCCEEDED,
            Job.kind == JobKind.TRAIN,
            Job.queue == job.queue,
        )
        .order_by(Job.created_at.desc(), Job.id.desc())
        .limit(_N_RECENT)
    )
    took = [
        (finished_at - started_at).total_seconds()
        for started_at, finished_at in rows
        if started_at is not None and finished_at is not None
    ]
    return sum(took) / len(took) if took else None
