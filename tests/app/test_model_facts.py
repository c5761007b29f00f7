"""What a model takes is told from its row; ONNX Runtime is for predictions."""

from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import jobs
from app.serving import predictors
from app.storage import blobs, db
from app.storage.tables import TrainedModel
from lometab.predictor import Predictor
from tests.support.models import succeed

pytestmark = pytest.mark.both_databases


@pytest.mark.parametrize("target", ["y", "label"])
def test_reading_a_model_opens_no_session(
    client: TestClient, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = succeed(client, target)
    path = f"/models/{job['model_id']}"

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("no model should be loaded")

    monkeypatch.setattr(predictors, "Predictor", refuse)
    from_file = client.get(path)  # as of a row from before facts were kept
    assert from_file.status_code == 200, from_file.text
    with db.transaction() as session:
        model = session.get_one(TrainedModel, job["model_id"])
        assert model.facts is None
        content = blobs.read(model.workspace_id, model.onnx_sha256)
        model.facts = jobs.read_facts(content)
        session.flush()
        session.execute(sa.text("DELETE FROM blob_chunks"))
    from_row = client.get(path)
    assert from_row.json() == from_file.json()
    check(from_row.json(), Predictor(content))


def test_a_list_tells_what_its_models_predict(client: TestClient) -> None:
    made = succeed(client, "label")["model_id"]
    (listed,) = client.get("/models").json()["data"]
    about = ("task", "target", "k")
    assert [listed[name] for name in about] == [None] * 3  # its row has no facts
    with db.transaction() as session:
        model = session.get_one(TrainedModel, made)
        model.facts = jobs.read_facts(blobs.read(model.workspace_id, model.onnx_sha256))
    (listed,) = client.get("/models").json()["data"]
    whole = client.get(f"/models/{made}").json()
    assert [listed[name] for name in about] == [whole[name] for name in about]


def test_a_list_loads_no_metadata(client: TestClient) -> None:
    made = succeed(client, "label")["model_id"]
    with db.transaction() as session:
        model = session.get_one(TrainedModel, made)
        model.facts = jobs.read_facts(blobs.read(model.workspace_id, model.onnx_sha256))
    loaded: list[set[str]] = []

    def note(target: TrainedModel, _: object) -> None:
        loaded.append(sa.inspect(target).unloaded)

    sa.event.listen(TrainedModel, "load", note)
    try:
        assert client.get("/models").json()["data"][0]["task"] == "binary"
    finally:
        sa.event.remove(TrainedModel, "load", note)
    assert loaded == [{"facts"}]  # of each column, histograms and categories


def check(body: dict[str, Any], predictor: Predictor) -> None:
    """The same as the file tells to whoever runs it."""
    assert (body["task"], body["target"]) == (predictor.task, predictor.target)
    assert (body["k"], body["classes"]) == (predictor.k, predictor.classes)
    names = [column["name"] for column in body["columns"]]
    assert names == [*predictor.numeric, *predictor.categorical]
    for column in body["columns"]:
        if column["kind"] == "categorical":
            levels = predictor.metadata["levels"][column["name"]]
            assert column["categories"] == levels


def test_facts_with_a_character_that_no_database_holds_are_left_in_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from app.jobs import facts

    monkeypatch.setattr(facts, "read_metadata", lambda _: {"levels": {"a": ["\0"]}})
    assert facts.read_facts(b"") is None
