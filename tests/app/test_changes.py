"""PATCH: the words by which people find datasets, jobs and models."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import jobs
from app.storage import db
from lometab.client import Client, Conflict
from tests.support.bridge import Bridge
from tests.support.http import check_problem, make_key, post
from tests.support.jobs import CLAIM
from tests.support.models import TABLE, TINY, finish, succeed

WORDS = {"name": "wine", "tags": ["a", "été"], "description": "Two lines\nof text."}


@pytest.fixture
def paths(client: TestClient) -> dict[str, str]:
    """The address of a dataset, a job and a model."""
    job = succeed(client, "y")
    return {
        "datasets": f"/datasets/{job['dataset_id']}",
        "jobs": f"/jobs/{job['id']}",
        "models": f"/models/{job['model_id']}",
    }


def pick(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in WORDS}


@pytest.mark.both_databases
def test_words_are_changed_and_found(client: TestClient, paths: dict[str, str]) -> None:
    for kind, path in paths.items():
        before = client.get(path).json()
        changed = client.patch(path, json=WORDS)
        assert changed.status_code == 200, changed.text
        after = client.get(path).json()
        assert pick(changed.json()) == pick(after) == WORDS
        others = before.keys() - WORDS - {"version"}
        assert {n: before[n] for n in others} == {n: after[n] for n in others}
        for query in ("name=wine", "tag=été"):
            (found,) = client.get(f"/{kind}?{query}").json()["data"]
            assert pick(found) == WORDS
        for query in ("name=other", "tag=b"):
            assert client.get(f"/{kind}?{query}").json()["data"] == []
        # Only what is there is changed, and null takes away.
        assert pick(client.patch(path, json={}).json()) == WORDS
        client.patch(path, json={"tags": []})
        left = client.patch(path, json={"name": None, "description": None}).json()
        assert pick(left) == {"name": None, "tags": [], "description": None}
    records = client.get("/audit").json()["data"]
    changes = [each for each in records if each["method"] == "PATCH"]
    assert len(changes) == 4 * len(paths)
    assert {each["target_id"] for each in changes} == {
        path.rpartition("/")[2] for path in paths.values()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"name": "two words"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"tags": ["a"] * 21}, "tags"),
        ({"tags": ["x" * 101]}, "tags"),
        ({"tags": None}, "tags"),
        ({"description": "x" * 10_001}, "description"),
        ({"description": "\x00"}, "description"),
        ({"status": "succeeded"}, "status"),
    ],
)
def test_bounds(
    client: TestClient, paths: dict[str, str], body: dict[str, Any], word: str
) -> None:
    for path in paths.values():
        before = client.get(path).json()
        check_problem(client.patch(path, json=body), 422, word)
        assert client.get(path).json() == before


def test_another_workspace_changes_nothing(
    client: TestClient, paths: dict[str, str]
) -> None:
    stranger = {"Authorization": f"Bearer {make_key('elsewhere')}"}
    for path in paths.values():
        check_problem(client.patch(path, json=WORDS, headers=stranger), 404)


@pytest.mark.both_databases
def test_a_model_with_another_name_is_its_newest_version(client: TestClient) -> None:
    first, second = (succeed(client, "y")["model_id"] for _ in range(2))
    for model_id, version in ((first, 1), (second, 2), (second, 2)):
        changed = client.patch(f"/models/{model_id}", json={"name": "wine"}).json()
        assert (changed["name"], changed["version"]) == ("wine", version)
    assert client.get("/models/wine@2").json()["id"] == second
    client.put("/models/wine/aliases/champion", json={"version": 1})
    answer = client.patch("/models/wine@1", json={"name": "old", "tags": ["x"]})
    assert check_problem(answer, 409, "wine@champion")["code"] == "model_has_alias"
    assert client.get(f"/models/{first}").json()["tags"] == []  # all or nothing
    client.delete("/models/wine/aliases/champion")
    nameless = client.patch("/models/wine@1", json={"name": None}).json()
    assert (nameless["name"], nameless["version"]) == (None, None)
    check_problem(client.get("/models/wine@1"), 404)


def test_what_a_job_is_called_at_its_end_its_model_is_called(
    client: TestClient,
) -> None:
    """The worker holds the job as it was when it began."""
    config = {"target": "y", "columns": {"label": "ignore"}, "hyperparameters": TINY}
    post(client, TABLE, {**config, "name": "before", "tags": ["old"]})
    with db.transaction() as session:
        claimed = jobs.claim(session, **CLAIM)
        assert claimed is not None
    path = f"/jobs/{claimed.id}"
    assert client.patch(path, json={"name": "after", "tags": ["new"]}).is_success
    with db.transaction() as session:
        finish(session, claimed)
    model = client.get("/models/after@1").json()
    assert (model["job_id"], model["tags"]) == (claimed.id, ["new"])
    client.patch(path, json={"name": "later"})
    assert client.get("/models/after@1").json()["id"] == model["id"]


def test_the_client_changes_words(client: TestClient, paths: dict[str, str]) -> None:
    key = client.headers["authorization"].removeprefix("Bearer ")
    with Client("http://testserver", key, transport=Bridge(client)) as ours:
        model = ours.models[paths["models"].rpartition("/")[2]]
        model.update(name="wine", tags=["x"])
        by_name = ours.models["wine@1"].set_alias("champion")
        with pytest.raises(Conflict, match="wine@champion"):
            by_name.update(name="other")
        client.delete("/models/wine/aliases/champion")
        assert by_name.update(name="other").refresh().info["name"] == "other"
        dataset = ours.datasets[paths["datasets"].rpartition("/")[2]].refresh()
        dataset.update(description="About wine.")
        assert dataset.info["columns"] and "About wine." in repr(dataset)
        job = ours.jobs[paths["jobs"].rpartition("/")[2]].update(tags=["t"])
        assert [each["id"] for each in ours.jobs.rows(tag="t")] == [job.id]
        rows = [{"size": 1.0, "colour": "red", "weight": 2.0}]
        (why,) = ours.models["other@1"].explain(rows, missing_columns="fill")
        assert {"size", "colour", "weight"} <= {*why["values"]}
