"""The queue, and the workers that serve it."""

import socket
from datetime import timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import TooManyQueuedJobs
from app.jobs.claims import waits
from app.settings import Settings
from app.storage import db, usage
from app.storage.enums import HELD, JobKind, JobStatus
from app.storage.tables import Job, Worker
from lometab import __version__
from lometab.machine import (
    count_cpus,
    count_machine,
    count_memory,
    count_useful_threads,
    find_machine,
)

_SHARE = 0.9  # of the memory, for a training process


class Share(NamedTuple):
    """How many workers, this one included, divide what there is."""

    on_machine: int = 1
    on_host: int = 1
    """In this container; on a machine without containers, all of them."""

    def divide(self, limit: int, machine: int) -> int:
        """The part of one worker: of its container's limit, and of the machine's."""
        return max(1, min(limit // self.on_host, machine // self.on_machine))


ALONE = Share()


def find_share(session: Session, *, heard_within: float) -> Share:
    """By the workers that live: each of them may have a job at the same time."""
    since = db.now(session) - timedelta(seconds=heard_within)
    hosts = session.scalars(
        sa.select(Worker.host).where(
            Worker.heartbeat_at >= since, Worker.machine == find_machine()
        )
    ).all()
    return Share(max(1, len(hosts)), max(1, hosts.count(socket.gethostname())))


def find_training_bytes(settings: Settings, share: Share = ALONE) -> int:
    """Memory that a training process may take on this machine."""
    if settings.max_training_bytes:
        return settings.max_training_bytes
    return int(_SHARE * share.divide(count_memory(), count_machine().memory))


def find_training_threads(
    settings: Settings, seconds_per_epoch: float | None = None, share: Share = ALONE
) -> int:
    """CPU threads of a training process on this machine: as many as help.

    Args:
        seconds_per_epoch: of one core, by the estimate.
    """
    if settings.training_threads:
        return settings.training_threads
    n_cpus = share.divide(count_cpus(), count_machine().cpus)
    if seconds_per_epoch is None:
        return n_cpus
    return count_useful_threads(n_cpus, seconds_per_epoch)


def has_queued(session: Session, queue: str) -> bool:
    """Whether any job waits for a worker; however many do, that is one look."""
    return bool(session.scalar(sa.select(sa.exists().where(*waits(queue)))))


def check_room(
    session: Session, workspace_id: str, n_new: int, settings: Settings
) -> None:
    """See that a workspace may have so many more queued jobs, and what they make.

    Requests at the same moment may each find room, and exceed the limit together by
    what they bring.
    """
    usage.check_bytes(session, settings, workspace_id, 0)
    usage.check_models(session, settings, workspace_id)
    limit = settings.for_workspace(workspace_id).max_queued_jobs
    n_queued = session.scalar(
        sa.select(sa.func.count())
        .select_from(Job)
        .where(
            Job.workspace_id == workspace_id,
            Job.status == JobStatus.QUEUED,
            Job.kind == JobKind.TRAIN,
        )
    )
    if (n_queued or 0) + n_new > limit:
        raise TooManyQueuedJobs(
            f"{n_queued} jobs of this workspace are queued and {n_new} would come to "
            f"them, where the limit is {limit}; wait until some have run, or cancel "
            "some",
            headers={"Retry-After": "60"},
        )


def heartbeat_worker(
    session: Session,
    *,
    worker_id: str,
    queue: str,
    workspace_id: str,
    memory_bytes: int | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> None:
    """Say that a worker of this machine lives, and what a training process has."""
    values = {
        "heartbeat_at": db.now(session),
        "memory_bytes": memory_bytes,
        "threads": threads,
        "host": socket.gethostname()[:100],
        "machine": find_machine(),
        "device": device,
        "version": __version__,
    }
    is_new = db.insert_unless_exists(
        session,
        Worker,
        id=worker_id,
        workspace_id=workspace_id,
        queue=queue,
        **values,
    )
    if not is_new:
        session.execute(
            sa.update(Worker).where(Worker.id == worker_id).values(**values)
        )


def forget_worker(session: Session, worker_id: str) -> None:
    session.execute(sa.delete(Worker).where(Worker.id == worker_id))


def forget_dead_workers(session: Session, *, silent_for: float) -> int:
    """Remove the rows of workers that nobody has heard of for long; how many."""
    before = db.now(session) - timedelta(seconds=silent_for)
    result = session.execute(sa.delete(Worker).where(Worker.heartbeat_at < before))
    return int(result.rowcount)  # type: ignore[attr-defined]


def count_workers(session: Session, queue: str, *, heard_within: float) -> int:
    """How many workers of a queue have sent a heartbeat lately."""
    alive = lives(session, queue, heard_within)
    count = session.scalar(sa.select(sa.func.count()).select_from(Worker).where(alive))
    return count or 0


def list_workers(
    session: Session, *, heard_within: float
) -> list[tuple[Worker, list[tuple[str, str]]]]:
    """The workers that live, each with the ids and workspaces of the jobs it holds."""
    since = db.now(session) - timedelta(seconds=heard_within)
    alive = session.scalars(
        sa.select(Worker).where(Worker.heartbeat_at >= since).order_by(Worker.id)
    ).all()
    held: dict[str, list[tuple[str, str]]] = {worker.id: [] for worker in alive}
    for owner, id_, workspace_id in session.execute(
        sa.select(Job.lease_owner, Job.id, Job.workspace_id)
        .where(Job.status.in_(HELD), Job.lease_owner.in_(held))
        .order_by(Job.id)
    ):
        held[str(owner)].append((id_, workspace_id))
    return [(worker, held[worker.id]) for worker in alive]


def find_largest_memory(
    session: Session, queue: str, *, heard_within: float
) -> float | None:
    """What a training process may take on the largest of the workers that live.

    Infinite if one of them does not tell; None if there is none.
    """
    alive = lives(session, queue, heard_within)
    found = session.scalars(sa.select(Worker.memory_bytes).where(alive)).all()
    return max((float("inf") if n is None else n for n in found), default=None)


def lives(session: Session, queue: str, heard_within: float) -> sa.ColumnElement[bool]:
    """Whether a worker of a queue has been heard of lately."""
    since = db.now(session) - timedelta(seconds=heard_within)
    return sa.and_(Worker.queue == queue, Worker.heartbeat_at >= since)
