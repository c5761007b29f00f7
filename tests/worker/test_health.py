"""A worker whose machine is not fit takes nothing, and costs no job an attempt."""

import errno
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_child import FakeChild, add_job, read, types, write_model
from worker import health as health_module
from worker import supervise, tasks
from worker.child import ProcessChild
from worker.faults import MachineFault, describe, is_machine_fault
from worker.health import Health, find_fault
from worker.identity import stopping


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch) -> Health:
    made = Health()
    monkeypatch.setattr(tasks, "health", made)
    return made


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """What the next tests of the machine find; nothing when the list is empty."""
    planned: list[Exception | None] = []

    def find() -> Exception | None:
        return planned.pop(0) if planned else None

    for module in (health_module, supervise):
        monkeypatch.setattr(module, "find_fault", find)
    return planned


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_fails_no_job(
    sqlite: Any,
    health: Health,
    faults: list[Exception | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five jobs wait; the disk is full for a while, then all are done."""
    jobs = [add_job() for _ in range(5)]
    faults += [FULL] * 4
    n_made = [0]

    def make(_: Any) -> FakeChild:
        n_made[0] += 1
        if n_made[0] == 1:
            assert len(faults) == 4
            raise MachineFault("no folder can be made: No space left on device")
        assert not faults, "a job was taken before a test succeeded"
        return FakeChild([write_model])

    monkeypatch.setattr(tasks, "ProcessChild", make)
    tasks.train(None)
    assert [read(job).status for job in jobs] == ["succeeded"] * 5
    assert [read(job).lost_attempts for job in jobs] == [0] * 5
    assert n_made == [6]
    first = min(jobs, key=lambda job: job.created_at)
    assert types(first)[:5] == ["queued", "running", "warning", "released", "running"]


def test_an_unfit_worker_stops_when_it_is_told(
    health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, n_tests = threading.Event(), [0]

    def find() -> Exception:
        n_tests[0] += 1
        if n_tests[0] == 4:
            stop.set()
        return FULL

    monkeypatch.setattr(health_module, "find_fault", find)
    health.report_fault()
    assert not health.wait_until_fit(stop)
    assert n_tests == [4]


def test_pauses_grow_and_end(monkeypatch: pytest.MonkeyPatch, faults: Any) -> None:
    pauses: list[float] = []

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            return False

    monkeypatch.setattr(health_module, "FIRST_PAUSE", 5.0)
    health = Health()
    assert health.wait_until_fit(Clock()) and pauses == []
    health.report_fault()
    faults += [FULL] * 5
    assert health.wait_until_fit(Clock())
    assert pauses == [5, 10, 20, 40, 60, 60]
    pauses.clear()
    health.report_fault()  # a fault comes again though the test succeeded
    assert health.wait_until_fit(Clock()) and pauses == [10]
    pauses.clear()
    health.report_success()
    health.report_fault()
    assert health.wait_until_fit(Clock()) and pauses == [5]


@pytest.mark.processes
def test_the_test_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert find_fault() is None
    assert [*tmp_path.iterdir()] == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert isinstance(find_fault(), FileNotFoundError)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(health_module.sys, "executable", str(tmp_path / "no-python"))
    assert isinstance(find_fault(), OSError)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with no room; where it may be mounted."""
    folder = tmp_path / "full"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, check=False, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode != 0:
        pytest.skip("only root may mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.processes
def test_a_disk_that_is_really_full(
    sqlite: Any, health: Health, full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (full_disk / "ballast").touch()
    with pytest.raises(OSError), (full_disk / "ballast").open("wb") as file:
        file.write(bytes(2**20))
    monkeypatch.setattr(tempfile, "tempdir", str(full_disk))
    real_make, real_stop = ProcessChild, stopping.wait
    n_made = [0]

    def make(settings: Any) -> Any:
        n_made[0] += 1
        return real_make(settings) if n_made[0] == 1 else FakeChild([write_model])

    def wait(timeout: float | None = None) -> bool:
        if tempfile.tempdir == str(full_disk) and health._is_doubted:
            assert isinstance(find_fault(), OSError)
            tempfile.tempdir = str(full_disk.parent)  # somebody makes room
        return real_stop(timeout)

    monkeypatch.setattr(tasks, "ProcessChild", make)
    monkeypatch.setattr(stopping, "wait", wait)
    jobs = [add_job() for _ in range(3)]
    tasks.train(None)
    assert [read(job).status for job in jobs] == ["succeeded"] * 3
    assert sum(read(job).lost_attempts for job in jobs) == 0
    assert sum(read(job).attempt for job in jobs) == 4


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EROFS, "read-only"), True),
        (OSError(errno.EMFILE, "files"), True),
        (PermissionError(errno.EACCES, "no"), True),
        (MachineFault("no folder"), True),
        (RuntimeError("I/O error: No space left on device (os error 28)"), True),
        (FileNotFoundError(errno.ENOENT, "model.onnx"), False),
        (ValueError("x"), False),
    ],
)
def test_what_is_the_machines(error: Exception, is_fault: bool) -> None:
    assert is_machine_fault(error) == is_fault


def test_an_error_is_described_in_one_line() -> None:
    error = ValueError("first\n[SQL: SELECT secret]")
    assert describe(error) == "ValueError: first"
    assert describe(KeyError()) == "KeyError"
