"""The page's log-in: a cookie in the place of the key."""

import pytest
from fastapi.testclient import TestClient

from app.access import COOKIE
from app.settings import get_settings
from app.storage import db
from app.storage.tables import ApiKey
from tests.support.http import check_problem, make_key

OURS = {"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}
FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},  # another port of this host
    {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:9999"},
    {"Host": "127.0.0.1:8000", "Origin": "null"},
    {"Host": "a.example", "Origin": "https://a.example.evil.example"},
]


@pytest.fixture
def browser(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Where keys are required, a client that keeps cookies and has no key."""
    monkeypatch.setattr(get_settings(), "require_keys", True)
    client.headers.pop("Authorization")
    return client


def log_in(browser: TestClient, key: str) -> str:
    response = browser.post("/session", headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 200, response.text
    cookie: str = response.headers["set-cookie"]
    return cookie


def test_log_in_and_out(browser: TestClient) -> None:
    check_problem(browser.get("/session"), 401)
    log_in(browser, make_key(scopes=["read"]))
    session = browser.get("/session").json()
    assert (session["scopes"], session["keys_required"]) == (["read"], True)
    assert browser.get("/jobs").status_code == 200
    assert browser.get("/jobs/job_x/events").status_code == 404
    check_problem(browser.delete("/datasets/ds_x"), 403, "scope 'write'")
    check_problem(browser.post("/models/m/predict", json={"rows": [{"a": 1}]}), 403)
    assert browser.delete("/session").status_code == 204
    assert COOKIE not in browser.cookies
    check_problem(browser.get("/jobs"), 401)


def test_a_wrong_key_gets_no_cookie(browser: TestClient) -> None:
    wrong = {"Authorization": "Bearer lmt_wrong"}
    response = browser.post("/session", headers=wrong)
    check_problem(response, 401)
    assert "set-cookie" not in response.headers


def test_scripts_cannot_read_the_cookie(browser: TestClient) -> None:
    cookie = log_in(browser, make_key()).lower()
    for word in ("httponly", "samesite=strict", "path=/", "max-age="):
        assert word in cookie
    assert "secure" not in cookie
    key = {"Authorization": f"Bearer {make_key()}"}
    safe = browser.post("https://127.0.0.1/session", headers=key)
    assert "secure" in safe.headers["set-cookie"].lower()


@pytest.mark.slow
@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_the_cookie_is_for_pages_of_ours_alone(
    browser: TestClient, method: str, headers: dict[str, str]
) -> None:
    log_in(browser, make_key())
    for path in ("/jobs", "/session", "/models/m/predict"):
        check_problem(browser.request(method, path, headers=headers), 403)
    assert browser.get("/jobs", headers=OURS).status_code == 200
    same = {"Sec-Fetch-Site": "same-origin"}
    assert browser.get("/jobs", headers=same).status_code == 200


def test_a_revoked_key_is_no_use_in_a_cookie(browser: TestClient) -> None:
    log_in(browser, make_key())
    assert browser.get("/jobs").status_code == 200
    with db.transaction() as session:
        session.query(ApiKey).update({"revoked_at": db.now(session)})
    check_problem(browser.get("/jobs"), 401)


def test_without_need_of_keys_a_cookie_means_nothing(client: TestClient) -> None:
    client.headers.pop("Authorization")
    client.cookies.set(COOKIE, "of-another-service")
    session = client.get("/session").json()
    assert (session["key_id"], session["keys_required"]) == (None, False)
    assert session["scopes"] == ["read", "write", "predict"]
