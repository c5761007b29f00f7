"""Asking for a job, in process, on both databases."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.datasets.uploads import MAX_FIELD_BYTES
from tests.support.http import check_problem, post
from tests.support.models import TINY, succeed, train_as_worker


@pytest.mark.both_databases
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
    assert (again.pop("queue_place"), job.pop("queue_place")) == (1, None)
    assert job.pop("notice") is None
    assert again == job


@pytest.mark.both_databases
def test_what_was_decided_is_an_event(client: TestClient) -> None:
    lines = [f"{i},{i % 7},{i / 3}" for i in range(60)]
    job = post(client, "row,x,y\n" + "\n".join(lines), {"target": "y"}).json()
    events = client.get(f"/jobs/{job['id']}/events").json()["data"]
    assert [event["type"] for event in events] == ["queued", "warning"]
    assert "'row' is not used" in events[1]["data"]["detail"]
    assert job["warnings"] == [events[1]["data"]["detail"]]
    assert client.get(f"/jobs/{job['id']}").json()["warnings"] == job["warnings"]


@pytest.mark.both_databases
def test_warnings_go_with_the_report_and_the_model(
    client: TestClient, tmp_path: Path
) -> None:
    lines = [f"{i},{i % 7},{i % 7 * 2}.5" for i in range(60)]
    content = "row,x,y\n" + "\n".join(lines)
    config = {"target": "y", "hyperparameters": {**TINY, "max_epochs": 1}}
    job = post(client, content, config).json()
    assert any("alone tells the target" in warning for warning in job["warnings"])
    train_as_worker(tmp_path)
    done = client.get(f"/jobs/{job['id']}").json()
    assert done["status"] == "succeeded"
    assert done["warnings"] == job["warnings"]
    report = client.get(done["links"]["report"]).json()
    assert report["warnings"] == job["warnings"]
    model = client.get(done["links"]["model"]).json()
    assert model["warnings"] == job["warnings"]


@pytest.mark.both_databases
def test_a_part_says_how_the_file_is_read(client: TestClient) -> None:
    rows = [f"{i % 7},{'none' if i % 2 else 'some'},{i % 5}" for i in range(60)]
    files: dict[str, Any] = {
        "file": ("t.csv", "x,c,y\n" + "\n".join(rows)),
        "config": (None, '{"target": "y"}'),
        "read_options": (None, '{"not_missing": ["none"], "number_format": "1.234,5"}'),
    }
    answer = client.post("/jobs", files=files)
    assert answer.status_code == 202, answer.text
    dataset = client.get(f"/datasets/{answer.json()['dataset_id']}").json()
    assert dataset["read_options"]["not_missing"] == ["none"]
    assert dataset["read_options"]["number_format"] == "1.234,5"
    files["config"] = (None, '{"target": "y", "read_options": {"not_missing": ["a"]}}')
    check_problem(client.post("/jobs", files=files), 422, "send it once")
    files.pop("read_options")
    answer = client.post("/jobs", files=files)
    assert answer.status_code == 202, answer.text  # an array in `config`
    files["read_options"] = (None, '{"headers": true}')
    files["config"] = (None, '{"target": "y"}')
    check_problem(client.post("/jobs", files=files), 422, "did you mean 'header'?")
    files.pop("read_options")
    files["read_option"] = (None, "{}")
    check_problem(client.post("/jobs", files=files), 422, "`read_options`")
    files["target"] = files.pop("read_option")
    check_problem(client.post("/jobs", files=files), 422, "no part 'target'")
    check_problem(client.post("/datasets", files=files), 422, "no part")


def test_preset_fills_what_was_not_chosen(client: TestClient, table_csv: str) -> None:
    config = {"target": "y", "preset": "fast", "hyperparameters": {"rank": 2}}
    chosen = post(client, table_csv, config).json()["config"]["hyperparameters"]
    assert (chosen["rank"], chosen["k"], chosen["max_epochs"]) == (2, 8, 60)


@pytest.mark.parametrize(
    ("config", "n_seeds"),
    [
        ({}, 4),
        ({"n_seeds": 2}, 2),
        ({"time_budget_seconds": 60}, 1),
        ({"kind": "sweep"}, 1),
        ({"kind": "tune"}, 1),
        ({"preset": "default"}, 1),
    ],
)
def test_the_preset_best_trains_several_networks(
    client: TestClient, table_csv: str, config: dict[str, Any], n_seeds: int
) -> None:
    body = {"target": "y", "preset": "best", **config}
    assert post(client, table_csv, body).json()["config"]["n_seeds"] == n_seeds


@pytest.mark.parametrize(
    ("config", "share"),
    [
        ({}, 0.0),
        ({"kind": "sweep"}, 0.1),
        ({"members": "selected"}, 0.1),
        ({"members": 2}, 0.1),
        ({"members": 2, "split": {"calibration": 0}}, 0.0),
        ({"members": 2, "split": {"val": 0.4, "test": 0.45}}, 0.0),  # no room
    ],
)
def test_what_is_chosen_is_calibrated_by_other_rows(
    client: TestClient, table_csv: str, config: dict[str, Any], share: float
) -> None:
    job = post(client, table_csv, {"target": "y", "preset": "fast", **config}).json()
    assert job["config"]["split"]["calibration"] == share
    told = [w for w in job["warnings"] if "also calibrate" in w]
    assert len(told) == ("members" in config and not share)


@pytest.mark.both_databases
def test_same_bytes_are_one_dataset(
    client: TestClient, table_csv: str, database: sa.Connection
) -> None:
    first = post(client, table_csv, {"target": "y"}).json()
    second = post(client, table_csv, {"target": "label"}).json()
    assert first["dataset_id"] == second["dataset_id"]
    assert first["id"] != second["id"]
    assert database.scalar(sa.text("SELECT count(*) FROM blobs")) == 1


@pytest.mark.both_databases
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
        ("a,b\n1,2\n3\n", {"target": "a"}, ["line 3", "1 field", "2"]),
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
        ({"target": "y", "k": 4}, ["did you mean 'hyperparameters.k'?"], "/k"),
        (
            {"target": "y", "learning_rate": 0.1},
            ["did you mean 'hyperparameters.lr'?"],
            "/learning_rate",
        ),
        (
            {"target": "y", "hyperparameters": {"learning_rate": 0.1}},
            ["did you mean 'lr'?"],
            "/hyperparameters/learning_rate",
        ),
        (
            {"target": "y", "hyperparameters": {"n_estimators": 9}},
            ["did you mean 'k'?"],
            "/hyperparameters/n_estimators",
        ),
        (
            {"target": "y", "hyperparameters": {"target": "y"}},
            ["belongs at the top level"],
            "/hyperparameters/target",
        ),
        ({"target": "y", "test_size": 0.1}, ["'split.test'"], "/test_size"),
        ({"target": "y", "sep": ";"}, ["'read_options.delimiter'"], "/sep"),
        (
            {"target": "y", "read_options": {"sep": ";"}},
            ["did you mean 'delimiter'?"],
            "/read_options/sep",
        ),
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


@pytest.mark.both_databases
def test_reports_are_not_ready_before_the_end(
    client: TestClient, table_csv: str
) -> None:
    job = post(client, table_csv, {"target": "y"}).json()
    for report in ("diversity", "calibration", "report"):
        response = client.get(f"/jobs/{job['id']}/{report}")
        problem = check_problem(response, 409, "queued")
        assert problem["code"] == "report_not_ready"
        assert int(response.headers["retry-after"]) > 0


@pytest.mark.both_databases
def test_unknown_ids_and_routes_are_problems(client: TestClient) -> None:
    check_problem(client.get("/jobs/job_none"), 404, "job_none")
    check_problem(client.get("/jobs/job_none/diversity"), 404)
    check_problem(client.get("/models/mdl_none"), 404)
    check_problem(client.post("/models/mdl_none/predict", json={"rows": [{}]}), 404)
    check_problem(client.get("/nowhere"), 404)
    check_problem(client.delete("/healthz"), 405)


@pytest.mark.both_databases
def test_health_and_openapi(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["status"] == "ready"
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    hyperparameters = schemas["TrainConfig"]["properties"]
    assert hyperparameters["rank"]["maximum"] == 64
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path


@pytest.mark.both_databases
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


def test_rare_categories_share_an_input(client: TestClient) -> None:
    """By default, by the number of rows; shown, and exact by 1."""
    lines = [f"s{i * 7919 % 1000},{i % 5},{i / 3}" for i in range(2000)]
    content = "surname,x,y\n" + "\n".join(lines)
    job = post(client, content, {"target": "y"}).json()
    assert job["config"]["min_frequency"] == 4
    events = client.get(f"/jobs/{job['id']}/events").json()["data"]
    warnings = [each["data"]["detail"] for each in events if each["type"] == "warning"]
    assert any("1000 categories are each in fewer than 4 rows" in w for w in warnings)
    exact = post(client, content, {"target": "y", "min_frequency": 1}).json()
    assert exact["config"]["min_frequency"] == 1
    few, many = (each["estimate"]["n_parameters"] for each in (job, exact))
    assert many - few > 999 * 192
    wrong = post(client, content, {"target": "y", "min_frequency": 0})
    check_problem(wrong, 422, "min_frequency", "greater than or equal to 1")


@pytest.mark.both_databases
def test_a_jobs_id_is_told_from_a_models(client: TestClient) -> None:
    done = succeed(client, "y")
    asked = [
        client.get(f"/models/{done['id']}"),
        client.post(f"/models/{done['id']}/predict", json={"rows": [{"size": 1}]}),
    ]
    for answer in asked:
        check_problem(answer, 404, f"whose model is '{done['model_id']}'")
    check_problem(client.get("/models/job_000000000000"), 404, "`model_id`")


def test_reports_are_called_by_their_names(client: TestClient, table_csv: str) -> None:
    job = post(client, table_csv, {"target": "y"}).json()
    for kind, name in [("report", "the report"), ("diversity", "the diversity report")]:
        answer = client.get(f"/jobs/{job['id']}/{kind}")
        check_problem(answer, 409, f"{name} is not ready")
