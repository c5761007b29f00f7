"""Limits that are told, of keys, and of the disk."""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import access as auth
from app.access import space, uses
from app.access.uses import KeyUse
from app.access.windows import (
    SECONDS,
    Count,
    SharedCounts,
    Window,
    get_shared_counts,
)
from app.api.limits import _ERRORS, list_limits
from app.errors import TooManyRequests
from app.main import api
from app.serving import get_predict
from app.settings import Settings, get_settings
from app.storage import db
from tests.support.asgi import Call
from tests.support.http import check_problem, make_key, post
from tests.support.servers import Redis
from tests.support.stacks import Stacks
from tests.support.tables import make_csv

NOT_LIMITS = {
    "monitor",
    "monitor_answers",
    "monitor_days",
    "cors_origins",
    "invocations_model",
    "root_path",
    "database_pooler",
    *("data_dir", "database_url", "broker_url", "host", "port", "require_keys"),
    *("predict_threads", "table_threads", "explain_threads"),
    *("ort_providers", "ort_threads"),
    *("worker_queue", "training_threads", "exit_with_parent", "model_cache_bytes"),
    *("audit_days", "prediction_kept_days", "blob_store", "blob_options"),
    *("broker_password_file", "database_password_file", "blob_options_file"),
    *("log_format", "log_level", "traces", "traces_predict_share"),
    *("metrics_dir", "metrics_host", "metrics_port"),
    *("keep_attempts_days", "keep_datasets_days", "keep_events_days"),
    *("keep_failed_jobs_days", "workspaces"),
    *("webhook_attempts", "webhook_days", "webhook_networks"),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    uses.clear()
    space._free.clear()
    get_predict.cache_clear()
    yield
    uses.clear()
    space._free.clear()
    get_predict.cache_clear()


def make(**values: Any) -> dict[str, str]:
    with db.transaction() as session:
        _, secret = auth.create_key(
            session, workspace_id="default", name="x", scopes=auth.SCOPES, **values
        )
    return {"Authorization": f"Bearer {secret}"}


# What is told


def test_limits_are_those_of_the_settings(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "max_rows", 1234)
    told = client.get("/limits").json()
    by_name = {each["name"]: each for each in told["limits"]}
    assert by_name["max_rows"]["value"] == 1234
    assert by_name["max_rows"]["setting"] == "LOMETAB_MAX_ROWS"
    for name, each in by_name.items():
        assert each["value"] == getattr(get_settings(), name)
        assert each["description"], name
    assert told["key"] == {"requests_per_minute": None, "max_concurrent": None}


def test_no_setting_is_left_out() -> None:
    told = {each.name for each in list_limits(Settings())}
    assert told | NOT_LIMITS >= Settings.model_fields.keys()
    assert not told & NOT_LIMITS
    assert _ERRORS.keys() <= told


def test_limits_of_bodies_are_those_of_the_guard(client: TestClient) -> None:
    told = client.get("/limits").json()["bodies"]
    with_body = {
        f"{method.upper()} {path}"
        for path, operations in api.openapi()["paths"].items()
        for method, operation in operations.items()
        if "requestBody" in operation
    }
    assert with_body == {route for each in told for route in each["routes"]}
    # What is told is what is done.
    for each in told:
        for route in each["routes"]:
            method, _, path = route.partition(" ")
            headers = {
                "Content-Length": str(each["max_bytes"] + 1),
                "Content-Type": "text/csv",
            }
            response = client.request(method, path, headers=headers, content=b"")
            if path.endswith("/predict"):  # its id is looked at first
                path = path.replace("{model_id}", "mdl_x")
                response = client.request(method, path, headers=headers, content=b"")
            check_problem(response, 413, str(each["max_bytes"]))


def test_statuses_of_the_guard_are_in_the_document() -> None:
    for path, operations in api.openapi()["paths"].items():
        for method, operation in operations.items():
            statuses = set(operation["responses"])
            assert "431" in statuses, path
            assert ("429" in statuses) == ("security" in operation), path
            if "requestBody" in operation:
                assert "413" in statuses, path
            rule = auth.find_rule(method.upper(), path)
            assert ("507" in statuses) == rule.stores, path


# Disk

STORING = [
    ("POST", "/datasets"),
    ("POST", "/jobs"),
    ("POST", "/jobs/job_x/retry"),
    ("POST", "/jobs/job_x/promote"),
]


@pytest.mark.parametrize(("method", "path"), STORING)
def test_a_disk_that_is_nearly_full_takes_no_more(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    free = shutil.disk_usage("/tmp").free
    monkeypatch.setattr(get_settings(), "min_free_bytes", 10 * free)
    response = client.request(method, path, json={})
    assert check_problem(response, 507, "MiB")["code"] == "disk_full"


def test_what_is_to_come_counts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "find_free", lambda _: 2**30)
    monkeypatch.setattr(get_settings(), "min_free_bytes", 2**30 - 2**20)
    files = {"file": ("t.csv", make_csv(10))}
    assert client.post("/datasets", files=files).status_code == 201
    files = {"file": ("t.csv", "a\n" * 2**20)}
    check_problem(client.post("/datasets", files=files), 507)


def test_so_do_the_rows_of_predict_that_go_to_a_file(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "find_free", lambda _: 2**30)
    monkeypatch.setattr(get_settings(), "min_free_bytes", 2**30 - 2**20)
    ask = {"content": b"a\n" * 2**20, "headers": {"Content-Type": "text/csv"}}
    # Who names no model that is there learns nothing of the disk.
    check_problem(client.post("/models/mdl_x/predict", **ask), 404)
    monkeypatch.setattr("app.serving.asgi.find_served", lambda *_: None)
    check_problem(client.post("/models/mdl_x/predict", **ask), 507)


def test_reading_and_deleting_go_on_without_space(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = post(client, make_csv(50), {"target": "y"}).json()
    monkeypatch.setattr(space, "find_free", lambda _: 0)
    assert client.get(f"/jobs/{job['id']}").status_code == 200
    assert client.post(f"/jobs/{job['id']}/cancel").status_code == 202
    assert client.delete(f"/jobs/{job['id']}").status_code == 204
    assert client.delete(f"/datasets/{job['dataset_id']}").status_code == 204


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Any) -> None:
    assert space.find_free(tmp_path / "a" / "b") > 0


# Keys


def test_a_limit_of_all_keys_and_one_of_its_own(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "key_requests_per_minute", 2)
    usual, larger, free = make(), make(requests_per_minute=5), {}
    free = make(requests_per_minute=0)
    for headers, n_fine in ((usual, 2), (larger, 5), (free, 8)):
        found = [client.get("/jobs", headers=headers).status_code for _ in range(8)]
        assert found == [200] * n_fine + [429] * (8 - n_fine)
    told = client.get("/limits", headers=make(max_concurrent=3)).json()["key"]
    assert told == {"requests_per_minute": 2, "max_concurrent": 3}


def test_requests_at_a_time_are_limited(client: TestClient) -> None:
    headers = make(max_concurrent=2)
    assert client.get("/jobs", headers=headers).status_code == 200
    use = uses.find(headers["Authorization"].removeprefix("Bearer "))
    assert use is not None and use.n_concurrent == 0
    use.enter()
    assert client.get("/jobs", headers=headers).status_code == 200
    use.enter()
    for method, path in (("GET", "/jobs"), ("POST", "/models/mdl_x/predict")):
        response = client.request(method, path, headers=headers)
        assert check_problem(response, 429, "under way")["code"]
        assert response.headers["retry-after"] == "1"
    use.leave()
    assert client.get("/nowhere", headers=headers).status_code == 404
    assert use.n_concurrent == 1  # whatever came of a request, it has ended


def test_the_body_of_a_request_over_the_limit_is_not_read(client: TestClient) -> None:
    headers = make(requests_per_minute=1)
    client.get("/jobs", headers=headers)
    for path in ("/jobs", "/models/mdl_x/predict", "/jobs/job_x/promote"):
        call = Call("POST", path, content_type="application/json", **headers)
        assert (call.run(), call.n_received) == (429, 0)


def test_limits_do_not_ask_the_database_on_the_way_of_predict(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"Authorization": f"Bearer {make_key()}"}
    body = {"rows": [{"a": 1}]}
    first = client.post("/models/mdl_x/predict", headers=headers, json=body)
    assert first.status_code == 404

    def refuse(_: str) -> None:
        raise AssertionError("predict looks for its key by itself")

    monkeypatch.setattr("app.guard.find_caller", refuse)
    second = client.post("/models/mdl_x/predict", headers=headers, json=body)
    assert second.status_code == 404


# Windows


def test_a_window_slides() -> None:
    window, start = Window(), 1000.0 * SECONDS
    assert [window.take(10, start + i) for i in range(11)] == [True] * 10 + [False]
    assert window.remaining(10, start + 30) == 0
    # Half a minute later, half of them count.
    assert window.remaining(10, start + 1.5 * SECONDS) == 5
    assert window.remaining(10, start + 3 * SECONDS) == 10


@pytest.mark.parametrize("taken_at", [0.0, 10.0, 59.0])
def test_who_waits_as_told_may_pass(taken_at: float) -> None:
    window, start = Window(), 1000.0 * SECONDS + taken_at
    while window.take(5, start):
        pass
    for _ in range(20):
        wait = window.wait(5, start)
        assert 1 <= wait <= 2 * SECONDS
        start += wait
        assert window.take(5, start), wait


@pytest.fixture(scope="module")
def redis_server(stacks: Stacks) -> Redis:
    return stacks.redis


@pytest.mark.processes
def test_processes_share_their_counts_through_redis(redis_server: Redis) -> None:
    """Two processes: each hears of what the other let pass."""
    now = 1000.5 * SECONDS
    counts = get_shared_counts(redis_server.url(15))
    assert counts is not None
    windows = [Window(), Window()]
    n_passed = 0
    for _ in range(20):  # exchanges
        for window in windows:
            n_passed += sum(window.take(100, now) for _ in range(10))
            if (count := window.tell("key_a")) is not None:
                (total,) = counts.exchange([count])
                window.hear(total)
    assert 100 <= n_passed <= 110  # what came between two exchanges
    (total,) = counts.exchange([Count("key_a", 1000, 0)])
    assert total.n == n_passed


@pytest.mark.processes
def test_without_redis_each_process_goes_on_by_itself(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "redis://127.0.0.1:1/0"  # where nobody listens
    monkeypatch.setattr(get_settings(), "broker_url", url)
    use = KeyUse("key_a")
    use.rate = 2
    uses._by_id["key_a"] = use
    for _ in range(2):
        use.enter()
        asyncio.run(uses.exchange())
    with pytest.raises(TooManyRequests):
        use.enter()
    warnings = [each for each in caplog.records if "Redis" in each.getMessage()]
    assert len(warnings) == 1  # and no flood of them


def test_other_brokers_share_nothing() -> None:
    assert get_shared_counts("") is None
    assert get_shared_counts("filesystem://") is None
    assert isinstance(get_shared_counts("redis://127.0.0.1:1/1"), SharedCounts)
