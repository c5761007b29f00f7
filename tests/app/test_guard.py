"""What is refused before anything is done for it, in process."""

import logging
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from app.guard import MAX_JSON_BODY, RULES, find_rule
from app.main import api
from app.observe import escape
from app.serving import get_predict
from app.settings import get_settings
from tests.support.asgi import Call
from tests.support.http import check_problem
from tests.support.servers import wait_until

OPEN = {
    *("/healthz", "/readyz", "/version", "/ping"),
    *("/v2", "/v2/health/live", "/v2/health/ready"),
}


@pytest.fixture(autouse=True)
def fresh_predict() -> Iterator[None]:
    """Predict has the settings that there are when it is first asked."""
    get_predict.cache_clear()
    yield
    get_predict.cache_clear()


BODIES = [
    ("PUT", "/models/a/aliases/b"),
    ("POST", "/jobs/job_x/promote"),
    ("POST", "/jobs"),
    ("POST", "/datasets"),
    ("POST", "/models/mdl_x/predict"),
    ("DELETE", "/jobs/job_x"),
    ("POST", "/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize("key", [None, "lmt_wrong"])
def test_callers_are_known_before_bodies_are_read(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    key: str | None,
) -> None:
    monkeypatch.setattr(get_settings(), "require_keys", True)
    headers = {"content_type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    call = Call(method, path, **headers)
    assert (call.run(), call.n_received) == (401, 0)


@pytest.mark.parametrize(("method", "path"), BODIES[:2])
def test_bodies_are_bounded(client: TestClient, method: str, path: str) -> None:
    key = client.headers["authorization"]
    headers = {"authorization": key, "content_type": "application/json"}
    call = Call(method, path, **headers)
    assert call.run() == 413
    assert call.n_received <= MAX_JSON_BODY + 2**17
    call = Call(method, path, content_length=str(MAX_JSON_BODY + 1), **headers)
    assert (call.run(), call.n_received) == (413, 0)


def test_headers_are_bounded(client: TestClient) -> None:
    n_bytes = get_settings().max_header_bytes
    response = client.get("/healthz", headers={"X-Long": "x" * n_bytes})
    assert check_problem(response, 431)["code"] == "headers_too_large"
    response = client.get("/healthz?" + "x" * n_bytes)
    check_problem(response, 431)
    assert client.get("/healthz", headers={"X-Long": "x" * 9000}).status_code == 200


def test_every_route_but_health_needs_a_caller() -> None:
    for path, operations in api.openapi()["paths"].items():
        for method in operations:
            rule = find_rule({"method": method.upper(), "path": path})
            if path in OPEN:
                assert not rule.needs_caller
            else:
                is_predict = path.endswith(("/predict", "/infer", "/invocations"))
                assert rule.needs_caller != is_predict, (method, path)
    assert len(RULES) < 15  # exceptions stay exceptions


@pytest.mark.parametrize(
    "host", ["[::1", "[127.0.0.1]", "[", "]", "a[b]c", "\x80", "127.0.0.1:x"]
)
@pytest.mark.parametrize("path", ["/jobs", "/models/mdl_x/predict"])
def test_a_malformed_host_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, host: str, path: str
) -> None:
    monkeypatch.setattr(get_settings(), "require_keys", False)
    call = Call("GET" if path == "/jobs" else "POST", path, content_length="0")
    call.scope["headers"] = [(b"host", host.encode("latin-1"))]
    if host == "127.0.0.1:x":  # its name is fine
        assert call.run() in (200, 415)
    else:
        assert call.run() in (400, 403)


def test_deep_json_is_refused(client: TestClient) -> None:
    for body in (b"[" * 500_000, b'{"version":' * 90_000):
        response = client.put(
            "/models/a/aliases/b",
            content=body,
            headers={"Content-Type": "application/json"},
        )
        check_problem(response, 422, "nested too deeply")


def test_lines_of_the_log_cannot_be_forged(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "app")
    client.get("/jobs/x%0a2026-01-01 INFO app: forged%1b[31m%c2%9b")

    def find() -> list[str]:
        return [e.getMessage() for e in caplog.records if "forged" in e.getMessage()]

    (line,) = wait_until(find, seconds=10, what="the line is written")
    assert r"/jobs/x\n2026" in line and r"\x1b[31m\x9b" in line
    assert line.isprintable()
    assert escape("grüße 1") == "grüße 1"
