"""The job state machine.

    queued -> running -> succeeded | failed
    running -> stopping (-> succeeded) | cancelling (-> cancelled)
    queued -> cancelled;  running -> queued (released, or its worker was lost)
    failed | cancelled -> queued (tried again)

Each move is one guarded UPDATE that reports whether it moved, together with the event
that tells of it. What an attempt writes carries its number, so that a worker which lost
its lease cannot publish. Nothing here commits: whoever opened the transaction does.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.moves import NewEvent, held_by, move, move_all, record, requeued
from app.jobs.naming import next_version
from app.jobs.pace import keep_pace
from app.observe import traces
from app.storage import blobs, db
from app.storage.enums import (
    HELD,
    EventType,
    FailureCode,
    JobStatus,
)
from app.storage.tables import Job, Report, TrainedModel, new_id

_UNCLAIMED: dict[str, Any] = {
    "phase": None,
    "lease_owner": None,
    "lease_expires_at": None,
}
_NO_CHECKPOINT: dict[str, Any] = {
    "checkpoint_sha256": None,
    "checkpoint_epoch": None,
    "checkpoint_attempt": None,
}
_CAN_END = (JobStatus.RUNNING, JobStatus.STOPPING)
"""Statuses in which an attempt may write its own end."""
_CAN_RETRY = (JobStatus.FAILED, JobStatus.CANCELLED)


def add(session: Session, job: Job) -> None:
    """A new job and its first events."""
    events: list[NewEvent] = [(EventType.QUEUED, {"queue": job.queue})]
    events += [(EventType.WARNING, {"detail": each}) for each in job.warnings or ()]
    job.event_seq = len(events)
    job.traceparent = traces.current_traceparent()
    session.add(job)
    session.flush()
    record(session, [(job.id, job.workspace_id, 1)], events)


def add_all(session: Session, many: Sequence[Job]) -> None:
    """New jobs of one queue."""
    if not many:
        return
    traceparent = traces.current_traceparent()
    for job in many:
        job.event_seq = 1
        job.traceparent = traceparent
    session.add_all(many)
    session.flush()
    rows = [(job.id, job.workspace_id, 1) for job in many]
    record(session, rows, [(EventType.QUEUED, {"queue": many[0].queue})])


# What a worker does with a job


def heartbeat(session: Session, job: Job, lease_seconds: float) -> JobStatus | None:
    """Renew the lease; the job's status, or None if it is lost."""
    expires_at = db.now(session) + timedelta(seconds=lease_seconds)
    status = session.scalar(
        sa.update(Job)
        .where(*held_by(job))
        .values(lease_expires_at=expires_at)
        .returning(Job.status)
        .execution_options(synchronize_session=False)
    )
    return status


def read_status(session: Session, job: Job) -> JobStatus | None:
    """The status of a job that is held, without writing; None if it is lost."""
    return session.scalar(sa.select(Job.status).where(*held_by(job)))


def report_progress(
    session: Session,
    job: Job,
    phase: str,
    progress: Mapping[str, Any],
    events: Sequence[NewEvent] = (),
) -> bool:
    return move(session, job, HELD, events, phase=phase, progress=dict(progress))


def keep_checkpoint(session: Session, job: Job, *, sha256: str, epoch: int) -> bool:
    """Put a stored checkpoint in the place of the one before."""
    before = session.scalar(sa.select(Job.checkpoint_sha256).where(Job.id == job.id))
    moved = move(
        session,
        job,
        HELD,
        [(EventType.CHECKPOINT, {"epoch": epoch})],
        checkpoint_sha256=sha256,
        checkpoint_epoch=epoch,
        checkpoint_attempt=job.attempt,
    )
    if moved and before is not None and before != sha256:
        blobs.remove_unused(session, job.workspace_id, before)
    return moved


def drop_checkpoint(session: Session, job: Job, reason: str) -> bool:
    """Forget the checkpoint that the attempt began with, and warn."""
    sha256 = job.checkpoint_sha256
    detail = f"the checkpoint was dropped, training starts: {reason}"
    moved = move_all(
        session,
        [*held_by(job), Job.checkpoint_sha256 == sha256],
        (EventType.WARNING, {"detail": detail}),
        **_NO_CHECKPOINT,
    )
    if moved and sha256 is not None:
        blobs.remove_unused(session, job.workspace_id, sha256)
    return moved > 0


def set_settings(session: Session, job: Job, settings: Mapping[str, Any]) -> bool:
    """What was drawn for a trial, before it is trained."""
    hyperparameters = {**job.config["hyperparameters"], **settings}
    config = {**job.config, "hyperparameters": hyperparameters}
    moved = move(session, job, HELD, (), config=config, settings=dict(settings))
    if moved:
        job.config, job.settings = config, dict(settings)
    return moved


def finish_measured(
    session: Session,
    job: Job,
    *,
    outcome: Mapping[str, Any],
    progress: Mapping[str, Any],
    weights_sha256: str | None,
) -> bool:
    """Succeed with an outcome and no model; the weights are kept if they are given."""
    before = session.scalar(sa.select(Job.checkpoint_sha256).where(Job.id == job.id))
    kept = {**_NO_CHECKPOINT, "checkpoint_sha256": weights_sha256}
    moved = _succeed(session, job, progress, {}, **kept, outcome=dict(outcome))
    if moved and before is not None:
        blobs.remove_unused(session, job.workspace_id, before)
    return moved


def finish(
    session: Session,
    job: Job,
    *,
    onnx_sha256: str,
    reports: Mapping[str, dict[str, Any]],
    progress: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
) -> bool:
    """Publish the model and its reports, and succeed, all or nothing.

    Args:
        metadata: that of the ONNX file, for whoever asks about the model.
    """
    # As they are now: people rename a job while it runs.
    checkpoint, name, tags = session.execute(
        sa.select(Job.checkpoint_sha256, Job.name, Job.tags).where(Job.id == job.id)
    ).one()
    model_id = new_id("mdl")
    about: dict[str, Any] = {"model_id": model_id}
    if not _succeed(session, job, progress, about, **_NO_CHECKPOINT):
        return False
    keep_pace(session, job, progress)
    session.add(
        TrainedModel(
            id=model_id,
            workspace_id=job.workspace_id,
            job_id=job.id,
            onnx_sha256=onnx_sha256,
            name=name,
            version=next_version(session, job.workspace_id, name),
            tags=tags,
            metrics=reports["report"]["scores"]["test"]["ensemble"],
            facts=None if metadata is None else dict(metadata),
        )
    )
    session.add_all(
        Report(job_id=job.id, kind=kind, workspace_id=job.workspace_id, body=body)
        for kind, body in reports.items()
    )
    if checkpoint is not None:
        blobs.remove_unused(session, job.workspace_id, checkpoint)
    return True


def _succeed(
    session: Session,
    job: Job,
    progress: Mapping[str, Any],
    about: Mapping[str, Any],
    **values: Any,
) -> bool:
    return move(
        session,
        job,
        _CAN_END,
        [(EventType.SUCCEEDED, dict(about))],
        **_UNCLAIMED,
        **values,
        status=JobStatus.SUCCEEDED,
        progress=dict(progress),
        error=None,
        finished_at=db.now(session),
    )


def fail(session: Session, job: Job, error: Mapping[str, Any]) -> bool:
    return move(
        session,
        job,
        _CAN_END,
        [(EventType.FAILED, dict(error))],
        **_UNCLAIMED,
        status=JobStatus.FAILED,
        error=dict(error),
        finished_at=db.now(session),
    )


def release(session: Session, job: Job) -> bool:
    """Give the job back in an orderly way; another worker takes it up."""
    events = [(EventType.RELEASED, {"attempt": job.attempt})]
    return move(
        session,
        job,
        _CAN_END,
        events,
        **_UNCLAIMED,
        **requeued(session),
    )


def end_cancelled(session: Session, job: Job) -> bool:
    """The child is gone: what was cancelling is cancelled."""
    return move(
        session,
        job,
        (JobStatus.CANCELLING,),
        [(EventType.CANCELLED, {})],
        **_UNCLAIMED,
        status=JobStatus.CANCELLED,
        finished_at=db.now(session),
    )


def lose(session: Session, job: Job, *, max_attempts: int, reason: str) -> bool:
    """The attempt died: back to the queue, or failed if it was one too many."""
    moved = _lose(session, held_by(job), max_attempts, reason)
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
    return moved


def _lose(
    session: Session,
    which: Sequence[sa.ColumnElement[bool]],
    max_attempts: int,
    reason: str,
) -> int:
    """End attempts that died. One that moved the checkpoint forward does not count."""
    moved_forward = sa.func.coalesce(Job.checkpoint_attempt, -1) == Job.attempt
    counted = Job.lost_attempts + sa.case((moved_forward, 0), else_=1)
    is_last = counted >= max_attempts
    is_cancelling = Job.status == JobStatus.CANCELLING
    error = {
        "code": FailureCode.WORKER_LOST,
        "detail": f"given up after {max_attempts} attempts: {reason}",
    }
    ended = {"finished_at": db.now(session)}
    moves: list[tuple[list[sa.ColumnElement[bool]], NewEvent, dict[str, Any]]] = [
        (
            [is_cancelling],
            (EventType.CANCELLED, {}),
            {"status": JobStatus.CANCELLED, **ended},
        ),
        (
            [is_last],
            (EventType.FAILED, error),
            {"status": JobStatus.FAILED, "error": error, **ended},
        ),
        ([], (EventType.LOST, {"reason": reason}), requeued(session)),
    ]
    return sum(
        move_all(
            session,
            [Job.status.in_(HELD), *which, *conditions],
            event,
            **_UNCLAIMED,
            **values,
            lost_attempts=counted,
        )
        for conditions, event, values in moves
    )


# What a caller asks of a job


def cancel(session: Session, job: Job) -> bool:
    """End the job and keep nothing: at once if it waits, else as its worker hears."""
    moved = cancel_all(session, [Job.id == job.id])
    return moved > 0


def cancel_all(session: Session, which: Sequence[sa.ColumnElement[bool]]) -> int:
    """The same with all those jobs."""
    return drop_queued(session, which) + move_all(
        session,
        [*which, Job.status.in_(_CAN_END)],
        (EventType.CANCELLING, {}),
        status=JobStatus.CANCELLING,
    )


def drop_queued(session: Session, which: Sequence[sa.ColumnElement[bool]]) -> int:
    """Cancel those jobs that no worker has begun."""
    return move_all(
        session,
        [*which, Job.status == JobStatus.QUEUED],
        (EventType.CANCELLED, {}),
        status=JobStatus.CANCELLED,
        finished_at=db.now(session),
    )


def stop(session: Session, job: Job) -> bool:
    """End training now, and keep the best epoch so far."""
    moved = stop_all(session, [Job.id == job.id])
    return moved > 0


def stop_all(session: Session, which: Sequence[sa.ColumnElement[bool]]) -> int:
    """The same with all those jobs that run."""
    return move_all(
        session,
        [*which, Job.status == JobStatus.RUNNING],
        (EventType.STOPPING, {}),
        status=JobStatus.STOPPING,
        is_stop_requested=True,
    )


def retry(session: Session, job: Job) -> bool:
    """Run a failed or cancelled job again, from its checkpoint if there is one."""
    about = {"queue": job.queue, "checkpoint_epoch": job.checkpoint_epoch}
    moved = retry_all(session, [Job.id == job.id], **about)
    return moved > 0


def retry_all(
    session: Session, which: Sequence[sa.ColumnElement[bool]], **about: Any
) -> int:
    """The same with all those jobs."""
    return move_all(
        session,
        [*which, Job.status.in_(_CAN_RETRY)],
        (EventType.QUEUED, about),
        **requeued(session),
        phase=None,
        error=None,
        finished_at=None,
        lost_attempts=0,
        is_stop_requested=False,
        is_reported=False,
    )


def drop_old_checkpoints(session: Session, *, kept_seconds: float) -> int:
    """Forget the checkpoints of jobs that ended long ago without success."""
    before = db.now(session) - timedelta(seconds=kept_seconds)
    rows = session.execute(
        sa.select(Job.id, Job.workspace_id, Job.checkpoint_sha256).where(
            Job.status.in_(_CAN_RETRY),
            Job.checkpoint_sha256.is_not(None),
            Job.finished_at < before,
        )
    ).all()
    for job_id, workspace_id, sha256 in rows:
        assert sha256 is not None
        session.execute(
            sa.update(Job)
            .where(Job.id == job_id, Job.checkpoint_sha256 == sha256)
            .values(**_NO_CHECKPOINT)
        )
        blobs.remove_unused(session, workspace_id, sha256)
    return len(rows)
