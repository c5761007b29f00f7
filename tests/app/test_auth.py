"""Keys and workspaces; every route by every credential is in test_matrix.py."""

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.settings import get_settings
from tests.support.http import check_problem, make_key, post


@pytest.mark.both_databases
def test_another_workspace_sees_nothing(client: TestClient, table_csv: str) -> None:
    job = post(client, table_csv, {"target": "y"}).json()
    stranger = {"Authorization": f"Bearer {make_key('elsewhere')}"}
    for path, status in (
        (job["links"]["self"], 200),
        (job["links"]["dataset"], 200),
        (f"{job['links']['self']}/diversity", 409),  # it is there, yet not ready
    ):
        assert client.get(path).status_code == status
        check_problem(client.get(path, headers=stranger), 404)
    for path in ("/jobs", "/datasets", "/models"):
        assert client.get(path, headers=stranger).json()["data"] == []
    assert client.delete(job["links"]["dataset"], headers=stranger).status_code == 404
    config = {"target": "y", "dataset_id": job["dataset_id"]}
    check_problem(client.post("/jobs", json=config, headers=stranger), 404)
    # The same bytes are another dataset there.
    text = '{"target": "y"}'
    response = client.post(
        "/jobs",
        files={"file": ("t.csv", table_csv)},
        data={"config": text},
        headers=stranger,
    )
    assert response.json()["dataset_id"] != job["dataset_id"]


@pytest.mark.both_databases
def test_keys_are_hashed(client: TestClient, database: sa.Connection) -> None:
    secret = make_key()
    rows = database.execute(sa.text("SELECT * FROM api_keys")).all()
    assert secret not in str(rows)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_without_keys_foreign_pages_are_refused(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    status: int,
) -> None:
    monkeypatch.setattr(get_settings(), "require_keys", False)
    del client.headers["Authorization"]
    assert client.get("/jobs", headers=headers).status_code == status
