"""Requests to the API in this process, and what its errors look like."""

import json
from collections.abc import Collection
from typing import Any

import httpx2 as httpx
from fastapi.testclient import TestClient

from app import access as auth
from app.storage import db


def make_key(
    workspace_id: str = "default", scopes: Collection[auth.Scope] = auth.SCOPES
) -> str:
    """A key for the database of the test."""
    with db.transaction() as session:
        _, secret = auth.create_key(
            session, workspace_id=workspace_id, name="test", scopes=scopes
        )
    return secret


def post(
    client: TestClient, content: str | bytes, config: dict[str, Any] | str
) -> httpx.Response:
    """The answer to a request for a job."""
    text = config if isinstance(config, str) else json.dumps(config)
    return client.post(
        "/jobs", files={"file": ("t.csv", content)}, data={"config": text}
    )


def check_problem(response: httpx.Response, status: int, *words: str) -> dict[str, Any]:
    """The body of an error, which has this status and these words in its detail."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == status
    for word in words:
        assert word in problem["detail"], problem["detail"]
    return problem


def upload(client: TestClient, content: bytes, options: dict[str, Any]) -> Any:
    """A file as a dataset, read as the options say."""
    fields = {"read_options": json.dumps(options)} if options else {}
    return client.post("/datasets", files={"file": ("file", content)}, data=fields)
