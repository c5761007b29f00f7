"""What is due is sent, at least once: claimed, posted, settled.

No transaction is open while a receiver takes its time. A message is locked by whoever
sends it; if that one dies, another sends it again, under the same id and with the next
number in `lometab-attempt`. A receiver that fails is left alone for a while, with all
its messages, so that it holds up nobody else's.
"""

import logging
import random
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadTarget
from app.settings import Settings
from app.storage import db
from app.storage.enums import DeliveryStatus
from app.storage.tables import Delivery, Webhook
from app.webhooks.endpoints import sign
from app.webhooks.sending import Answer, post
from app.webhooks.targets import read_url, resolve

log = logging.getLogger(__name__)

AT_A_TIME = 4
"""Messages that a worker sends at the same time, each to another receiver."""
MAX_WAIT = 6 * 3600.0
KEPT_ATTEMPTS = 10
GONE = 410
"""A receiver that says so wants no more."""


class Claimed(NamedTuple):
    """A message that is ours to send."""

    id: str
    attempt: int
    url: str
    body: bytes
    secrets: tuple[str, ...]
    moment: datetime


def deliver_all(settings: Settings, stopping: threading.Event) -> None:
    """Send what is due, until there is nothing left or we are to stop."""
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(AT_A_TIME, "webhooks") as pool:
        while not stopping.is_set():
            claimed = _claim(settings) if len(running) < AT_A_TIME else None
            if claimed is not None:
                running.add(pool.submit(deliver, settings, claimed))
                continue
            if not running:
                return
            done, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for each in done:
                each.result()


def _claim(settings: Settings) -> Claimed | None:
    with db.transaction() as session:
        return claim(session, settings)


def claim(session: Session, settings: Settings) -> Claimed | None:
    """Lock the message that is due for longest, of a receiver that is free."""
    now = db.now(session)
    busy = sa.select(Delivery.webhook_id).where(Delivery.locked_until > now)
    row = session.execute(
        sa.select(Delivery, Webhook)
        .join(Webhook, Webhook.id == Delivery.webhook_id)
        .where(
            Delivery.status == DeliveryStatus.PENDING,
            Delivery.next_at <= now,
            sa.or_(Delivery.locked_until.is_(None), Delivery.locked_until <= now),
            Webhook.is_enabled,
            sa.or_(Webhook.not_before.is_(None), Webhook.not_before <= now),
            Delivery.webhook_id.not_in(busy),
        )
        .order_by(Delivery.next_at, Delivery.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=Delivery)
    ).first()
    if row is None:
        return None
    delivery, webhook = row
    delivery.attempt += 1
    # Names are resolved by others, who take their own time.
    delivery.locked_until = now + timedelta(seconds=60 + 2 * settings.webhook_seconds)
    secrets = [webhook.secret]
    if webhook.old_secret and webhook.old_until and webhook.old_until > now:
        secrets.append(webhook.old_secret)
    return Claimed(
        delivery.id,
        delivery.attempt,
        webhook.url,
        delivery.body.encode(),
        tuple(secrets),
        now,
    )


def deliver(settings: Settings, claimed: Claimed) -> None:
    answer = _send(settings, claimed)
    with db.transaction() as session:
        settle(session, settings, claimed, answer)


def _send(settings: Settings, claimed: Claimed) -> Answer:
    try:
        target = read_url(claimed.url)
        address = resolve(target, settings.webhook_networks)
    except BadTarget as error:
        return Answer(None, error.detail[:300], 0.0)
    except (OSError, UnicodeError) as error:
        return Answer(None, f"its name cannot be resolved: {error}"[:300], 0.0)
    signatures = [
        sign(secret, claimed.id, claimed.moment, claimed.body)
        for secret in claimed.secrets
    ]
    headers = {
        "Host": target.authority,
        "Content-Type": "application/json",
        "User-Agent": "lometab-webhooks",
        "Connection": "close",
        "webhook-id": claimed.id,
        "webhook-timestamp": str(int(claimed.moment.timestamp())),
        "webhook-signature": " ".join(signatures),
        "lometab-attempt": str(claimed.attempt),
    }
    return post(target, address, headers, claimed.body, settings.webhook_seconds)


def settle(
    session: Session, settings: Settings, claimed: Claimed, answer: Answer
) -> None:
    """Write down what came of it, unless somebody else sends it by now."""
    delivery = session.scalar(
        sa.select(Delivery).where(Delivery.id == claimed.id).with_for_update()
    )
    if delivery is None or delivery.attempt != claimed.attempt:
        return
    webhook = session.get_one(Webhook, delivery.webhook_id, with_for_update=True)
    now = db.now(session)
    entry = {
        "attempt": claimed.attempt,
        "at": claimed.moment.isoformat(),
        "status": answer.status,
        "error": answer.error,
        "seconds": answer.seconds,
    }
    delivery.attempts = [*delivery.attempts, entry][-KEPT_ATTEMPTS:]
    delivery.locked_until = None
    if answer.error is None:
        delivery.status, delivery.delivered_at = DeliveryStatus.DELIVERED, now
        webhook.n_failed, webhook.not_before = 0, None
        return
    log.warning("%s, attempt %s: %s", claimed.id, claimed.attempt, answer.error)
    delivery.n_failed += 1
    webhook.n_failed += 1
    if answer.status == GONE:
        webhook.is_enabled = False
    if delivery.n_failed >= settings.webhook_attempts or answer.status == GONE:
        delivery.status = DeliveryStatus.DEAD
    delivery.next_at = now + _wait(settings, delivery.n_failed)
    webhook.not_before = now + _wait(settings, webhook.n_failed)


def _wait(settings: Settings, n_failed: int) -> timedelta:
    seconds = settings.webhook_backoff_seconds * 5.0 ** (min(n_failed, 20) - 1)
    return timedelta(seconds=min(MAX_WAIT, seconds) * random.uniform(0.8, 1.2))
