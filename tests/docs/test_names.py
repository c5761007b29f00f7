"""What the documentation names is there: settings and routes."""

import re
from pathlib import Path

import pytest

from app.main import api
from app.settings import Settings
from scripts.docs.pages import DOCS

ROOT = Path(__file__).parents[2]
# Decisions and the changelog tell of their time, and results of what was measured then.
OF_THEIR_TIME = ("decisions", "site", "results.md")
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *(
        path
        for path in sorted(DOCS.rglob("*.md"))
        if path.relative_to(DOCS).parts[0] not in OF_THEIR_TIME
    ),
]
ELSEWHERE = {
    # Of the client and the command, of tests and benchmarks, of compose.
    *("URL", "KEY", "PICTURES", "FUZZ_EXAMPLES", "DOMAIN", "VERSION"),
    "REVISION",
}


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_that_a_page_names_are_there(page: Path) -> None:
    named = {*re.findall(r"\bLOMETAB_([A-Z_]*[A-Z])\b", read(page))}
    known = {name.upper() for name in Settings.model_fields} | ELSEWHERE
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_routes_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(
        r"\b(GET|POST|PUT|PATCH|DELETE) (/[\w/{}@.-]*)", re.sub(r"\s+", " ", read(page))
    )
    known = {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path))
        for path, methods in api.openapi()["paths"].items()
        for method in methods
    }
    wanted = {
        (method, re.sub(r"\{\w+\}", "{}", path).rstrip(".")) for method, path in named
    }
    assert wanted - known == set()
