"""Alarms of watched models, for whoever asked to be told."""

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import webhooks
from app.monitor.describe import describe_day
from app.monitor.store import LOOKS, read_counts, today
from app.monitor.tally import Counts
from app.storage import db
from app.storage.enums import WebhookEvent
from app.storage.tables import ModelCounts, TrainedModel, Webhook
from lometab.drift import is_look_due, rate_of_look

_RECENT = timedelta(minutes=30)
_MAX_MODELS = 200
_MAX_NAMED = 20


def announce_alarms(session: Session) -> int:
    """Tell once a day of each model whose rows of today are unlike those of training;
    how many messages there are. Only of models that were asked lately."""
    listening = [
        webhook.workspace_id
        for webhook in session.scalars(sa.select(Webhook).where(Webhook.is_enabled))
        if WebhookEvent.MONITOR_ALARM in webhook.events
    ]
    if not listening:
        return 0
    counted = sa.select(ModelCounts.model_id).where(
        ModelCounts.workspace_id.in_(listening),
        ModelCounts.updated_at > db.now(session) - _RECENT,
    )
    models = session.scalars(
        sa.select(TrainedModel)
        .where(TrainedModel.id.in_(counted), TrainedModel.facts.is_not(None))
        .order_by(TrainedModel.id)  # all workers lock their looks in the same order
        .limit(_MAX_MODELS)
    ).all()
    return sum(_announce(session, model) for model in models)


def _announce(session: Session, model: TrainedModel) -> int:
    counted = read_counts(session, model.id, 2)
    return sum(_look(session, model, day, each) for day, each in counted.items())


def _look(session: Session, model: TrainedModel, day: str, counts: Counts) -> int:
    number = _take_look(session, model, day, counts.get("n_rows", 0))
    if number is None:
        return 0
    described: dict[str, Any] = describe_day(
        model.facts or {}, counts, rate_of_look(number)
    )
    if not described["is_alarm"]:
        return 0
    return webhooks.announce(
        session,
        model.workspace_id,
        WebhookEvent.MONITOR_ALARM,
        {
            "model_id": model.id,
            "name": model.name,
            "version": model.version,
            "day": day,
            "n_rows": described["n_rows"],
            "drifted": described["drifted"][:_MAX_NAMED],
        },
        key=f"{model.id}/{day}",
    )


def _take_look(
    session: Session, model: TrainedModel, day: str, n_rows: int
) -> int | None:
    """The number of the day's look at so many rows, taken for all workers; None if
    none is due yet.

    A day that grows is looked at again and again, and each look could be wrong: what
    was seen already is kept beside the counts.
    """
    if not is_look_due(n_rows, 0):
        return None
    db.insert_unless_exists(
        session,
        ModelCounts,
        model_id=model.id,
        day=day,
        shard=LOOKS,
        workspace_id=model.workspace_id,
        counts={LOOKS: {"n": 0, "n_rows": 0}},
    )
    row = session.get_one(ModelCounts, (model.id, day, LOOKS), with_for_update=True)
    looked = row.counts[LOOKS]
    is_last = day < today() and n_rows > looked["n_rows"]  # the day is over
    if not (is_last or is_look_due(n_rows, looked["n_rows"])):
        return None
    number: int = looked["n"] + 1
    row.counts = {LOOKS: {"n": number, "n_rows": n_rows}}
    return number
