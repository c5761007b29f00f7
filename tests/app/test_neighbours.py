"""Other people's protocols: their own clients get what our predict answers."""

import csv
import io
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient

from app.storage import db
from app.storage.tables import TrainedModel
from tests.support.http import check_problem
from tests.support.models import ROWS, succeed

NUMBERS = [name for name in ROWS[0] if name not in ("y", "label")]


@pytest.fixture
def models(client: TestClient) -> dict[str, str]:
    """One for numbers and one for classes, with names."""
    found = {}
    for target, name in (("y", "amount"), ("label", "kind")):
        job = succeed(client, target)
        with db.transaction() as session:
            model = session.get_one(TrainedModel, job["model_id"])
            model.name, model.version = name, 1
        found[name] = job["model_id"]
    return found


def columns() -> dict[str, list[Any]]:
    """As a model takes them, by column."""
    found: dict[str, list[Any]] = {}
    for name in NUMBERS:
        texts = [row[name] for row in ROWS]
        try:
            found[name] = [float(text) if text else None for text in texts]
        except ValueError:
            found[name] = texts
    return found


def make_inputs() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": "BYTES" if isinstance(values[0], str) else "FP64",
            "shape": [len(values), 1],
            "data": values,
        }
        for name, values in columns().items()
    ]


def ask(client: TestClient, model_id: str, **options: Any) -> list[dict[str, Any]]:
    rows = [
        dict(zip(columns(), row, strict=True))
        for row in zip(*columns().values(), strict=True)
    ]
    answer = client.post(f"/models/{model_id}/predict", json={"rows": rows, **options})
    predictions: list[dict[str, Any]] = answer.json()["predictions"]
    return predictions


def read_tensor(answer: dict[str, Any], name: str) -> Any:
    (found,) = [each for each in answer["outputs"] if each["name"] == name]
    return np.array(found["data"]).reshape(found["shape"]).tolist()


# The Open Inference Protocol


@pytest.mark.parametrize("name", ["amount", "amount@1"])
def test_tensors_are_what_predict_answers(
    client: TestClient, models: dict[str, str], name: str
) -> None:
    body = {"id": "7", "inputs": make_inputs(), "parameters": {"coverage": 0.8}}
    answer = client.post(f"/v2/models/{name}/infer", json=body).json()
    expected = ask(client, models["amount"], coverage=0.8)
    assert answer["id"] == "7" and answer["model_name"] == name
    for field in ("mean", "members", "member_std", "interval", "trust"):
        ours = [row[field] for row in expected]
        assert np.allclose(read_tensor(answer, field), ours, atol=1e-5)
    assert len(answer["outputs"]) == 6


def test_classes_and_chosen_outputs(client: TestClient, models: dict[str, str]) -> None:
    wanted = [{"name": "label"}, {"name": "set"}, {"name": "mean"}]
    path = "/v2/models/kind/versions/1/infer"
    answer = client.post(path, json={"inputs": make_inputs(), "outputs": wanted}).json()
    expected = ask(client, models["kind"])
    assert {each["name"] for each in answer["outputs"]} == {"label", "set", "mean"}
    assert read_tensor(answer, "label") == [row["label"] for row in expected]
    sets = [json.loads(text) for text in read_tensor(answer, "set")]
    assert sets == [row["set"] for row in expected]
    assert answer["model_version"] == "1"


def test_metadata_tells_what_to_send(
    client: TestClient, models: dict[str, str]
) -> None:
    found = client.get("/v2/models/kind").json()
    assert found["versions"] == ["1"]
    assert {each["name"] for each in found["inputs"]} >= {*columns()}
    kinds = {each["name"]: each["datatype"] for each in found["outputs"]}
    assert kinds["mean"] == "FP32" and kinds["label"] in ("BYTES", "INT64")
    for path in ("", "/health/live", "/health/ready", "/models/kind/ready"):
        assert client.get(f"/v2{path}").status_code == 200
    missing = client.get("/v2/models/nobody").json()
    assert missing["error"] == missing["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": [3]}, "its shape says 3"),
        ({"shape": [20, 2]}, "one column"),
        ({"datatype": "FP128"}, "FP64"),
        ({"data": "x"}, "list"),
        ({"parameters": {"binary_data_size": 10**9}}, "not what was sent"),
        ({"name": "nothing"}, "absent"),
    ],
)
def test_tensors_that_cannot_be_are_refused(
    client: TestClient, models: dict[str, str], change: dict[str, Any], words: str
) -> None:
    first, *others = make_inputs()
    body = {"inputs": [{**first, **change}, *others]}
    answer = client.post("/v2/models/amount/infer", json=body)
    problem = check_problem(answer, 422, words)
    assert problem["error"] == problem["detail"]


def test_unknown_outputs_and_parameters_are_named(
    client: TestClient, models: dict[str, str]
) -> None:
    for more, word in (
        ({"outputs": [{"name": "means"}]}, "'mean'"),
        ({"outputs": [{"name": "label"}]}, "no output 'label'"),
        ({"parameters": {"coverag": 0.8}}, "'coverage'"),
    ):
        body = {"inputs": make_inputs(), **more}
        check_problem(client.post("/v2/models/amount/infer", json=body), 422, word)
    check_problem(client.post("/v2/models/none/infer", json=body), 404)


# MLflow


def frame() -> pd.DataFrame:
    return pd.DataFrame(columns())


def bodies() -> dict[str, dict[str, Any]]:
    table = json.loads(frame().to_json(orient="split"))
    records = json.loads(frame().to_json(orient="records"))
    return {
        "dataframe_split": table,
        "dataframe_records": records,
        "instances": records,
        "inputs": columns(),
    }


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dataframe_split", "dataframe_records", "inputs"])
def test_every_form_gets_the_same_answer(
    client: TestClient, models: dict[str, str], form: str
) -> None:
    path = f"/models/{models['amount']}/invocations"
    answer = client.post(path, json={form: bodies()[form], "params": {"coverage": 0.8}})
    expected = ask(client, models["amount"], coverage=0.8)
    found = answer.json()["predictions"]
    assert [row["mean"] for row in found] == pytest.approx(
        [row["mean"] for row in expected], abs=1e-5
    )
    assert [*found[0]] == [
        *("mean", "member_std", "interval_lower", "interval_upper"),
        *("trust", "novelty"),
    ]


def test_a_csv_is_taken_as_predict_takes_it(
    client: TestClient, models: dict[str, str]
) -> None:
    file = io.StringIO()
    writer = csv.DictWriter(file, [*ROWS[0]])
    writer.writeheader()
    writer.writerows(ROWS)
    answer = client.post(
        f"/models/{models['kind']}/invocations",
        content=file.getvalue(),
        headers={"Content-Type": "text/csv"},
    )
    found = answer.json()["predictions"]
    assert [row["label"] for row in found] == [
        row["label"] for row in ask(client, models["kind"])
    ]


def test_a_nan_of_mlflows_client_is_missing(
    client: TestClient, models: dict[str, str]
) -> None:
    path = f"/models/{models['amount']}/invocations"
    first, *_ = columns()
    body = json.dumps({"inputs": {**columns(), first: [float("nan")] * len(ROWS)}})
    headers = {"Content-Type": "application/json"}
    assert client.post(path, content=body, headers=headers).status_code == 200
    infinite = body.replace("NaN", "Infinity")
    check_problem(client.post(path, content=infinite, headers=headers), 422, "JSON")


def test_what_mlflow_would_refuse_is_refused(
    client: TestClient, models: dict[str, str]
) -> None:
    path = f"/models/{models['kind']}/invocations"
    for body, word in (
        ({"dataframe_spilt": {}}, "dataframe_split"),
        ({"instances": [{}], "inputs": {}}, "one of"),
        ({"instances": [{}], "params": {"coverag": 1}}, "'coverage'"),
        ([], "object"),
    ):
        problem = check_problem(client.post(path, json=body), 422, word)
        assert problem["error_code"] == "BAD_REQUEST"
        assert problem["message"] == problem["detail"]
    check_problem(client.post("/invocations", json={}), 404, "INVOCATIONS_MODEL")
