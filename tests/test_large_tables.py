"""Fewer rows, and rows in a file, over HTTP with a real worker."""

import pytest

from tests.support.services import post_job, wait_for_end
from tests.support.stacks import Service
from tests.support.tables import make_csv

pytestmark = pytest.mark.slow


def test_from_a_file_and_some_rows_to_answers(shared_service: Service) -> None:
    client = shared_service.client
    made = post_job(
        client,
        make_csv(500),
        "y",
        columns={"label": "ignore"},
        max_rows=300,
        storage="file",
    )
    assert made["config"]["storage"] == "file" and made["config"]["max_rows"] == 300
    job = wait_for_end(shared_service, made["id"])
    assert job["status"] == "succeeded", job["error"]
    told = "trained on 300 of 500 rows"
    assert any(told in each for each in job["warnings"])
    assert any("reads its rows from a file, as asked" in w for w in job["warnings"])

    report = client.get(job["links"]["report"]).json()
    assert report["warnings"] == job["warnings"]
    rows = report["rows"]
    assert (rows["table"], rows["used"], rows["storage"]) == (500, 300, "file")
    assert rows["train"] == 192 == report["scores"]["train"]["n_rows"]
    model = client.get(job["links"]["model"]).json()
    assert model["lineage"]["rows"] == rows
    assert any(told in each for each in model["warnings"])
    row = {"size": 9.5, "colour": "red", "weight": 2}
    answer = client.post(f"/models/{job['model_id']}/predict", json={"rows": [row]})
    assert len(answer.json()["predictions"][0]["members"]) == 4


def test_a_sweep_takes_the_rows_of_its_job(shared_service: Service) -> None:
    made = post_job(
        shared_service.client,
        make_csv(400),
        "y",
        columns={"label": "ignore"},
        kind="sweep",
        sweep={"grid": {"rank": [1, 2]}},
        max_rows=250,
        storage="file",
    )
    sweep = wait_for_end(shared_service, made["id"])
    assert sweep["status"] == "succeeded", sweep["error"]
    children = shared_service.client.get(sweep["links"]["children"]).json()["data"]
    for child in children:
        config = shared_service.client.get(child["links"]["self"]).json()["config"]
        assert (config["max_rows"], config["storage"]) == (250, "file")
