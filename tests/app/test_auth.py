"""Keys, scopes and workspaces, on every route there is."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import auth, db
from app.main import app
from app.settings import get_settings
from tests.app.test_jobs_routes import check_problem, post
from tests.conftest import make_key

OPEN = {"/healthz", "/readyz"}


def each_route() -> Iterator[tuple[str, str]]:
    for path, operations in app.openapi()["paths"].items():
        if path not in OPEN:
            yield from ((method.upper(), path) for method in operations)


ROUTES = sorted(each_route())


def ask(client: TestClient, method: str, path: str, key: str | None) -> int:
    """The status of a request that would be fine if its ids existed."""
    path = path.format(
        job_id="job_x", model_id="mdl_x", dataset_id="ds_x", name="n", alias="a"
    )
    headers = {"Authorization": f"Bearer {key}"} if key else {"Authorization": ""}
    body = {"version": 1} if "aliases" in path else {"rows": [{"a": 1}]}
    response = client.request(
        method, path, headers=headers, json=body if method in ("POST", "PUT") else None
    )
    if response.status_code >= 400:
        check_problem(response, response.status_code)
    return response.status_code


def test_every_route_wants_a_living_key(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "require_keys", True)
    with db.writing() as session:
        row, revoked = auth.create_key(
            session, workspace_id="default", name="old", scopes=auth.SCOPES
        )
        assert auth.revoke_key(session, row.id)
    for method, path in ROUTES:
        for key in (None, "lmt_wrong", revoked):
            assert ask(client, method, path, key) == 401, (method, path, key)


def test_scopes(client: TestClient) -> None:
    def needs(method: str, path: str) -> auth.Scope:
        if path.endswith("/predict"):
            return "predict"
        return "read" if method == "GET" else "write"

    keys = {scope: make_key(scopes=[scope]) for scope in auth.SCOPES}
    for method, path in ROUTES:
        for scope, key in keys.items():
            status = ask(client, method, path, key)
            if scope == needs(method, path):
                assert status not in (401, 403), (method, path, scope)
            else:
                assert status == 403, (method, path, scope)


def test_another_workspace_sees_nothing(client: TestClient, table_csv: str) -> None:
    job = post(client, table_csv, {"target": "y"}).json()
    stranger = {"Authorization": f"Bearer {make_key('elsewhere')}"}
    for path in (
        job["links"]["self"],
        job["links"]["dataset"],
        f"{job['links']['self']}/diversity",
    ):
        assert client.get(path).status_code in (200, 409)
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
