"""What dead processes and cut off requests leave behind is cleared away."""

import logging

from app import jobs, retention, webhooks
from app.settings import Settings
from app.storage import blobs, db, orphans, scratch

log = logging.getLogger(__name__)

DEAD_SECONDS = 3600.0


def run(settings: Settings) -> None:
    """All workers may run it at any time; each has temporary folders of its own."""
    scratch.remove_abandoned(scratch.find_base())
    dead_after = max(DEAD_SECONDS, 20 * settings.reaper_seconds)
    with db.transaction() as session:
        n_dead = jobs.forget_dead_workers(session, silent_for=dead_after)
    jobs.drop_answers(kept_seconds=settings.checkpoint_kept_seconds)
    with db.transaction() as session:
        webhooks.remove_old(session, days=settings.webhook_days)
    n_old = retention.sweep(settings)
    if n_old:
        log.info("%s rows were older than they are to be kept", n_old)
    try:
        n_orphans = orphans.remove_orphans()
    except blobs.StoreAway as error:  # the rest is for the next time
        log.warning("objects that nothing refers to stay for now: %s", error)
        n_orphans = 0
    if n_dead or n_orphans:
        log.warning(
            "removed: %s rows of dead workers, %s stored files that nothing refers to",
            n_dead,
            n_orphans,
        )
