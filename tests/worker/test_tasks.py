"""The supervisor's handling of a child that is gone."""

import subprocess
import sys

from worker.tasks import _end


def test_a_child_that_died_before_it_read_its_spec_breaks_nothing() -> None:
    """What it did not read stays in the buffer, and closing tries to send it again."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)
    child.wait()
    assert child.stdin is not None
    child.stdin.write(b"spec\n")  # into the buffer: nothing is sent yet
    with child:
        _end(child)
    assert child.returncode == 0
