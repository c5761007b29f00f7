"""The Celery worker: claims a job, supervises the process that trains it, settles it.

A worker runs one job at a time, in Celery's solo pool: no fork, so that signals reach
the supervising loop itself. More workers train more jobs at once.
"""

import json
import logging
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery.platforms import SecurityWarning
from celery.signals import worker_init, worker_shutdown, worker_shutting_down
from sqlalchemy.exc import DBAPIError

from app import blobs, db, jobs
from app.models import DEFAULT_WORKSPACE, Dataset, Job
from app.queue import enqueue_training, get_celery
from app.settings import Settings, configure_logging, get_settings
from worker.lifeline import watch_stdin
from worker.train import DATA, ONNX, REPORTS

log = logging.getLogger(__name__)
# Celery's warning to root is about pickled messages; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)

WORKER_ID = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
GRACE_SECONDS = 5.0
PROGRESS_SECONDS = 0.5

stopping = threading.Event()
celery = get_celery()


@celery.task(name="train")  # type: ignore[untyped-decorator]
def train(job_id: str | None = None) -> None:
    """The bell: run the named job if it waits, and then whatever else waits."""
    while not stopping.is_set() and run_training(job_id):
        job_id = None


def run_training(job_id: str | None = None) -> bool:
    """Claim one job and see it through; whether there was one."""
    settings = get_settings()
    with db.writing() as session:
        job = jobs.claim(
            session,
            queue=settings.worker_queue,
            owner=WORKER_ID,
            lease_seconds=settings.lease_seconds,
            job_id=job_id,
        )
    if job is None:
        return False
    log.info("%s: attempt %s begins", job.id, job.attempt)
    Attempt(job, settings).run()
    return True


class Attempt:
    """One attempt at a job: the child process, the lease, and how it ended."""

    def __init__(self, job: Job, settings: Settings) -> None:
        self.job = job
        self.settings = settings
        self.lost = threading.Event()
        self.done = threading.Event()
        self.phase = "preparing"
        self.progress = job.progress
        self.error: dict[str, Any] | None = None
        self._unwritten_since: float | None = None

    def run(self) -> None:
        heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        heart.start()
        try:
            with tempfile.TemporaryDirectory(prefix="lometab-job-") as folder:
                self._run(Path(folder))
        except Exception as error:
            log.exception("%s: attempt %s broke", self.job.id, self.job.attempt)
            message = f"{type(error).__name__}: {str(error)[:500]}"
            self._settle("failed", jobs.fail, {"code": "internal", "message": message})
            raise
        finally:
            self.done.set()
            heart.join()

    def _run(self, folder: Path) -> None:
        with db.reading() as session:
            dataset = session.get_one(Dataset, self.job.dataset_id)
        with (folder / DATA).open("wb") as file:
            for chunk in blobs.chunks(dataset.workspace_id, dataset.sha256):
                file.write(chunk)
        exit_code = self._supervise(folder, dataset.sha256)
        if self.lost.is_set():
            log.warning("%s: attempt %s lost its lease", self.job.id, self.job.attempt)
        elif exit_code == 0:
            sha256 = blobs.store_bytes(
                self.job.workspace_id, (folder / ONNX).read_bytes()
            )
            reports = json.loads((folder / REPORTS).read_text(encoding="utf-8"))
            for report in reports.values():
                report["job_id"] = self.job.id
            self._settle(
                "succeeded",
                jobs.finish,
                onnx_sha256=sha256,
                reports=reports,
                progress=self.progress,
            )
        elif stopping.is_set():
            self._settle("released", jobs.release)
        elif self.error is not None:
            self._settle("failed", jobs.fail, self.error)
        else:
            reason = _describe_exit(exit_code, folder / "stderr")
            self._settle(
                "lost",
                jobs.lose,
                max_attempts=self.settings.max_attempts,
                reason=reason,
            )

    # The child

    def _supervise(self, folder: Path, dataset_sha256: str) -> int:
        """Run the child to its end, or end it; its exit code."""
        spec = {
            "config": self.job.config,
            "schema": self.job.schema,
            "dataset_sha256": dataset_sha256,
            "device": "cuda" if self.job.queue == "gpu" else "cpu",
            "threads": self._threads(),
            "supervisor": os.getpid(),
        }
        with (folder / "stderr").open("wb") as stderr:
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "worker.train",
                    self.job.id,
                    str(self.job.attempt),
                ],
                cwd=folder,
                env=self._environment(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        with child:
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(json.dumps(spec).encode() + b"\n")
                child.stdin.flush()
                if self._listen(child.stdout.fileno()):
                    _wait(child)
            except BrokenPipeError:
                _wait(child)  # it died at once; its exit code tells
            finally:
                _end(child)
            return child.wait()

    def _listen(self, pipe: int) -> bool:
        """Take the child's lines until it has said all, or False if it has to end."""
        os.set_blocking(pipe, False)
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not self.lost.is_set() and not stopping.is_set():
                if selector.select(timeout=0.25):
                    content = os.read(pipe, 65536)
                    if not content:
                        return True
                    *lines, buffer = (buffer + content).split(b"\n")
                    for line in lines:
                        self._hear(json.loads(line))
                self._write_progress()
        return False

    def _hear(self, message: dict[str, Any]) -> None:
        if "error" in message:
            self.error = message["error"]
            return
        if "phase" in message:
            self.phase = message["phase"]
        if "progress" in message:
            self.progress = message["progress"]
        if self._unwritten_since is None:
            self._unwritten_since = time.monotonic()

    def _write_progress(self) -> None:
        if (
            self._unwritten_since is None
            or time.monotonic() - self._unwritten_since < PROGRESS_SECONDS
        ):
            return
        try:
            with db.writing() as session:
                if not jobs.report_progress(
                    session, self.job, self.phase, self.progress
                ):
                    self.lost.set()
        except DBAPIError as error:
            log.warning("%s: progress was not written: %s", self.job.id, error)
        self._unwritten_since = None

    def _threads(self) -> int:
        return self.settings.training_threads or os.cpu_count() or 1

    def _environment(self, folder: Path) -> dict[str, str]:
        """The child's limits; what it leaves in its temporary folder goes with it."""
        threads = str(self._threads())
        limits = {
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "TMPDIR": str(folder),
        }
        if self.job.queue == "cpu":
            limits["CUDA_VISIBLE_DEVICES"] = ""
        return self.settings.environment() | limits

    # The row

    def _beat(self) -> None:
        """Renew the lease; stop by ourselves before anyone could take it over."""
        lease = self.settings.lease_seconds
        renewed_at = time.monotonic()
        while not self.done.wait(lease / 4):
            try:
                with db.writing() as session:
                    if not jobs.beat(session, self.job, lease):
                        self.lost.set()
                        return
                renewed_at = time.monotonic()
            except DBAPIError as error:
                log.warning("%s: the lease was not renewed: %s", self.job.id, error)
                if time.monotonic() - renewed_at > lease * 3 / 4:
                    self.lost.set()
                    return

    def _settle(
        self, outcome: str, move: Callable[..., bool], *args: Any, **kwargs: Any
    ) -> None:
        """Write the end of the attempt, however long the database is away."""
        while not self.lost.is_set():
            try:
                with db.writing() as session:
                    moved = move(session, self.job, *args, **kwargs)
            except DBAPIError as error:
                log.warning("%s: the end was not written: %s", self.job.id, error)
                time.sleep(0.5)
                continue
            if moved:
                log.info("%s: attempt %s %s", self.job.id, self.job.attempt, outcome)
            return


def _wait(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child ends by itself within the grace."""
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """Close the child's standard input, by which it ends; kill it if it does not."""
    assert child.stdin is not None
    if child.poll() is None:
        child.stdin.close()
        if not _wait(child):
            child.kill()


def _describe_exit(exit_code: int, stderr: Path) -> str:
    if exit_code < 0:
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    lines = stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = f": {lines[-1][:300]}" if lines else ""
    return f"its process ended with exit code {exit_code}{last}"


# What a worker does besides its jobs


def sweep(settings: Settings) -> None:
    """Beat, take back lost jobs, and ring once if any job waits. All may run it."""
    with db.writing() as session:
        jobs.beat_worker(
            session,
            worker_id=WORKER_ID,
            queue=settings.worker_queue,
            workspace_id=DEFAULT_WORKSPACE,
        )
        stalled = jobs.requeue_stalled(session, max_attempts=settings.max_attempts)
    if stalled:
        log.warning("%s jobs were taken back from lost workers", stalled)
    with db.reading() as session:
        has_queued = jobs.count_queued(session, settings.worker_queue) > 0
    if has_queued:
        enqueue_training(None, settings.worker_queue)


def _sweep_for_ever() -> None:
    settings = get_settings()
    while True:
        try:
            sweep(settings)
        except DBAPIError as error:
            log.warning("the sweep will be tried again: %s", error)
        if stopping.wait(settings.sweep_seconds):
            return


@worker_init.connect  # type: ignore[untyped-decorator]
def start(**_: object) -> None:
    configure_logging()
    if get_settings().exit_with_parent:
        watch_stdin(lambda: os.kill(os.getpid(), signal.SIGTERM))
    threading.Thread(target=_sweep_for_ever, name="sweep", daemon=True).start()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def stop(**_: object) -> None:
    stopping.set()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def leave(**_: object) -> None:
    with db.writing() as session:
        jobs.forget_worker(session, WORKER_ID)
