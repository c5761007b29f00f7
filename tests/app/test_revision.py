"""A database with other tables than this version's: nothing starts on it, unless they
are newer and all was only added to them."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from fastapi.testclient import TestClient

from app.api.health import read_readiness
from app.cli.service import worker_command
from app.errors import Unavailable
from app.main import app
from app.settings import get_settings
from app.storage import db
from app.storage.tables import VERSION_TABLE
from tests.support.http import check_problem
from tests.support.services import post_job, wait_for_end
from tests.support.stacks import Service, Stack
from tests.support.tables import make_csv
from worker import record, tasks

ROOT = Path(__file__).parents[2]
LATER = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"
is_additive = {is_additive}


def upgrade() -> None:
    op.add_column("jobs", sa.Column("later", sa.String(10), nullable=True))
    op.create_table("later", sa.Column("id", sa.String(10), primary_key=True))
"""
"""The next revision, which this version does not know."""


def set_revision(engine: sa.Engine, revision: str) -> None:
    """As if only code of that revision, or a later one, worked with the tables."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE {VERSION_TABLE} "
            f"SET version_num = '{revision}', compatible_since = '{revision}'"
        )


def migrate_later(url: str, folder: Path, *, is_additive: bool) -> None:
    """What `lometab migrate` of a later version does."""
    scripts = folder / "migrations"
    shutil.copytree(ROOT / "migrations", scripts)
    text = LATER.format(head=db.find_head(), is_additive=is_additive)
    (scripts / "versions" / "29991231-0000_later.py").write_text(text)
    config = Config()
    config.set_main_option("script_location", str(scripts))
    engine = db.make_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()


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


@pytest.mark.both_databases
def test_what_runs_goes_on_while_a_later_version_adds(
    stack: Stack, tmp_path: Path, start_service: Callable[..., Service]
) -> None:
    """And so does what is started again: `serve` migrates, the worker claims."""
    running = start_service("api")
    migrate_later(stack.url, tmp_path, is_additive=True)
    service = start_service()
    for each in (running, service):
        assert each.client.get("/readyz").status_code == 200
        assert each.client.get("/jobs").status_code == 200
    job = post_job(running.client, make_csv())
    assert wait_for_end(service, job["id"])["status"] == "succeeded"
    assert stack.query(f"SELECT version_num FROM {VERSION_TABLE}") == [("9999",)]


@pytest.mark.both_databases
def test_what_a_later_version_breaks_is_refused(
    stack: Stack, engine: sa.Engine, tmp_path: Path
) -> None:
    with TestClient(app, "http://127.0.0.1") as client:
        migrate_later(stack.url, tmp_path, is_additive=False)
        check_problem(client.get("/readyz"), 503, "9999", "a newer version")
    with pytest.raises(record.WrongRevision, match="9999"):
        record.check_revision()
    with pytest.raises(SystemExit, match="9999"):
        tasks.wait_for_database()
    with pytest.raises(db.WrongRevision, match="a newer version"):
        db.migrate(engine)


def test_newer_tables_that_say_nothing_are_refused(other: sa.Engine) -> None:
    db.migrate(other)
    set_revision(other, "9999")
    with other.begin() as connection:
        connection.exec_driver_sql(
            f"ALTER TABLE {VERSION_TABLE} DROP COLUMN compatible_since"
        )
    with db.reading() as session, pytest.raises(db.WrongRevision, match="9999"):
        db.check_revision(session)


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
