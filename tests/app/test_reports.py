"""Reports and calibrated answers over HTTP, in process, of a model that was trained."""

import csv
import io
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from app import jobs
from app.api import examples
from app.api.bodies.predict import PredictResponse
from app.main import api
from app.storage import db
from lometab.evaluation import Calibration, Diversity, RunReport
from tests.support.http import check_problem, post
from tests.support.models import OTHER, ROWS, TABLE, TINY, finish, succeed

TYPES: dict[str, TypeAdapter[Any]] = {
    "diversity": TypeAdapter(Diversity),
    "calibration": TypeAdapter(Calibration),
    "report": TypeAdapter(RunReport),
}


@pytest.mark.parametrize("target", OTHER)
@pytest.mark.both_databases
def test_reports_fit_their_types(client: TestClient, target: str) -> None:
    job = succeed(client, target)
    for kind, adapter in TYPES.items():
        response = client.get(job["links"][kind])
        assert response.status_code == 200
        assert "NaN" not in response.text and "Infinity" not in response.text
        adapter.validate_json(response.content, strict=True)
        assert response.json()["job_id"] == job["id"]
    body = client.get(job["links"]["report"]).json()
    assert body["n_parameters"] > 100
    assert body["seeds"] == {"split": 0, "training": 0}
    phases = {"preparing", "training", "exporting", "evaluating"}
    assert body["timings"].keys() == phases
    assert all(seconds >= 0 for seconds in body["timings"].values())
    assert body["training"]["epochs"] == 6
    assert body["decomposition"]["holds"] is True
    assert body["baselines"] == []
    assert body["scores"].keys() == {"train", "val", "test"}
    if target == "label":
        assert body["confusion"]["classes"] == ["high", "low"]
        calibration = client.get(job["links"]["calibration"]).json()
        fit = calibration["temperature_fit"]
        assert fit["nll_after"] <= fit["nll_before"]
        assert calibration["calibrated"]["ece"] >= 0


@pytest.mark.slow
def test_baselines_stand_beside_the_model(client: TestClient) -> None:
    names = ["tabm", "mlp", "tabm", "catboost"]
    config = {"target": "label", "columns": {"y": "ignore"}, "baselines": names}
    post(client, TABLE, {**config, "hyperparameters": TINY, "n_seeds": 2})
    with db.transaction() as session:
        claimed = jobs.claim(session, queue="cpu", owner="me", lease_seconds=60)
        assert claimed is not None
        assert claimed.config["baselines"] == ["tabm", "mlp", "catboost"]
        finish(session, claimed)
    body = client.get(f"/jobs/{claimed.id}/report").json()
    TYPES["report"].validate_python(body)
    own, *others = body["baselines"]
    assert [each["name"] for each in others] == ["tabm", "mlp", "catboost"]
    assert own["delta_percent"] is None and others[1]["diversity"] is None
    for each in body["baselines"]:
        assert each["n_seeds"] == 2 and each["std"] is not None
    for other in others:
        change = 100 * (other["score"] / own["score"] - 1)
        assert other["delta_percent"] == pytest.approx(change)
    assert others[2]["score"] > 0.8 and others[2]["n_parameters"] is None
    # Both seeds are members of one model, and each is measured by itself.
    assert (body["k"], own["k"]) == (2 * TINY["k"], TINY["k"])
    alone = [each["outcome"]["test"]["score"] for each in body["by_seed"]]
    assert [each["seed"] for each in body["by_seed"]] == [0, 1]
    assert own["score"] == pytest.approx(sum(alone) / 2)
    assert body["n_parameters"] == 2 * own["n_parameters"]
    assert body["timings"]["comparing"] > 0


@pytest.mark.parametrize("target", OTHER)
@pytest.mark.both_databases
def test_reports_as_csv(client: TestClient, target: str) -> None:
    links = succeed(client, target)["links"]
    response = client.get(f"{links['diversity']}?format=csv")
    assert response.headers["content-type"].startswith("text/csv")
    pairs = [*csv.DictReader(io.StringIO(response.text))]
    assert [(pair["i"], pair["j"]) for pair in pairs] == [
        ("1", "0"),
        ("2", "0"),
        ("2", "1"),
    ]
    name = "squared_difference" if target == "y" else "pairwise_kl"
    body = client.get(links["diversity"]).json()
    assert float(pairs[1][name]) == body[name]["matrix"][2][0]
    text = client.get(f"{links['calibration']}?format=csv").text
    n_lines = 4 if target == "y" else 15
    assert len([*csv.DictReader(io.StringIO(text))]) == n_lines


def predict(client: TestClient, job: dict[str, Any], **settings: Any) -> Any:
    body = {"rows": ROWS, **settings}
    return client.post(f"/models/{job['model_id']}/predict", json=body)


def test_calibrated_probabilities(client: TestClient) -> None:
    job = succeed(client, "label")
    calibration = client.get(job["links"]["calibration"]).json()
    raw = predict(client, job).json()
    TypeAdapter(PredictResponse).validate_python(raw)
    assert (raw["calibrated"], raw["coverage"]) == (False, 0.9)
    answer = predict(client, job, calibrated=True).json()
    assert answer["calibrated"] is True
    for before, after in zip(raw["predictions"], answer["predictions"], strict=True):
        powers = [p ** (1 / calibration["temperature"]) for p in before["mean"]]
        expected = [power / sum(powers) for power in powers]
        assert after["mean"] == pytest.approx(expected, rel=1e-5)
        for name in ("label", "members", "mutual_information", "set"):
            assert after[name] == before[name]


@pytest.mark.parametrize("target", OTHER)
def test_more_coverage_takes_more(client: TestClient, target: str) -> None:
    job = succeed(client, target)
    sizes = []
    for coverage in (0.01, 0.5, 0.9, 0.95):
        answer = predict(client, job, coverage=coverage).json()
        assert answer["coverage"] == coverage
        if target == "y":
            ends = [each["interval"] for each in answer["predictions"]]
            sizes.append(sum(upper - lower for lower, upper in ends))
        else:
            sizes.append(sum(len(each["set"]) for each in answer["predictions"]))
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    # 64 validation rows are too few for 99 %: whatever there is, or no ends.
    first = predict(client, job, coverage=0.99).json()["predictions"][0]
    if target == "y":
        assert first["interval"] == [None, None]
    else:
        assert first["set"] == ["high", "low"]


def test_coverage_out_of_bounds(client: TestClient) -> None:
    job = succeed(client, "y")
    for coverage in (0, 0.001, 0.905, 0.999, 1, 90, -0.5, "0.9", None):
        response = predict(client, job, coverage=coverage)
        problem = check_problem(response, 422, "coverage")
        assert problem["errors"][0]["pointer"] == "/coverage"
        if isinstance(coverage, int | float):
            assert "in whole hundredths from 0.01 to 0.99" in problem["detail"]


def test_a_regression_has_no_temperature(client: TestClient) -> None:
    job = succeed(client, "y")
    check_problem(predict(client, job, calibrated=True), 422, "answers with numbers")
    check_problem(predict(client, job, calibrated="yes"), 422, "calibrated")


def test_examples_fit_their_types() -> None:
    for kind, shown in (
        ("diversity", examples.DIVERSITY),
        ("calibration", examples.CALIBRATION),
        ("report", {"regression": {"value": examples.REPORT}}),
    ):
        for example in shown.values():
            TYPES[kind].validate_json(json.dumps(example["value"]), strict=True)
    for example in examples.PREDICTIONS.values():
        PredictResponse.model_validate(example["value"], strict=False)


def test_openapi_shows_the_reports() -> None:
    document = api.openapi()
    schemas = document["components"]["schemas"]
    for kind in TYPES:
        answer = document["paths"][f"/jobs/{{job_id}}/{kind}"]["get"]["responses"]
        content = answer["200"]["content"]["application/json"]
        assert content["examples"]
        assert "304" in answer
        names = [
            each["$ref"].rsplit("/")[-1]
            for each in content["schema"].get("anyOf", [content["schema"]])
        ]
        for name in names:
            assert "version" in schemas[name]["required"]
            assert schemas[name]["properties"]["definitions"]["description"]
