"""Jobs that are run by their children: sweeps by their cells, tune jobs by trials,
predictions by their chunks.

The children are ordinary jobs that workers claim. A parent is held by no worker:
it begins with its first child, follows them, and ends with the last one. Nobody has to
be there for that: every worker tells the parent when a child of it has ended, and the
reaper brings every parent in line, whatever was missed.

A parent's row and its children's rows are never locked in one transaction in the order
child, parent: whoever writes both locks the parent first. Nothing here commits.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import WrongJobKind
from app.jobs import predictions, states, tune
from app.jobs.budget import find_deadline
from app.jobs.moves import NewEvent, move_all, requeued, write
from app.storage import db
from app.storage.enums import (
    FINISHED,
    PARENTS,
    RUNS,
    EventType,
    FailureCode,
    JobKind,
    JobPhase,
    JobRole,
    JobStatus,
)
from app.storage.tables import Job
from lometab.evaluation import Outcome

LEASE_OWNER = "its children"
"""Of a running parent; this lease never runs out."""


def add(session: Session, parent: Job, children: Sequence[Job]) -> None:
    """A new parent with its children."""
    states.add(session, parent)
    states.add_all(session, children)


def begin_parent(session: Session, parent_id: str) -> None:
    """A child has been claimed: the first one begins the parent."""
    first_phase = sa.case(
        (Job.kind == JobKind.TUNE, JobPhase.SEARCHING.value),
        (Job.kind == JobKind.PREDICT, JobPhase.PREDICTING.value),
        else_=None,
    )
    move_all(
        session,
        [Job.id == parent_id, Job.status == JobStatus.QUEUED],
        (EventType.RUNNING, {}),
        status=JobStatus.RUNNING,
        phase=sa.func.coalesce(Job.phase, first_phase),
        lease_owner=LEASE_OWNER,
        started_at=sa.func.coalesce(Job.started_at, db.now(session)),
    )


def follow(session: Session, child: Job) -> list[Job]:
    """A child may have ended: say so, and end the parent after the last one.

    Returns: the jobs that were made of it and now wait for a worker.
    """
    parent = _lock_open(session, child.parent_id)
    return [] if parent is None else _settle(session, parent)


def list_open(session: Session) -> Sequence[str]:
    """The ids of parents that have not ended."""
    return session.scalars(
        sa.select(Job.id).where(Job.kind.in_(PARENTS), Job.status.not_in(FINISHED))
    ).all()


def reconcile(session: Session, parent_id: str) -> list[Job]:
    """Bring a parent in line with its children, whatever was missed before.

    Returns: the jobs that were made of it and now wait for a worker.
    """
    parent = _lock_open(session, parent_id)
    if parent is None:
        return []
    if parent.status == JobStatus.QUEUED:
        statuses = {status for status, _ in _count(session, parent.id)}
        if statuses - {JobStatus.QUEUED}:  # whoever began a child did not come to it
            begin_parent(session, parent.id)
    elif parent.status == JobStatus.RUNNING and _is_out_of_time(session, parent):
        stop(session, parent)
    elif parent.status == JobStatus.STOPPING:
        _stop_children(session, parent)
    elif parent.status == JobStatus.CANCELLING:
        states.cancel_all(session, [Job.parent_id == parent.id])
    session.refresh(parent)
    return _settle(session, parent)


def lock_row(session: Session, job: Job) -> None:
    """Have the row for us alone until the end of the transaction, as it is now."""
    session.refresh(job, with_for_update=True)


def _lock_open(session: Session, parent_id: str | None) -> Job | None:
    """The parent's row, for us alone, if it has not ended."""
    return session.scalar(
        sa.select(Job)
        .where(Job.id == parent_id, Job.status.not_in(FINISHED))
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def _count(session: Session, parent_id: str) -> dict[tuple[JobStatus, JobRole], int]:
    """Children by status and role."""
    rows = session.execute(
        sa.select(Job.status, Job.role, sa.func.count())
        .where(Job.parent_id == parent_id)
        .group_by(Job.status, Job.role)
    )
    return {(status, role): count for status, role, count in rows}


def _settle(session: Session, parent: Job) -> list[Job]:
    """Report the children that have ended, and end the parent after the last one.

    A tune job first repeats its best trials and trains its winner, and a prediction is
    assembled: those jobs are returned.
    """
    statuses = {status for status, _ in _count(session, parent.id)}
    _report_ends(session, parent)  # those of all that were counted
    if parent.kind == JobKind.PREDICT:
        return _settle_prediction(session, parent, statuses)
    if statuses - set(FINISHED):
        return []
    has_succeeded = JobStatus.SUCCEEDED in statuses
    if parent.kind == JobKind.TUNE:
        refit = tune.find_refit(session, parent)
        if refit is None and parent.status != JobStatus.CANCELLING:
            is_running = parent.status == JobStatus.RUNNING
            has_time = is_running and not _is_out_of_time(session, parent)
            made = tune.go_on(session, parent, has_time=has_time)
            if made:
                return made
        has_succeeded = refit is not None and refit.status == JobStatus.SUCCEEDED
    _end(session, parent, has_succeeded)
    return []


def _settle_prediction(
    session: Session, parent: Job, statuses: set[JobStatus]
) -> list[Job]:
    made, has_succeeded = predictions.settle(session, parent, statuses)
    if has_succeeded is not None:
        _report_ends(session, parent)  # of those that were cancelled just now
        _end(session, parent, has_succeeded)
    return made


def _end(session: Session, parent: Job, has_succeeded: bool) -> None:
    error: dict[str, Any] | None = None
    event: NewEvent = (EventType.SUCCEEDED, {})
    status = JobStatus.SUCCEEDED
    if parent.status == JobStatus.CANCELLING:
        status, event = JobStatus.CANCELLED, (EventType.CANCELLED, {})
    elif not has_succeeded:
        explain = _explain_failure
        if parent.kind == JobKind.PREDICT:
            explain = predictions.explain_failure
        error = explain(session, parent)
        status, event = JobStatus.FAILED, (EventType.FAILED, error)
    move_all(
        session,
        [Job.id == parent.id],
        event,
        status=status,
        error=error,
        phase=None,
        lease_owner=None,
        finished_at=db.now(session),
    )


def _report_ends(session: Session, parent: Job) -> None:
    """An event of each child whose end the parent has none of, all at once."""
    rows = session.execute(
        sa.update(Job)
        .where(
            Job.parent_id == parent.id,
            Job.is_reported.is_(False),
            Job.status.in_(FINISHED),
        )
        .values(is_reported=True)
        .returning(Job.id, Job.position, Job.role, Job.status, Job.attempt, Job.outcome)
        .execution_options(synchronize_session=False)
    ).all()
    if not rows:
        return
    rows = sorted(rows, key=lambda row: row.position)
    outcomes = [row.outcome for row in rows if row.outcome and row.role in RUNS]
    progress = _count_progress(session, parent, outcomes)
    counts = {name: progress[name] for name in _TOLD if name in progress}
    events: list[NewEvent] = [
        (
            EventType.CHILD,
            {
                "position": row.position,
                "job_id": row.id,
                "status": row.status,
                "attempt": row.attempt,
                **counts,
            },
        )
        for row in rows
    ]
    write(session, parent, [Job.id == parent.id], events, progress=progress)
    session.refresh(parent)


_TOLD = ("rows_done", "n_rows", "n_faults")
"""What events of a prediction say of its progress."""


def _count_progress(
    session: Session, parent: Job, outcomes: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """How far the parent is, with the outcomes of runs that have ended since."""
    n_runs = parent.progress["n_runs"]
    n_finished = sum(
        count
        for (status, role), count in _count(session, parent.id).items()
        if status in FINISHED and role in RUNS
    )
    progress = {**parent.progress, "n_finished": n_finished}
    if parent.started_at is not None and n_finished:
        elapsed = (db.now(session) - parent.started_at).total_seconds()
        eta = elapsed / n_finished * (n_runs - n_finished)
        progress["eta_seconds"] = round(eta, 1)
    if parent.kind == JobKind.PREDICT:
        return predictions.count_progress(progress, outcomes)
    for each in outcomes:
        new, known = Outcome.from_dict(each), progress.get("best_score")
        sign = 1 if new.metric == "rmse" else -1
        if known is None or sign * new.val.score < sign * known:
            progress["best_score"] = new.val.score
    return progress


def _explain_failure(session: Session, parent: Job) -> dict[str, Any]:
    error = session.scalar(
        sa.select(Job.error)
        .where(Job.parent_id == parent.id, Job.status == JobStatus.FAILED)
        .order_by(Job.position)
        .limit(1)
    )
    detail = "none of its jobs succeeded"
    if error is not None:
        detail += f"; the first that failed says: {error['detail']}"
    return {"code": FailureCode.NO_SUCCESS, "detail": detail}


# What a caller asks of a parent


def cancel(session: Session, parent: Job) -> bool:
    """End it and all of its children."""
    open_ = (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.STOPPING)
    moved = move_all(
        session,
        [Job.id == parent.id, Job.status.in_(open_)],
        (EventType.CANCELLING, {}),
        status=JobStatus.CANCELLING,
        lease_owner=LEASE_OWNER,
    )
    if moved:
        states.cancel_all(session, [Job.parent_id == parent.id])
        session.refresh(parent)
        _settle(session, parent)
    return moved > 0


def stop(session: Session, parent: Job) -> bool:
    """Begin no further child, and end those that run with their best epoch so far."""
    if parent.kind == JobKind.PREDICT:
        raise WrongJobKind(
            "a part of the answers is no result: a prediction job can be cancelled"
        )
    moved = states.stop_all(session, [Job.id == parent.id])
    if moved:
        _stop_children(session, parent)
        session.refresh(parent)
    return moved > 0


def _stop_children(session: Session, parent: Job) -> None:
    if tune.find_refit(session, parent) is not None:
        return  # what is left is the winner's own training
    which = [Job.parent_id == parent.id]
    # One that had begun and lost its worker keeps what it has, and the request.
    has_begun = sa.or_(Job.checkpoint_sha256.is_not(None), Job.is_stop_requested)
    states.drop_queued(session, [*which, sa.not_(has_begun)])
    session.execute(
        sa.update(Job)
        .where(*which, Job.status == JobStatus.QUEUED)
        .values(is_stop_requested=True)
        .execution_options(synchronize_session=False)
    )
    states.stop_all(session, which)


def retry(session: Session, parent: Job) -> bool:
    """Run those of its children again that have not succeeded.

    Of a tune job that came to a winner, that is the winner's own training; of one that
    came to its finalists, their repeats.
    """
    lock_row(session, parent)
    if parent.status not in FINISHED:
        return False
    which, phase = [Job.parent_id == parent.id], None
    if (refit := tune.find_refit(session, parent)) is not None:
        which, phase = [Job.id == refit.id], JobPhase.REFITTING
    elif parent.kind == JobKind.TUNE:
        repeats = [*which, Job.role == JobRole.REPEAT]
        if session.scalar(sa.select(Job.id).where(*repeats).limit(1)) is not None:
            which, phase = repeats, JobPhase.REPEATING
    if parent.kind == JobKind.PREDICT:
        n_again = predictions.retry(session, parent)
    else:
        n_again = states.retry_all(session, which)
    if not n_again:
        return False
    move_all(
        session,
        [Job.id == parent.id],
        (EventType.QUEUED, {"queue": parent.queue}),
        **requeued(session),
        phase=phase,
        error=None,
        started_at=None,  # its budget of time begins anew
        finished_at=None,
        is_stop_requested=False,
    )
    return True


def _is_out_of_time(session: Session, parent: Job) -> bool:
    deadline = find_deadline(parent)
    if deadline is None or db.now(session) <= deadline:
        return False
    return tune.find_refit(session, parent) is None  # else it is the winner's training
