"""The Celery worker: claims a job, supervises the process that trains it, settles it.

A worker runs one job at a time, in Celery's solo pool: no fork, so that signals reach
the supervising loop itself. More workers train more jobs at once. The process that
trained a cell of a sweep goes on to the next one, if that is what comes next: each cell
has its own claim and its own lease, but torch is loaded and the table is read once.
"""

import gc
import logging
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from celery.platforms import SecurityWarning
from celery.signals import worker_init, worker_shutdown, worker_shutting_down

from app import jobs
from app.lifeline import end_with_parent
from app.observe import Reporting, about, configure_logging, traces
from app.settings import get_settings
from app.storage import db, scratch
from app.storage.enums import JobRole
from app.storage.tables import Job
from lometab.errors import MissingPackage
from worker import courier, reaper, record
from worker.child import Children, ProcessChild
from worker.consumer import Consumer
from worker.health import Health
from worker.hearing import hearing, listen_for_reconnect
from worker.identity import WORKER_ID, busy, stopping
from worker.supervise import Attempt

log = logging.getLogger("worker.tasks")  # not `__main__`, as which it runs
# Celery's warning to root is about pickled messages; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)

celery = jobs.get_celery()
health = Health()
reporting = Reporting()
WAIT_SECONDS = 1.0


@celery.task(name="train")  # type: ignore[untyped-decorator]
def train(job_id: str | None = None) -> None:
    """A notification: run the named job if it waits, then whatever else waits."""
    busy.set()
    hearing.note_heard()
    settings = get_settings()
    children = Children(lambda: ProcessChild(settings))
    try:
        while health.wait_until_fit(stopping) and run_training(job_id, children):
            job_id = None
    except record.DATABASE_AWAY as error:
        log.warning("no job is claimed, the reaper will notify again: %s", error)
    finally:
        busy.clear()
        children.end()


def run_training(job_id: str | None, children: Children) -> bool:
    """Claim one job and see it through; whether there was one."""
    settings = get_settings()
    job = record.claim(settings, WORKER_ID, job_id)
    if job is None:
        return False
    with about(**_name(job)):
        log.info("%s: attempt %s begins", job.id, job.attempt)
        _begin_parent(job)
        try:
            Attempt(job, settings, children, health).run()
        finally:
            _update_parent(job)
    return True


def _name(job: Job) -> dict[str, object]:
    """The ids of what an attempt is about; of the request too, if it was traced."""
    ids = {"job_id": job.id, "attempt": job.attempt, "workspace_id": job.workspace_id}
    if job.traceparent is None:
        return ids
    return {**ids, "trace_id": traces.read_trace_id(job.traceparent)}


def _begin_parent(job: Job) -> None:
    """If the database is away, the reaper sees to it; so with what follows."""
    if job.parent_id is not None:
        with _unless_away(job.parent_id):
            record.begin_parent(job.parent_id)


def _update_parent(job: Job) -> None:
    if job.parent_id is None:
        return
    with _unless_away(job.parent_id):
        for made in record.update_parent(job):
            jobs.notify(made.id, made.queue)
    if job.role == JobRole.TRIAL:
        with _unless_away(job.parent_id):
            record.update_study(job.parent_id)
    if job.role == JobRole.ASSEMBLE:
        with _unless_away(job.parent_id):
            record.drop_answers(get_settings())


@contextmanager
def _unless_away(parent_id: str) -> Iterator[None]:
    try:
        yield
    except record.DATABASE_AWAY as error:
        log.warning("%s: it is told of its child later: %s", parent_id, error)


@worker_init.connect  # type: ignore[untyped-decorator]
def start(**_: object) -> None:
    """Celery only logs what goes wrong in here, and a worker without these threads
    looks as if it worked: so that is its end."""
    try:
        _start_threads()
    except Exception as error:
        log.exception("this worker does not start")
        raise SystemExit(1) from error


def _start_threads() -> None:
    configure_logging()
    if get_settings().exit_with_parent:
        end_with_parent()
    listen_for_reconnect()
    reporting.start()
    for each in (reaper, courier):
        name = each.__name__.rpartition(".")[2]
        threading.Thread(target=each.run_for_ever, name=name, daemon=True).start()
    gc.freeze()  # what is loaded stays, and the exit need not look through it


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def stop(**_: object) -> None:
    stopping.set()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def leave(**_: object) -> None:
    reporting.stop()
    traces.end()
    try:
        record.forget_worker(WORKER_ID)
    except record.DATABASE_AWAY as error:
        log.warning("this worker is forgotten later: %s", error)


def _begin_traces() -> None:
    try:
        traces.begin("lometab-worker")
    except MissingPackage as error:
        sys.exit(f"this worker does not start: {error}")


def wait_for_database() -> None:
    """Wait until it is there; end this process if its tables are not this version's."""
    while True:
        try:
            record.check_revision()
            # Before any job: those that start with us shall know of us.
            record.heartbeat_worker(get_settings(), WORKER_ID)
            return
        except record.WrongRevision as error:
            sys.exit(f"this worker does not start: {error}")
        except record.DATABASE_AWAY as error:
            log.error("this worker waits for the database: %s", error)
            time.sleep(WAIT_SECONDS)


def main() -> None:
    """Run one worker. Unlike `celery --app`, this imports nothing from the folder in
    which it is started."""
    configure_logging()
    _begin_traces()
    db.keep_one_connection()
    wait_for_database()
    options = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    queue = get_settings().worker_queue
    celery.conf.worker_consumer = Consumer
    # Until Celery has its own: so that our folder is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with scratch.use_own_folder():
        celery.worker_main(
            [
                *("--quiet", "worker", "--pool", "solo", "--queues", queue),
                *(*options, "--loglevel", "WARNING"),
            ]
        )


if __name__ == "__main__":
    main()
