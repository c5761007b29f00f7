"""That tests of a group meet in one worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = "from tests.support.groups import pytest_xdist_make_scheduler\n"
TESTS = """
import os
import pytest

@pytest.mark.parametrize("i", range(8))
def test_it(i):
    with open("seen", "a") as file:
        file.write(f"{__name__} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


@pytest.mark.processes
def test_a_group_has_one_worker_and_others_have_any(tmp_path: Path) -> None:
    marked = TESTS + 'pytestmark = pytest.mark.xdist_group("one")\n'
    files = {"conftest": CONFTEST, "test_one": marked, "test_other": TESTS}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    spread = ("-p", "xdist", "--numprocesses=2", "--dist=loadgroup")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *spread],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they take longer than the tests
        },
        check=True,
        capture_output=True,
    )
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    workers = {
        name: {worker for each, worker in seen if each == name}
        for name in ("test_one", "test_other")
    }
    assert len(workers["test_one"]) == 1, seen
    assert workers["test_other"] - workers["test_one"], seen
