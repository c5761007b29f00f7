"""The child process that trains, as its supervisor sees it."""

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from app.settings import Settings
from lometab.config import TRAINING_ENVIRONMENT
from worker.faults import MachineFault
from worker.messages import (
    BASE,
    DATA,
    TRAIN_ROWS,
    Message,
    Order,
    Spec,
    from_line,
)

GRACE_SECONDS = 10.0  # for a child to end by itself
STDERR = "stderr"


class Child(Protocol):
    """A process that trains one job, or the cells of a sweep one by one."""

    @property
    def folder(self) -> Path:
        """Where it finds its table and checkpoint, and leaves what it makes."""

    def start(self, spec: Spec) -> None:
        """Begin a job: in a new process, or in the one that did the job before."""

    def send(self, order: Order) -> None:
        """Give an order about the job; a process that is ending does not hear it."""

    def receive(self, timeout: float) -> list[Message] | None:
        """What it has sent, none after `timeout` seconds; None if it sends no more."""

    def is_running(self) -> bool: ...

    def wait(self) -> bool:
        """Whether it ends by itself within the grace."""

    def end(self) -> int:
        """Have it end, by force if need be; its exit code, 0 if it never began."""

    def count_bytes(self) -> int:
        """Its memory."""

    def read_last_line(self) -> str:
        """Of its standard error; empty if there is none."""

    def clear(self) -> None:
        """Remove from the folder what belongs to the job before."""

    def remove(self) -> None:
        """Remove the folder."""


class Children:
    """Makes children, and keeps one for the next cell of the same sweep."""

    def __init__(self, make: Callable[[], Child]) -> None:
        self._make = make
        self._kept: tuple[str, Child] | None = None

    def take(self, parent_id: str | None) -> Child:
        """A child for a job.

        Args:
            parent_id: whose cell it is; None for a job of its own.
        """
        if self._kept is not None:
            kept_for, child = self._kept
            if kept_for == parent_id and child.is_running():
                self._kept = None
                child.clear()
                return child
            self.end()
        return self._make()

    def keep(self, child: Child, parent_id: str) -> None:
        self._kept = (parent_id, child)

    def end(self) -> None:
        if self._kept is not None:
            _, child = self._kept
            self._kept = None
            child.end()
            child.remove()


class ProcessChild:
    """The real one: `python -m worker.train`, which imports torch."""

    def __init__(self, settings: Settings) -> None:
        """Make its folder.

        Raises:
            MachineFault: that is not possible.
        """
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._buffer = b""
        try:
            self._scratch = tempfile.TemporaryDirectory(prefix="lometab-job-")
        except OSError as error:
            raise MachineFault(f"no folder can be made: {error}") from error

    @property
    def folder(self) -> Path:
        return Path(self._scratch.name)

    def start(self, spec: Spec) -> None:
        if self._process is None:
            command = [sys.executable, "-P", "-m", "worker.train"]
            self._launch([*command, spec.job_id, str(spec.attempt)], spec)
        self._write(spec.to_json())

    def _launch(self, command: list[str], spec: Spec) -> None:
        try:
            with (self.folder / STDERR).open("wb") as stderr:
                self._process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=self._make_environment(spec),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,
                )
        except OSError as error:
            raise MachineFault(f"no process can be started: {error}") from error
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def _make_environment(self, spec: Spec) -> dict[str, str]:
        """Its limits; what it leaves in its temporary folder goes with the folder."""
        limits = {
            "OMP_NUM_THREADS": str(spec.threads),
            "MKL_NUM_THREADS": str(spec.threads),
            "TMPDIR": str(self.folder),
            **TRAINING_ENVIRONMENT,
        }
        if spec.device == "cpu":
            limits["CUDA_VISIBLE_DEVICES"] = ""
        return self._settings.environment() | limits

    def send(self, order: Order) -> None:
        self._write(order)

    def _write(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, timeout: float) -> list[Message] | None:
        assert self._process is not None and self._process.stdout is not None
        if not self._selector.select(timeout):
            return []
        content = os.read(self._process.stdout.fileno(), 65536)
        if not content:
            return None
        *lines, self._buffer = (self._buffer + content).split(b"\n")
        return [from_line(line) for line in lines]

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> bool:
        assert self._process is not None
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> int:
        """Close its standard input, by which it ends; kill it if it does not."""
        self._selector.close()
        if self._process is None:
            return 0
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # what it did not read is still in there
            self._process.stdin.close()
        if not self.wait():
            self._process.kill()
        exit_code = self._process.wait()
        self._process.stdout.close()
        return exit_code

    def count_bytes(self) -> int:
        assert self._process is not None
        try:
            size: int = psutil.Process(self._process.pid).memory_info().rss
        except psutil.NoSuchProcess:
            return 0
        return size

    def read_last_line(self) -> str:
        text = (self.folder / STDERR).read_text(encoding="utf-8", errors="replace")
        return text.strip().rpartition("\n")[2]

    def clear(self) -> None:
        for path in self.folder.iterdir():
            if path.name in (DATA, BASE, TRAIN_ROWS, STDERR):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove(self) -> None:
        self._scratch.cleanup()
