"""The command as it is typed: trained here without a service, interrupted, completed,
logged to MLflow; and searches in Optuna's dashboard."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers import wait_until
from tests.support.services import TINY
from tests.support.tables import make_csv

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[1]
INTERRUPTED = 130


def make_environment(folder: Path, **variables: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")}
    quick = {"LOMETAB_TRAINING_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return {**kept, **quick, "LOMETAB_DATA_DIR": str(folder / "data"), **variables}


@contextmanager
def started(
    folder: Path, *arguments: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """`lometab ...` in that folder, as a terminal would start it."""
    with (
        (folder / "out").open("w") as out,
        (folder / "err").open("w") as err,
        subprocess.Popen(
            [sys.executable, "-m", "lometab", *arguments],
            cwd=folder,
            env=make_environment(folder, **variables),
            stdout=out,
            stderr=err,
            text=True,
            # Where the tests run in the background, it would inherit to ignore it.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


def train(folder: Path, **settings: Any) -> list[str]:
    """The words of a small training."""
    (folder / "table.csv").write_text(make_csv(200))
    chosen = {**TINY, "columns.label": "ignore", **settings}
    sets = (f"--set={name}={json.dumps(value)}" for name, value in chosen.items())
    return ["train", "table.csv", "--target", "y", "--json", *sets]


def query(folder: Path, statement: str) -> list[Any]:
    path = folder / "data" / "lometab.db"
    if not path.exists():
        return []
    with sqlite3.connect(path) as connection:
        return connection.execute(statement).fetchall()


def wait_for_epochs(folder: Path, process: subprocess.Popen[str]) -> None:
    def has_epoch() -> bool:
        assert process.poll() is None, (folder / "err").read_text()
        try:
            return bool(query(folder, "SELECT 1 FROM events WHERE type = 'epoch'"))
        except sqlite3.OperationalError:  # the tables are being made
            return False

    wait_until(has_epoch, seconds=120, what="an epoch")


LONG = {"max_epochs": 5000, "patience": None}


@pytest.mark.slow
def test_one_interrupt_stops_and_keeps_the_best(tmp_path: Path) -> None:
    with started(tmp_path, *train(tmp_path, **LONG)) as process:
        wait_for_epochs(tmp_path, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0, (tmp_path / "err").read_text()
    found = json.loads((tmp_path / "out").read_text())
    assert found["job"]["stopped_early"] and found["job"]["model_id"]
    assert "Traceback" not in (tmp_path / "err").read_text()


@pytest.mark.slow
def test_two_interrupts_cancel_however_fast_they_come(tmp_path: Path) -> None:
    with started(tmp_path, *train(tmp_path, **LONG)) as process:
        wait_for_epochs(tmp_path, process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # the first may not be answered yet
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == INTERRUPTED, (tmp_path / "err").read_text()
    told = (tmp_path / "err").read_text()
    assert "is cancelled" in told and "Traceback" not in told
    assert query(tmp_path, "SELECT status FROM jobs") == [("cancelled",)]
    assert query(tmp_path, "SELECT count(*) FROM models") == [(0,)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_a_training_goes_to_mlflow_if_it_is_told_where(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    address = f"sqlite:///{tmp_path}/mlflow.db"
    where = {"MLFLOW_TRACKING_URI": address}
    with started(tmp_path, *train(tmp_path), **where) as process:
        assert process.wait(300) == 0, (tmp_path / "err").read_text()
    found = json.loads((tmp_path / "out").read_text())
    named = re.search(r"logged to MLflow as run (\w+)", (tmp_path / "err").read_text())
    assert named is not None
    client = mlflow.MlflowClient(address)
    run = client.get_run(named[1])
    assert run.data.tags["lometab.job"] == found["job"]["id"]
    assert run.data.params["rank"] == str(TINY["rank"])
    rmse = found["report"]["scores"]["test"]["ensemble"]["rmse"]
    assert run.data.metrics["test_rmse"] == pytest.approx(rmse)
    history = client.get_metric_history(named[1], "val_score")
    assert [each.step for each in history] == [1, 2, 3]


def test_searches_are_shown_in_optunas_dashboard(tmp_path: Path) -> None:
    pytest.importorskip("optuna_dashboard")
    code = (
        "from app.storage import db; from app.jobs import search; db.migrate(); "
        "study = search.open_study('job_searched', True, 0); "
        "study.optimize(lambda t: t.suggest_float('lr', 0.1, 1.0), n_trials=2)"
    )
    (tmp_path / "data").mkdir()
    environment = make_environment(tmp_path)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    with started(tmp_path, "dashboard", "--port", "0", PYTHONUNBUFFERED="1") as process:

        def find() -> re.Match[str] | None:
            assert process.poll() is None, (tmp_path / "err").read_text()
            return re.search(r"http://127.0.0.1:\d+", (tmp_path / "out").read_text())

        address: re.Match[str] = wait_until(find, seconds=90, what="the dashboard")
        (study,) = httpx.get(f"{address[0]}/api/studies").json()["study_summaries"]
        assert study["study_name"] == "job_searched"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == INTERRUPTED
    assert "Traceback" not in (tmp_path / "err").read_text()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("lometab tra", {"train"}),
        ("lometab jobs wat", {"watch"}),
        ("lometab train table.csv --pres", {"--preset"}),
        ("lometab train table.csv --preset fa", {"fast"}),
    ],
)
def test_the_shell_completes(tmp_path: Path, typed: str, expected: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lometab"],
        env=make_environment(
            tmp_path,
            _LOMETAB_COMPLETE="complete_bash",
            COMP_WORDS=typed,
            COMP_CWORD=str(typed.count(" ")),
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert {*done.stdout.split()} == expected
