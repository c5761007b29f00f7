"""Events out: webhooks of a workspace, an outbox, and what sends it."""

from app.webhooks.courier import deliver, deliver_all
from app.webhooks.endpoints import (
    check_target,
    create_webhook,
    redeliver,
    rotate_secret,
    sign,
)
from app.webhooks.outbox import announce, announce_ends, is_wanted, remove_old

__all__ = [
    "announce",
    "announce_ends",
    "check_target",
    "create_webhook",
    "deliver",
    "deliver_all",
    "is_wanted",
    "redeliver",
    "remove_old",
    "rotate_secret",
    "sign",
]
