"""Prediction jobs: a table is answered in chunks, which are assembled to one file.

The job is a parent, its chunks are jobs that workers claim. After the last of them
comes the one that assembles. Nothing here commits, but for `drop_answers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import ResultGone, ResultNotReady, WrongJobKind
from app.jobs import states
from app.jobs.make import make_job, make_like
from app.jobs.moves import move_all, requeued, write
from app.jobs.workers import check_room, count_workers
from app.settings import Settings, get_settings
from app.storage import blobs, db
from app.storage.enums import (
    FINISHED,
    EventType,
    JobKind,
    JobPhase,
    JobRole,
    JobStatus,
    Queue,
)
from app.storage.tables import Dataset, Job, PredictionFault, TrainedModel
from lometab.notes import Notes

MAX_FAULTS = 1000
"""Of one chunk that are listed; all are counted."""
Fault = tuple[int, str | None, str]
"""The row, counted from 1, the column if it is one's, and what is wrong."""


@dataclass(frozen=True, kw_only=True)
class PredictionPlan:
    """A prediction that was checked against the model and the table."""

    model: TrainedModel
    dataset: Dataset
    config: Mapping[str, Any]
    """What the caller asked for, and how the table is read."""
    chunks: Sequence[tuple[int, int]]
    """The first row, from 0, and the number of rows of each."""
    warnings: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)


def create_prediction(session: Session, plan: PredictionPlan) -> Job:
    """The job of a plan, with its chunks."""
    settings = get_settings()
    trained = session.get_one(Job, plan.model.job_id)
    parent = make_job(
        role=JobRole.PREDICT,
        config={
            "kind": JobKind.PREDICT,
            "model_id": plan.model.id,
            "onnx_sha256": plan.model.onnx_sha256,
            **plan.config,
        },
        progress={
            "n_runs": len(plan.chunks),
            "n_finished": 0,
            "n_rows": plan.dataset.n_rows,
            "rows_done": 0,
            "n_faults": 0,
        },
        workspace_id=plan.dataset.workspace_id,
        dataset_id=plan.dataset.id,
        queue=_choose_queue(session, settings),
        schema=trained.schema,
        estimate={},
        warnings=plan.warnings,
        tags=plan.tags,
    )
    chunks = [
        _make_part(
            parent,
            JobRole.CHUNK,
            number,
            settings={"first_row": first, "n_rows": n_rows},
            progress={"n_rows": n_rows, "rows_done": 0},
        )
        for number, (first, n_rows) in enumerate(plan.chunks)
    ]
    check_room(session, parent.workspace_id, len(chunks), settings)
    states.add(session, parent)
    states.add_all(session, chunks)
    return parent


def _choose_queue(session: Session, settings: Settings) -> Queue:
    """It computes on a CPU: workers for GPUs do it where there are no others."""
    heard_within = 2 * settings.reaper_seconds
    if count_workers(session, Queue.CPU, heard_within=heard_within):
        return Queue.CPU
    has_gpu = count_workers(session, Queue.GPU, heard_within=heard_within) > 0
    return Queue.GPU if has_gpu else Queue.CPU


def _make_part(parent: Job, role: JobRole, number: int, **values: Any) -> Job:
    """What is asked of its rows is in the parent's config, once."""
    return make_like(
        parent,
        role=role,
        config={"model_id": parent.config["model_id"]},
        parent_id=parent.id,
        position=number,
        number=number,
        repeat=0,
        **values,
    )


# What a worker does with a part


def finish_part(
    session: Session,
    job: Job,
    *,
    outcome: Mapping[str, Any],
    progress: Mapping[str, Any],
    sha256: str,
    faults: Sequence[Fault] = (),
) -> bool:
    """Succeed with the answers that were stored, and the faults that were met."""
    moved = states.finish_measured(
        session, job, outcome=outcome, progress=progress, weights_sha256=sha256
    )
    if moved and faults:
        rows = [row for row, _, _ in faults]
        session.execute(
            sa.delete(PredictionFault).where(
                PredictionFault.job_id == job.parent_id,
                PredictionFault.row.in_(rows),  # of an earlier try, before a retry
            )
        )
        session.add_all(
            PredictionFault(
                job_id=job.parent_id,
                workspace_id=job.workspace_id,
                row=row,
                column=column,
                detail=detail,
            )
            for row, column, detail in faults
        )
    return moved


def list_answers(session: Session, job: Job) -> list[str]:
    """The stored answers of all chunks of a part's prediction, in the order of rows.

    Raises:
        KeyError: those of some chunk are gone.
    """
    rows = session.execute(
        sa.select(Job.position, Job.checkpoint_sha256)
        .where(Job.parent_id == job.parent_id, Job.role == JobRole.CHUNK)
        .order_by(Job.position)
    )
    found = []
    for position, sha256 in rows:
        if sha256 is None:
            raise KeyError(f"the answers of chunk {position} are not stored any more")
        found.append(sha256)
    return found


# What becomes of the parent


def count_progress(
    before: Mapping[str, Any], outcomes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """How far it is, with the outcomes of chunks that have ended since."""
    progress = dict(before)
    for each in outcomes:
        progress["rows_done"] += each["n_rows"]
        progress["n_faults"] += each["n_faults"]
    return progress


def settle(
    session: Session, parent: Job, statuses: set[JobStatus]
) -> tuple[list[Job], bool | None]:
    """What comes next: jobs that were made, or whether it has succeeded; neither while
    children are under way.

    Args:
        statuses: those of its children.
    """
    has_failed = JobStatus.FAILED in statuses
    if has_failed and parent.status != JobStatus.CANCELLING:
        states.cancel_all(session, [Job.parent_id == parent.id])
        statuses = {*_read_statuses(session, parent)}
    if statuses - set(FINISHED):
        return [], None
    if has_failed or parent.status == JobStatus.CANCELLING:
        return [], False
    last = _find_last(session, parent)
    if not _have_succeeded(session, parent):
        return [], False
    if last is None:
        return [_assemble(session, parent)], None
    if last.status == JobStatus.SUCCEEDED:
        _take_result(session, parent, last)
        return [], True
    # It was put off by a retry of chunks, which are done now.
    states.retry_all(session, [Job.id == last.id], queue=last.queue)
    session.refresh(last)
    return [last], None


def _have_succeeded(session: Session, parent: Job) -> bool:
    """Whether all chunks have."""
    other = session.scalar(
        sa.select(Job.id)
        .where(
            Job.parent_id == parent.id,
            Job.role == JobRole.CHUNK,
            Job.status != JobStatus.SUCCEEDED,
        )
        .limit(1)
    )
    return other is None


def _read_statuses(session: Session, parent: Job) -> Sequence[JobStatus]:
    return session.scalars(
        sa.select(Job.status).where(Job.parent_id == parent.id).distinct()
    ).all()


def _find_last(session: Session, parent: Job) -> Job | None:
    return session.scalar(
        sa.select(Job)
        .where(Job.parent_id == parent.id, Job.role == JobRole.ASSEMBLE)
        .execution_options(populate_existing=True)
    )


def _assemble(session: Session, parent: Job) -> Job:
    n_chunks = parent.progress["n_runs"]
    job = _make_part(
        parent,
        JobRole.ASSEMBLE,
        n_chunks,
        progress={"n_rows": parent.progress["n_rows"], "rows_done": 0},
    )
    states.add(session, job)
    phase = JobPhase.ASSEMBLING
    move_all(
        session,
        [Job.id == parent.id],
        (EventType.PHASE, {"phase": phase}),
        phase=phase,
    )
    return job


def _take_result(session: Session, parent: Job, last: Job) -> None:
    """What was assembled is the parent's, and what was noticed on the way."""
    assert last.outcome is not None
    kept = timedelta(days=get_settings().prediction_kept_days)
    warnings = [*(parent.warnings or ()), *_warn(session, parent)]
    write(
        session,
        parent,
        [Job.id == parent.id],
        (),
        checkpoint_sha256=last.checkpoint_sha256,
        outcome={**last.outcome, "n_faults": parent.progress["n_faults"]},
        warnings=[*dict.fromkeys(warnings)],
        expires_at=db.now(session) + kept,
    )
    last.checkpoint_sha256 = None
    session.flush()


def _warn(session: Session, parent: Job) -> list[str]:
    """What the notes of all chunks come to."""
    outcomes = session.scalars(
        sa.select(Job.outcome).where(
            Job.parent_id == parent.id, Job.role == JobRole.CHUNK
        )
    )
    notes = Notes()
    for outcome in outcomes:
        if outcome is not None:
            notes.add(Notes.from_dict(outcome["notes"]))
    found = notes.warnings()
    n_faults = parent.progress["n_faults"]
    if n_faults:
        found.append(
            f"{n_faults} of {parent.progress['n_rows']} rows could not be read and "
            "have no answer; the faults of the job say why"
        )
    return found


def explain_failure(session: Session, parent: Job) -> dict[str, Any]:
    """The error of the first part that failed is that of the whole."""
    error = session.scalar(
        sa.select(Job.error)
        .where(Job.parent_id == parent.id, Job.status == JobStatus.FAILED)
        .order_by(Job.position)
        .limit(1)
    )
    if error is None:
        return {"code": "internal", "detail": "its chunks were cancelled one by one"}
    return dict(error)


def retry(session: Session, parent: Job) -> int:
    """Try again what has not succeeded, or is not kept; how many parts that is.

    What assembles waits for the chunks, if there are any.
    """
    which = [Job.parent_id == parent.id]
    about = {"queue": parent.queue}
    is_chunk = Job.role == JobRole.CHUNK
    if parent.status == JobStatus.SUCCEEDED:
        return 0
    n_chunks = states.retry_all(session, [*which, is_chunk], **about)
    n_chunks += _requeue_dropped(session, parent)
    if not n_chunks:
        return states.retry_all(session, which, **about)
    move_all(
        session,
        [*which, sa.not_(is_chunk), Job.status == JobStatus.FAILED],
        (EventType.CANCELLED, {}),
        status=JobStatus.CANCELLED,
    )
    return n_chunks


def _requeue_dropped(session: Session, parent: Job) -> int:
    """Chunks whose answers are not kept any more are to be done again; how many."""
    which = [
        Job.parent_id == parent.id,
        Job.role == JobRole.CHUNK,
        Job.status == JobStatus.SUCCEEDED,
        Job.checkpoint_sha256.is_(None),
    ]
    dropped = session.scalars(sa.select(Job.outcome).where(*which)).all()
    if not dropped:
        return 0
    progress = dict(parent.progress)
    for each in dropped:
        assert each is not None
        progress["rows_done"] -= each["n_rows"]
        progress["n_faults"] -= each["n_faults"]
    progress["n_finished"] -= len(dropped)
    write(session, parent, [Job.id == parent.id], (), progress=progress)
    return move_all(
        session,
        which,
        (EventType.QUEUED, {"queue": parent.queue}),
        **requeued(session),
        outcome=None,
        finished_at=None,
        is_reported=False,
    )


# What is kept of it


def find_result(job: Job) -> str:
    """The hash of the file that a prediction made."""
    if job.kind != JobKind.PREDICT:
        raise WrongJobKind(
            f"a job of the kind '{job.kind}' has no result; prediction jobs have"
        )
    if job.checkpoint_sha256 is not None and job.status == JobStatus.SUCCEEDED:
        return job.checkpoint_sha256
    if job.status == JobStatus.SUCCEEDED:
        raise ResultGone()
    if job.status in FINISHED:
        raise ResultNotReady(
            f"the job ended as {job.status} and has no result", job_status=job.status
        )
    raise ResultNotReady(
        f"the result is not ready: the job is {job.status}",
        headers={"Retry-After": "2"},
        job_status=job.status,
    )


def delete_result(session: Session, job: Job) -> bool:
    """Let the result of a prediction go; the job stays. False if there is none."""
    sha256 = session.scalar(
        sa.select(Job.checkpoint_sha256).where(
            Job.id == job.id,
            Job.kind == JobKind.PREDICT,
            Job.status == JobStatus.SUCCEEDED,
        )
    )
    if sha256 is None:
        return False
    session.execute(
        sa.update(Job)
        .where(Job.id == job.id)
        .values(checkpoint_sha256=None, expires_at=None)
    )
    blobs.remove_unused(session, job.workspace_id, sha256)
    return True


def list_dropped(session: Session, *, kept_seconds: float) -> Sequence[str]:
    """Chunks whose answers nobody needs any more: their job has its result, or ended
    long ago without one."""
    parent = sa.orm.aliased(Job)
    before = db.now(session) - timedelta(seconds=kept_seconds)
    is_over = sa.or_(
        parent.status == JobStatus.SUCCEEDED,
        sa.and_(parent.status.in_(FINISHED), parent.finished_at < before),
    )
    return session.scalars(
        sa.select(Job.id)
        .join(parent, parent.id == Job.parent_id)
        .where(
            parent.kind == JobKind.PREDICT,
            is_over,
            Job.role == JobRole.CHUNK,
            Job.checkpoint_sha256.is_not(None),
        )
        .limit(1000)
    ).all()


def drop_answers(*, kept_seconds: float) -> int:
    """Remove these, each in a transaction of its own; how many there were."""
    with db.reading() as session:
        ids = list_dropped(session, kept_seconds=kept_seconds)
    for id_ in ids:
        with db.transaction() as session:
            chunk = session.get(Job, id_, with_for_update=True)
            if chunk is None or chunk.status not in FINISHED:
                continue  # deleted, or tried again
            sha256 = chunk.checkpoint_sha256
            if sha256 is not None:
                chunk.checkpoint_sha256 = None
                session.flush()
                blobs.remove_unused(session, chunk.workspace_id, sha256)
    return len(ids)
