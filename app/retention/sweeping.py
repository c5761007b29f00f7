"""One sweep after another over what is older than it is to be kept.

Each step is a short transaction over some rows, the oldest first, and a sweep ends when
its time is up: the next one goes on, as what is gone is not found again. All workers
may run it at any time. Models, and jobs that succeeded, are never removed by age.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import jobs
from app.settings import Settings
from app.storage import blobs, db
from app.storage.enums import FINISHED, JobKind, JobStatus
from app.storage.tables import (
    Attempt,
    Dataset,
    Event,
    Job,
    ModelAnswers,
    ModelCounts,
    TrainedModel,
)

SECONDS = 20.0
"""How long a sweep may take."""
AT_ONCE = 100
"""Rows of jobs or datasets in one transaction."""

Step = Callable[[Session, str, datetime], int]
"""Removes some of what is older, and says how much; 0: there is no more."""


def sweep(settings: Settings, *, seconds: float = SECONDS) -> int:
    """Remove what is too old, for as long as there is time; how many rows went."""
    until = time.monotonic() + seconds
    n_removed = 0
    for workspace_id in _list_workspaces():
        own = settings.for_workspace(workspace_id)
        for name, step in _STEPS.items():
            days: float = getattr(own, name)
            more = days > 0
            while more and time.monotonic() < until:
                with db.transaction() as session:
                    before = db.now(session) - timedelta(days=days)
                    n_gone = step(session, workspace_id, before)
                n_removed, more = n_removed + n_gone, n_gone > 0
    return n_removed


def _list_workspaces() -> list[str]:
    with db.reading() as session:
        found = sa.union(sa.select(Dataset.workspace_id), sa.select(Job.workspace_id))
        return sorted(session.scalars(found))


def _drop_failed_jobs(session: Session, workspace_id: str, before: datetime) -> int:
    """With their children; a search that failed after it made a model stays."""
    has_model = sa.exists().where(
        sa.or_(
            TrainedModel.job_id == Job.id,
            TrainedModel.job_id.in_(
                sa.select(_child.c.id).where(_child.c.parent_id == Job.id)
            ),
        )
    )
    found = session.scalars(
        sa.select(Job)
        .where(
            Job.workspace_id == workspace_id,
            Job.status.in_((JobStatus.FAILED, JobStatus.CANCELLED)),
            Job.parent_id.is_(None),
            Job.finished_at < before,
            ~has_model,
        )
        .order_by(Job.finished_at)
        .limit(AT_ONCE)
    ).all()
    for job in found:
        jobs.delete(session, job)
    return len(found)


_child = sa.alias(Job.__table__, "children")


def _drop_datasets(session: Session, workspace_id: str, before: datetime) -> int:
    """Those that no job uses. The rows are locked, and asked again, as a job may come
    to use one at that moment: its foreign key then decides."""
    is_used = sa.exists().where(Job.dataset_id == Dataset.id)
    found = session.execute(
        sa.select(Dataset.id, Dataset.table_sha256)
        .where(
            Dataset.workspace_id == workspace_id, Dataset.created_at < before, ~is_used
        )
        .order_by(Dataset.created_at)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    for id_, sha256 in found:
        gone = session.execute(
            sa.delete(Dataset)
            .where(Dataset.id == id_, ~is_used)
            .returning(Dataset.id)
            .execution_options(synchronize_session=False)
        )
        if gone.first() is not None:
            blobs.remove_unused(session, workspace_id, sha256)
    return len(found)


def _drop_events(session: Session, workspace_id: str, before: datetime) -> int:
    """All but the last one of each job, which says how it ended."""
    found = session.scalars(
        sa.select(Job.id)
        .where(
            Job.workspace_id == workspace_id,
            Job.status.in_(FINISHED),
            Job.finished_at < before,
            sa.exists().where(Event.job_id == Job.id, Event.seq < Job.event_seq),
        )
        .limit(AT_ONCE)
    ).all()
    last = sa.select(Job.event_seq).where(Job.id == Event.job_id).scalar_subquery()
    session.execute(
        sa.delete(Event)
        .where(Event.job_id.in_(found), Event.seq < last)
        .execution_options(synchronize_session=False)
    )
    return len(found)


def _drop_attempts(session: Session, workspace_id: str, before: datetime) -> int:
    """The same with attempts."""
    found = session.scalars(
        sa.select(Job.id)
        .where(
            Job.workspace_id == workspace_id,
            Job.status.in_(FINISHED),
            Job.finished_at < before,
            sa.exists().where(Attempt.job_id == Job.id, Attempt.number < Job.attempt),
        )
        .limit(AT_ONCE)
    ).all()
    last = sa.select(Job.attempt).where(Job.id == Attempt.job_id).scalar_subquery()
    session.execute(
        sa.delete(Attempt)
        .where(Attempt.job_id.in_(found), Attempt.number < last)
        .execution_options(synchronize_session=False)
    )
    return len(found)


def _drop_results(session: Session, workspace_id: str, _: datetime) -> int:
    """Results of prediction jobs, by the time that was told when they were made."""
    found = session.scalars(
        sa.select(Job)
        .where(
            Job.workspace_id == workspace_id,
            Job.kind == JobKind.PREDICT,
            Job.status == JobStatus.SUCCEEDED,
            Job.checkpoint_sha256.is_not(None),
            Job.expires_at < db.now(session),
        )
        .limit(AT_ONCE)
    ).all()
    for job in found:
        jobs.delete_result(session, job)
    return len(found)


def _drop_watched(session: Session, workspace_id: str, before: datetime) -> int:
    """What was counted of served rows, and answers that wait for the truth."""
    days = session.execute(
        sa.select(ModelCounts.model_id, ModelCounts.day, ModelCounts.shard)
        .where(
            ModelCounts.workspace_id == workspace_id,
            ModelCounts.day < before.strftime("%Y-%m-%d"),
        )
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    for model_id, day, shard in days:
        session.execute(
            sa.delete(ModelCounts).where(
                ModelCounts.model_id == model_id,
                ModelCounts.day == day,
                ModelCounts.shard == shard,
            )
        )
    answers = session.scalars(
        sa.select(ModelAnswers.id)
        .where(
            ModelAnswers.workspace_id == workspace_id, ModelAnswers.created_at < before
        )
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    session.execute(sa.delete(ModelAnswers).where(ModelAnswers.id.in_(answers)))
    return len(days) + len(answers)


_STEPS: dict[str, Step] = {
    "keep_failed_jobs_days": _drop_failed_jobs,
    "keep_datasets_days": _drop_datasets,
    "keep_events_days": _drop_events,
    "keep_attempts_days": _drop_attempts,
    "prediction_kept_days": _drop_results,
    "monitor_days": _drop_watched,
}
"""By the setting of its age; jobs go before the datasets that they use."""
