"""One Idempotency-Key makes one job, however long the work takes."""

import json
import threading
import time
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import jobs
from app.jobs import idempotency
from app.main import app
from app.storage import db
from app.storage.tables import Job
from tests.support.http import check_problem, make_key, post
from tests.support.tables import make_csv

pytestmark = pytest.mark.both_databases

KEY = {"Idempotency-Key": "order-1"}
OTHER = {"Idempotency-Key": "order-2"}
CONFIG = {"target": "y", "columns": {"label": "ignore"}}


@pytest.fixture
def work_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the lock holds."""
    plan = jobs.plan_job

    def plan_slowly(*args: Any) -> jobs.Plan:
        time.sleep(1.5)
        return plan(*args)

    monkeypatch.setattr(jobs, "plan_job", plan_slowly)
    monkeypatch.setattr(jobs, "notify_of", lambda job: None)
    monkeypatch.setattr(idempotency, "LOCK_SECONDS", 0.4)


def send(client: TestClient, answers: list[httpx.Response]) -> threading.Thread:
    def run() -> None:
        answers.append(
            client.post(
                "/jobs",
                files={"file": ("t.csv", make_csv(60))},
                data={"config": json.dumps(CONFIG)},
                headers=KEY,
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def send_thrice() -> list[httpx.Response]:
    answers: list[httpx.Response] = []
    address = "http://127.0.0.1"
    with TestClient(app, address, raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {make_key()}"
        threads = []
        for _ in range(3):
            threads.append(send(client, answers))
            time.sleep(0.6)
        for thread in threads:
            thread.join()
    return answers


def count_jobs() -> int:
    with db.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(Job)) or 0


@pytest.mark.slow
def test_the_lock_is_renewed_while_the_work_goes_on(
    engine: sa.Engine, work_takes: None
) -> None:
    answers = send_thrice()
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409]
    assert count_jobs() == 1


@pytest.mark.slow
def test_whoever_has_lost_the_lock_makes_nothing(
    engine: sa.Engine, work_takes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a process stands still while it should renew."""

    @contextmanager
    def stand_still(lock: idempotency.Lock) -> Any:
        yield

    monkeypatch.setattr(idempotency, "renewed", stand_still)
    answers = send_thrice()
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409]
    assert count_jobs() == 1


def test_a_key_is_given_back_by_its_holder_alone(engine: sa.Engine) -> None:
    with db.transaction() as session:
        lock = idempotency.begin(session, "default", "a", "0" * 64)
    assert isinstance(lock, idempotency.Lock)
    with db.transaction() as session:
        idempotency.abandon(session, lock._replace(owner="another"))
        assert idempotency.renew(session, lock)
        idempotency.abandon(session, lock)
        assert not idempotency.renew(session, lock)


def test_how_the_file_is_read_is_a_part_of_the_request(client: TestClient) -> None:
    table = make_csv(60)
    options = [{}, {"missing_values": ["nothing"]}]
    first, second = (
        client.post(
            "/datasets",
            files={"file": ("t.csv", table)},
            data={"read_options": json.dumps(each)},
        ).json()["id"]
        for each in options
    )
    assert first != second

    def ask(dataset_id: str) -> httpx.Response:
        body = {"dataset_id": dataset_id, **CONFIG}
        return client.post("/jobs", json=body, headers=KEY)

    assert ask(first).status_code == 202
    problem = check_problem(ask(second), 422)
    assert problem["code"] == "idempotency_key_reused"
    assert ask(first).headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("options", [{"delimiter": ";"}, {"missing_values": ["3"]}])
def test_the_same_for_a_file_that_comes_along(
    client: TestClient, options: dict[str, Any]
) -> None:
    def ask(**more: Any) -> httpx.Response:
        return client.post(
            "/jobs",
            files={"file": ("t.csv", make_csv(60))},
            data={"config": json.dumps({**CONFIG, **more})},
            headers=KEY,
        )

    assert ask().status_code == 202
    problem = check_problem(ask(read_options=options), 422, "Idempotency-Key")
    assert problem["code"] == "idempotency_key_reused"


def test_what_is_made_of_a_run_is_made_once(client: TestClient) -> None:
    config = {**CONFIG, "kind": "sweep", "sweep": {"grid": {"rank": [1, 2]}}}
    sweep = post(client, make_csv(60), config).json()

    def promote(cell: int, of: str = sweep["id"]) -> httpx.Response:
        return client.post(f"/jobs/{of}/promote", json={"cell": cell}, headers=KEY)

    n_before = count_jobs()
    first, again = promote(0), promote(0)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == f"/jobs/{first.json()['id']}"
    assert count_jobs() == n_before + 1
    check_problem(promote(1), 422, "Idempotency-Key")
    # A key of a request that was refused can be used again.
    check_problem(
        client.post("/jobs/job_none/promote", json={"cell": 0}, headers=OTHER), 404
    )
    assert (
        client.post(
            f"/jobs/{sweep['id']}/promote", json={"cell": 1}, headers=OTHER
        ).status_code
        == 202
    )
