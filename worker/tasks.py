"""The Celery worker: claims a job, supervises the process that trains it, settles it.

A worker runs one job at a time, in Celery's solo pool: no fork, so that signals reach
the supervising loop itself. More workers train more jobs at once. The process that
trained a cell of a sweep goes on to the next one, if that is what comes next: each cell
has its own claim and its own lease, but torch is loaded and the table is read once.
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
from typing import TYPE_CHECKING, Any

import psutil
from celery.platforms import SecurityWarning
from celery.signals import worker_init, worker_shutdown, worker_shutting_down
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.orm import Session

from app import blobs, db, jobs, sweeps
from app.models import DEFAULT_WORKSPACE, Dataset, Job
from app.queue import enqueue_training, get_celery
from app.settings import Settings, configure_logging, get_settings
from lometab.outcome import Outcome
from worker.lifeline import watch_stdin
from worker.train import CHECKPOINT, DATA, ONNX, OUTCOME, REPORTS, WEIGHTS

if TYPE_CHECKING:
    from app.tuning import Trial

log = logging.getLogger(__name__)
# Celery's warning to root is about pickled messages; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)

WORKER_ID = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
GRACE_SECONDS = 10.0  # for a child to end by itself
LEAVE_SECONDS = 10.0  # for a child to end its epoch when the worker has to go
PROGRESS_SECONDS = 0.5
STDERR = "stderr"
WISH_SECONDS = 1.0
DRAW_SECONDS = 5.0  # until settings that could not be drawn are asked for again

stopping = threading.Event()
celery = get_celery()


@celery.task(name="train")  # type: ignore[untyped-decorator]
def train(job_id: str | None = None) -> None:
    """The bell: run the named job if it waits, and then whatever else waits."""
    crew = Crew()
    try:
        while not stopping.is_set() and run_training(job_id, crew):
            job_id = None
    finally:
        crew.dismiss()


def run_training(job_id: str | None, crew: "Crew") -> bool:
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
    if job.parent_id is not None:
        _tell_parent(sweeps.begin, job.parent_id)
    try:
        Attempt(job, settings, crew).run()
    finally:
        if job.parent_id is not None:
            _tell_parent(sweeps.follow, job)
            if "trial_of" in job.config:
                _tell_study(job.parent_id)
    return True


def _tell_parent(tell: Callable[..., list[Job] | None], *args: Any) -> None:
    """If the database is away, a patrol sees to it."""
    try:
        with db.writing() as session:
            made = tell(session, *args)
    except DBAPIError as error:
        log.warning("a sweep is told later: %s", error)
        return
    for job in made or []:
        enqueue_training(job.id, job.queue)


def _tell_study(parent_id: str) -> None:
    """What the trials came to; if the database is away, with the next trial."""
    from app import tuning  # Optuna: only for those who tune

    try:
        tuning.tell_all(parent_id)
    except (DBAPIError, tuning.StudyError, KeyError) as error:  # or there is none
        log.warning("%s: its study is told later: %s", parent_id, error)


class Crew:
    """The process that trained the last job, if it may go on with the next."""

    def __init__(self) -> None:
        self._trainer: Trainer | None = None

    def take(self, job: Job, settings: Settings) -> "Trainer":
        """A process for this job: that of the cell before, or a new one."""
        kept, self._trainer = self._trainer, None
        if kept is not None:
            is_next = job.config.get("is_cell") and kept.parent_id == job.parent_id
            if is_next and kept.process.poll() is None:
                kept.clear()
                return kept
            kept.end()
            kept.leave()
        return Trainer(job, settings)

    def keep(self, trainer: "Trainer") -> None:
        self._trainer = trainer

    def dismiss(self) -> None:
        if self._trainer is not None:
            self._trainer.end()
            self._trainer.leave()
            self._trainer = None


class Trainer:
    """A process that trains, and the folder it works in."""

    def __init__(self, job: Job, settings: Settings) -> None:
        self.parent_id = job.parent_id
        self.threads = settings.training_threads or os.cpu_count() or 1
        self._scratch = tempfile.TemporaryDirectory(prefix="lometab-job-")
        self.folder = Path(self._scratch.name)
        with db.reading() as session:
            dataset = session.get_one(Dataset, job.dataset_id)
        self.dataset_sha256 = dataset.sha256
        with (self.folder / DATA).open("wb") as file:
            for chunk in blobs.chunks(dataset.workspace_id, dataset.table_sha256):
                file.write(chunk)
        with (self.folder / STDERR).open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "worker.train", job.id, str(job.attempt)],
                cwd=self.folder,
                env=self._environment(job, settings),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        os.set_blocking(self.pipe, False)

    def _environment(self, job: Job, settings: Settings) -> dict[str, str]:
        """The process's limits; what it leaves in its temporary folder goes with it."""
        limits = {
            "OMP_NUM_THREADS": str(self.threads),
            "MKL_NUM_THREADS": str(self.threads),
            "TMPDIR": str(self.folder),
        }
        if job.queue == "cpu":
            limits["CUDA_VISIBLE_DEVICES"] = ""
        return settings.environment() | limits

    def clear(self) -> None:
        """Remove what the job before has left."""
        for path in self.folder.iterdir():
            if path.name in (DATA, STDERR):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def say(self, line: str) -> None:
        """A spec or an order; if the process is ending, nobody hears it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def wait(self) -> bool:
        """Whether it ends by itself within the grace."""
        try:
            self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> int:
        """Close its standard input, by which it ends; kill it if it does not."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):  # what it did not read is still in there
            self.process.stdin.close()
        if not self.wait():
            self.process.kill()
        exit_code = self.process.wait()
        self.process.stdout.close()
        return exit_code

    def leave(self) -> None:
        """Remove the folder."""
        self._scratch.cleanup()


class Attempt:
    """One attempt at a job: the process that trains, the lease, and how it ended."""

    def __init__(self, job: Job, settings: Settings, crew: Crew) -> None:
        self.job = job
        self.settings = settings
        self.crew = crew
        self.is_cell = bool(job.config.get("is_cell"))
        self.lost = threading.Event()
        self.done = threading.Event()
        self.phase = "preparing"
        self.progress = job.progress
        self.error: dict[str, Any] | None = None
        self.trial: Trial | None = None
        self._is_cancelled = False
        self._is_done = False
        self._is_pruned = False
        self._orders: set[str] = set()
        self._happenings: list[jobs.Happening] = []
        self._written_at = self._looked_at = time.monotonic()
        self._leave_by = float("inf")

    def run(self) -> None:
        heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        heart.start()
        try:
            self._run()
        except Exception as error:
            log.exception("%s: attempt %s broke", self.job.id, self.job.attempt)
            message = f"{type(error).__name__}: {str(error)[:500]}"
            self._settle(jobs.fail, {"code": "internal", "detail": message})
            raise
        finally:
            self.done.set()
            heart.join()

    def _run(self) -> None:
        if "trial_of" in self.job.config and not self._draw():
            return
        trainer = self.crew.take(self.job, self.settings)
        is_kept = False
        try:
            folder = trainer.folder
            if self.job.checkpoint_sha256 is not None:
                packed = blobs.read(self.job.workspace_id, self.job.checkpoint_sha256)
                _unpack(packed, folder / CHECKPOINT)
            n_killed = _count_oom_kills()
            exit_code = self._supervise(trainer)
            if self.lost.is_set():
                log.warning(
                    "%s: attempt %s lost its lease", self.job.id, self.job.attempt
                )
            elif self._is_cancelled:
                self._settle(jobs.end_cancelled)
            elif exit_code == 0:
                if self.is_cell:
                    self._publish_cell(folder)
                    is_kept = True
                else:
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
                    reason=_describe_exit(exit_code, folder / STDERR),
                )
        finally:
            if is_kept:
                self.crew.keep(trainer)
            else:
                trainer.end()
                trainer.leave()

    def _draw(self) -> bool:
        """Settings of a trial: those an earlier attempt had, or new ones."""
        from app.tuning import StudyError, Trial  # Optuna: only for those who tune

        try:
            self.trial = Trial(self.job)
            with db.writing() as session:
                return jobs.set_hyperparameters(
                    session, self.job, self.trial.hyperparameters
                )
        except (DBAPIError, StudyError) as error:
            log.warning("%s: its settings cannot be drawn now: %s", self.job.id, error)
            stopping.wait(DRAW_SECONDS)
            self._settle(jobs.release)
            return False

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

    def _publish_cell(self, folder: Path) -> None:
        """The outcome, and the weights if it is one of the best of its siblings."""
        state = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
        state["is_pruned"] = self._is_pruned
        outcome = Outcome.from_dict(state)

        def publish(session: Session, job: Job) -> bool:
            weights = None
            has_weights = (folder / WEIGHTS).exists()  # CatBoost has none
            if has_weights and sweeps.is_worth_keeping(session, job, outcome):
                session.rollback()  # storing the weights takes a transaction of its own
                packed = _pack(folder / WEIGHTS)
                weights = blobs.store_bytes(job.workspace_id, packed)
            is_done = jobs.finish_cell(
                session,
                job,
                outcome=state,
                progress=self.progress,
                weights_sha256=weights,
            )
            if is_done and weights is not None:
                sweeps.drop_weights(session, job)
            return is_done

        self._settle(publish)

    # The process that trains

    def _supervise(self, trainer: Trainer) -> int:
        """See it through the job, or end it; its exit code, 0 if it may go on."""
        spec = {
            "config": self.job.config,
            "schema": self.job.schema,
            "dataset_sha256": trainer.dataset_sha256,
            "device": "cuda" if self.job.queue == "gpu" else "cpu",
            "threads": trainer.threads,
            "checkpoint_seconds": self.settings.checkpoint_seconds,
            "supervisor": os.getpid(),
        }
        trainer.say(json.dumps(spec))
        if self._listen(trainer):
            if self._is_done:
                return 0
            trainer.wait()
        return trainer.end()

    def _listen(self, trainer: Trainer) -> bool:
        """Take the child's lines until it has said all, or False if it has to end."""
        buffer = b""
        memory = psutil.Process(trainer.process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(trainer.pipe, selectors.EVENT_READ)
            while not self.lost.is_set() and not self._is_cancelled:
                if selector.select(timeout=0.25):
                    content = os.read(trainer.pipe, 65536)
                    if not content:
                        return True
                    *lines, buffer = (buffer + content).split(b"\n")
                    for line in lines:
                        self._hear(json.loads(line), trainer)
                if self._is_done:
                    return True
                self._write_progress()
                self._look_for_wishes(trainer)
                if time.monotonic() > self._leave_by or self._is_too_large(memory):
                    return False
        return False

    def _hear(self, message: dict[str, Any], trainer: Trainer) -> None:
        if "done" in message:
            self._is_done = True
        if "error" in message:
            self.error = message["error"]
        if "phase" in message:
            self.phase = message["phase"]
            self._happenings.append(("phase", {"phase": self.phase}))
        if "progress" in message:
            self.progress = message["progress"]
            self._happenings.append(("epoch", self.progress))
            if self.trial is not None and self.trial.is_hopeless(self.progress):
                self._is_pruned = True
                self._order(trainer, "stop")
        if "resumed" in message:
            self._happenings.append(("resumed", message["resumed"]))
        if "checkpoint" in message:
            self._keep_checkpoint(trainer.folder, **message["checkpoint"])

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

    def _look_for_wishes(self, trainer: Trainer) -> None:
        """Hand on what the caller, the clock or our own end wants of the child."""
        moment = time.monotonic()
        if stopping.is_set() and "leave" not in self._orders:
            self._leave_by = moment + LEAVE_SECONDS
            self._order(trainer, "leave")
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
        elif status == "stopping":
            self._order(trainer, "stop")

    def _order(self, trainer: Trainer, word: str) -> None:
        if word not in self._orders:
            self._orders.add(word)
            trainer.say(word)

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
            except DataError as error:
                # What the database will never take must not keep the end from it.
                log.error("%s: its events are left out: %s", self.job.id, error)
                if not happenings:
                    raise
                happenings = []
                continue
            except DBAPIError as error:
                log.warning("%s: the end is not written yet: %s", self.job.id, error)
                time.sleep(0.5)
                continue
            log.info("%s: attempt %s ended", self.job.id, self.job.attempt)
            return


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
        sweeps.look_after(session)
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
