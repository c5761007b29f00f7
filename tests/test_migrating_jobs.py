"""A database that was filled before jobs had roles: its rows are carried over."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from fastapi.testclient import TestClient

import migrations
from app.access import SCOPES, create_key
from app.jobs import queue
from app.main import app
from app.settings import get_settings
from app.storage import db
from lometab.config import TrainConfig
from tests.support.outcomes import outcome
from tests.support.stacks import Stack, Stacks

MOMENT = "2026-01-31 12:00:00+00:00"
SPACE = {"rank": {"values": [1, 2]}, "lr": {"low": 0.1, "high": 0.2}}
SCHEMA = {
    "target": "y",
    "task": "regression",
    "numeric": ["x"],
    "categorical": [],
    "datetime": [],
    "ignored": {},
    "classes": None,
}
ESTIMATE = dict.fromkeys(
    ("n_parameters", "memory_bytes", "serving_bytes", "flops_per_epoch"), 1
) | {"seconds_per_epoch": 1.0}


def hyperparameters(**values: Any) -> dict[str, Any]:
    return asdict(TrainConfig(**{"seed": 5, "max_epochs": 3, **values}))


def make_config(kind: str = "train", **values: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "task": "regression",
        "split": {},
        "baselines": [],
        "n_seeds": 1,
        "hyperparameters": hyperparameters(),
        **values,
    }


class Filler:
    """Writes rows as the revision 0002 has them."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection

    def insert(self, table: str, **values: Any) -> None:
        values = {
            name: json.dumps(value) if isinstance(value, dict | list) else value
            for name, value in values.items()
        }
        names = ", ".join(f'"{name}"' for name in values)
        places = ", ".join(f":{name}" for name in values)
        statement = sa.text(f"INSERT INTO {table} ({names}) VALUES ({places})")
        self.connection.execute(statement, values)

    def add_table(self) -> None:
        sha256 = hashlib.sha256(b"bytes").hexdigest()
        key = {"workspace_id": "default", "sha256": sha256}
        self.insert("blobs", **key, size=5, created_at=MOMENT)
        self.insert("blob_chunks", **key, index=0, content=b"bytes")
        self.insert(
            "datasets",
            **key,
            id="ds_1",
            options_sha256="0" * 64,
            table_sha256=sha256,
            filename="t.csv",
            size=5,
            n_rows=1,
            n_columns=2,
            read_options={},
            reading={},
            profile={},
            created_at=MOMENT,
        )

    def add_job(self, id_: str, **values: Any) -> None:
        self.insert(
            "jobs",
            id=id_,
            workspace_id="default",
            dataset_id="ds_1",
            tags=[],
            queue="cpu",
            schema=SCHEMA,
            estimate=ESTIMATE,
            attempt=1,
            lost_attempts=0,
            is_stop_wished=False,
            event_seq=0,
            created_at=MOMENT,
            **{
                "kind": "train",
                "status": "succeeded",
                "finished_at": MOMENT,
                "progress": {"epoch": 3, "max_epochs": 3},
                **values,
            },
        )

    def add_child(self, id_: str, parent_id: str, position: int, **more: Any) -> None:
        score = more.pop("score", 0.5)
        values = {"outcome": asdict(outcome(score))} | more
        self.add_job(id_, parent_id=parent_id, position=position, **values)

    def add_event(self, job_id: str, seq: int, child_id: str, position: int) -> None:
        data = {"position": position, "job_id": child_id, "status": "succeeded"}
        self.insert(
            "events",
            job_id=job_id,
            seq=seq,
            workspace_id="default",
            type="child",
            data={**data, "attempt": 1},
            created_at=MOMENT,
        )


def fill(connection: sa.Connection) -> None:
    filler = Filler(connection)
    filler.add_table()
    _fill_sweep(filler)
    _fill_tune(filler)
    source = {"job_id": "job_sweep", "cell": 1}
    filler.add_job(
        "job_promoted", status="queued", config=make_config(promoted_from=source)
    )
    filler.add_job("job_alone", config=make_config())


def _fill_sweep(filler: Filler) -> None:
    """Two cells of two seeds; the parent knows of the end of all but the last."""
    sweep = {"grid": {"rank": [1, 2]}, "seeds": 2, "max_cells": None, "reference": None}
    filler.add_job(
        "job_sweep",
        kind="sweep",
        config=make_config("sweep", sweep=sweep),
        progress={"epoch": 0, "max_epochs": 3, "n_runs": 4, "n_finished": 4},
    )
    for position in range(4):
        repeat, cell = divmod(position, 2)
        config = make_config(
            is_cell=True,
            cell={"rank": cell + 1},
            hyperparameters=hyperparameters(rank=cell + 1, seed=5 + repeat),
        )
        child_id = f"job_cell_{position}"
        filler.add_child(
            child_id, "job_sweep", position, config=config, score=position / 10
        )
        if position < 3:
            filler.add_event("job_sweep", position + 1, child_id, position)


def _fill_tune(filler: Filler) -> None:
    """Three trials, of which one was never drawn, two repeats and a refit."""
    tune = {"n_trials": 3, "seeds": 2, "finalists": 2, "space": {"k": None}}
    filler.add_job(
        "job_tune",
        kind="tune",
        config=make_config("tune", tune=tune),
        progress={"epoch": 0, "max_epochs": 3, "n_runs": 3, "n_finished": 3},
    )
    for number in range(3):
        is_drawn = number < 2
        trial = {"space": SPACE} | ({"is_drawn": True} if is_drawn else {})
        config = make_config(
            is_cell=True,
            trial_of=trial,
            hyperparameters=hyperparameters(rank=number % 2 + 1, lr=0.15),
        )
        ended: dict[str, Any] = {"score": 0.5 + number / 10}
        ended = ended if is_drawn else {"status": "cancelled", "outcome": None}
        filler.add_child(
            f"job_trial_{number}", "job_tune", number, config=config, **ended
        )
    for i in range(2):
        config = make_config(
            is_cell=True,
            repeat_of=i,
            hyperparameters=hyperparameters(rank=i + 1, lr=0.15, seed=6),
        )
        filler.add_child(f"job_repeat_{i}", "job_tune", 3 + i, config=config)
    config = make_config(refit_of=1, n_seeds=2)
    filler.add_child("job_refit", "job_tune", 5, config=config, outcome=None)


@pytest.fixture
def engine(
    stack: Stack, stacks: Stacks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """A database of the revision before, filled, then brought to the newest."""
    if stack.name == "embedded":
        url = f"sqlite:///{stack.folder}/old.db"
    else:
        name = f"old_{stacks.n_made}"
        with stacks.postgres.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        url = stacks.postgres.url(name)
    engine = db.make_engine(url)
    config = Config()
    config.set_main_option("script_location", str(next(iter(migrations.__path__))))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        fill(connection)
    db.migrate(engine)
    monkeypatch.setenv("LOMETAB_DATA_DIR", str(stack.folder))
    get_settings.cache_clear()
    queue.get_celery.cache_clear()
    monkeypatch.setattr(db, "get_engine", lambda: engine)
    yield engine
    engine.dispose()
    get_settings.cache_clear()
    queue.get_celery.cache_clear()


def read_columns(engine: sa.Engine) -> dict[str, tuple[Any, ...]]:
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text(
                "SELECT id, role, number, repeat, promoted_from, is_reported FROM jobs"
            )
        ).all()
    return {row[0]: (*row[1:5], bool(row[5])) for row in rows}


def test_roles_and_numbers_become_columns(engine: sa.Engine) -> None:
    assert read_columns(engine) == {
        "job_sweep": ("sweep", None, None, None, False),
        "job_cell_0": ("cell", 0, 0, None, True),
        "job_cell_1": ("cell", 1, 0, None, True),
        "job_cell_2": ("cell", 0, 1, None, True),
        "job_cell_3": ("cell", 1, 1, None, False),
        "job_tune": ("tune", None, None, None, False),
        "job_trial_0": ("trial", 0, 0, None, False),
        "job_trial_1": ("trial", 1, 0, None, False),
        "job_trial_2": ("trial", 2, 0, None, False),
        "job_repeat_0": ("repeat", 0, 1, None, False),
        "job_repeat_1": ("repeat", 1, 1, None, False),
        "job_refit": ("refit", 1, 0, None, False),
        "job_promoted": ("train", 1, None, "job_sweep", False),
        "job_alone": ("train", None, None, None, False),
    }


@pytest.mark.filterwarnings("ignore:Target and region quantiles")  # so few trials
def test_the_service_goes_on_with_them(engine: sa.Engine) -> None:
    with db.transaction() as session:
        _, key = create_key(session, workspace_id="default", name="test", scopes=SCOPES)
    with TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        for id_ in read_columns(engine):
            answer = client.get(f"/jobs/{id_}")
            assert answer.status_code == 200, answer.text
            assert not answer.json()["config"].keys() & set(MARKS)
        check_sweep(client)
        check_tune(client)


MARKS = ("is_cell", "cell", "trial_of", "repeat_of", "refit_of", "promoted_from")


def check_sweep(client: TestClient) -> None:
    sweep = client.get("/jobs/job_sweep/sweep").json()
    runs = [[(run["job_id"], run["seed"]) for run in cell] for cell in sweep["runs"]]
    assert runs == [
        [("job_cell_0", 5), ("job_cell_2", 6)],
        [("job_cell_1", 5), ("job_cell_3", 6)],
    ]
    means = [cell["test"]["score"]["mean"] for cell in sweep["comparison"]["cells"]]
    assert len(means) == 2 and means[0] != means[1]
    made = client.post("/jobs/job_sweep/promote", json={"cell": 1}).json()
    assert made["config"]["hyperparameters"]["rank"] == 2
    assert (made["promoted_from"], made["number"]) == ("job_sweep", 1)


def check_tune(client: TestClient) -> None:
    tune = client.get("/jobs/job_tune/tune").json()
    assert tune["space"].keys() == SPACE.keys()
    settings = [trial["settings"] for trial in tune["trials"]]
    assert settings == [{"rank": 1, "lr": 0.15}, {"rank": 2, "lr": 0.15}, None]
    assert (tune["best"], tune["refit_job_id"]) == (1, "job_refit")
    assert tune["best_settings"] == {"rank": 2, "lr": 0.15}
    finalists = [
        (each["trial"], [run["job_id"] for run in each["runs"]])
        for each in tune["finalists"]
    ]
    assert finalists == [
        (0, ["job_trial_0", "job_repeat_0"]),
        (1, ["job_trial_1", "job_repeat_1"]),
    ]
    config = client.get("/jobs/job_tune").json()["config"]
    assert config["tune"]["space"] == {"k": None, **SPACE}
    made = client.post("/jobs/job_tune/promote", json={"trial": 1}).json()
    assert made["config"]["hyperparameters"]["rank"] == 2
    refused = client.post("/jobs/job_tune/promote", json={"trial": 2})
    assert refused.status_code == 409


def test_bytes_stay_where_they_are(engine: sa.Engine) -> None:
    from app.storage import blobs

    sha256 = hashlib.sha256(b"bytes").hexdigest()
    assert blobs.is_intact("default", sha256)
    assert blobs.read("default", sha256) == b"bytes"
