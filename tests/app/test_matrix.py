"""Every route by every kind of credential, generated from the OpenAPI document.

A route that is new needs a line here that says which scope it takes; without one, a
test fails.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import access as auth
from app import webhooks
from app.access import uses
from app.main import api
from app.settings import get_settings
from app.storage import db
from app.storage.enums import WebhookEvent
from app.storage.tables import Delivery, TrainedModel, utc_now
from tests.support.http import check_problem, make_key
from tests.support.models import ROWS, succeed

OPEN = None
"""No key is needed."""
EVERY = "every"
"""Any key will do, whatever its scopes."""
LINES: dict[str, str | None] = {
    "GET /healthz": OPEN,
    "GET /readyz": OPEN,
    "GET /version": OPEN,
    "GET /metrics": "read",
    "GET /session": EVERY,
    "POST /session": EVERY,
    "DELETE /session": EVERY,
    "GET /limits": "read",
    "GET /usage": "read",
    "GET /workers": "read",
    "GET /queue": "read",
    "GET /audit": "write",
    "POST /datasets": "write",
    "GET /datasets": "read",
    "GET /datasets/{dataset_id}": "read",
    "DELETE /datasets/{dataset_id}": "write",
    "PATCH /datasets/{dataset_id}": "write",
    "POST /jobs": "write",
    "POST /jobs/plan": "write",
    "GET /jobs": "read",
    "GET /jobs/{job_id}": "read",
    "DELETE /jobs/{job_id}": "write",
    "PATCH /jobs/{job_id}": "write",
    "POST /jobs/{job_id}/cancel": "write",
    "POST /jobs/{job_id}/stop": "write",
    "POST /jobs/{job_id}/retry": "write",
    "POST /jobs/{job_id}/promote": "write",
    "GET /jobs/{job_id}/events": "read",
    "GET /jobs/{job_id}/diversity": "read",
    "GET /jobs/{job_id}/calibration": "read",
    "GET /jobs/{job_id}/report": "read",
    "GET /jobs/{job_id}/figures": "read",
    "GET /jobs/{job_id}/figures/{figure}": "read",
    "GET /jobs/{job_id}/sweep": "read",
    "GET /jobs/{job_id}/tune": "read",
    "GET /ranks": "read",
    "GET /models": "read",
    "GET /models/{model_id}": "read",
    "DELETE /models/{model_id}": "write",
    "PATCH /models/{model_id}": "write",
    "GET /models/{model_id}/card": "read",
    "GET /models/{model_id}/effects": "read",
    "GET /models/{model_id}/onnx": "read",
    "PUT /models/{name}/aliases/{alias}": "write",
    "DELETE /models/{name}/aliases/{alias}": "write",
    "POST /models/{model_id}/predict": "predict",
    "POST /models/{model_id}/invocations": "predict",
    "POST /invocations": "predict",
    "POST /v2/models/{name}/infer": "predict",
    "POST /v2/models/{name}/versions/{version}/infer": "predict",
    "GET /ping": OPEN,
    "GET /v2": OPEN,
    "GET /v2/health/live": OPEN,
    "GET /v2/health/ready": OPEN,
    "GET /v2/models/{name}": "read",
    "GET /v2/models/{name}/versions/{version}": "read",
    "GET /v2/models/{name}/ready": "read",
    "GET /v2/models/{name}/versions/{version}/ready": "read",
    "POST /models/{model_id}/prune": "write",
    "POST /models/{model_id}/predictions": "write",
    "GET /jobs/{job_id}/result": "read",
    "GET /jobs/{job_id}/faults": "read",
    "POST /webhooks": "write",
    "GET /webhooks": "write",
    "GET /webhooks/{webhook_id}": "write",
    "PATCH /webhooks/{webhook_id}": "write",
    "DELETE /webhooks/{webhook_id}": "write",
    "POST /webhooks/{webhook_id}/rotate": "write",
    "GET /webhooks/{webhook_id}/deliveries": "write",
    "POST /webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver": "write",
    "GET /models/{model_id}/monitor": "read",
    "POST /models/{model_id}/outcomes": "write",
}


NO_HEADERS: dict[str, str] = {}


class Way(NamedTuple):
    """A request to a route: some can be asked in several ways."""

    line: str
    headers: dict[str, str] = NO_HEADERS
    query: str = ""
    body: dict[str, Any] | bytes | None = None


ALSO = [
    Way("GET /jobs/{job_id}/events", {"Accept": "text/event-stream"}),
    Way("GET /jobs/{job_id}/diversity", query="?format=csv"),
    Way("GET /jobs/{job_id}/calibration", query="?format=csv"),
    # Larger than what is answered in a batch: it would be spooled.
    Way(
        "POST /models/{model_id}/predict",
        {"Content-Type": "text/csv", "Accept": "text/csv"},
        body=b"x1\n" + b"1\n" * 50_000,
    ),
]
BODIES: dict[str, dict[str, Any]] = {
    "POST /jobs": {"dataset_id": "{dataset_id}", "target": "y"},
    "POST /jobs/plan": {"dataset_id": "{dataset_id}", "target": "y"},
    "POST /jobs/{job_id}/promote": {"cell": 0},
    "PUT /models/{name}/aliases/{alias}": {"version": 1},
    "PATCH /datasets/{dataset_id}": {"tags": ["a"]},
    "PATCH /jobs/{job_id}": {"tags": ["a"]},
    "PATCH /models/{model_id}": {"tags": ["a"]},
    "POST /models/{model_id}/predict": {"rows": ROWS[:2]},
    "POST /models/{model_id}/invocations": {"instances": ROWS[:2]},
    "POST /models/{model_id}/prune": {"members": 1},
    "POST /models/{model_id}/predictions": {"dataset_id": "{dataset_id}"},
    "POST /webhooks": {"url": "https://hooks.example.com", "events": ["job.failed"]},
    "PATCH /webhooks/{webhook_id}": {"is_enabled": False},
    "POST /models/{model_id}/outcomes": {"outcomes": [{"id": "a", "value": 1.0}]},
}
QUERIES = {
    "GET /ranks": "?job_id={job_id}",
    "GET /models/{model_id}/effects": "?columns=size",
}


def list_lines() -> Iterator[str]:
    for path, operations in api.openapi()["paths"].items():
        yield from (f"{method.upper()} {path}" for method in operations)


WAYS = [
    *(
        Way(line, query=QUERIES.get(line, ""), body=BODIES.get(line))
        for line in sorted(list_lines())
    ),
    *ALSO,
]
CLOSED = [way for way in WAYS if LINES.get(way.line, OPEN) is not OPEN]
NAMES = {
    "job_id": "job_x",
    "model_id": "mdl_x",
    "dataset_id": "ds_x",
    "webhook_id": "wh_x",
    "delivery_id": "msg_x",
    "name": "n",
    "alias": "a",
    "figure": "training.json",
    "version": "1",
}


def ask(
    client: TestClient, way: Way, key: str | None, names: dict[str, str] = NAMES
) -> httpx.Response:
    method, _, path = way.line.partition(" ")
    headers = {**way.headers, "Authorization": f"Bearer {key}" if key else ""}
    content: dict[str, Any] = {}
    if isinstance(way.body, bytes):
        content["content"] = way.body
    elif way.body is not None:
        body = {
            k: v.format(**names) if isinstance(v, str) else v
            for k, v in way.body.items()
        }
        content["json"] = body
    address = (path + way.query).format(**names)
    response = client.request(method, address, headers=headers, **content)
    if response.status_code >= 400:
        check_problem(response, response.status_code)
    return response


def make(**values: Any) -> str:
    with db.transaction() as session:
        _, secret = auth.create_key(
            session, workspace_id="default", name="x", scopes=auth.SCOPES, **values
        )
    return secret


def make_revoked() -> str:
    with db.transaction() as session:
        row, secret = auth.create_key(
            session, workspace_id="default", name="x", scopes=auth.SCOPES
        )
        session.flush()
        assert auth.revoke_key(session, row.id) is not None
    return secret


REFUSED: dict[str, Callable[[], str | None]] = {
    "none": lambda: None,
    "wrong": lambda: "lmt_wrong",
    "expired": lambda: make(expires_at=utc_now() - timedelta(hours=1)),
    "revoked": make_revoked,
}


def test_every_route_has_a_line() -> None:
    assert sorted(list_lines()) == sorted(LINES)


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("credential", REFUSED)
def test_without_a_key_that_is_valid_nothing_is_answered(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, credential: str
) -> None:
    monkeypatch.setattr(get_settings(), "require_keys", True)
    key = REFUSED[credential]()
    for way in CLOSED:
        response = ask(client, way, key)
        assert response.status_code == 401, way
        assert response.headers["www-authenticate"] == "Bearer"
    for line in ("GET /healthz", "GET /readyz"):
        assert ask(client, Way(line), key).status_code == 200


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_key_does_what_its_scope_says(client: TestClient) -> None:
    keys = {scope: make_key(scopes=[scope]) for scope in auth.SCOPES}
    for way in CLOSED:
        for scope, key in keys.items():
            status = ask(client, way, key).status_code
            if LINES[way.line] in (scope, EVERY):
                assert status not in (401, 403, 500), (way, scope, status)
            else:
                assert status == 403, (way, scope, status)


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_key_over_its_limit_waits(client: TestClient) -> None:
    uses.clear()
    for way in CLOSED:
        key = make(requests_per_minute=1)
        first = ask(client, way, key)
        assert first.status_code != 429, way
        assert first.headers["ratelimit-policy"] == '"requests";q=1;w=60', way
        assert first.headers["ratelimit"].startswith('"requests";r=0;t='), way
        response = ask(client, way, key)
        assert response.status_code == 429, way
        assert 1 <= int(response.headers["retry-after"]) <= 120
        assert response.json()["code"] == "too_many_requests"
    uses.clear()


@pytest.mark.slow
@pytest.mark.both_databases
def test_another_workspace_meets_none_of_ours(client: TestClient) -> None:
    job = succeed(client, "y")
    with db.transaction() as session:
        row = session.get_one(TrainedModel, job["model_id"])
        row.name, row.version = "n", 1
    model = client.get(f"/models/{job['model_id']}").json()
    with db.transaction() as session:
        webhook = webhooks.create_webhook(
            session,
            workspace_id="default",
            url="https://hooks.example.com",
            events=[WebhookEvent.JOB_FAILED],
            description=None,
        )
        webhooks.announce(
            session, "default", WebhookEvent.JOB_FAILED, {}, key="something"
        )
        delivery_id = session.scalars(sa.select(Delivery.id)).one()
    names = {
        "webhook_id": webhook.id,
        "delivery_id": delivery_id,
        "job_id": job["id"],
        "model_id": model["id"],
        "dataset_id": job["dataset_id"],
        "name": model["name"],
        "alias": "champion",
        "figure": "training.json",
        "version": "1",
    }
    ours = client.headers["authorization"].removeprefix("Bearer ")
    stranger = make_key("elsewhere")
    # What would end the test's own rows comes last, and in their order.
    order = {"DELETE /models/{model_id}": 1, "DELETE /jobs/{job_id}": 2}
    order["DELETE /datasets/{dataset_id}"] = 3
    order["DELETE /webhooks/{webhook_id}"] = 4
    for way in sorted(CLOSED, key=lambda way: order.get(way.line, 0)):
        foreign = ask(client, way, stranger, names)
        if _names_a_row(way):
            assert foreign.status_code == 404, (way, foreign.text)
            own = ask(client, way, ours, names)
            assert own.status_code not in (401, 403, 500), (way, own.text)
            if "aliases" not in way.line:  # there is none yet
                assert own.status_code != 404, (way, own.text)
        else:
            assert names["job_id"] not in foreign.text, way
            assert names["dataset_id"] not in foreign.text, way
            assert names["model_id"] not in foreign.text, way


def _names_a_row(way: Way) -> bool:
    return "{" in way.line or way.line in (
        "POST /jobs",
        "POST /jobs/plan",
        "GET /ranks",
    )
