"""Intervals by group and fewer members, through the service and a real worker."""

from typing import Any

import numpy as np
import pytest

from lometab.predictor import Predictor
from tests.support.http import check_problem
from tests.support.services import TINY, post_job, wait_for_end
from tests.support.stacks import Service
from tests.support.tables import make_csv

ROWS = [
    {"size": 1.0 + i, "colour": colour, "weight": 5.0}
    for i in range(4)
    for colour in ("red", "green", "blue")
]


def ask(service: Service, model: str, **options: Any) -> list[dict[str, Any]]:
    body = {"rows": ROWS, "conformal": "constant", "coverage": 0.8, **options}
    answer = service.client.post(f"/models/{model}/predict", json=body)
    assert answer.status_code == 200, answer.text
    predictions: list[dict[str, Any]] = answer.json()["predictions"]
    return predictions


def find_widths(predictions: list[dict[str, Any]]) -> dict[str, float]:
    """Of each colour the one width that all its intervals have."""
    found: dict[str, set[float]] = {}
    for row, each in zip(ROWS, predictions, strict=True):
        lower, upper = each["interval"]
        found.setdefault(str(row["colour"]), set()).add(round(upper - lower, 3))
    return {colour: width for colour, (width,) in found.items()}


@pytest.mark.slow
def test_groups_and_fewer_members(service: Service) -> None:
    client = service.client
    refused = client.post(
        "/jobs",
        files={"file": ("t.csv", make_csv(600))},
        data={"config": '{"target": "y", "calibrate_by": "size"}'},
    )
    check_problem(refused, 422, "calibrate_by", "categorical")
    job = post_job(
        client,
        make_csv(600),
        name="wine",
        calibrate_by="colour",
        columns={"label": "ignore"},
        split={"val": 0.3, "test": 0.2},
    )
    assert wait_for_end(service, job["id"], 300)["status"] == "succeeded"
    whole = Predictor(client.get("/models/wine@1/onnx").content)
    assert whole.conformal is not None and whole.conformal.by == "colour"
    widths = find_widths(ask(service, "wine@1"))
    assert len({*widths.values()}) == 3, widths
    report = client.get(f"/jobs/{job['id']}/calibration").json()
    assert {each["group"] for each in report["groups"]} == {"red", "green", "blue"}

    # Too many members are refused, and some make a new version.
    too_many = client.post("/models/wine@1/prune", json={"members": 5})
    check_problem(too_many, 422, "4 members")
    made = client.post("/models/wine@1/prune", json={"members": 2, "tags": ["less"]})
    assert made.status_code == 202, made.text
    pruned = wait_for_end(service, made.json()["id"], 300)
    assert pruned["status"] == "succeeded", pruned["error"]
    model = client.get("/models/wine@2").json()
    assert (model["k"], model["tags"]) == (2, ["less"])
    told = client.get(f"/jobs/{pruned['id']}/report").json()["pruning"]
    assert (told["k_before"], told["k_after"]) == (TINY["k"], 2)
    assert told["folded_bytes_after"] == told["folded_bytes_before"] // 2
    assert told["file_bytes_after"] < told["file_bytes_before"]
    assert {*told["score_before"]} == {*told["score_after"]} == {"val", "test"}
    before = np.array([each["members"] for each in ask(service, "wine@1")])
    after = ask(service, "wine@2")
    kept = before[:, told["members"]]
    np.testing.assert_allclose([e["members"] for e in after], kept, rtol=1e-5)
    np.testing.assert_allclose([e["mean"] for e in after], kept.mean(1), rtol=1e-5)
    assert find_widths(after).keys() == widths.keys()  # calibrated anew, and apart
    assert find_widths(after) != widths
