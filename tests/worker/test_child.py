"""The real child: a process, its pipes and its folder; what it runs is a script."""

import dataclasses
import errno
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.support.fake_child import SPEC
from worker import child as child_module
from worker.child import ProcessChild
from worker.faults import MachineFault
from worker.messages import PhaseBegun, Resumed, Spec

pytestmark = pytest.mark.processes

SENDER = """
import sys
spec = sys.stdin.readline()
print('{"type": "PhaseBegun", "phase": "training"}', flush=True)
sys.stderr.write("a warning\\nthe last line\\n")
order = sys.stdin.readline().strip()
print('{"type": "Resumed", "epoch": %d}' % (5 if order == "stop" else 0))
print('{"type": "Phase', end="", flush=True)
sys.exit(7)
"""


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A child whose process runs a script instead of `worker.train`."""
    real = subprocess.Popen
    made: list[ProcessChild] = []

    def start(script: str, spec: Spec = SPEC) -> ProcessChild:
        def popen(command: list[str], **options: Any) -> Any:
            assert command[1:4] == ["-P", "-m", "worker.train"]
            return real([sys.executable, "-c", script], **options)

        monkeypatch.setattr(child_module.subprocess, "Popen", popen)
        child = ProcessChild(Settings())
        made.append(child)
        child.start(spec)
        monkeypatch.undo()
        return child

    yield start
    for child in made:
        child.end()
        child.remove()


def receive(child: ProcessChild) -> Any:
    while (messages := child.receive(10)) == []:
        pass
    return messages


def test_a_talk(launch: Any) -> None:
    child = launch(SENDER)
    assert receive(child) == [PhaseBegun("training")]
    assert child.receive(0) == [] and child.is_running()
    assert child.count_bytes() > 0
    child.send("stop")
    assert receive(child) == [Resumed(5)]
    assert receive(child) is None  # the line that it did not finish is none
    assert child.wait() and not child.is_running()
    assert child.end() == 7
    assert child.read_last_line() == "the last line"
    assert child.count_bytes() == 0


def test_it_ends_when_its_input_closes(launch: Any) -> None:
    child = launch("import sys; sys.stdin.read(); sys.exit(3)")
    assert child.end() == 3


def test_one_that_does_not_end_is_killed(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = launch("import time; time.sleep(600)")
    monkeypatch.setattr(child_module, "GRACE_SECONDS", 0.05)
    assert child.end() == -signal.SIGKILL


def test_one_that_died_before_it_read_its_spec_breaks_nothing(launch: Any) -> None:
    """What it did not read stays in the buffer, and closing tries to send it again."""
    child = launch("import os; os._exit(0)")
    assert child.wait()
    child._process.stdin.write(b"spec\n")  # into the buffer: nothing is sent yet
    child.send("stop")
    assert child.end() == 0


def test_its_folder_is_its_own_and_goes_with_it(launch: Any) -> None:
    child = launch("import os, sys; sys.stdin.read(); print(os.environ['TMPDIR'])")
    (child.folder / "table.parquet").touch()
    (child.folder / "model.onnx").touch()
    (child.folder / "checkpoint").mkdir()
    child.clear()
    left = sorted(path.name for path in child.folder.iterdir())
    assert left == ["stderr", "table.parquet"]
    child.end()
    child.remove()
    assert not child.folder.exists()
    child.remove = lambda: None


def test_a_folder_that_cannot_be_made_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(MachineFault, match="no folder can be made"):
        ProcessChild(Settings())


def test_a_process_that_cannot_be_started_is_the_machines_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(child_module.subprocess, "Popen", fail)
    child = ProcessChild(Settings())
    with pytest.raises(MachineFault, match="no process can be started"):
        child.start(SPEC)
    assert child.end() == 0
    child.remove()


TELL_DEVICE = """
import os, sys
seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
sys.stderr.write(f"[{seen}]\\n")
"""


@pytest.mark.parametrize(
    ("of_worker", "device", "of_child"),
    [
        ("0", "cuda", "[0]"),
        ("3", "cuda", "[3]"),
        ("GPU-5e12", "cuda", "[GPU-5e12]"),
        ("3", "cpu", "[]"),
        (None, "cuda", "[all]"),
        (None, "cpu", "[]"),
    ],
)
def test_a_job_sees_the_device_of_its_worker_alone(
    launch: Any,
    monkeypatch: pytest.MonkeyPatch,
    of_worker: str | None,
    device: Any,
    of_child: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if of_worker is not None:
            patch.setenv("CUDA_VISIBLE_DEVICES", of_worker)
        child = launch(TELL_DEVICE, dataclasses.replace(SPEC, device=device))
    assert child.wait()
    assert child.read_last_line() == of_child
