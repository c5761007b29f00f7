"""A database with other tables than this version's: nothing starts on it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.api.health import read_readiness
from app.cli.service import worker_command
from app.errors import Unavailable
from app.main import app
from app.settings import get_settings
from app.storage import db
from app.storage.tables import VERSION_TABLE
from tests.support.http import check_problem

ROOT = Path(__file__).parents[2]


def set_revision(engine: sa.Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"
        )


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    """An empty database."""
    engine = db.make_engine(f"sqlite:///{tmp_path}/lometab.db")
    monkeypatch.setattr(db, "get_engine", lambda: engine)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("revision", [None, "0001", "9999"])
def test_the_api_does_not_start(other: sa.Engine, revision: str | None) -> None:
    if revision is not None:
        db.migrate(other)
        set_revision(other, revision)
    with pytest.raises(db.WrongRevision, match="lometab migrate"):
        with TestClient(app, "http://127.0.0.1"):
            pass


@pytest.mark.both_databases
def test_a_process_that_runs_is_not_ready(engine: sa.Engine) -> None:
    with TestClient(app, "http://127.0.0.1") as client:
        assert client.get("/readyz").status_code == 200
        head = db.find_head()
        for revision in ("0001", "9999"):
            set_revision(engine, revision)
            check_problem(client.get("/readyz"), 503, revision, "lometab migrate")
        set_revision(engine, head)
        assert client.get("/readyz").status_code == 200


def test_without_any_table_it_is_not_ready(other: sa.Engine) -> None:
    with db.reading() as session, pytest.raises(Unavailable, match="lometab migrate"):
        read_readiness(session, get_settings())


@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [worker_command(), [sys.executable, "-m", "app.cli", "api", "--port", "0"]],
    ids=["worker", "api"],
)
@pytest.mark.parametrize("revision", [None, "0001"])
def test_no_process_starts(
    command: list[str], revision: str | None, tmp_path: Path
) -> None:
    if revision is not None:
        engine = db.make_engine(f"sqlite:///{tmp_path}/lometab.db")
        db.migrate(engine)
        set_revision(engine, revision)
        engine.dispose()
    done = subprocess.run(
        command,
        env={
            "LOMETAB_DATA_DIR": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "run `lometab migrate`" in done.stderr
    assert "Traceback" not in done.stderr
