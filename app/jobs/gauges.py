"""What is true of all jobs, workers and stored bytes at the moment, for operators."""

from collections.abc import Iterator
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.observe import Gauge
from app.storage import db
from app.storage.enums import HELD, JobKind, JobStatus, Queue
from app.storage.tables import Attempt, Blob, Job, Worker


def read_gauges(session: Session, *, heard_within: float) -> Iterator[Gauge]:
    """Numbers of the whole service, whatever workspace they are of."""
    now = db.now(session)
    # A job may have run before: since it came back, not since it was made.
    since = sa.func.coalesce(Job.queued_at, Job.created_at)
    waiting = {
        queue: (n, oldest)
        for queue, n, oldest in session.execute(
            sa.select(Job.queue, sa.func.count(), sa.func.min(since))
            .where(Job.status == JobStatus.QUEUED, Job.kind == JobKind.TRAIN)
            .group_by(Job.queue)
        )
    }
    ages = []
    for queue in Queue:
        _, oldest = waiting.get(queue, (0, None))
        age = 0.0 if oldest is None else (now - oldest).total_seconds()
        ages.append(((queue.value,), max(0.0, age)))
    depths = [((queue.value,), float(waiting.get(queue, (0,))[0])) for queue in Queue]
    yield Gauge("lometab_queue_jobs", "Jobs that wait.", ("queue",), depths)
    yield Gauge(
        "lometab_queue_age_seconds",
        "How long the first of them has waited.",
        ("queue",),
        ages,
    )
    counted = session.execute(
        sa.select(Job.status, Job.kind, sa.func.count()).group_by(Job.status, Job.kind)
    )
    by_state = {(status, kind): float(n) for status, kind, n in counted}
    yield Gauge(
        "lometab_jobs",
        "Jobs that are stored, by status and kind.",
        ("status", "kind"),
        [
            ((status.value, kind.value), by_state.get((status, kind), 0.0))
            for status in JobStatus
            for kind in JobKind
        ],
    )
    n_attempts = session.scalar(sa.select(sa.func.count()).select_from(Attempt))
    yield Gauge(
        "lometab_attempts",
        "Attempts at the jobs that are stored.",
        (),
        [((), float(n_attempts or 0))],
    )
    heard_since = now - timedelta(seconds=heard_within)
    beating = session.execute(
        sa.select(Worker.queue, sa.func.count())
        .where(Worker.heartbeat_at >= heard_since)
        .group_by(Worker.queue)
    )
    alive = {queue: n for queue, n in beating}
    yield Gauge(
        "lometab_workers",
        "Workers that are alive.",
        ("queue",),
        [((queue.value,), float(alive.get(queue, 0))) for queue in Queue],
    )
    held = session.execute(
        sa.select(Job.queue, sa.func.count())
        .where(Job.status.in_(HELD), Job.kind == JobKind.TRAIN)
        .group_by(Job.queue)
    )
    busy = {queue: n for queue, n in held}
    yield Gauge(
        "lometab_busy_workers",
        "Workers that have a job.",
        ("queue",),
        [((queue.value,), float(busy.get(queue, 0))) for queue in Queue],
    )
    n_bytes = session.scalar(sa.select(sa.func.sum(Blob.size)))
    yield Gauge(
        "lometab_blob_bytes",
        "Bytes of tables, models and checkpoints.",
        (),
        [((), float(n_bytes or 0))],
    )
