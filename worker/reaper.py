"""What a worker does besides its jobs: heartbeat, lost jobs, parents, notifications."""

import gc
import logging
import random
import time

from app import jobs
from app.observe import metrics
from app.settings import Settings, get_settings
from app.storage import db
from worker import janitor
from worker.hearing import hearing, reconnect
from worker.identity import WORKER_ID, busy, stopping
from worker.record import DATABASE_AWAY, heartbeat_worker

log = logging.getLogger(__name__)


MOST_AT_ONCE = 10
"""About how many workers see to the common things in one period: one would do."""


def run(settings: Settings, worker_id: str = WORKER_ID) -> None:
    """See to all that was lost or missed, and notify once if any job waits.

    All workers may run it at any time. Of many, those see to what is common to all on
    whom the lot falls. One that has a job does not notify: it looks for the next one
    itself, and messages that nobody takes would pile up.
    """
    heartbeat_worker(settings, worker_id)
    if random.random() * count_workers(settings) < MOST_AT_ONCE:
        see_to_lost(settings)
    with db.reading() as session:
        has_queued = jobs.has_queued(session, settings.worker_queue)
    if has_queued and not busy.is_set() and jobs.notify(None, settings.worker_queue):
        if hearing.note_sent():
            reconnect()


def count_workers(settings: Settings) -> int:
    with db.reading() as session:
        heard_within = 2 * settings.reaper_seconds
        queue = settings.worker_queue
        return jobs.count_workers(session, queue, heard_within=heard_within)


def see_to_lost(settings: Settings) -> None:
    """Jobs whose workers are gone, old checkpoints, parents that were not told."""
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
        gc.collect()  # connections that broke wait in cycles, and hold their sockets
        if stopping.wait(settings.reaper_seconds):
            return
