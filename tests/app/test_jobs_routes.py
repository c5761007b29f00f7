"""Asking for a job, in process, on both databases."""

import json
from typing import Any

import httpx2 as httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.uploads import MAX_FIELD_BYTES


def post(
    client: TestClient, content: str | bytes, config: dict[str, Any] | str
) -> httpx.Response:
    text = config if isinstance(config, str) else json.dumps(config)
    return client.post(
        "/jobs", files={"file": ("t.csv", content)}, data={"config": text}
    )


def check_problem(response: httpx.Response, status: int, *words: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == status
    for word in words:
        assert word in problem["detail"]
    return problem


def test_answer_shows_every_guess(client: TestClient, table_csv: str) -> None:
    response = post(client, table_csv, {"target": "label", "columns": {"y": "ignore"}})
    assert response.status_code == 202, response.text
    job = response.json()
    assert response.headers["location"] == f"/jobs/{job['id']}"
    assert job["status"] == "queued"
    assert job["config"]["task"] == "binary"
    assert job["config"]["hyperparameters"]["k"] == 16
    assert job["config"]["split"]["test"] == 0.2
    assert job["columns"]["size"] == "numeric"
    assert job["columns"]["colour"] == "categorical"
    assert job["columns"]["y"].startswith("ignored")
    again = client.get(f"/jobs/{job['id']}").json()
    assert again.pop("notice") == "no worker of the queue 'cpu' is heard of"
    assert job.pop("notice") is None
    assert again == job


def test_what_was_decided_is_an_event(client: TestClient) -> None:
    lines = [f"{i},{i % 7},{i / 3}" for i in range(60)]
    job = post(client, "row,x,y\n" + "\n".join(lines), {"target": "y"}).json()
    events = client.get(f"/jobs/{job['id']}/events").json()["data"]
    assert [event["type"] for event in events] == ["queued", "warning"]
    assert "'row' is not used" in events[1]["data"]["detail"]


def test_preset_fills_what_was_not_chosen(client: TestClient, table_csv: str) -> None:
    config = {"target": "y", "preset": "fast", "hyperparameters": {"rank": 2}}
    chosen = post(client, table_csv, config).json()["config"]["hyperparameters"]
    assert (chosen["rank"], chosen["k"], chosen["max_epochs"]) == (2, 8, 60)


def test_same_bytes_are_one_dataset(
    client: TestClient, table_csv: str, database: sa.Connection
) -> None:
    first = post(client, table_csv, {"target": "y"}).json()
    second = post(client, table_csv, {"target": "label"}).json()
    assert first["dataset_id"] == second["dataset_id"]
    assert first["id"] != second["id"]
    assert database.scalar(sa.text("SELECT count(*) FROM blobs")) == 1


def test_device_decides_the_queue(
    client: TestClient, table_csv: str, database: sa.Connection
) -> None:
    for device in ("auto", "cpu", "gpu"):
        post(client, table_csv, {"target": "y", "device": device})
    queues = database.execute(sa.text("SELECT queue FROM jobs ORDER BY created_at"))
    assert [queue for (queue,) in queues] == ["cpu", "cpu", "gpu"]


@pytest.mark.parametrize(
    ("content", "config", "words"),
    [
        ("a,b\n1,2\n", {"target": "c"}, ["no column 'c'", "a, b"]),
        ("price,b\n1,2\n", {"target": "Prize"}, ["did you mean 'price'"]),
        ("", {"target": "a"}, ["empty"]),
        ("a,b\n", {"target": "a"}, ["no rows"]),
        ("Dear all,\nplease find the file attached.\n", {"target": "a"}, ["no column"]),
        ("Just some words\nand more words\n", {"target": "a"}, ["no column 'a'"]),
        (b"a,b\n\x00\x01\x02,2", {"target": "a"}, ["line 2", "no text file"]),
        ("a,b\n1,2\n3\n", {"target": "a"}, ["line 3", "1 cell", "2"]),
        ('a,b\n"1,2\n', {"target": "a"}, ["line 2"]),
        ("a,b\n" + "1,2\n" * 30, {"target": "a"}, ["only one value"]),
        ("a,b\n1,2\n,3\n", {"target": "a"}, ["missing in 1 rows", "line 3"]),
        (
            "a,b\n" + "1,2\n0,2\n" * 9,
            {"target": "a"},
            ["no column is left", "the same"],
        ),
    ],
)
def test_bad_files_get_a_sentence_that_helps(
    client: TestClient, content: str | bytes, config: dict[str, Any], words: list[str]
) -> None:
    check_problem(post(client, content, config), 422, *words)


@pytest.mark.parametrize(
    ("config", "words", "pointer"),
    [
        ("{", ["Invalid JSON"], "/"),
        ("[]", ["object"], "/"),
        ({}, ["target: Field required"], "/target"),
        ({"target": "y", "tarmac": 1}, ["'tarmac'"], "/tarmac"),
        (
            {"target": "y", "hyperparameters": {"sigma": 1}},
            ["did you mean 'sigma_init'"],
            "/hyperparameters/sigma",
        ),
        (
            {"target": "y", "hyperparameters": {"k": 0}},
            ["greater than or equal to 1"],
            "/hyperparameters/k",
        ),
        (
            {"target": "y", "split": {"val": 0.5, "test": 0.5}},
            ["leave rows to train on"],
            "/split",
        ),
        ({"target": "y", "preset": "huge"}, ["'fast'"], "/preset"),
        (
            {"target": "y", "columns": {"size": "number"}},
            ["'numeric'"],
            "/columns/size",
        ),
    ],
)
def test_bad_configs_get_a_pointer(
    client: TestClient, table_csv: str, config: Any, words: list[str], pointer: str
) -> None:
    problem = check_problem(post(client, table_csv, config), 422, *words)
    assert problem["errors"][0]["pointer"] == pointer


def test_unknown_column_override_is_named(client: TestClient, table_csv: str) -> None:
    config = {"target": "y", "columns": {"colour_": "ignore"}}
    check_problem(post(client, table_csv, config), 422, "did you mean 'colour'")


def test_missing_parts(client: TestClient, table_csv: str) -> None:
    no_config = client.post("/jobs", files={"file": ("t.csv", table_csv)})
    check_problem(no_config, 422, "`config` is missing")
    no_file = client.post("/jobs", files={"config": (None, '{"target": "y"}')})
    check_problem(no_file, 422, "`file`")
    check_problem(client.post("/jobs", json={"target": "y"}), 422, "dataset_id")
    csv = client.post("/jobs", content=table_csv, headers={"content-type": "text/csv"})
    check_problem(csv, 415, "multipart")


def test_limits(
    client: TestClient, table_csv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"target": "y", "note": "x" * MAX_FIELD_BYTES}
    check_problem(post(client, table_csv, config), 413)
    from app.settings import get_settings

    monkeypatch.setattr(get_settings(), "max_upload_bytes", 1000)
    check_problem(post(client, table_csv, {"target": "y"}), 413, "1000 bytes")


def test_reports_are_not_ready_before_the_end(
    client: TestClient, table_csv: str
) -> None:
    job = post(client, table_csv, {"target": "y"}).json()
    for report in ("diversity", "calibration", "report"):
        response = client.get(f"/jobs/{job['id']}/{report}")
        problem = check_problem(response, 409, "queued")
        assert problem["code"] == "report_not_ready"
        assert int(response.headers["retry-after"]) > 0


def test_unknown_ids_and_routes_are_problems(client: TestClient) -> None:
    check_problem(client.get("/jobs/job_none"), 404, "job_none")
    check_problem(client.get("/jobs/job_none/diversity"), 404)
    check_problem(client.get("/models/mdl_none"), 404)
    check_problem(client.post("/models/mdl_none/predict", json={"rows": [{}]}), 404)
    check_problem(client.get("/nowhere"), 404)
    check_problem(client.delete("/healthz"), 405)


def test_health_and_openapi(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    hyperparameters = schemas["TrainConfig"]["properties"]
    assert hyperparameters["rank"]["maximum"] == 64
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path


def test_a_class_that_a_given_split_leaves_out_is_warned_of(client: TestClient) -> None:
    parts = ["train"] * 60 + ["val"] * 30 + ["test"] * 30
    labels = ["a", "b", "c"] * 20 + ["a", "b"] * 15 + ["a", "b", "c"] * 10
    lines = [
        f"{i % 7},{i % 5},{y},{p}"
        for i, (y, p) in enumerate(zip(labels, parts, strict=True))
    ]
    job: Any = post(
        client,
        "\n".join(["x,z,y,part", *lines]),
        {"target": "y", "split": {"kind": "column", "column": "part"}},
    ).json()
    events = client.get(f"/jobs/{job['id']}/events").json()["data"]
    warnings = [e["data"]["detail"] for e in events if e["type"] == "warning"]
    assert "the part val has no row of the class 'c'" in warnings
    assert not any("the part test" in each for each in warnings)
