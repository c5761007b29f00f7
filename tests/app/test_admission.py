"""Jobs that no worker has room for are refused when they are asked for."""

import re

import httpx
import pytest
from fastapi.testclient import TestClient

from app import jobs
from app.jobs import create, workers
from app.settings import Settings, get_settings
from app.storage import db
from app.storage.tables import Worker
from lometab import cost
from lometab.machine import Machine
from tests.support.http import check_problem, post
from tests.support.tables import make_csv
from worker import reaper
from worker.identity import WORKER_ID

pytestmark = pytest.mark.both_databases

CONFIG = {"target": "y", "columns": {"label": "ignore"}}
GIB = 2**30


@pytest.fixture(autouse=True)
def heard_for_long(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOMETAB_REAPER_SECONDS", "60")
    get_settings.cache_clear()


def live(worker_id: str, memory_bytes: int | None) -> None:
    with db.transaction() as session:
        jobs.heartbeat_worker(
            session,
            worker_id=worker_id,
            queue="cpu",
            workspace_id="default",
            memory_bytes=memory_bytes,
            threads=1,
        )


def find_expected(client: TestClient) -> int:
    answer = post(client, make_csv(60), CONFIG)
    assert answer.status_code == 202
    n_bytes: int = answer.json()["estimate"]["memory_bytes"]
    return n_bytes


def test_too_large_for_every_worker(client: TestClient) -> None:
    expected = find_expected(client)
    live("small", expected - 1)
    problem = check_problem(
        post(client, make_csv(60), CONFIG), 422, "the largest worker"
    )
    assert problem["code"] == "too_much_memory"
    live("large", expected)
    assert post(client, make_csv(60), CONFIG).status_code == 202


def test_a_worker_that_does_not_tell_is_trusted(client: TestClient) -> None:
    live("small", 1)
    live("old", None)
    assert post(client, make_csv(60), CONFIG).status_code == 202


def test_without_a_worker_this_machine_counts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = find_expected(client)
    monkeypatch.setattr(workers, "count_memory", lambda: expected)
    check_problem(post(client, make_csv(60), CONFIG), 422, "this machine")
    monkeypatch.setattr(workers, "count_memory", lambda: 2 * expected)
    assert post(client, make_csv(60), CONFIG).status_code == 202


def test_hundreds_of_gigabytes_are_refused(client: TestClient) -> None:
    live("usual", 24 * GIB)
    wide = {"k": 256, "d_block": 4096, "n_blocks": 8, "batch_size": 4096}
    answer = post(client, make_csv(60), {**CONFIG, "hyperparameters": wide})
    assert check_problem(answer, 422)["code"] == "too_much_memory"


def test_a_worker_tells_what_it_has(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "count_memory", lambda: 10 * GIB)
    monkeypatch.setattr(workers, "count_cpus", lambda: 3)
    monkeypatch.setattr(workers, "count_machine", lambda: Machine(3, 16 * GIB))
    monkeypatch.setattr(jobs, "notify", lambda *_: None)
    for settings, expected in (
        (Settings(training_threads=0), (9 * GIB, 3)),
        (Settings(max_training_bytes=GIB, training_threads=7), (GIB, 7)),
    ):
        reaper.run(settings)
        with db.reading() as session:
            worker = session.get_one(Worker, WORKER_ID)
        assert (worker.memory_bytes, worker.threads) == expected


@pytest.mark.parametrize(
    ("n_given", "seconds", "expected"),
    [(0, 0.01, 1), (0, 0.3, 1), (0, 0.6, 2), (0, 60.0, 4), (0, None, 4), (3, 0.01, 3)],
)
def test_threads_that_help(
    n_given: int,
    seconds: float | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "count_cpus", lambda: 4)
    monkeypatch.setattr(workers, "count_machine", lambda: Machine(4, 16 * GIB))
    settings = Settings(training_threads=n_given)
    assert workers.find_training_threads(settings, seconds) == expected


# Tables that are too large as they are


def ask(client: TestClient, n_rows: int, **settings: object) -> httpx.Response:
    return post(client, make_csv(n_rows), {**CONFIG, **settings})


def test_a_refusal_says_how_many_rows_would_fit(client: TestClient) -> None:
    asked = {"storage": "memory"}
    some = ask(client, 8000, max_rows=3000, **asked).json()["estimate"]
    live("small", some["memory_bytes"])
    problem = check_problem(ask(client, 8000, **asked), 422, "the largest worker has")
    assert problem["code"] == "too_much_memory"
    (most,) = re.findall(r"set `max_rows` to at most ([\d,]+)", problem["detail"])
    n_rows = int(most.replace(",", ""))
    assert 3000 <= n_rows < 3100
    job = ask(client, 8000, max_rows=n_rows, **asked)
    assert job.status_code == 202
    too_many = ask(client, 8000, max_rows=n_rows + 500, **asked)
    check_problem(too_many, 422, f"at most {most}")


def test_no_number_of_rows_helps_a_network_that_is_too_large(
    client: TestClient,
) -> None:
    expected = ask(client, 8000, max_rows=100).json()["estimate"]["memory_bytes"]
    live("small", expected // 2)
    detail = check_problem(ask(client, 8000), 422)["detail"]
    assert "max_rows" not in detail and "a smaller k" in detail


def test_what_fits_in_no_memory_is_trained_from_a_file(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cost, create):
        monkeypatch.setattr(module, "HELD_ROWS", 500)
    in_memory = ask(client, 8000).json()
    assert in_memory["config"]["storage"] == "memory"
    assert in_memory["estimate"]["storage"] == "memory"
    assert in_memory["estimate"]["disk_bytes"] == 0
    in_file = ask(client, 8000, storage="file").json()["estimate"]
    assert in_file["memory_bytes"] < in_memory["estimate"]["memory_bytes"]
    assert in_file["disk_bytes"] > 0

    live("small", in_file["memory_bytes"])
    job = ask(client, 8000).json()
    assert job["config"]["storage"] == "file" and job["estimate"]["storage"] == "file"
    (told,) = [each for each in job["warnings"] if "from a file, to fit" in each]
    assert "500 of 5,120 train rows, 500 of 1,280 val rows" in told
    check_problem(ask(client, 8000, storage="memory"), 422, "leave `storage` at 'auto'")
    baselines = {"baselines": ["catboost"]}
    check_problem(ask(client, 8000, **baselines), 422, "set `max_rows` to at most")
    check_problem(
        ask(client, 8000, storage="file", **baselines), 422, "from memory; leave it out"
    )


def test_fewer_rows_are_told(client: TestClient) -> None:
    job = ask(client, 600, max_rows=200).json()
    told = "trained on 200 of 600 rows, drawn by lot (`max_rows`): 128 train, 32 val"
    assert any(told in each for each in job["warnings"])
    assert job["config"]["max_rows"] == 200 and job["estimate"]["n_rows"] == 200
    whole = ask(client, 600, max_rows=600).json()
    assert not any("rows" in each for each in whole["warnings"])
    assert whole["estimate"]["n_rows"] == 600
    body = {**CONFIG, "dataset_id": job["dataset_id"], "max_rows": 200}
    plan = client.post("/jobs/plan", json=body).json()
    assert plan["warnings"] == job["warnings"]
    assert plan["estimate"]["n_rows"] == 200

    labels = {"target": "label", "columns": {"y": "ignore"}, "max_rows": 20}
    check_problem(post(client, make_csv(600), {**labels, "max_rows": 19}), 422, "20")
    assert post(client, make_csv(600), labels).status_code == 202
