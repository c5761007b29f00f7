"""What a worker does besides its jobs: heartbeat, lost jobs, parents, notifications."""

import logging
import time

from app import jobs
from app.observe import metrics
from app.settings import Settings, get_settings
from app.storage import db
from worker import janitor
from worker.identity import WORKER_ID, stopping
from worker.record import DATABASE_AWAY, heartbeat_worker

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """See to all that was lost or missed, and notify once if any job waits.

    All workers may run it at any time.
    """
    heartbeat_worker(settings, WORKER_ID)
    with db.transaction() as session:
        n_lost = jobs.requeue_stalled(session, max_attempts=settings.max_attempts)
    with db.transaction() as session:
        kept_seconds = settings.checkpoint_kept_seconds
        jobs.drop_old_checkpoints(session, kept_seconds=kept_seconds)
    with db.reading() as session:
        parent_ids = jobs.list_open(session)
    for parent_id in parent_ids:
        with db.transaction() as session:
            jobs.reconcile(session, parent_id)
    if n_lost:
        metrics.EXPIRED.add(n=n_lost)
        log.warning("%s jobs were taken back from lost workers", n_lost)
    with db.reading() as session:
        has_queued = jobs.count_queued(session, settings.worker_queue) > 0
    if has_queued:
        jobs.notify(None, settings.worker_queue)


def run_for_ever() -> None:
    """In a thread, which nothing but the end of the worker may end."""
    settings = get_settings()
    clean_at = 0.0
    while True:
        try:
            run(settings)
            if time.monotonic() >= clean_at:
                clean_at = time.monotonic() + settings.janitor_seconds
                janitor.run(settings)
        except DATABASE_AWAY as error:
            log.warning("the reaper tries again: %s", error)
        except Exception:
            log.exception("the reaper tries again")
        if stopping.wait(settings.reaper_seconds):
            return
