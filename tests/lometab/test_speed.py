"""Training did not become far slower: a small step beside that of `tabm`."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "train.py"


@pytest.mark.processes
@pytest.mark.timing
def test_a_step_takes_less_than_twice_what_it_took() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "guard"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
