"""The site: built without a warning, every link leads somewhere, nothing is loaded from
elsewhere, and what people ask first is two clicks away."""

import re
import shutil
import socket
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI

from app.page import help as help_files
from app.page import router, routes
from scripts.docs.build import build
from scripts.docs.links import check_site, count_clicks
from tests.support.browser import open_browser
from tests.support.packages import build as build_packages
from tests.support.servers import wait_until

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    build(folder / "pages", folder / "site")
    return folder / "site"


def test_every_link_leads_somewhere(site: Path) -> None:
    assert check_site(site) == []


def test_a_link_that_leads_nowhere_is_found(site: Path, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        "<a href='b.html'>x</a><a href='#none'>y</a><a id='here' href='#here'>z</a>"
        "<script src='https://elsewhere.example/x.js'></script><img src='no.png'>"
    )
    assert check_site(tmp_path) == [
        "a.html: loads https://elsewhere.example/x.js",
        "a.html: loads no.png, which is not there",
        "a.html: leads to b.html, which is not there",
        "a.html: leads to #none, which has no such place",
    ]


def test_every_page_is_two_clicks_away(site: Path) -> None:
    clicks = count_clicks(site)
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {*clicks} == pages
    assert max(clicks.values()) <= 2


def test_ten_questions_are_answered_by_a_page(site: Path) -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = text.partition("## Questions")[2].partition("\n## ")[0]
    questions = re.split(r"^\d+\. ", listed, flags=re.MULTILINE)[1:]
    assert len(questions) == 10
    for question in questions:
        (target,) = re.findall(r"\]\(([^)]+)\)", question)
        assert (site / target.replace(".md", ".html")).is_file(), question


def test_a_reference_has_what_the_code_has(site: Path) -> None:
    from app.settings import Settings
    from lometab import PRESETS

    settings = (site / "reference" / "settings.html").read_text("utf-8")
    for name, field in Settings.model_fields.items():
        assert f"LOMETAB_{name.upper()}" in settings
        assert field.description, f"{name} is not described"
    chosen = (site / "learn" / "choosing.html").read_text("utf-8")
    assert all(f"<code>{name}</code>" in chosen for name in PRESETS)


def test_a_wheel_carries_what_was_built(site: Path, tmp_path: Path) -> None:
    """Where the service of an installed wheel looks for it, and only if it is there."""
    tree = tmp_path / "tree"
    for name in ("lometab", "app", "worker", "migrations"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "examples/wine_quality.csv"):
        (tree / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    for name in ("without", "with"):
        if name == "with":
            shutil.copytree(site, tree / "docs" / "site")
        (tmp_path / name).mkdir()
        build_packages(tmp_path / name, tree)
        (wheel,) = (tmp_path / name).glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            file.extractall(tmp_path / name)
    place = help_files.SITE.relative_to(ROOT)
    assert not (tmp_path / "without" / "lometab" / "_service" / place).exists()
    found = help_files.read_site(tmp_path / "with" / "lometab" / "_service" / place)
    assert {*found} == {*help_files.read_site(site)} and "index.html" in found


@contextmanager
def serve_page() -> Iterator[str]:
    """The page's routes alone, on a free port."""
    api = FastAPI(docs_url=None, redoc_url=None)
    api.include_router(router)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(api, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_until(lambda: server.started, seconds=60, what="the server starts")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.slow
def test_a_browser_shows_it_under_the_policy_of_the_service(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scripts run, others may not, and no other host is asked."""
    monkeypatch.setattr(routes, "read_site", lambda: help_files.read_site(site))
    with serve_page() as address, open_browser(tmp_path) as browser:
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda line: said.append(line.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/help/index.html")
        page.get_by_role("link", name="Install").first.click()
        page.wait_for_url("**/start/install.html")
        assert page.evaluate("typeof __md_get") == "function"
        page.goto(f"{address}/help/architecture.html")
        assert page.locator("svg.chart rect").count() > 15
        page.get_by_role("button", name="Search").first.click()
        page.keyboard.type("webhooks")
        page.locator("u", has_text="Webhooks").first.wait_for()
        page.close()
    assert [line for line in said if "violates" in line or "Error" in line] == []
    assert all(url.startswith((address, "data:")) for url in asked)
