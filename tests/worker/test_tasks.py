"""The worker's own command, as a process."""

import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.cli.service import worker_command
from tests.support.servers import wait_until

ROOT = Path(__file__).parents[2]


def count_workers(path: Path) -> int:
    database = sqlite3.connect(path)
    try:
        ((n,),) = database.execute("SELECT count(*) FROM workers").fetchall()
    finally:
        database.close()
    return int(n)


@pytest.mark.processes
def test_a_worker_is_ours_whatever_the_folder_holds(
    sqlite: Any, tmp_path: Path
) -> None:
    """It is started where somebody has packages of the same names."""
    folder = tmp_path / "theirs"
    for name in ("worker", "app", "celery"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('not ours')")
    (folder / "worker" / "tasks.py").touch()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            worker_command(),
            cwd=folder,
            env={
                **os.environ,
                "LOMETAB_DATA_DIR": str(tmp_path),
                "LOMETAB_EXIT_WITH_PARENT": "true",
                "PYTHONPATH": str(ROOT),  # as the settings' environment has it
            },
            stdin=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdin is not None

    def is_there() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        return count_workers(tmp_path / "lometab.db") == 1

    try:
        wait_until(is_there, seconds=60, what="our worker's heartbeat")
    finally:
        process.stdin.close()  # by which it ends
        process.wait(60)
