"""The documentation at `/help`: sent if it was built, and nothing beside it."""

import base64
import hashlib
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.page import help as help_files
from app.page import routes
from app.page.routes import POLICY
from app.settings import get_settings

SCRIPT = "window.ours = 1"
DOCUMENT = f"<!doctype html><title>Docs</title><script>{SCRIPT}</script>"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    (folder / "start").mkdir(parents=True)
    (folder / "index.html").write_text(DOCUMENT)
    (folder / "start" / "page.css").write_text("a {}")
    (folder / "notes.txt").write_text("of no known type")
    (tmp_path / "secret.html").write_text("beside the site")
    monkeypatch.setattr(routes, "read_site", lambda: help_files.read_site(folder))
    return folder


def test_it_is_sent_without_a_key(
    client: TestClient, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "require_keys", True)
    client.headers.pop("Authorization")
    found = client.get("/help")
    assert found.status_code == 200 and found.text == DOCUMENT
    assert found.url.path == "/help/index.html"
    assert client.get("/help/start/page.css").text == "a {}"
    known = {"If-None-Match": found.headers["etag"]}
    assert client.get("/help/index.html", headers=known).status_code == 304
    assert client.get("/helpers").status_code == 401


def test_the_policy_allows_the_scripts_of_a_document_and_no_others(
    client: TestClient, site: Path
) -> None:
    policy = client.get("/help/index.html").headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    scripts = f"script-src 'self' 'sha256-{digest}'"
    assert policy == f"{POLICY}; {scripts}; style-src 'self' {help_files.STYLE}"
    assert "unsafe" not in policy
    style = client.get("/help/start/page.css").headers["content-security-policy"]
    assert style == POLICY


@pytest.mark.parametrize(
    "path",
    [
        *("../secret.html", "..%2fsecret.html", "%2e%2e/secret.html", "notes.txt"),
        *("/etc/passwd", "start/../../secret.html", "none.html", "start"),
    ],
)
def test_nothing_beside_it_is_sent(client: TestClient, site: Path, path: str) -> None:
    answer = client.get(f"/help/{path}")
    assert answer.status_code in (401, 404)
    assert "beside the site" not in answer.text and "root:" not in answer.text


def test_a_site_that_was_not_built_is_told_of(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "read_site", lambda: help_files.read_site(tmp_path))
    answer = client.get("/help/index.html")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert "make docs" in answer.json()["detail"]
