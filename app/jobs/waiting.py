"""Why a job waits: how many are before it, and when its turn comes at the latest."""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.jobs.claims import list_by_turn, waits
from app.jobs.workers import lives
from app.storage.enums import HELD, Queue
from app.storage.tables import Job, Worker

MAX_WAITING = 500
"""Queued jobs of a workspace that are told of, the next ones first."""
_MAX_STEPS = 20_000  # of the look ahead
_SAMPLE = 50  # jobs of others, for how long one takes


@dataclass(frozen=True)
class Waiting:
    """A queued job, and what is before it."""

    job_id: str
    queue: Queue
    ahead: int
    """Jobs that begin before it, those of other workspaces included."""
    n_workers: int
    starts_in_seconds: float | None
    """If every run goes on to its last epoch; None if nobody can tell."""

    @property
    def why(self) -> str:
        if not self.n_workers:
            return f"no worker of the queue '{self.queue}' is heard of"
        if self.ahead:
            return f"{self.ahead} other job{'s' * (self.ahead > 1)} will begin before"
        return "it is the next one" if self.starts_in_seconds else "a worker is free"


def list_waiting(
    session: Session, workspace_id: str, *, heard_within: float
) -> list[Waiting]:
    """The queued jobs of a workspace in the order in which they will begin."""
    return [
        each
        for queue in Queue
        for each in _look_ahead(session, queue, workspace_id, heard_within)
    ]


def find_waiting(session: Session, job: Job, *, heard_within: float) -> Waiting | None:
    """The same of one job; None for the row of a sweep, and beyond the first 500."""
    found = _look_ahead(session, job.queue, job.workspace_id, heard_within)
    return next((each for each in found if each.job_id == job.id), None)


def _look_ahead(
    session: Session, queue: Queue, workspace_id: str, heard_within: float
) -> Iterator[Waiting]:
    own = _list_own(session, queue, workspace_id)
    if not own:
        return
    turns = list_by_turn(session, queue)
    counts = _count_others(session, queue, workspace_id)
    before = {*turns[: turns.index(workspace_id)]} if workspace_id in turns else set()
    typical = _find_typical(session, queue, workspace_id) if counts else 0.0
    free = _list_free(session, queue, heard_within)
    n_workers, n_done = len(free), 0
    for i, (job_id, seconds) in enumerate(own):
        # Workspaces take turns: in each round, every one of them has a job begun.
        others = sum(min(n, i + (whose in before)) for whose, n in counts.items())
        is_known = bool(free) and i + others <= _MAX_STEPS
        if is_known:
            for _ in range(others - n_done):
                heapq.heapreplace(free, free[0] + typical)
            n_done = others
        yield Waiting(
            job_id=job_id,
            queue=queue,
            ahead=i + others,
            n_workers=n_workers,
            starts_in_seconds=round(free[0], 1) if is_known else None,
        )
        if is_known:
            heapq.heapreplace(free, free[0] + seconds)


def _list_own(
    session: Session, queue: Queue, workspace_id: str
) -> list[tuple[str, float]]:
    """As `claim` takes them: jobs on their own, then the runs of parents."""
    parent = aliased(Job)
    rows = session.execute(
        sa.select(Job.id, Job.estimate)
        .outerjoin(parent, parent.id == Job.parent_id)
        .where(*waits(queue, workspace_id))
        .order_by(Job.parent_id.is_not(None), parent.created_at, parent.id)
        .order_by(Job.position, Job.created_at, Job.id)
        .limit(MAX_WAITING)
    )
    return [(id_, _read_seconds(estimate)) for id_, estimate in rows]


def _read_seconds(estimate: Mapping[str, Any]) -> float:
    return estimate.get("max_seconds") or 0.0


def _count_others(session: Session, queue: Queue, workspace_id: str) -> dict[str, int]:
    rows = session.execute(
        sa.select(Job.workspace_id, sa.func.count())
        .where(*waits(queue), Job.workspace_id != workspace_id)
        .group_by(Job.workspace_id)
    )
    return {whose: n for whose, n in rows}


def _find_typical(session: Session, queue: Queue, workspace_id: str) -> float:
    """How long a job of somebody else takes."""
    found = session.scalars(
        sa.select(Job.estimate)
        .where(*waits(queue), Job.workspace_id != workspace_id)
        .limit(_SAMPLE)
    )
    return median([_read_seconds(each) for each in found] or [0.0])


def _list_free(session: Session, queue: Queue, heard_within: float) -> list[float]:
    """Seconds until each worker that lives has done what it holds, as a heap."""
    alive = session.scalars(
        sa.select(Worker.id).where(lives(session, queue, heard_within))
    )
    rest = dict.fromkeys(alive, 0.0)
    held = session.execute(
        sa.select(Job.lease_owner, Job.progress, Job.estimate).where(
            Job.status.in_(HELD), Job.lease_owner.in_(rest)
        )
    )
    for owner, progress, estimate in held:
        left = progress.get("eta_seconds")
        rest[owner] += _read_seconds(estimate) if left is None else left
    return sorted(rest.values())
