"""The job state machine.

    queued -> running -> succeeded | failed
    running -> queued    (released, or its worker was lost)

Each move is one guarded UPDATE that reports whether it moved. What an attempt writes
carries its number, so that a worker which lost its lease cannot publish.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db
from app.models import Job, Report, TrainedModel, Worker, new_id

_UNCLAIMED: dict[str, Any] = {
    "phase": None,
    "lease_owner": None,
    "lease_expires_at": None,
}


def claim(
    session: Session,
    *,
    queue: str,
    owner: str,
    lease_seconds: float,
    job_id: str | None = None,
) -> Job | None:
    """Take the job if it is queued, else the oldest queued one, if there is any."""
    oldest = (
        sa.select(Job.id)
        .where(Job.status == "queued", Job.queue == queue)
        .order_by(Job.id != job_id, Job.created_at, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    moment = db.now(session)
    job = session.scalar(
        sa.update(Job)
        .where(Job.id == oldest, Job.status == "queued")
        .values(
            status="running",
            phase="preparing",
            attempt=Job.attempt + 1,
            lease_owner=owner,
            lease_expires_at=moment + timedelta(seconds=lease_seconds),
            started_at=sa.func.coalesce(Job.started_at, moment),
        )
        .returning(Job)
    )
    session.commit()
    return job


def beat(session: Session, job: Job, lease_seconds: float) -> bool:
    """Renew the lease; False if it is lost."""
    expires_at = db.now(session) + timedelta(seconds=lease_seconds)
    return _update(session, job, lease_expires_at=expires_at)


def report_progress(
    session: Session, job: Job, phase: str, progress: Mapping[str, Any]
) -> bool:
    return _update(session, job, phase=phase, progress=dict(progress))


def finish(
    session: Session,
    job: Job,
    *,
    onnx_sha256: str,
    reports: Mapping[str, dict[str, Any]],
    progress: Mapping[str, Any],
) -> bool:
    """Publish the model and its reports, and succeed, in one commit."""
    moment = db.now(session)
    values = {"status": "succeeded", "progress": dict(progress), "error": None}
    if not _guard(session, job, **_UNCLAIMED, **values, finished_at=moment):
        return False
    session.add(
        TrainedModel(
            id=new_id("mdl"),
            workspace_id=job.workspace_id,
            job_id=job.id,
            onnx_sha256=onnx_sha256,
            name=job.name,
            version=_next_version(session, job),
            metrics=reports["report"]["scores"]["test"]["ensemble"],
        )
    )
    session.add_all(
        Report(job_id=job.id, kind=kind, workspace_id=job.workspace_id, body=body)
        for kind, body in reports.items()
    )
    session.commit()
    return True


def _next_version(session: Session, job: Job) -> int | None:
    if job.name is None:
        return None
    newest = session.scalar(
        sa.select(sa.func.max(TrainedModel.version)).where(
            TrainedModel.workspace_id == job.workspace_id,
            TrainedModel.name == job.name,
        )
    )
    return (newest or 0) + 1


def fail(session: Session, job: Job, error: Mapping[str, Any]) -> bool:
    return _update(
        session,
        job,
        **_UNCLAIMED,
        status="failed",
        error=dict(error),
        finished_at=db.now(session),
    )


def release(session: Session, job: Job) -> bool:
    """Give the job back in an orderly way; another worker takes it up."""
    return _update(session, job, **_UNCLAIMED, status="queued")


def lose(session: Session, job: Job, *, max_attempts: int, reason: str) -> bool:
    """The attempt died: back to the queue, or failed if it was one too many."""
    moved = _lose(
        session, [Job.id == job.id, Job.attempt == job.attempt], max_attempts, reason
    )
    session.commit()
    return moved > 0


def requeue_stalled(session: Session, *, max_attempts: int) -> int:
    """Take jobs back from workers that let their lease run out; how many there were.

    Anyone may run it at any time.
    """
    moved = _lose(
        session,
        [Job.lease_expires_at < db.now(session)],
        max_attempts,
        "its worker was not heard of any more",
    )
    session.commit()
    return moved


def count_queued(session: Session, queue: str) -> int:
    count = session.scalar(
        sa.select(sa.func.count())
        .select_from(Job)
        .where(Job.status == "queued", Job.queue == queue)
    )
    return count or 0


def beat_worker(
    session: Session, *, worker_id: str, queue: str, workspace_id: str
) -> None:
    """Say that a worker lives."""
    moment = db.now(session)
    is_new = db.insert_unless_exists(
        session,
        Worker,
        id=worker_id,
        workspace_id=workspace_id,
        queue=queue,
        beat_at=moment,
    )
    if not is_new:
        session.execute(
            sa.update(Worker).where(Worker.id == worker_id).values(beat_at=moment)
        )
    session.commit()


def forget_worker(session: Session, worker_id: str) -> None:
    session.execute(sa.delete(Worker).where(Worker.id == worker_id))
    session.commit()


def count_workers(session: Session, queue: str, *, heard_within: float) -> int:
    """How many workers of a queue have beaten lately."""
    since = db.now(session) - timedelta(seconds=heard_within)
    count = session.scalar(
        sa.select(sa.func.count())
        .select_from(Worker)
        .where(Worker.queue == queue, Worker.beat_at >= since)
    )
    return count or 0


def _update(session: Session, job: Job, **values: Any) -> bool:
    """Write as the job's attempt, and commit; False if it holds the job no more."""
    moved = _guard(session, job, **values)
    session.commit()
    return moved


def _guard(session: Session, job: Job, **values: Any) -> bool:
    """Write as the job's attempt; False, and nothing written, if it lost the job."""
    result = session.execute(
        sa.update(Job)
        .where(Job.id == job.id, Job.attempt == job.attempt, Job.status == "running")
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]


def _lose(
    session: Session,
    which: Sequence[sa.ColumnElement[bool]],
    max_attempts: int,
    reason: str,
) -> int:
    is_last = Job.lost_attempts + 1 >= max_attempts
    error = {
        "code": "worker_lost",
        "message": f"given up after {max_attempts} attempts: {reason}",
    }
    moved = 0
    for condition, values in (
        (
            is_last,
            {"status": "failed", "error": error, "finished_at": db.now(session)},
        ),
        (sa.not_(is_last), {"status": "queued"}),
    ):
        result = session.execute(
            sa.update(Job)
            .where(Job.status == "running", *which, condition)
            .values(**_UNCLAIMED, lost_attempts=Job.lost_attempts + 1, **values)
            .execution_options(synchronize_session=False)
        )
        moved += result.rowcount  # type: ignore[attr-defined]
    return moved
