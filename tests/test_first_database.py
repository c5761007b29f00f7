"""A database that the code of the first tables filled, brought to the newest revision.

tests/old/first.db.xz is what `lometab serve` of that time left after two jobs that
succeeded and one that was cancelled; first.json is what it answered. Neither is ever
written again.
"""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from fastapi.testclient import TestClient

import migrations
from app.access import SCOPES, create_key
from app.jobs import queue
from app.main import app
from app.serving import get_predictors
from app.settings import get_settings
from app.storage import db
from app.storage.tables import VERSION_TABLE
from tests.support.stacks import Stack, Stacks

pytestmark = pytest.mark.both_databases
FOLDER = Path(__file__).parent / "old"
TOLD: dict[str, Any] = json.loads((FOLDER / "first.json").read_text())


def unpack(folder: Path) -> str:
    path = folder / "first.db"
    path.write_bytes(lzma.decompress((FOLDER / "first.db.xz").read_bytes()))
    return f"sqlite:///{path}"


def copy_to_postgres(source: str, url: str) -> None:
    """All rows into tables of the first revision, parents before children."""
    config = Config()
    config.set_main_option("script_location", str(next(iter(migrations.__path__))))
    old, new = db.make_engine(source), db.make_engine(url)
    tables = sa.MetaData()
    with new.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        tables.reflect(connection)
    with old.connect() as reading, new.begin() as writing:
        for table in tables.sorted_tables:
            if table.name == VERSION_TABLE:
                continue
            rows = reading.execute(sa.text(f'SELECT * FROM "{table.name}"')).mappings()
            many = [{k: fit(table.c[k], v) for k, v in row.items()} for row in rows]
            if many:
                writing.execute(sa.insert(table), many)
    old.dispose()
    new.dispose()


def fit(column: sa.Column[Any], value: Any) -> Any:
    """What SQLite keeps as text or a number, as Postgres has it."""
    if value is None:
        return None
    if isinstance(column.type, sa.Boolean):
        return bool(value)
    if isinstance(column.type, sa.JSON):
        return json.loads(value)
    return value


@pytest.fixture
def engine(
    stack: Stack, stacks: Stacks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """The database, as this version has it after `lometab migrate`."""
    url = unpack(stack.folder)
    if stack.name == "production":
        name = f"first_{stacks.n_made}"
        with stacks.postgres.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        source, url = url, stacks.postgres.url(name)
        copy_to_postgres(source, url)
    engine = db.make_engine(url)
    db.migrate(engine)
    monkeypatch.setenv("LOMETAB_DATA_DIR", str(stack.folder))
    for cached in (get_settings, queue.get_celery, get_predictors):
        cached.cache_clear()
    monkeypatch.setattr(db, "get_engine", lambda: engine)
    yield engine
    db.dispose_predict_engine()
    engine.dispose()
    for cached in (get_settings, queue.get_celery, get_predictors):
        cached.cache_clear()


@pytest.fixture
def client(engine: sa.Engine) -> Iterator[TestClient]:
    with db.transaction() as session:
        _, key = create_key(session, workspace_id="default", name="test", scopes=SCOPES)
    with TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


@pytest.mark.parametrize("target", ["y", "label"])
def test_its_models_answer_as_they_did(client: TestClient, target: str) -> None:
    told = TOLD["models"][target]
    path = f"/models/{told['model_id']}/predict"
    answer = client.post(path, json={"rows": TOLD["rows"]})
    assert answer.status_code == 200, answer.text
    pairs = zip(
        told["answer"]["predictions"], answer.json()["predictions"], strict=True
    )
    for before, now in pairs:
        assert now.get("label") == before.get("label")
        for name in ("mean", "members"):
            np.testing.assert_allclose(now[name], before[name], rtol=1e-4, atol=1e-5)


def test_its_jobs_reports_and_events_are_read(client: TestClient) -> None:
    jobs = client.get("/jobs").json()["data"]
    ids = {each["id"] for each in jobs}
    assert ids == {
        TOLD["cancelled_job"],
        *(each["job_id"] for each in TOLD["models"].values()),
    }
    for told in TOLD["models"].values():
        job_path = f"/jobs/{told['job_id']}"
        assert client.get(job_path).json()["status"] == "succeeded"
        events = client.get(f"{job_path}/events").json()["data"]
        assert events[0]["type"] == "queued" and events[-1]["type"] == "succeeded"
        report = client.get(f"{job_path}/report")
        assert report.status_code == 200, report.text
        assert report.json()["scores"]["test"]["ensemble"] == pytest.approx(
            told["report"]
        )
        for kind in ("diversity", "calibration"):
            assert client.get(f"{job_path}/{kind}").status_code == 200
    cancelled = client.get(f"/jobs/{TOLD['cancelled_job']}").json()
    assert cancelled["status"] == "cancelled"


def test_what_it_holds_can_be_used_again(client: TestClient) -> None:
    """Its dataset by a new job, its cancelled job by another attempt."""
    (dataset,) = client.get("/datasets").json()["data"]
    assert client.get(f"/datasets/{dataset['id']}").status_code == 200
    body = {"dataset_id": dataset["id"], "target": "y"}
    made = client.post("/jobs", json=body)
    assert made.status_code == 202, made.text
    retried = client.post(f"/jobs/{TOLD['cancelled_job']}/retry")
    assert retried.status_code in (200, 202), retried.text
    assert retried.json()["status"] == "queued"
