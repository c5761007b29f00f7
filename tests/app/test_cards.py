"""Model cards over HTTP."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.storage import db
from app.storage.tables import Report
from lometab import card
from tests.support.http import check_problem
from tests.support.models import OTHER, succeed
from tests.support.statements import check_statements


def read_reports(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    kinds = ("report", "diversity", "calibration")
    return {kind: client.get(job["links"][kind]).json() for kind in kinds}


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("target", OTHER)
def test_a_card(
    client: TestClient, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Drawn in tests/lometab/test_card.py: a card of 20 pictures takes seconds.
    monkeypatch.setattr(card, "render", lambda spec: b"<svg/>")
    job = succeed(client, target)
    model = client.get(f"/models/{job['model_id']}").json()
    answer = client.get(model["links"]["card"])
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    reports = read_reports(client, job)
    check_statements(reports)
    known = {"If-None-Match": answer.headers["etag"]}
    assert client.get(model["links"]["card"], headers=known).status_code == 304
    text = client.get(f"{model['links']['card']}?format=md").text
    for words in ("t\\.csv", "colour", model["onnx_sha256"]):
        assert words in text
    # What it says of how to ask works.
    body = text.split("-d '")[1].split("'\n")[0]
    predicted = client.post(f"/models/{job['model_id']}/predict", json=json.loads(body))
    assert predicted.status_code == 200 and not predicted.json()["warnings"]


def test_which_format_is_meant(client: TestClient) -> None:
    job = succeed(client, "y")
    address = f"/models/{job['model_id']}/card"
    accepts = {"Accept": "text/markdown, text/html;q=0.5"}
    assert client.get(address, headers=accepts).text.startswith("# Model")
    check_problem(client.get(address, headers={"Accept": "image/png"}), 406)
    check_problem(client.get(f"{address}?format=pdf"), 422)
    check_problem(client.get("/models/mdl_none/card"), 404)


@pytest.mark.both_databases
def test_a_model_of_before(client: TestClient) -> None:
    """Its reports have none of the new parts: they are absent, and it is said."""
    job = succeed(client, "label")
    new = {"summary", "curve", "points", "naive", "importance", "effects", "slices"}
    with db.transaction() as session:
        for kind in ("report", "diversity", "calibration"):
            row = session.get_one(Report, (job["id"], kind))
            row.body = {k: v for k, v in row.body.items() if k not in new}
    report = client.get(job["links"]["report"]).json()
    (sentence,) = report["summary"]
    assert "from before" in sentence["text"] and next(iter(report)) == "summary"
    text = client.get(f"/models/{job['model_id']}/card?format=md").text
    assert "Not measured" in text
    figures = client.get(job["links"]["figures"]).json()["figures"]
    why = {each["name"]: each["why_absent"] for each in figures}
    assert "train the model again" in why["importance"]
