"""Model cards: what is on them, and that no text of a table becomes markup."""

import copy
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from lometab import card
from lometab.card import About, escape_markdown, to_fragment, to_html, to_markdown
from lometab.evaluation import make_reports
from tests.support.reports import sample
from tests.support.statements import check_statements
from tests.support.summaries import make_examined

HOSTILE = [
    "<script>alert(1)</script>",
    "</td><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "javascript:alert(1)",
    "[click](javascript:alert(1))",
    "| a | b |\n## heading",
    "`code` **bold** &lt;",
    "\u202e\x00\x1b[0m",
]


class Page(HTMLParser):
    """The tags and attributes that a browser would see, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ul", "li"),
    *("table", "thead", "tbody", "tr", "th", "td", "figure", "picture", "source"),
    *("img", "figcaption", "pre", "code"),
}


def make_about(name: str) -> About:
    return About(
        title=name,
        made_at=name,
        target=name,
        columns={name: name, "size": "a number from 0 to 9"},
        ignored={name + "2": name},
        data={"file": name},
        split={"kind": name, "fractions": [0.8, 0.1, 0.1]},
        settings={"k": 3, "lr": 0.001, "patience": None},
        identity={"model": "mdl_1"},
        address="/models/mdl_1/predict",
        figures="/jobs/job_1/figures",
        example={name: name, "size": 1.5},
    )


def poison(reports: dict[str, Any], text: str) -> dict[str, Any]:
    """The reports with this text wherever one of the table's can be."""
    poisoned = copy.deepcopy(reports)
    report = poisoned["report"]
    for each in report["importance"]["columns"] + report["effects"]["columns"]:
        each["column"] = text
    report["importance"]["warnings"] = report["warnings"] = [text]
    for each in report["slices"]["worst"]:
        each |= {"column": text, "rows": text, "is_worse": True}
    for each in report["naive"]:
        each["column"] = text
    for sentence in report["summary"]:
        sentence["text"] += text
    if report["confusion"]:
        report["confusion"]["classes"] = [text] * len(report["confusion"]["classes"])
    return poisoned


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    return make_reports(make_examined("binary")).to_json()


@pytest.mark.slow
def test_a_card_has_all_of_its_parts(reports: dict[str, Any]) -> None:
    check_statements(reports)
    page = Page(to_html(make_about("churn"), reports))
    for title in (
        *("Summary", *card.SECTIONS, "What it was made from", "How it was made"),
        *("Versions", "Limits", "How to ask it"),
    ):
        assert title in page.text, title
    for sentence in reports["report"]["summary"]:
        assert sentence["text"] in page.text
    assert "curl -X POST" in page.text
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) >= 9
    assert all((each["src"] or "").startswith("data:image/svg+xml") for each in images)
    assert all(each["alt"] for each in images)


@pytest.mark.slow
def test_a_card_needs_nothing_else(reports: dict[str, Any]) -> None:
    text = to_html(make_about("churn"), reports)
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= ALLOWED
    for _, attributes in page.tags:
        for name, value in attributes.items():
            if name in ("src", "srcset", "href"):
                assert (value or "").startswith("data:")
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert "@media print" in text and "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_texts(
    reports: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card, "render", lambda spec: b"<svg/>")  # tested elsewhere
    poisoned = poison(reports, text)
    page = Page(to_html(make_about(text), poisoned))
    assert {tag for tag, _ in page.tags} <= ALLOWED
    assert {name for _, attributes in page.tags for name in attributes} <= {
        *("lang", "charset", "name", "content", "class", "id", "media", "srcset"),
        *("alt", "src"),
    }
    clean = to_markdown(make_about("fine"), poison(reports, "fine"))
    found = to_markdown(make_about(text), poisoned)
    outside = re.sub(r"^(`{3,})sh\n.*?^\1$", "", found, flags=re.DOTALL | re.MULTILINE)
    assert outside.count("\n## ") == clean.count("\n## ")
    assert not re.search(r"(?<!\\)<|javascript:|(?<!\\)\]\((?!/jobs/)", outside)
    assert "<script" not in to_fragment(poisoned)


def test_markdown(reports: dict[str, Any]) -> None:
    text = to_markdown(make_about("churn"), reports)
    assert text.startswith("# churn\n")
    assert "](/jobs/job_1/figures/importance.svg)" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    assert escape_markdown("a|b\n<c> [d](e)") == r"a\|b &lt;c\> \[d\]\(e\)"


def test_a_report_of_before_has_a_card() -> None:
    reports = copy.deepcopy(sample("regression"))
    for name in ("importance", "effects", "slices", "naive", "curve", "points"):
        reports["report"].pop(name)
    text = to_markdown(make_about("old"), reports)
    assert "Not measured" in text
    assert "figures/importance" not in text and "figures/members" in text
