"""A record of every change: who, what, to which row."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.access import audit, find_caller
from app.settings import get_settings
from app.storage import db
from app.storage.tables import AuditRecord, utc_now
from tests.support.http import make_key, post


def read(client: TestClient, query: str = "") -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = client.get(f"/audit{query}").json()["data"]
    return data


@pytest.mark.both_databases
def test_changes_are_recorded(client: TestClient, table_csv: str) -> None:
    job = post(client, table_csv, {"target": "y"}).json()
    cancelled = client.post(f"/jobs/{job['id']}/cancel")
    client.delete(f"/jobs/{job['id']}")
    client.delete(f"/datasets/{job['dataset_id']}")
    found = [
        (e["method"], e["route"], e["target_id"], e["status"]) for e in read(client)
    ]
    assert found == [
        ("DELETE", "/datasets/{dataset_id}", job["dataset_id"], 204),
        ("DELETE", "/jobs/{job_id}", job["id"], 204),
        ("POST", "/jobs/{job_id}/cancel", job["id"], 202),
        ("POST", "/jobs", job["id"], 202),
    ]
    secret = client.headers["authorization"].removeprefix("Bearer ")
    key_id = find_caller(secret).key_id
    assert {each["key_id"] for each in read(client)} == {key_id}
    ids = [each["request_id"] for each in read(client)]
    assert cancelled.headers["x-request-id"] == ids[2]
    # In pages, and by what one looks for.
    page = client.get("/audit?limit=3").json()
    rest = client.get(f"/audit?limit=3&cursor={page['next_cursor']}").json()
    assert len(page["data"]) == 3 and len(rest["data"]) == 1
    assert len(read(client, f"?target_id={job['id']}")) == 3
    assert read(client, "?key_id=key_x") == []
    assert client.get("/audit?target_id=%00").status_code == 422


def test_what_changed_nothing_is_not_recorded(client: TestClient) -> None:
    client.get("/jobs")
    client.delete("/jobs/job_x")
    client.post("/jobs", json={})
    client.post("/models/mdl_x/predict", json={"rows": [{}]})
    assert read(client) == []


def test_each_workspace_has_its_own(client: TestClient, table_csv: str) -> None:
    files = {"file": ("t.csv", table_csv)}
    assert client.post("/datasets", files=files).status_code == 201
    stranger = {"Authorization": f"Bearer {make_key('elsewhere')}"}
    assert client.get("/audit", headers=stranger).json()["data"] == []
    assert len(read(client)) == 1


def test_old_records_go(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "audit_days", 10)
    for days in (11, 9):
        with db.transaction() as session:
            session.add(
                AuditRecord(
                    id=f"aud_{days}",
                    workspace_id="default",
                    method="DELETE",
                    route="/jobs/{job_id}",
                    status=204,
                    created_at=utc_now() - timedelta(days=days),
                )
            )
    audit.remove_old()
    assert [each["id"] for each in read(client)] == ["aud_9"]


def test_a_change_that_cannot_be_recorded_is_in_the_log(
    client: TestClient,
    table_csv: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sa.exc.OperationalError("INSERT", {}, Exception("away"))

    monkeypatch.setattr(audit, "record", fail)
    files = {"file": ("t.csv", table_csv)}
    response = client.post("/datasets", files=files)
    assert response.status_code == 201
    (line,) = [e.getMessage() for e in caplog.records if "audit" in e.getMessage()]
    assert "POST /datasets" in line and response.json()["id"] in line
