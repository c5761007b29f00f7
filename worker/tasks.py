"""The Celery worker: claims a job, supervises the process that trains it, settles it.

A worker runs one job at a time, in Celery's solo pool: no fork, so that signals reach
the supervising loop itself. More workers train more jobs at once.
"""

import io
import json
import logging
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from celery.platforms import SecurityWarning
from celery.signals import worker_init, worker_shutdown, worker_shutting_down
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app import blobs, db, jobs
from app.models import DEFAULT_WORKSPACE, Dataset, Job
from app.queue import enqueue_training, get_celery
from app.settings import Settings, configure_logging, get_settings
from worker.lifeline import watch_stdin
from worker.train import CHECKPOINT, DATA, ONNX, REPORTS

log = logging.getLogger(__name__)
# Celery's warning to root is about pickled messages; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)

WORKER_ID = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
GRACE_SECONDS = 10.0  # for a child to end by itself
LEAVE_SECONDS = 10.0  # for a child to end its epoch when the worker has to go
PROGRESS_SECONDS = 0.5
WISH_SECONDS = 1.0

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
        self._is_cancelled = False
        self._orders: set[str] = set()
        self._happenings: list[jobs.Happening] = []
        self._written_at = self._looked_at = time.monotonic()
        self._leave_by = float("inf")

    def run(self) -> None:
        heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        heart.start()
        try:
            with tempfile.TemporaryDirectory(prefix="lometab-job-") as folder:
                self._run(Path(folder))
        except Exception as error:
            log.exception("%s: attempt %s broke", self.job.id, self.job.attempt)
            message = f"{type(error).__name__}: {str(error)[:500]}"
            self._settle(jobs.fail, {"code": "internal", "detail": message})
            raise
        finally:
            self.done.set()
            heart.join()

    def _run(self, folder: Path) -> None:
        with db.reading() as session:
            dataset = session.get_one(Dataset, self.job.dataset_id)
        with (folder / DATA).open("wb") as file:
            for chunk in blobs.chunks(dataset.workspace_id, dataset.table_sha256):
                file.write(chunk)
        if self.job.checkpoint_sha256 is not None:
            packed = blobs.read(self.job.workspace_id, self.job.checkpoint_sha256)
            _unpack(packed, folder / CHECKPOINT)
        n_killed = _count_oom_kills()
        exit_code = self._supervise(folder, dataset.sha256)
        if self.lost.is_set():
            log.warning("%s: attempt %s lost its lease", self.job.id, self.job.attempt)
        elif self._is_cancelled:
            self._settle(jobs.end_cancelled)
        elif exit_code == 0:
            self._publish(folder)
        elif stopping.is_set():
            self._settle(jobs.release)
        elif self.error is not None:
            self._settle(jobs.fail, self.error)
        elif exit_code == -signal.SIGKILL and _count_oom_kills() > n_killed:
            self._settle(jobs.fail, self._out_of_memory("the system ended it"))
        else:
            self._settle(
                jobs.lose,
                max_attempts=self.settings.max_attempts,
                reason=_describe_exit(exit_code, folder / "stderr"),
            )

    def _publish(self, folder: Path) -> None:
        onnx = (folder / ONNX).read_bytes()
        reports = json.loads((folder / REPORTS).read_text(encoding="utf-8"))
        for report in reports.values():
            report["job_id"] = self.job.id

        def publish(session: Session, job: Job) -> bool:
            return jobs.finish(
                session,
                job,
                onnx_sha256=blobs.store_bytes(job.workspace_id, onnx),
                reports=reports,
                progress=self.progress,
            )

        self._settle(publish)

    # The child

    def _supervise(self, folder: Path, dataset_sha256: str) -> int:
        """Run the child to its end, or end it; its exit code."""
        spec = {
            "config": self.job.config,
            "schema": self.job.schema,
            "dataset_sha256": dataset_sha256,
            "device": "cuda" if self.job.queue == "gpu" else "cpu",
            "threads": self._threads(),
            "checkpoint_seconds": self.settings.checkpoint_seconds,
            "supervisor": os.getpid(),
        }
        name = (self.job.id, str(self.job.attempt))
        with (folder / "stderr").open("wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-m", "worker.train", *name],
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
                if self._listen(child, folder):
                    _wait(child)
            except BrokenPipeError:
                _wait(child)  # it died at once; its exit code tells
            finally:
                _end(child)
            return child.wait()

    def _listen(self, child: subprocess.Popen[bytes], folder: Path) -> bool:
        """Take the child's lines until it has said all, or False if it has to end."""
        assert child.stdout is not None
        pipe = child.stdout.fileno()
        os.set_blocking(pipe, False)
        buffer = b""
        memory = psutil.Process(child.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not self.lost.is_set() and not self._is_cancelled:
                if selector.select(timeout=0.25):
                    content = os.read(pipe, 65536)
                    if not content:
                        return True
                    *lines, buffer = (buffer + content).split(b"\n")
                    for line in lines:
                        self._hear(json.loads(line), folder)
                self._write_progress()
                self._look_for_wishes(child)
                if time.monotonic() > self._leave_by or self._is_too_large(memory):
                    return False
        return False

    def _hear(self, message: dict[str, Any], folder: Path) -> None:
        if "error" in message:
            self.error = message["error"]
        if "phase" in message:
            self.phase = message["phase"]
            self._happenings.append(("phase", {"phase": self.phase}))
        if "progress" in message:
            self.progress = message["progress"]
            self._happenings.append(("epoch", self.progress))
        if "resumed" in message:
            self._happenings.append(("resumed", message["resumed"]))
        if "checkpoint" in message:
            self._keep_checkpoint(folder, **message["checkpoint"])

    def _keep_checkpoint(self, scratch: Path, *, folder: str, epoch: int) -> None:
        packed = _pack(scratch / folder)
        shutil.rmtree(scratch / folder)
        try:
            sha256 = blobs.store_bytes(self.job.workspace_id, packed)
            with db.writing() as session:
                jobs.keep_checkpoint(session, self.job, sha256=sha256, epoch=epoch)
        except DBAPIError as error:
            log.warning("%s: a checkpoint was not kept: %s", self.job.id, error)

    def _write_progress(self) -> None:
        moment = time.monotonic()
        if not self._happenings or moment - self._written_at < PROGRESS_SECONDS:
            return
        self._written_at = moment
        try:
            with db.writing() as session:
                if not jobs.report_progress(
                    session, self.job, self.phase, self.progress, self._happenings
                ):
                    self.lost.set()
            self._happenings = []
        except DBAPIError as error:
            log.warning("%s: progress is not written yet: %s", self.job.id, error)

    def _look_for_wishes(self, child: subprocess.Popen[bytes]) -> None:
        """Hand on what the caller, the clock or our own end wants of the child."""
        moment = time.monotonic()
        if stopping.is_set() and "leave" not in self._orders:
            self._leave_by = moment + LEAVE_SECONDS
            self._order(child, "leave")
        if moment - self._looked_at < WISH_SECONDS:
            return
        self._looked_at = moment
        try:
            with db.reading() as session:
                status = jobs.read_wish(session, self.job)
            if self._is_out_of_time() and status == "running":
                with db.writing() as session:
                    jobs.stop(session, self.job)
        except DBAPIError as error:
            log.warning("%s: its wishes are not known now: %s", self.job.id, error)
            return
        if status is None:
            self.lost.set()
        elif status == "cancelling":
            self._is_cancelled = True
        elif status == "stopping" and "stop" not in self._orders:
            self._order(child, "stop")

    def _order(self, child: subprocess.Popen[bytes], word: str) -> None:
        self._orders.add(word)
        assert child.stdin is not None
        try:
            child.stdin.write(word.encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it is ending anyway

    def _is_out_of_time(self) -> bool:
        budget = self.job.config.get("max_runtime_seconds")
        if budget is None or self.job.started_at is None:
            return False
        elapsed = datetime.now(UTC) - self.job.started_at
        return elapsed > timedelta(seconds=budget)

    def _is_too_large(self, process: psutil.Process) -> bool:
        limit = self.settings.max_training_bytes or psutil.virtual_memory().total * 0.9
        try:
            size: int = process.memory_info().rss
        except psutil.NoSuchProcess:
            return False
        if size <= limit:
            return False
        self.error = self._out_of_memory(
            f"it took {size >> 20} MiB where {int(limit) >> 20} MiB are allowed"
        )
        return True

    def _out_of_memory(self, evidence: str) -> dict[str, Any]:
        expected = self.job.estimate.get("memory_bytes")
        guess = f" ({expected >> 20} MiB were expected)" if expected else ""
        return {
            "code": "out_of_memory",
            "detail": f"training ran out of memory: {evidence}{guess}; try a smaller "
            "k, d_block or batch_size",
        }

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
                    if jobs.beat(session, self.job, lease) is None:
                        self.lost.set()
                        return
                renewed_at = time.monotonic()
            except DBAPIError as error:
                log.warning("%s: the lease was not renewed: %s", self.job.id, error)
                if time.monotonic() - renewed_at > lease * 3 / 4:
                    self.lost.set()
                    return

    def _settle(self, move: Callable[..., bool], *args: Any, **kwargs: Any) -> None:
        """Write the end of the attempt, however long the database is away.

        If a cancel came first, the end is that.
        """
        happenings, self._happenings = self._happenings, []
        while not self.lost.is_set():
            try:
                with db.writing() as session:
                    if happenings:
                        jobs.report_progress(
                            session, self.job, self.phase, self.progress, happenings
                        )
                        happenings = []
                    if not move(session, self.job, *args, **kwargs):
                        move = jobs.end_cancelled
                        move(session, self.job)
            except DBAPIError as error:
                log.warning("%s: the end is not written yet: %s", self.job.id, error)
                time.sleep(0.5)
                continue
            log.info("%s: attempt %s ended", self.job.id, self.job.attempt)
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
    with suppress(BrokenPipeError):  # what a dead child did not read is still in there
        child.stdin.close()
    if not _wait(child):
        child.kill()


def _describe_exit(exit_code: int, stderr: Path) -> str:
    if exit_code < 0:
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    lines = stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = f": {lines[-1][:300]}" if lines else ""
    return f"its process ended with exit code {exit_code}{last}"


def _count_oom_kills() -> int:
    """How often the kernel has killed for memory in our control group."""
    try:
        lines = Path("/sys/fs/cgroup/memory.events").read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split() for line in lines)
    return int(counts.get("oom_kill", 0))


def _pack(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)
    return file.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")


# What a worker does besides its jobs


def patrol(settings: Settings) -> None:
    """Beat, take back lost jobs, and ring once if any job waits. All may run it."""
    with db.writing() as session:
        jobs.beat_worker(
            session,
            worker_id=WORKER_ID,
            queue=settings.worker_queue,
            workspace_id=DEFAULT_WORKSPACE,
        )
        stalled = jobs.requeue_stalled(session, max_attempts=settings.max_attempts)
        jobs.drop_old_checkpoints(
            session, kept_seconds=settings.checkpoint_kept_seconds
        )
    if stalled:
        log.warning("%s jobs were taken back from lost workers", stalled)
    with db.reading() as session:
        has_queued = jobs.count_queued(session, settings.worker_queue) > 0
    if has_queued:
        enqueue_training(None, settings.worker_queue)


def _patrol_for_ever() -> None:
    settings = get_settings()
    while True:
        try:
            patrol(settings)
        except DBAPIError as error:
            log.warning("the patrol will be tried again: %s", error)
        if stopping.wait(settings.patrol_seconds):
            return


@worker_init.connect  # type: ignore[untyped-decorator]
def start(**_: object) -> None:
    configure_logging()
    if get_settings().exit_with_parent:
        watch_stdin(lambda: os.kill(os.getpid(), signal.SIGTERM))
    threading.Thread(target=_patrol_for_ever, name="patrol", daemon=True).start()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def stop(**_: object) -> None:
    stopping.set()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def leave(**_: object) -> None:
    with db.writing() as session:
        jobs.forget_worker(session, WORKER_ID)
