"""`lometab doctor`: whether what is stored is as it must be.

Each check reads what must always hold, and tells what does not. Nothing is changed. The
checks look at rows that may be written at the same moment: each is one query, or asks
again about what it found, so that a service may run meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, aliased

from app.settings import get_settings
from app.storage import blobs, db, orphans, scratch
from app.storage.enums import (
    FINISHED,
    HELD,
    PARENTS,
    RUNS,
    JobKind,
    JobRole,
    JobStatus,
)
from app.storage.tables import (
    Attempt,
    Base,
    Blob,
    Dataset,
    Delivery,
    Event,
    Job,
    ModelAlias,
    ModelAnswers,
    ModelCounts,
    PredictionFault,
    Report,
    TrainedModel,
    Webhook,
    Worker,
)

MAX_FAULTS = 20
"""Of each check."""


@dataclass(frozen=True)
class Finding:
    """What came of a check."""

    name: str
    faults: tuple[str, ...]

    def __str__(self) -> str:
        if not self.faults:
            return f"ok      {self.name}"
        lines = [f"        {fault}" for fault in self.faults[:MAX_FAULTS]]
        if len(self.faults) > MAX_FAULTS:
            lines.append("        and more")
        return "\n".join([f"FAULT   {self.name}", *lines])


def examine(*, deep: bool, min_age: float = orphans.MIN_AGE) -> Iterator[Finding]:
    """Run the checks, one by one.

    Args:
        deep: also those that look at every row and read every stored byte.
        min_age: how many seconds old orphans are that count as such.
    """
    checks: list[tuple[str, Check]] = [("the tables are this version's", _revision)]
    if deep:
        checks += _DEEP
        checks.append(
            (
                "no stored bytes without anything that refers to them",
                lambda session: _orphans(session, min_age),
            )
        )
    for name, check in checks:
        try:
            with db.reading() as session:
                faults = tuple(islice(check(session), MAX_FAULTS + 1))
        except OperationalError as error:
            faults = (f"the database cannot be asked: {error.orig}",)
        yield Finding(name, faults)
        if faults and check is _revision:
            return  # nothing else can be asked


Check = Callable[[Session], Iterator[str]]


def _revision(session: Session) -> Iterator[str]:
    try:
        db.check_revision(session)
    except db.WrongRevision as error:
        yield str(error)


# Jobs


def _events(session: Session) -> Iterator[str]:
    """Counted up to the number that the job's row has; the first may be gone by age."""
    found = (
        sa.select(
            Event.job_id,
            sa.func.count().label("n"),
            sa.func.min(Event.seq).label("first"),
            sa.func.max(Event.seq).label("last"),
        )
        .group_by(Event.job_id)
        .subquery()
    )
    n = sa.func.coalesce(found.c.n, 0)
    is_wrong = sa.or_(
        n != Job.event_seq - sa.func.coalesce(found.c.first, 1) + 1,
        found.c.last != Job.event_seq,
    )
    rows = session.execute(
        sa.select(Job.id, Job.event_seq, n, found.c.first, found.c.last)
        .outerjoin(found, found.c.job_id == Job.id)
        .where(is_wrong)
    )
    for id_, seq, count, first, last in rows:
        yield f"{id_}: {count} events, {first} to {last}, where its row says {seq}"


def _attempts(session: Session) -> Iterator[str]:
    found = (
        sa.select(
            Attempt.job_id,
            sa.func.count().label("n"),
            sa.func.min(Attempt.number).label("first"),
            sa.func.max(Attempt.number).label("last"),
        )
        .group_by(Attempt.job_id)
        .subquery()
    )
    n = sa.func.coalesce(found.c.n, 0)
    is_wrong = sa.or_(
        n != Job.attempt - sa.func.coalesce(found.c.first, 1) + 1,
        found.c.last != Job.attempt,
    )
    rows = session.execute(
        sa.select(Job.id, Job.attempt, n)
        .outerjoin(found, found.c.job_id == Job.id)
        .where(Job.kind == JobKind.TRAIN, is_wrong)
    )
    for id_, attempt, count in rows:
        yield f"{id_}: {count} attempts, where its row says {attempt}"


def _states(session: Session) -> Iterator[str]:
    """What a status implies."""
    is_finished = Job.status.in_(FINISHED)
    last = aliased(Event)
    rows = session.execute(
        sa.select(Job.id, Job.status, last.type)
        .join(last, sa.and_(last.job_id == Job.id, last.seq == Job.event_seq))
        .where(is_finished, _text(last.type) != _text(Job.status))
    )
    for id_, status, event in rows:
        yield f"{id_}: it is {status}, and its last event is {event}"
    wrong = sa.or_(
        sa.and_(is_finished, Job.finished_at.is_(None)),
        sa.and_(is_finished, Job.phase.is_not(None)),
        sa.and_(sa.not_(is_finished), Job.finished_at.is_not(None)),
        sa.and_(Job.status == JobStatus.FAILED, Job.error.is_(None)),
    )
    for id_, status in session.execute(sa.select(Job.id, Job.status).where(wrong)):
        yield f"{id_}: it is {status}, and its phase, error or end is not"


def _leases(session: Session) -> Iterator[str]:
    """While a worker is there to do it, a job whose lease has ended is put back."""
    settings = get_settings()
    now, beat = db.now(session), timedelta(seconds=settings.reaper_seconds)
    patience = 3 * (timedelta(seconds=settings.lease_seconds) + beat)
    is_heard = Worker.heartbeat_at > now - 2 * beat
    rows = session.execute(
        sa.select(Job.id, Job.status, Job.lease_expires_at).where(
            Job.status.in_(HELD),
            Job.lease_expires_at < now - patience,
            sa.exists().where(is_heard),
        )
    )
    for id_, status, ended_at in rows:
        yield f"{id_}: it is {status}, and its lease ended at {ended_at:%Y-%m-%d %H:%M}"


def _text(column: sa.orm.InstrumentedAttribute[Any]) -> sa.ColumnElement[str]:
    """Without the enum that it is of, to be held against another."""
    return sa.type_coerce(column, sa.String)


def _reports(session: Session) -> Iterator[str]:
    """Of a training that succeeded there are reports; of no other job."""
    makes_model = Job.role.in_((JobRole.TRAIN, JobRole.REFIT))
    has_reports = sa.exists().where(Report.job_id == Job.id)
    succeeded = sa.and_(makes_model, Job.status == JobStatus.SUCCEEDED)
    for id_ in session.scalars(sa.select(Job.id).where(succeeded, ~has_reports)):
        yield f"{id_}: it succeeded, and has no report"
    for id_ in session.scalars(sa.select(Job.id).where(~succeeded, has_reports)):
        yield f"{id_}: it has a report, and did not succeed"


def _sums(session: Session) -> Iterator[str]:
    """Of a parent that has ended: its runs are there, have ended, and are counted."""
    child = aliased(Job)
    is_run = child.role.in_(RUNS)
    has_ended = child.status.in_(FINISHED)
    rows = session.execute(
        sa.select(
            Job.id,
            Job.progress,
            sa.func.count().filter(is_run),
            sa.func.count().filter(sa.and_(is_run, has_ended)),
            sa.func.count().filter(sa.not_(has_ended)),
            sa.func.count().filter(child.is_reported.is_(False)),
        )
        .join(child, child.parent_id == Job.id)
        .where(Job.kind.in_(PARENTS), Job.status.in_(FINISHED))
        .group_by(Job.id)
    )
    for id_, progress, n_runs, n_finished, n_open, n_unreported in rows:
        counted = (progress["n_runs"], progress["n_finished"])
        if counted != (n_runs, n_finished):
            yield f"{id_}: {n_finished} of {n_runs} runs, where its row says {counted}"
        if n_open or n_unreported:
            yield f"{id_}: it has ended before {max(n_open, n_unreported)} of its runs"


def _predicted_rows(session: Session) -> Iterator[str]:
    """Of a prediction job that succeeded, each row of the table was answered."""
    rows = session.execute(
        sa.select(Job.id, Job.progress).where(
            Job.kind == JobKind.PREDICT, Job.status == JobStatus.SUCCEEDED
        )
    )
    for id_, progress in rows:
        if progress["rows_done"] != progress["n_rows"]:
            yield f"{id_}: {progress['rows_done']} of {progress['n_rows']} rows"


# Files


def _references(session: Session) -> Iterator[str]:
    """What refers to a blob finds its row. (The database sees to that, if its rows
    were written through it.)"""
    for table, column in (
        (Dataset, Dataset.table_sha256),
        (TrainedModel, TrainedModel.onnx_sha256),
        (Job, Job.checkpoint_sha256),
    ):
        has_blob = sa.exists().where(
            Blob.workspace_id == table.workspace_id, Blob.sha256 == column
        )
        lost = sa.select(table.id).where(column.is_not(None), ~has_blob)
        for id_ in session.scalars(lost):
            yield f"{id_}: its file is not stored"


def _bytes(session: Session) -> Iterator[str]:
    """Each blob is what it was when it was stored: all of them are read."""
    keys = session.execute(
        sa.select(Blob.workspace_id, Blob.sha256, Blob.size).order_by(Blob.created_at)
    ).all()
    session.rollback()  # it takes long
    for workspace_id, sha256, size in keys:
        if not blobs.is_intact(workspace_id, sha256):
            if session.get(Blob, (workspace_id, sha256)) is not None:
                yield f"blob {sha256} of {workspace_id!r}, {size} bytes: damaged"
            session.rollback()


def _orphans(session: Session, min_age: float) -> Iterator[str]:
    for workspace_id, generation in orphans.list_orphan_chunks(
        session, min_age=min_age
    ):
        yield f"chunks {generation} of {workspace_id!r}: no blob names them"
    for workspace_id, sha256 in orphans.list_orphan_blobs(session, min_age=min_age):
        yield f"blob {sha256} of {workspace_id!r}: nothing refers to it"
    for loose in orphans.list_loose_objects(session, min_age=min_age):
        yield f"{loose.store}/{loose.name}: no blob names it"
    base = scratch.find_base()
    for path in scratch.list_abandoned(base, min_age=min(min_age, scratch.MIN_AGE)):
        yield f"{path}: no process uses it"


# Models


def _models(session: Session) -> Iterator[str]:
    """A model's job succeeded, in the same workspace; an alias is of its model."""
    fits = sa.and_(
        Job.workspace_id == TrainedModel.workspace_id,
        Job.status == JobStatus.SUCCEEDED,
    )
    for id_ in session.scalars(
        sa.select(TrainedModel.id)
        .outerjoin(Job, Job.id == TrainedModel.job_id)
        .where(sa.or_(Job.id.is_(None), sa.not_(fits)))
    ):
        yield f"{id_}: its job is gone, or did not succeed, or is another workspace's"
    fits = sa.and_(
        TrainedModel.workspace_id == ModelAlias.workspace_id,
        TrainedModel.name == ModelAlias.name,
    )
    for name, alias in session.execute(
        sa.select(ModelAlias.name, ModelAlias.alias)
        .outerjoin(TrainedModel, TrainedModel.id == ModelAlias.model_id)
        .where(sa.or_(TrainedModel.id.is_(None), sa.not_(fits)))
    ):
        yield f"{name}@{alias}: it points at no model of that name"


def _workspaces(session: Session) -> Iterator[str]:
    """What belongs to a job is in its workspace, and the job is there."""
    about: Sequence[type[Base]] = (Event, Attempt, Report, PredictionFault)
    for table in about:
        own: Any = table
        rows = session.scalars(
            sa.select(own.job_id)
            .outerjoin(Job, Job.id == own.job_id)
            .where(sa.or_(Job.id.is_(None), Job.workspace_id != own.workspace_id))
            .distinct()
        )
        for job_id in rows:
            yield f"{own.__tablename__} of {job_id}: no such job in their workspace"
    for own, owner, key in (
        (ModelCounts, TrainedModel, ModelCounts.model_id),
        (ModelAnswers, TrainedModel, ModelAnswers.model_id),
        (Delivery, Webhook, Delivery.webhook_id),
    ):
        is_gone = sa.or_(owner.id.is_(None), owner.workspace_id != own.workspace_id)
        rows = session.scalars(
            sa.select(key).outerjoin(owner, owner.id == key).where(is_gone).distinct()
        )
        for id_ in rows:
            yield f"{own.__tablename__} of {id_}: none such in their workspace"
    other = aliased(Job)
    for name, column, key, where in (
        ("dataset", Job.dataset_id, Dataset.id, Dataset.workspace_id),
        ("parent", Job.parent_id, other.id, other.workspace_id),
    ):
        rows = session.scalars(
            sa.select(Job.id)
            .outerjoin(key.class_, key == column)
            .where(
                column.is_not(None),
                sa.or_(key.is_(None), where != Job.workspace_id),
            )
        )
        for job_id in rows:
            yield f"{job_id}: its {name} is gone, or is another workspace's"


_DEEP: list[tuple[str, Check]] = [
    ("the events of each job have no gap", _events),
    ("the attempts of each job have no gap", _attempts),
    ("each job is what its status says", _states),
    ("trainings that succeeded have their reports", _reports),
    ("sweeps and tune jobs have counted their runs", _sums),
    ("each model has its job, each alias its model", _models),
    ("no lease has ended long ago", _leases),
    ("all rows of prediction jobs are answered", _predicted_rows),
    ("all that belongs to a job, model or webhook is in its workspace", _workspaces),
    ("no dataset, model or checkpoint without its file", _references),
    ("each stored file is as it was stored", _bytes),
]
