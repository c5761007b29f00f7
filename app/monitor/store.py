"""Counts and waiting answers in the database."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.monitor.outcomes import count_outcomes, match
from app.monitor.tally import Counts, add
from app.settings import Settings
from app.storage.tables import ModelAnswers, ModelCounts, TrainedModel, new_id, utc_now

OUTCOMES = "outcomes"
"""The shard that holds what outcomes said."""
LOOKS = "looks"
"""The shard that holds how often a day was looked at, and at how many rows."""


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def add_counts(
    session: Session,
    model_id: str,
    workspace_id: str,
    day: str,
    shard: str,
    counts: Mapping[str, Any],
) -> None:
    """Add to the row of this day and process, which no other process writes."""
    if not _is_there(session, model_id):
        return  # it was deleted meanwhile
    row = session.get(ModelCounts, (model_id, day, shard), with_for_update=True)
    if row is None:
        row = ModelCounts(
            model_id=model_id, day=day, shard=shard, workspace_id=workspace_id
        )
        row.counts = dict(counts)
        session.add(row)
    else:
        row.counts = add(row.counts, counts)
        row.updated_at = utc_now()


def read_counts(session: Session, model_id: str, n_days: int) -> dict[str, Counts]:
    """Those of each day, all processes together, the latest day first."""
    since = (datetime.now(UTC) - timedelta(days=n_days - 1)).strftime("%Y-%m-%d")
    rows = session.scalars(
        sa.select(ModelCounts)
        .where(
            ModelCounts.model_id == model_id,
            ModelCounts.day >= since,
            ModelCounts.shard != LOOKS,
        )
        .order_by(ModelCounts.day.desc())
    )
    days: dict[str, Counts] = {}
    for row in rows:
        days[row.day] = add(days.get(row.day, {}), row.counts)
    return days


def add_answers(
    session: Session, model_id: str, workspace_id: str, n_rows: int, content: bytes
) -> None:
    if not _is_there(session, model_id):
        return
    session.add(
        ModelAnswers(
            id=new_id("ans"),
            model_id=model_id,
            workspace_id=workspace_id,
            n_rows=n_rows,
            content=content,
        )
    )


def _is_there(session: Session, model_id: str) -> bool:
    found = session.scalar(
        sa.select(TrainedModel.id).where(TrainedModel.id == model_id)
    )
    return found is not None


def drop_surplus(session: Session, model_id: str, settings: Settings) -> None:
    """The oldest answers beyond those that are kept; what is too old, goes by
    `app.retention`."""
    total = 0
    for row_id, n_rows in session.execute(
        sa.select(ModelAnswers.id, ModelAnswers.n_rows)
        .where(ModelAnswers.model_id == model_id)
        .order_by(ModelAnswers.created_at.desc())
    ).all():
        total += n_rows
        if total > settings.monitor_answers:
            session.execute(sa.delete(ModelAnswers).where(ModelAnswers.id == row_id))


def take_outcomes(
    session: Session,
    model: TrainedModel,
    facts: Mapping[str, Any],
    truth: Mapping[int, Any],
) -> int:
    """Hold the truth against the answers that wait for it; how many there were.

    Each id is held against once, by its latest answer; none of its answers waits any
    more, so that posting it again changes nothing.
    """
    left = dict(truth)
    for row in session.scalars(
        sa.select(ModelAnswers)
        .where(ModelAnswers.model_id == model.id)
        .order_by(ModelAnswers.created_at.desc())
        .with_for_update()
    ):
        hashes, mean, spread, rest = match(row.content, truth)
        if not hashes:
            continue
        row.content, row.n_rows = rest, row.n_rows - len(hashes)
        if not row.n_rows:
            session.delete(row)
        latest = {each: i for i, each in enumerate(hashes) if each in left}
        if not latest:
            continue
        y = _targets([left.pop(each) for each in latest], mean.ndim)
        taken = [*latest.values()]
        counts = count_outcomes(facts, y, mean[taken], spread[taken])
        add_counts(
            session,
            model.id,
            model.workspace_id,
            today(),
            OUTCOMES,
            {"outcomes": counts},
        )
        session.flush()
    return len(truth) - len(left)


def _targets(values: list[Any], n_dimensions: int) -> Any:
    return np.array(values, dtype=np.float64 if n_dimensions == 1 else np.intp)
