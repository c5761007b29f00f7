"""Messages to webhooks are sent beside all else that a worker does."""

import logging
import time

from app import webhooks
from app.settings import Settings, get_settings
from app.storage import db
from app.storage.enums import WebhookEvent
from worker.identity import stopping
from worker.record import DATABASE_AWAY

log = logging.getLogger(__name__)

ALARM_SECONDS = 60.0


def run(settings: Settings) -> None:
    """All workers may run it at any time."""
    webhooks.deliver_all(settings, stopping)


def look_for_alarms() -> None:
    with db.reading() as session:
        if not webhooks.is_wanted(session, WebhookEvent.MONITOR_ALARM):
            return
    from app import monitor  # it loads more than a worker needs

    with db.transaction() as session:
        monitor.announce_alarms(session)


def run_for_ever() -> None:
    """In a thread of its own, as receivers may take long."""
    settings = get_settings()
    alarms_at = 0.0
    while not stopping.wait(settings.webhook_poll_seconds):
        try:
            if time.monotonic() >= alarms_at:
                alarms_at = time.monotonic() + ALARM_SECONDS
                look_for_alarms()
            run(settings)
        except DATABASE_AWAY as error:
            log.warning("messages to webhooks wait: %s", error)
        except Exception:
            log.exception("messages to webhooks wait")
