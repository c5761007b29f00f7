"""Alarms of watched models, for whoever asked to be told."""

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import webhooks
from app.monitor.describe import describe_day
from app.monitor.store import read_counts
from app.storage import db
from app.storage.enums import WebhookEvent
from app.storage.tables import ModelCounts, TrainedModel, Webhook

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
        .limit(_MAX_MODELS)
    ).all()
    return sum(_announce(session, model) for model in models)


def _announce(session: Session, model: TrainedModel) -> int:
    n_made = 0
    for day, counts in read_counts(session, model.id, 1).items():
        described: dict[str, Any] = describe_day(model.facts or {}, counts)
        if described["is_alarm"]:
            n_made += webhooks.announce(
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
    return n_made
