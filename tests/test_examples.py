"""The examples do what they say, on both stacks."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.stacks import Service

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_lifecycle(*arguments: str, **environment: str) -> tuple[int, str]:
    """Its exit code, and all it printed."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    done = subprocess.run(
        ["sh", EXAMPLES / "lifecycle.sh", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.both_databases
def test_lifecycle_by_curl(service: Service, tmp_path: Path) -> None:
    code, text = run_lifecycle(
        service.address, LOMETAB_API_KEY=service.stack.key or "", TMPDIR=str(tmp_path)
    )
    assert code == 0, text
    assert text.endswith("Done.\n")
    assert "did you mean 'quality'" in text
    assert text.count("-> 304") == 2
    assert list(tmp_path.iterdir()) == [], "it left files behind"
    for table in ("jobs", "models", "datasets", "blobs", "blob_chunks"):
        assert service.stack.query(f"SELECT * FROM {table}") == [], table


@pytest.mark.processes
def test_lifecycle_ends_at_the_first_surprise(tmp_path: Path) -> None:
    code, text = run_lifecycle("http://127.0.0.1:1", TMPDIR=str(tmp_path))
    assert code != 0
    assert "Done." not in text
    assert list(tmp_path.iterdir()) == []
