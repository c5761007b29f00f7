"""One attempt at a job: its child process, its lease, and how it ended."""

import io
import json
import logging
import shutil
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import DataError

from app import jobs
from app.observe import metrics, traces
from app.settings import Settings
from app.storage import blobs
from app.storage.enums import ANSWERS as ANSWERS_ROLES
from app.storage.enums import JobRole
from app.storage.tables import Dataset, Job
from lometab.machine import count_oom_kills
from worker import messages
from worker.child import Child, Children
from worker.faults import MachineFault, describe, is_machine_fault
from worker.health import Health, find_fault
from worker.identity import stopping
from worker.messages import (
    ANSWERS,
    BASE,
    CHECKPOINT,
    DATA,
    FAULTS,
    NETWORKS,
    ONNX,
    OUTCOME,
    PARTS,
    REPORTS,
    ROWS,
    WEIGHTS,
    Spec,
)
from worker.record import (
    DATABASE_AWAY,
    Record,
    find_share,
    make_prediction_spec,
    make_spec,
)

if TYPE_CHECKING:
    from app.jobs.search import Trial

log = logging.getLogger(__name__)
T = TypeVar("T")

LEAVE_SECONDS = 10.0  # for a child to end its epoch when the worker has to go
RECEIVE_SECONDS = 0.25
PROGRESS_SECONDS = 0.5
REQUEST_SECONDS = 1.0
RETRY_SECONDS = 0.5  # until a database that is away is asked again


class Attempt:
    """One attempt at a job: the child that trains, the lease, and how it ended."""

    def __init__(
        self, job: Job, settings: Settings, children: Children, health: Health
    ) -> None:
        self.job = job
        self.settings = settings
        self.children = children
        self.health = health
        self.record = Record(job)
        self.is_lost = threading.Event()
        self.is_over = threading.Event()
        self.phase = "preparing"
        self.progress: Mapping[str, Any] = job.progress
        self.failure: messages.Failed | None = None
        self.trial: Trial | None = None
        self.deadline: datetime | None = None
        self._phase_began = time.monotonic()
        about: dict[str, str | int] = {"job.id": job.id, "job.attempt": job.attempt}
        self.trace = traces.AttemptTrace(
            job.traceparent, about, job.queued_at or job.created_at
        )
        self.ended = "lease lost"
        """How, in a word or two."""
        self._is_cancelled = False
        self._is_done = False
        self._is_pruned = False
        self._sent: set[messages.Order] = set()
        self._events: list[jobs.NewEvent] = []
        self._is_changed = False
        """Whether there is progress without an event."""
        self._written_at = self._asked_at = time.monotonic()
        self._leave_by = float("inf")
        self._memory_limit = jobs.find_training_bytes(settings)
        """What is left of it beside other workers is known once the job is read."""

    def run(self) -> None:
        """See the job through. Only an error of our own fails it, and is raised."""
        heartbeat = threading.Thread(
            target=copy_context().run,  # its lines of the log are about the same job
            args=(self._renew_lease,),
            name="heartbeat",
            daemon=True,
        )
        heartbeat.start()
        try:
            self._run_and_sort()
        finally:
            self.is_over.set()
            heartbeat.join()
            self._end_phase()
            metrics.ATTEMPTS.add(self.ended)
            self.trace.end(self.ended)

    def _run_and_sort(self) -> None:
        """Tell faults of the database and of the machine from those of the job."""
        try:
            self._run()
        except DataError as error:  # the database will never take it
            self._fail_by(error)
            raise
        except DATABASE_AWAY as error:
            log.warning("%s: released, the database is away: %s", self.job.id, error)
            self.health.report_fault()
            self._settle(self.record.release, "released")
        except MemoryError as error:
            self._end_by_fault(error)
        except Exception as error:
            if is_machine_fault(error):
                self._end_by_fault(error)
            else:
                self._fail_by(error)
                raise
        else:
            self.health.report_success()

    def _run(self) -> None:
        dataset = self._patiently(self.record.read_dataset)
        if self.job.role == JobRole.TRIAL:
            self.trial = self.record.draw()
            if self.trial is None:
                return  # the job is not ours any more
            self.deadline = self._patiently(self.record.read_deadline)
        share = self._patiently(lambda: find_share(self.settings))
        self._memory_limit = jobs.find_training_bytes(self.settings, share)
        if self.job.role in ANSWERS_ROLES:
            parent = self._patiently(self.record.read_parent)
            spec = make_prediction_spec(self.job, parent, dataset, self.settings)
            prepare = partial(self._prepare_part, dataset=dataset, parent=parent)
        else:
            spec = make_spec(self.job, dataset, self.settings, share)
            prepare = partial(self._prepare, dataset=dataset)
        reused_for = None if spec.makes_model else self.job.parent_id
        child = self.children.take(reused_for)
        is_kept = False
        try:
            if not prepare(child=child, spec=spec):
                return
            n_killed = count_oom_kills()
            exit_code = self._supervise(child, spec)
            is_oom = exit_code == -signal.SIGKILL and count_oom_kills() > n_killed
            self._end(child, spec, exit_code, is_oom)
            is_kept = self._is_done
        finally:
            if is_kept and reused_for is not None:
                self.children.keep(child, reused_for)
            else:
                child.end()
                child.remove()

    # Before the child begins

    def _patiently(self, read: Callable[[], T]) -> T:
        """Read from the database, again while it is away and the lease is ours."""
        while True:
            try:
                return read()
            except DATABASE_AWAY as error:
                if self.is_lost.is_set() or stopping.is_set():
                    raise
                log.warning("%s: to be read again: %s", self.job.id, error)
                stopping.wait(RETRY_SECONDS)

    def _prepare_part(
        self, child: Child, spec: Spec, dataset: Dataset, parent: Job
    ) -> bool:
        """Put the rows of a chunk and its model, or the answers of all chunks, into the
        child's folder; False if that is the end."""
        if spec.base_sha256 is None:
            return self._collect(child.folder, spec)
        base, rows = child.folder / BASE, child.folder / ROWS
        if not base.exists():
            write = partial(self.record.write_base, spec.base_sha256, base)
            if not self._patiently(write):
                self._fail("model_deleted", "the model was deleted meanwhile")
                return False
        write_rows = partial(self.record.write_rows, dataset, parent, rows)
        self._patiently(write_rows)
        return True

    def _collect(self, folder: Path, spec: Spec) -> bool:
        """CSV and Arrow are whole when they are end to end; of Parquet, the parts."""
        assert spec.prediction is not None
        is_parquet = spec.prediction["output"] == "parquet"
        (folder / PARTS).mkdir()
        for i, sha256 in enumerate(self._patiently(self.record.list_answers)):
            if self.is_lost.is_set() or stopping.is_set():
                break  # whoever follows the child sees to it
            path = folder / PARTS / f"{i:08}" if is_parquet else folder / ANSWERS
            self._patiently(partial(self.record.append_blob, sha256, path))
        return True

    def _fail(self, code: str, detail: str) -> None:
        error = {"code": code, "detail": detail}
        self._settle(lambda: self.record.fail(error), f"failed: {code}")

    def _prepare(self, child: Child, dataset: Dataset, spec: Spec) -> bool:
        """Put the table and the checkpoint into the child's folder."""
        table = child.folder / DATA
        if not table.exists():
            self._patiently(lambda: self.record.write_table(dataset, table))
        for number, weights in self.record.read_networks():
            _unpack(weights, child.folder / NETWORKS / str(number))
        if spec.base_sha256 is not None:
            base = child.folder / BASE
            self._patiently(partial(self.record.write_base, spec.base_sha256, base))
        try:
            packed = self._patiently(self.record.read_checkpoint)
            if packed is not None:
                _unpack(packed, child.folder / CHECKPOINT)
        except (blobs.BlobDamaged, tarfile.TarError) as error:
            shutil.rmtree(child.folder / CHECKPOINT, ignore_errors=True)
            self._drop_checkpoint(str(error))
        return True

    # The child process

    def _supervise(self, child: Child, spec: Spec) -> int:
        """See it through the job, or end it; its exit code, 0 if it may go on."""
        child.start(spec)
        if self._follow(child):
            if self._is_done:
                return 0
            child.wait()
        return child.end()

    def _follow(self, child: Child) -> bool:
        """Take the child's messages to the last one; False if it has to end."""
        while not self.is_lost.is_set() and not self._is_cancelled:
            received = child.receive(RECEIVE_SECONDS)
            if received is None:
                return True
            for message in received:
                self._take(message, child)
            if self._is_done:
                return True
            self._write_progress()
            self._hand_on_requests(child)
            if time.monotonic() > self._leave_by or self._is_too_large(child):
                return False
        return False

    def _take(self, message: messages.Message, child: Child) -> None:
        match message:
            case messages.PhaseBegun(phase):
                self._end_phase()
                self.phase = phase
                self.trace.begin_phase(phase)
                self._events.append(("phase", {"phase": phase}))
            case messages.EpochDone(progress):
                self.progress = progress
                metrics.EPOCHS.add()
                self.trace.end_epoch(int(progress.get("epoch", 0)))
                self._events.append(("epoch", dict(progress)))
                self._prune(child)
            case messages.Examined(done, total):
                self.progress = {**self.progress, "examined": round(done / total, 3)}
                self._is_changed = True
            case messages.RowsDone(n_rows):
                self.progress = {**self.progress, "rows_done": n_rows}
                self._is_changed = True
            case messages.Resumed(epoch):
                self._events.append(("resumed", {"epoch": epoch}))
            case messages.CheckpointWritten(folder, epoch):
                self._keep_checkpoint(child.folder / folder, epoch)
            case messages.CheckpointUnusable(detail):
                self._drop_checkpoint(detail)
            case messages.Failed():
                self.failure = message
            case messages.Done():
                self._is_done = True

    def _end_phase(self) -> None:
        now = time.monotonic()
        metrics.PHASE_SECONDS.observe(now - self._phase_began, self.phase)
        self._phase_began = now

    def _prune(self, child: Child) -> None:
        """Stop a trial to which others were better by this epoch."""
        if self.trial is not None and self.trial.is_hopeless(dict(self.progress)):
            self._is_pruned = True
            self._send(child, "stop")

    def _keep_checkpoint(self, folder: Path, epoch: int) -> None:
        packed = _pack(folder)
        shutil.rmtree(folder)
        try:
            self.record.keep_checkpoint(packed, epoch)
        except DATABASE_AWAY as error:
            log.warning("%s: a checkpoint was not kept: %s", self.job.id, error)

    def _drop_checkpoint(self, reason: str) -> None:
        log.warning("%s: its checkpoint is dropped: %s", self.job.id, reason)
        try:
            self.record.drop_checkpoint(reason)
        except DATABASE_AWAY as error:
            log.warning("%s: not dropped, but not used: %s", self.job.id, error)

    def _write_progress(self) -> None:
        moment = time.monotonic()
        if not (self._events or self._is_changed):
            return
        if moment - self._written_at < PROGRESS_SECONDS:
            return
        self._written_at = moment
        try:
            if not self.record.write_progress(self.phase, self.progress, self._events):
                self.is_lost.set()
            self._events, self._is_changed = [], False
        except DATABASE_AWAY as error:
            log.warning("%s: progress is not written yet: %s", self.job.id, error)

    def _hand_on_requests(self, child: Child) -> None:
        """What the caller, the clock or our own end wants of the child."""
        moment = time.monotonic()
        if stopping.is_set() and "leave" not in self._sent:
            self._leave_by = moment + LEAVE_SECONDS
            self._send(child, "leave")
        if moment - self._asked_at < REQUEST_SECONDS:
            return
        self._asked_at = moment
        try:
            status = self.record.read_status()
            if self._is_out_of_time() and status == "running":
                self.record.request_stop()
            if self.deadline is not None and datetime.now(UTC) > self.deadline:
                self.deadline = None  # asked once
                self.record.request_stop_of_search()
        except DATABASE_AWAY as error:
            log.warning("%s: requests are not known now: %s", self.job.id, error)
            return
        if status is None:
            self.is_lost.set()
        elif status == "cancelling":
            self._is_cancelled = True
        elif status == "stopping":
            self._send(child, "stop")

    def _send(self, child: Child, order: messages.Order) -> None:
        if order not in self._sent:
            self._sent.add(order)
            child.send(order)

    def _is_out_of_time(self) -> bool:
        budget = self.job.config.get("max_runtime_seconds")
        if budget is None or self.job.started_at is None:
            return False
        elapsed = datetime.now(UTC) - self.job.started_at
        return elapsed > timedelta(seconds=budget)

    def _is_too_large(self, child: Child) -> bool:
        limit = self._memory_limit
        size = child.count_bytes()
        if size <= limit:
            return False
        self.failure = self._out_of_memory(
            f"it took {size >> 20} MiB where {limit >> 20} MiB are allowed"
        )
        return True

    def _out_of_memory(self, evidence: str) -> messages.Failed:
        expected = self.job.estimate.get("memory_bytes")
        guess = f" ({expected >> 20} MiB were expected)" if expected else ""
        if self.job.role in ANSWERS_ROLES:
            return messages.Failed(
                "out_of_memory", f"prediction ran out of memory: {evidence}"
            )
        return messages.Failed(
            "out_of_memory",
            f"training ran out of memory: {evidence}{guess}; set `max_rows`, or try a "
            "smaller k, d_block or batch_size",
        )

    # The end

    def _end(self, child: Child, spec: Spec, exit_code: int, is_oom: bool) -> None:
        """Write what became of the job, by how the child ended."""
        if is_oom and self.failure is None:
            self.failure = self._out_of_memory("the system ended it")
        if self.is_lost.is_set():
            log.warning("%s: attempt %s lost its lease", self.job.id, self.job.attempt)
        elif self._is_cancelled:
            self._settle(self.record.end_cancelled, "cancelled")
        elif exit_code == 0:
            self._publish(child.folder, spec)
        elif stopping.is_set():
            self._settle(self.record.release, "released")
        elif self.failure is None:
            self._lose(_describe_exit(exit_code, child))
        elif self.failure.code == messages.MACHINE_FAULT:
            raise MachineFault(self.failure.detail)
        else:
            error = {"code": self.failure.code, "detail": self.failure.detail}
            self._settle(lambda: self.record.fail(error), f"failed: {error['code']}")

    def _publish(self, folder: Path, spec: Spec) -> None:
        if spec.makes_model:
            onnx = (folder / ONNX).read_bytes()
            reports = json.loads((folder / REPORTS).read_text(encoding="utf-8"))
            self._settle(
                lambda: self.record.finish(onnx, reports, self.progress), "succeeded"
            )
            return
        outcome = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
        if spec.prediction is not None:
            text = (folder / FAULTS).read_text(encoding="utf-8")
            found = (folder / ANSWERS, outcome, json.loads(text))
            self._settle(
                lambda: self.record.finish_part(*found, self.progress), "succeeded"
            )
            return
        outcome["is_pruned"] = self._is_pruned
        has_weights = (folder / WEIGHTS).exists()  # CatBoost has none
        weights = (lambda: _pack(folder / WEIGHTS)) if has_weights else None
        self._settle(
            lambda: self.record.finish_cell(outcome, weights, self.progress),
            "succeeded",
        )

    def _end_by_fault(self, error: BaseException) -> None:
        """A fault of the machine is none of the job's.

        While the machine is unfit the job goes back as it was. If a test of it
        succeeds, the job itself may be what it has no room for, and the attempt counts.
        """
        reason = f"the worker's machine could not go on: {describe(error)}"
        log.exception("%s: %s", self.job.id, reason)
        self.health.report_fault()
        if find_fault() is None:
            self._lose(reason)
        else:
            self._events.append(("warning", {"detail": reason}))
            self._settle(self.record.release, "released")

    def _lose(self, reason: str) -> None:
        limit = self.settings.max_attempts
        self._settle(lambda: self.record.lose(limit, reason), f"lost: {reason}")

    def _fail_by(self, error: Exception) -> None:
        log.exception("%s: attempt %s broke", self.job.id, self.job.attempt)
        failure = jobs.describe_failure(error)
        self._settle(lambda: self.record.fail(failure), f"failed: {failure['code']}")

    def _settle(self, end: Callable[[], bool], how: str) -> None:
        """Write the end of the attempt, however long the database is away.

        If a cancel came first, the end is that.
        """
        events, self._events = self._events, []
        while not self.is_lost.is_set():
            try:
                if events:
                    self.record.write_progress(self.phase, self.progress, events)
                    events = []
                if not end():
                    how = "cancelled" if self.record.end_cancelled() else "not ours"
            except DataError as error:
                # What the database will never take must not keep the end from it.
                log.error("%s: its events are left out: %s", self.job.id, error)
                if not events:
                    raise
                events = []
                continue
            except DATABASE_AWAY as error:
                log.warning("%s: the end is not written yet: %s", self.job.id, error)
                time.sleep(RETRY_SECONDS)
                continue
            log.info("%s: attempt %s ended: %s", self.job.id, self.job.attempt, how)
            self.ended = how.partition(":")[0]
            return

    def _renew_lease(self) -> None:
        """The heartbeat: stop by ourselves before anyone could take the job over."""
        lease = self.settings.lease_seconds
        renewed_at = time.monotonic()
        while not self.is_over.wait(lease / 4):
            try:
                if not self.record.renew_lease(lease):
                    self.is_lost.set()
                    return
                renewed_at = time.monotonic()
            except DATABASE_AWAY as error:
                log.warning("%s: the lease was not renewed: %s", self.job.id, error)
                if time.monotonic() - renewed_at > lease * 3 / 4:
                    self.is_lost.set()
                    return


def _describe_exit(exit_code: int, child: Child) -> str:
    if exit_code < 0:
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    last = child.read_last_line()[:300]
    reason = f"its process ended with exit code {exit_code}"
    return f"{reason}: {last}" if last else reason


def _pack(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)
    return file.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")
