"""Benchmarks are run seldom: what they import is there all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.processes
def test_every_script_can_be_loaded() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    command = [sys.executable, "-c", f"import {', '.join(names)}"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
