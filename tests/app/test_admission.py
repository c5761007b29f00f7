"""Jobs that no worker has room for are refused when they are asked for."""

import pytest
from fastapi.testclient import TestClient

from app import jobs
from app.jobs import workers
from app.settings import Settings, get_settings
from app.storage import db
from app.storage.tables import Worker
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
