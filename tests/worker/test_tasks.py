"""The supervisor's handling of a process that is gone."""

import subprocess
import sys

from worker.tasks import Trainer


def test_a_child_that_died_before_it_read_its_spec_breaks_nothing() -> None:
    """What it did not read stays in the buffer, and closing tries to send it again."""
    trainer = Trainer.__new__(Trainer)  # without a job
    trainer.process = subprocess.Popen(
        [sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    trainer.process.wait()
    assert trainer.process.stdin is not None
    trainer.process.stdin.write(b"spec\n")  # into the buffer: nothing is sent yet
    trainer.say("stop")
    assert trainer.end() == 0
