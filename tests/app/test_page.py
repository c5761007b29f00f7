"""How the page's files are sent, and what is in them."""

import gzip
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.page.files import find_version, read_files, read_html
from app.page.routes import POLICY
from app.settings import get_settings

ROOT = Path(__file__).parents[2] / "app" / "page"
SCRIPTS = sorted(ROOT.rglob("*.js"))
MAX_PACKED = 150_000


@pytest.fixture
def strict(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A service that answers nobody without a key, and a client that has none."""
    monkeypatch.setattr(get_settings(), "require_keys", True)
    client.headers.pop("Authorization")
    return client


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_the_page_has_a_strict_policy_and_needs_no_key(
    strict: TestClient, path: str
) -> None:
    response = strict.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY and "default-src 'self'" in POLICY
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-cache"
    for written in ("<style", " style=", " onclick=", "javascript:", "//"):
        assert written not in response.text.replace("<!doctype", "")
    assert re.findall(r"<script(?![^>]* src=)", response.text) == []


def test_nothing_else_of_the_service_is_open(strict: TestClient) -> None:
    for path in ("/pages", "/page", "/jobs", "/workers", "/page/../jobs"):
        assert strict.get(path).status_code == 401, path


def test_files_are_kept_for_ever_at_an_address_of_their_version(
    client: TestClient,
) -> None:
    document = client.get("/").text
    addresses = re.findall(r'(?:href|src)="(page/[^"]+)"', document)
    assert len(addresses) > 10
    for address in set(addresses):
        response = client.get(f"/{address}")
        assert response.status_code == 200, address
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["content-security-policy"] == POLICY
        known = {"If-None-Match": response.headers["etag"]}
        assert client.get(f"/{address}", headers=known).status_code == 304
    assert client.get("/page/of-another-version/main.js").status_code == 404
    assert client.get(f"/page/{find_version()}/none.js").status_code == 404
    assert client.get(f"/page/{find_version()}/routes.py").status_code == 404
    assert client.get(f"/page/{find_version()}/../routes.py").status_code in (401, 404)


def test_the_reference_comes_from_an_installed_package(client: TestClient) -> None:
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        response = client.get(f"/docs/{name}")
        assert response.status_code == 200 and len(response.content) > 100_000
    assert client.get("/docs/none.js").status_code == 404
    assert client.get("/redoc", follow_redirects=False).headers["location"] == "docs"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_typed_and_reads_no_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("// @ts-check\n/** ")
    assert len(text.splitlines()) <= 500
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"):
        assert word not in text
    text = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"\beval\(|new Function|https?://|setAttribute\(.style", text)
    code = re.sub(r"`[^`]*`", "", text)  # without code that is shown
    if path.name != "http.js":
        assert not re.search(r"\bfetch\(|XMLHttpRequest|EventSource", code)
    for source in re.findall(r'^(?:import|export)[^;]* from "([^"]+)"', text, re.M):
        assert (path.parent / source).is_file(), source


def test_every_module_is_loaded_at_once() -> None:
    document = read_html("index.html").content.decode()
    for path in SCRIPTS:
        name = path.relative_to(ROOT).as_posix()
        assert (f"/{name}" in document) == (name != "docs.js")


def test_the_page_is_small() -> None:
    sizes = {
        name: len(gzip.compress(file.content, 6))
        for name, file in read_files().items()
        if not name.endswith(".csv")
    }
    assert sum(sizes.values()) <= MAX_PACKED, sizes
