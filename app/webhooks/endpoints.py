"""Webhooks as a workspace has them: their addresses and secrets."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import TooManyWebhooks
from app.settings import get_settings
from app.storage import db
from app.storage.enums import DeliveryStatus, WebhookEvent
from app.storage.tables import Delivery, Webhook, new_id
from app.webhooks.targets import check_written, read_url

PREFIX = "whsec_"
GRACE = timedelta(days=1)
"""For which the secret before signs too."""


def check_target(url: str) -> None:
    """Raise BadTarget if it can be told already that nothing will be sent there."""
    check_written(read_url(url), get_settings().webhook_networks)


def create_webhook(
    session: Session,
    *,
    workspace_id: str,
    url: str,
    events: Sequence[WebhookEvent],
    description: str | None,
) -> Webhook:
    check_target(url)
    n_webhooks = session.scalar(
        sa.select(sa.func.count()).where(Webhook.workspace_id == workspace_id)
    )
    limit = get_settings().for_workspace(workspace_id).max_webhooks
    if (n_webhooks or 0) >= limit:
        raise TooManyWebhooks()
    webhook = Webhook(
        id=new_id("wh"),
        workspace_id=workspace_id,
        url=url,
        events=[str(each) for each in events],
        description=description,
        secret=_new_secret(),
        created_at=db.now(session),
    )
    session.add(webhook)
    session.flush()
    return webhook


def rotate_secret(session: Session, webhook: Webhook) -> str:
    """A new secret; the one before signs too, for a day."""
    webhook.old_secret, webhook.secret = webhook.secret, _new_secret()
    webhook.old_until = db.now(session) + GRACE
    return webhook.secret


def redeliver(session: Session, webhook: Webhook, delivery: Delivery) -> None:
    """Send a message once more, as soon as may be, under the id it has."""
    delivery.status, delivery.n_failed = DeliveryStatus.PENDING, 0
    delivery.next_at, delivery.delivered_at = db.now(session), None
    webhook.not_before, webhook.n_failed = None, 0


def _new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(secret: str, id_: str, moment: datetime, body: bytes) -> str:
    """As Standard Webhooks has it: HMAC-SHA256 of the id, the time and the body."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    content = f"{id_}.{int(moment.timestamp())}.".encode() + body
    digest = hmac.new(key, content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
