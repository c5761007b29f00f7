"""Lists, deletes, idempotency and versions, in process, on both databases."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.jobs import idempotency
from app.storage import db
from app.storage.tables import IdempotencyKey, Job, utc_now
from tests.support.http import check_problem, post
from tests.support.tables import make_csv

pytestmark = pytest.mark.both_databases


def test_lists_are_paged_newest_first(client: TestClient, table_csv: str) -> None:
    ids = [post(client, table_csv, {"target": "y"}).json()["id"] for _ in range(7)]
    seen: list[str] = []
    url = "/jobs?limit=3"
    while url:
        page = client.get(url).json()
        seen += [job["id"] for job in page["data"]]
        cursor = page["next_cursor"]
        url = f"/jobs?limit=3&cursor={cursor}" if cursor else ""
        if len(seen) == 3:  # a row added meanwhile does not shift the pages
            post(client, table_csv, {"target": "y"})
    assert seen == ids[::-1]


def test_jobs_are_filtered(client: TestClient, table_csv: str) -> None:
    first = post(client, table_csv, {"target": "y"}).json()
    second = post(client, make_csv(50, seed=9), {"target": "y"}).json()
    with db.transaction() as session:
        session.execute(
            sa.update(Job).where(Job.id == first["id"]).values(status="failed")
        )
        session.commit()

    def listed(**query: str) -> list[str]:
        page = client.get("/jobs", params=query).json()
        return [job["id"] for job in page["data"]]

    assert listed(status="failed") == [first["id"]]
    assert listed(status="queued") == [second["id"]]
    assert listed(dataset_id=second["dataset_id"]) == [second["id"]]
    assert listed(kind="train") == [second["id"], first["id"]]
    assert listed(created_after=second["created_at"]) == [second["id"]]
    assert listed(created_before=second["created_at"]) == [first["id"]]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert listed(created_after=later) == []


@pytest.mark.parametrize("path", ["/jobs", "/datasets", "/models"])
@pytest.mark.parametrize(
    "query", ["cursor=x", "limit=0", "limit=9999", "created_after=2024-01-01T00:00:00"]
)
def test_bad_queries(client: TestClient, path: str, query: str) -> None:
    check_problem(client.get(f"{path}?{query}"), 422)


def test_dataset_lives_while_it_is_used(
    client: TestClient, table_csv: str, database: sa.Connection
) -> None:
    response = client.post("/datasets", files={"file": ("t.csv", table_csv)})
    assert response.status_code == 201, response.text
    dataset = response.json()
    assert response.headers["location"] == f"/datasets/{dataset['id']}"
    assert dataset["n_rows"] == 120
    kinds = {column["name"]: column["kind"] for column in dataset["columns"]}
    assert (kinds["size"], kinds["colour"]) == ("numeric", "categorical")
    assert client.get(f"/datasets/{dataset['id']}").json() == dataset
    config = {"target": "y", "dataset_id": dataset["id"]}
    job = client.post("/jobs", json=config).json()
    assert job["dataset_id"] == dataset["id"]
    problem = check_problem(client.delete(f"/datasets/{dataset['id']}"), 409)
    assert problem["code"] == "dataset_in_use"
    check_problem(client.delete(f"/jobs/{job['id']}"), 409, "queued")
    with db.transaction() as session:
        session.execute(sa.update(Job).values(status="failed"))
        session.commit()
    assert client.delete(f"/jobs/{job['id']}").status_code == 204
    assert client.delete(f"/datasets/{dataset['id']}").status_code == 204
    check_problem(client.get(f"/datasets/{dataset['id']}"), 404)
    assert database.scalar(sa.text("SELECT count(*) FROM blob_chunks")) == 0


KEY = {"Idempotency-Key": "order-1"}


def post_once(
    client: TestClient, content: str, config: dict[str, Any], **headers: str
) -> Any:
    return client.post(
        "/jobs",
        files={"file": ("t.csv", content)},
        data={"config": json.dumps(config)},
        headers={**KEY, **headers},
    )


def test_same_request_is_done_once(
    client: TestClient, table_csv: str, database: sa.Connection
) -> None:
    first = post_once(client, table_csv, {"target": "y", "preset": "fast"})
    # The order of keys and a default spelled out make no other request.
    again = post_once(client, table_csv, {"preset": "fast", "target": "y", "tags": []})
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert database.scalar(sa.text("SELECT count(*) FROM jobs")) == 1


@pytest.mark.parametrize("change", ["config", "file"])
def test_key_is_for_one_request(
    client: TestClient, table_csv: str, change: str
) -> None:
    assert post_once(client, table_csv, {"target": "y"}).status_code == 202
    config = {"target": "label" if change == "config" else "y"}
    content = table_csv if change == "config" else make_csv(60)
    problem = check_problem(post_once(client, content, config), 422)
    assert problem["code"] == "idempotency_key_reused"


def test_refused_request_gives_its_key_back(client: TestClient, table_csv: str) -> None:
    check_problem(post_once(client, table_csv, {"target": "z"}), 422)
    assert post_once(client, table_csv, {"target": "y"}).status_code == 202


def test_request_under_way(client: TestClient, table_csv: str) -> None:
    first = post_once(client, table_csv, {"target": "y"}).json()

    def set_key(**values: Any) -> None:
        with db.transaction() as session:
            session.execute(sa.update(IdempotencyKey).values(response=None, **values))
            session.commit()

    set_key()
    response = post_once(client, table_csv, {"target": "y"})
    problem = check_problem(response, 409, "under way")
    assert problem["code"] == "request_in_progress"
    assert "retry-after" in response.headers
    # Whoever held it died: after a while the lock is free.
    set_key(locked_until=utc_now() - timedelta(seconds=1))
    second = post_once(client, table_csv, {"target": "y"}).json()
    assert second["id"] != first["id"]


def test_keys_are_kept_for_a_day(client: TestClient, table_csv: str) -> None:
    first = post_once(client, table_csv, {"target": "y"}).json()
    with db.transaction() as session:
        old = utc_now() - idempotency.KEPT - timedelta(minutes=1)
        session.execute(
            sa.update(IdempotencyKey).values(created_at=old, locked_until=old)
        )
        session.commit()
    second = post_once(client, table_csv, {"target": "label"})
    assert second.status_code == 202
    assert second.json()["id"] != first["id"]
