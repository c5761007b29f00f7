"""The job state machine.

    queued -> running -> succeeded | failed
    running -> stopping (-> succeeded) | cancelling (-> cancelled)
    queued -> cancelled;  running -> queued (released, or its worker was lost)
    failed | cancelled -> queued (tried again)

Each move is one guarded UPDATE that reports whether it moved, together with the event
that tells of it. What an attempt writes carries its number, so that a worker which lost
its lease cannot publish.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import blobs, db
from app.models import HELD, Attempt, Event, Job, Report, TrainedModel, Worker, new_id

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
Happening = tuple[str, dict[str, Any]]
"""The type and the data of an event."""


def add(session: Session, job: Job, warnings: Sequence[str] = ()) -> None:
    """A new job and its first events; the caller commits."""
    happenings: list[Happening] = [("queued", {"queue": job.queue})]
    happenings += [("warning", {"detail": warning}) for warning in warnings]
    job.event_seq = len(happenings)
    session.add(job)
    session.flush()
    _record(session, [(job.id, job.workspace_id, 1)], happenings)


def add_all(session: Session, many: Sequence[Job]) -> None:
    """New jobs of one queue; the caller commits."""
    if not many:
        return
    for job in many:
        job.event_seq = 1
    session.add_all(many)
    session.flush()
    rows = [(job.id, job.workspace_id, 1) for job in many]
    _record(session, rows, [("queued", {"queue": many[0].queue})])


# What a worker does with a job


def claim(
    session: Session,
    *,
    queue: str,
    owner: str,
    lease_seconds: float,
    job_id: str | None = None,
) -> Job | None:
    """Take the job if it is queued, else the oldest queued one, if there is any.

    Jobs on their own come before the cells of sweeps, of which there may be thousands.
    """
    is_cell = Job.parent_id.is_not(None)
    oldest = (
        sa.select(Job.id)
        .where(Job.status == "queued", Job.queue == queue, Job.kind == "train")
        .order_by(Job.id != job_id, is_cell, Job.created_at, Job.position, Job.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    moment = db.now(session)
    job = session.scalar(
        sa.update(Job)
        .where(Job.id == oldest, Job.status == "queued")
        .values(
            status=sa.case((Job.is_stop_wished, "stopping"), else_="running"),
            phase="preparing",
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
        happening = ("running", {"attempt": job.attempt, "worker": owner})
        row = (job.id, job.workspace_id, job.event_seq)
        _record(session, [row], [happening])
    session.commit()
    return job


def beat(session: Session, job: Job, lease_seconds: float) -> str | None:
    """Renew the lease; the job's status, or None if it is lost."""
    expires_at = db.now(session) + timedelta(seconds=lease_seconds)
    status = session.scalar(
        sa.update(Job)
        .where(*_mine(job))
        .values(lease_expires_at=expires_at)
        .returning(Job.status)
        .execution_options(synchronize_session=False)
    )
    session.commit()
    return status


def read_wish(session: Session, job: Job) -> str | None:
    """The status of a job that is held, without writing; None if it is lost."""
    return session.scalar(sa.select(Job.status).where(*_mine(job)))


def report_progress(
    session: Session,
    job: Job,
    phase: str,
    progress: Mapping[str, Any],
    happenings: Sequence[Happening] = (),
) -> bool:
    return _move(session, job, HELD, happenings, phase=phase, progress=dict(progress))


def keep_checkpoint(session: Session, job: Job, *, sha256: str, epoch: int) -> bool:
    """Put a stored checkpoint in the place of the one before."""
    before = session.scalar(sa.select(Job.checkpoint_sha256).where(Job.id == job.id))
    moved = _guard(
        session,
        job,
        HELD,
        [("checkpoint", {"epoch": epoch})],
        checkpoint_sha256=sha256,
        checkpoint_epoch=epoch,
        checkpoint_attempt=job.attempt,
    )
    if moved and before is not None and before != sha256:
        blobs.remove_unused(session, job.workspace_id, before)
    session.commit()
    return moved


def set_hyperparameters(
    session: Session, job: Job, hyperparameters: Mapping[str, Any]
) -> bool:
    """What was drawn for a trial, before it is trained."""
    config = {
        **job.config,
        "hyperparameters": dict(hyperparameters),
        "trial_of": {**job.config["trial_of"], "is_drawn": True},
    }
    moved = _move(session, job, HELD, (), config=config)
    if moved:
        job.config = config
    return moved


def finish_cell(
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
    session.commit()
    return moved


def finish(
    session: Session,
    job: Job,
    *,
    onnx_sha256: str,
    reports: Mapping[str, dict[str, Any]],
    progress: Mapping[str, Any],
) -> bool:
    """Publish the model and its reports, and succeed, in one commit."""
    checkpoint = session.scalar(
        sa.select(Job.checkpoint_sha256).where(Job.id == job.id)
    )
    model_id = new_id("mdl")
    about: dict[str, Any] = {"model_id": model_id}
    if not _succeed(session, job, progress, about, **_NO_CHECKPOINT):
        session.commit()
        return False
    session.add(
        TrainedModel(
            id=model_id,
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
    if checkpoint is not None:
        blobs.remove_unused(session, job.workspace_id, checkpoint)
    session.commit()
    return True


def _succeed(
    session: Session,
    job: Job,
    progress: Mapping[str, Any],
    about: Mapping[str, Any],
    **values: Any,
) -> bool:
    return _guard(
        session,
        job,
        ("running", "stopping"),
        [("succeeded", dict(about))],
        **_UNCLAIMED,
        **values,
        status="succeeded",
        progress=dict(progress),
        error=None,
        finished_at=db.now(session),
    )


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
    return _move(
        session,
        job,
        ("running", "stopping"),
        [("failed", dict(error))],
        **_UNCLAIMED,
        status="failed",
        error=dict(error),
        finished_at=db.now(session),
    )


def release(session: Session, job: Job) -> bool:
    """Give the job back in an orderly way; another worker takes it up."""
    happenings = [("released", {"attempt": job.attempt})]
    return _move(
        session,
        job,
        ("running", "stopping"),
        happenings,
        **_UNCLAIMED,
        status="queued",
    )


def end_cancelled(session: Session, job: Job) -> bool:
    """The child is gone: what was cancelling is cancelled."""
    return _move(
        session,
        job,
        ("cancelling",),
        [("cancelled", {})],
        **_UNCLAIMED,
        status="cancelled",
        finished_at=db.now(session),
    )


def lose(session: Session, job: Job, *, max_attempts: int, reason: str) -> bool:
    """The attempt died: back to the queue, or failed if it was one too many."""
    moved = _lose(session, _mine(job), max_attempts, reason)
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
    is_cancelling = Job.status == "cancelling"
    error = {
        "code": "worker_lost",
        "detail": f"given up after {max_attempts} attempts: {reason}",
    }
    ended = {"finished_at": db.now(session)}
    moves: list[tuple[list[sa.ColumnElement[bool]], Happening, dict[str, Any]]] = [
        ([is_cancelling], ("cancelled", {}), {"status": "cancelled", **ended}),
        ([is_last], ("failed", error), {"status": "failed", "error": error, **ended}),
        ([], ("lost", {"reason": reason}), {"status": "queued"}),
    ]
    return sum(
        move_all(
            session,
            [Job.status.in_(HELD), *which, *conditions],
            happening,
            **_UNCLAIMED,
            **values,
            lost_attempts=counted,
        )
        for conditions, happening, values in moves
    )


# What a caller asks of a job


def cancel(session: Session, job: Job) -> bool:
    """End the job and keep nothing: at once if it waits, else as its worker hears."""
    moved = cancel_all(session, [Job.id == job.id])
    session.commit()
    return moved > 0


def cancel_all(session: Session, which: Sequence[sa.ColumnElement[bool]]) -> int:
    """The same with all those jobs; the caller commits."""
    return drop_queued(session, which) + move_all(
        session,
        [*which, Job.status.in_(("running", "stopping"))],
        ("cancelling", {}),
        status="cancelling",
    )


def drop_queued(session: Session, which: Sequence[sa.ColumnElement[bool]]) -> int:
    """Cancel those jobs that no worker has begun; the caller commits."""
    return move_all(
        session,
        [*which, Job.status == "queued"],
        ("cancelled", {}),
        status="cancelled",
        finished_at=db.now(session),
    )


def stop(session: Session, job: Job) -> bool:
    """End training now, and keep the best epoch so far."""
    moved = stop_all(session, [Job.id == job.id])
    session.commit()
    return moved > 0


def stop_all(session: Session, which: Sequence[sa.ColumnElement[bool]]) -> int:
    """The same with all those jobs that run; the caller commits."""
    return move_all(
        session,
        [*which, Job.status == "running"],
        ("stopping", {}),
        status="stopping",
        is_stop_wished=True,
    )


def retry(session: Session, job: Job) -> bool:
    """Run a failed or cancelled job again, from its checkpoint if there is one."""
    about = {"queue": job.queue, "checkpoint_epoch": job.checkpoint_epoch}
    moved = retry_all(session, [Job.id == job.id], **about)
    session.commit()
    return moved > 0


def retry_all(
    session: Session, which: Sequence[sa.ColumnElement[bool]], **about: Any
) -> int:
    """The same with all those jobs; the caller commits."""
    return move_all(
        session,
        [*which, Job.status.in_(("failed", "cancelled"))],
        ("queued", about),
        status="queued",
        phase=None,
        error=None,
        finished_at=None,
        lost_attempts=0,
        is_stop_wished=False,
    )


def drop_old_checkpoints(session: Session, *, kept_seconds: float) -> int:
    """Forget the checkpoints of jobs that ended long ago without success."""
    before = db.now(session) - timedelta(seconds=kept_seconds)
    rows = session.execute(
        sa.select(Job.id, Job.workspace_id, Job.checkpoint_sha256).where(
            Job.status.in_(("failed", "cancelled")),
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
    session.commit()
    return len(rows)


# The queue and who serves it


def count_queued(session: Session, queue: str) -> int:
    count = session.scalar(
        sa.select(sa.func.count())
        .select_from(Job)
        .where(Job.status == "queued", Job.queue == queue, Job.kind == "train")
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


# The guarded UPDATE and its events


def _mine(job: Job) -> list[sa.ColumnElement[bool]]:
    """The condition that an attempt still holds its job."""
    return [Job.id == job.id, Job.attempt == job.attempt, Job.status.in_(HELD)]


def _move(
    session: Session,
    job: Job,
    statuses: Sequence[str],
    happenings: Sequence[Happening],
    **values: Any,
) -> bool:
    """Write as the job's attempt, and commit; False if it may do so no more."""
    moved = _guard(session, job, statuses, happenings, **values)
    session.commit()
    return moved


def _guard(
    session: Session,
    job: Job,
    statuses: Sequence[str],
    happenings: Sequence[Happening],
    **values: Any,
) -> bool:
    """Write as the job's attempt; False, and nothing written, if it may not."""
    conditions = [*_mine(job), Job.status.in_(statuses)]
    return _write(session, job, conditions, happenings, **values)


def move_all(
    session: Session,
    which: Sequence[sa.ColumnElement[bool]],
    happening: Happening,
    **values: Any,
) -> int:
    """Write all those jobs, whoever holds them; how many. The caller commits."""
    rows = session.execute(
        sa.update(Job)
        .where(*which)
        .values(**values, event_seq=Job.event_seq + 1)
        .returning(Job.id, Job.workspace_id, Job.event_seq)
        .execution_options(synchronize_session=False)
    ).all()
    _record(session, [(job, place, seq) for job, place, seq in rows], [happening])
    return len(rows)


def _write(
    session: Session,
    job: Job,
    conditions: Sequence[sa.ColumnElement[bool]],
    happenings: Sequence[Happening],
    **values: Any,
) -> bool:
    seq = session.scalar(
        sa.update(Job)
        .where(*conditions)
        .values(**values, event_seq=Job.event_seq + len(happenings))
        .returning(Job.event_seq)
        .execution_options(synchronize_session=False)
    )
    if seq is None:
        return False
    first = seq - len(happenings) + 1
    _record(session, [(job.id, job.workspace_id, first)], happenings)
    return True


def _record(
    session: Session,
    rows: Sequence[tuple[str, str, int]],
    happenings: Sequence[Happening],
) -> None:
    """The same events of each of the jobs, in the transaction that took the numbers.

    Args:
        rows: the id, the workspace and the number of the first event.
    """
    if not rows or not happenings:
        return
    moment = db.now(session)
    session.execute(
        sa.insert(Event),
        [
            {
                "job_id": job_id,
                "workspace_id": workspace_id,
                "seq": first + i,
                "type": kind,
                "data": data,
                "created_at": moment,
            }
            for job_id, workspace_id, first in rows
            for i, (kind, data) in enumerate(happenings)
        ],
    )
