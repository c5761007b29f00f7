"""Messages are rows, written in the transaction of what they tell of."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.storage import db
from app.storage.enums import DeliveryStatus, EventType, FailureCode, WebhookEvent
from app.storage.tables import Delivery, Job, Webhook, new_id

_MAX_TEXT = 1000
_ENDS = {
    EventType.SUCCEEDED: WebhookEvent.JOB_SUCCEEDED,
    EventType.FAILED: WebhookEvent.JOB_FAILED,
}
_AT_ONCE = 1000


def is_wanted(session: Session, event: WebhookEvent) -> bool:
    """Whether any webhook of any workspace wants to hear of it."""
    chosen = session.scalars(sa.select(Webhook.events).where(Webhook.is_enabled))
    return any(event in each for each in chosen)


def announce(
    session: Session,
    workspace_id: str,
    event: WebhookEvent,
    data: Mapping[str, Any],
    *,
    key: str,
) -> int:
    """A message to each webhook of the workspace that wants to hear of it; how many.

    Args:
        key: what happened; the second time that it is announced is none.
    """
    webhooks = session.scalars(
        sa.select(Webhook).where(
            Webhook.workspace_id == workspace_id, Webhook.is_enabled
        )
    ).all()
    moment = db.now(session)
    n_made = 0
    for webhook in webhooks:
        if event not in webhook.events:
            continue
        body = {
            "type": str(event),
            "timestamp": moment.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "data": {"workspace_id": workspace_id, **data},
        }
        n_made += db.insert_unless_exists(
            session,
            Delivery,
            id=new_id("msg"),
            webhook_id=webhook.id,
            workspace_id=workspace_id,
            type=event,
            key=key,
            body=json.dumps(body, separators=(",", ":")),
            status=DeliveryStatus.PENDING,
            attempt=0,
            n_failed=0,
            next_at=moment,
            attempts=[],
            created_at=moment,
        )
    return n_made


def announce_ends(
    session: Session,
    rows: Sequence[tuple[str, str, int]],
    event: EventType,
    about: Mapping[str, Any],
) -> None:
    """Tell of jobs that have ended, if this event says so: of those that are no part
    of a sweep or a search.

    Args:
        rows: the id, the workspace and the number of the event.
    """
    if event not in _ENDS or not rows:
        return
    told = set(
        session.scalars(
            sa.select(Webhook.workspace_id).where(
                Webhook.workspace_id.in_({row[1] for row in rows}), Webhook.is_enabled
            )
        )
    )
    numbers = {job_id: seq for job_id, workspace, seq in rows if workspace in told}
    if not numbers:
        return
    columns = (Job.id, Job.workspace_id, Job.kind, Job.name, Job.dataset_id)
    jobs = session.execute(
        sa.select(*columns).where(Job.id.in_([*numbers]), Job.parent_id.is_(None))
    ).all()
    for id_, workspace_id, kind, name, dataset_id in jobs:
        data: dict[str, Any] = {
            "job_id": id_,
            "kind": kind,
            "name": name,
            "dataset_id": dataset_id,
        }
        if event == EventType.FAILED:
            data["error"] = _describe(about)
        else:
            data["model_id"] = about.get("model_id")
        key = f"{id_}/{numbers[id_]}"
        announce(session, workspace_id, _ENDS[event], data, key=key)


def _describe(error: Mapping[str, Any]) -> dict[str, str]:
    """A job's error, for a receiver that may be anybody's: what is wrong with a table
    quotes a cell of it."""
    detail = _INSTEAD.get(error.get("code", ""))
    if detail is not None:
        error = {**error, "detail": detail}
    return {name: str(value)[:_MAX_TEXT] for name, value in error.items()}


_INSTEAD: Mapping[str, str] = {
    FailureCode.BAD_DATA: "the table does not fit; the job's `error` says what is "
    "wrong with it",
    FailureCode.NO_SUCCESS: "none of its jobs succeeded; the job's `error` says why",
}


def remove_old(session: Session, *, days: float) -> int:
    """Forget messages that are that old, whatever became of them; some at a time."""
    before = db.now(session) - timedelta(days=days)
    old = (
        sa.select(Delivery.id)
        .where(Delivery.created_at < before)
        .order_by(Delivery.created_at)
        .limit(_AT_ONCE)
    )
    found = [*session.scalars(old)]
    session.execute(sa.delete(Delivery).where(Delivery.id.in_(found)))
    return len(found)
