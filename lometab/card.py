"""A model card: what a model is, how good, by what, where not, and how to ask it.

A card is a list of blocks, made from the reports and the facts of a model; two
functions write it, as one HTML page that needs nothing else or as Markdown. Every text
is escaped by these two alone, so that no name of a column can be markup.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lometab.evaluation import DEFINITIONS
from lometab.plots import draw, list_figures, render

MAX_LISTED = 40
"""Columns that are listed one by one."""
SECTIONS = {
    "What it uses": ("importance", "effects"),
    "How good it is": ("naive", "confusion", "predicted"),
    "Where it fails": ("slices",),
    "How far to trust it": ("reliability", "coverage", "risk-coverage"),
    "Its members": ("members", "decomposition", "pairs", "training"),
}
"""The figures of each section."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What a card tells beside the reports. What is not known is left out."""

    title: str
    made_at: str | None = None
    target: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Each column, and what the model takes in it."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Columns that it does not use, and why."""
    data: Mapping[str, Any] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)
    """Hashes and ids."""
    address: str | None = None
    """Of predict; None outside a service."""
    figures: str | None = None
    """The address that figures are under."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """A row as the model takes it."""


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Items:
    texts: list[str]


@dataclass(frozen=True)
class Table:
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture:
    name: str
    about: str


@dataclass(frozen=True)
class Code:
    text: str


Block = Heading | Paragraph | Items | Table | Picture | Code
Reports = Mapping[str, Mapping[str, Any]]


# ----------------------------------------------------------------------------
# What it says


def make_blocks(about: About, reports: Reports) -> list[Block]:
    """All of the card but its title."""
    report = reports["report"]
    pictures = {
        each.name: Picture(each.name, each.about)
        for each in list_figures(reports)
        if each.why_absent is None
    }
    tables: dict[str, list[Block]] = {
        "What it uses": _drivers(report),
        "How good it is": _scores(report),
        "Where it fails": _slices(report),
    }
    blocks: list[Block] = [
        Heading("Summary"),
        Items([each["text"] for each in report["summary"]]),
    ]
    for title, names in SECTIONS.items():
        found = [pictures[name] for name in names if name in pictures]
        if found or tables.get(title):
            blocks += [Heading(title), *tables.get(title, []), *found]
    return blocks + _origin(about, report) + _limits(report) + _call(about)


def _drivers(report: Mapping[str, Any]) -> list[Block]:
    body = report.get("importance")
    if not body:
        return [Paragraph("Not measured: the report is from before it was.")]
    rows = [
        [
            each["column"],
            _show(each["mean"]),
            _show(each["std"]),
            _show(each["member_std"]),
        ]
        for each in body["columns"][:10]
    ]
    what = "log loss" if body["metric"] == "nll" else "RMSE"
    head = ["column", f"increase of the {what}", "± repeats", "± members"]
    return [Table(head, rows), *([Items(body["warnings"])] if body["warnings"] else [])]


def _scores(report: Mapping[str, Any]) -> list[Block]:
    parts = [part for part in ("test", "val", "train") if part in report["scores"]]
    guesses = report.get("naive") or []
    head = ["score", *parts]
    for each in guesses:
        named = each["column"] is not None
        head.append(f"{each['name']} ({each['column']})" if named else each["name"])
    rows = [
        [
            name,
            *(_show(report["scores"][part]["ensemble"].get(name)) for part in parts),
            *(_show(each["scores"].get(name)) for each in guesses),
        ]
        for name in report["scores"]["test"]["ensemble"]
    ]
    n_rows = ", ".join(f"{report['scores'][p]['n_rows']} {p}" for p in parts)
    return [Table(head, rows), Paragraph(f"Rows: {n_rows}. Guesses are on test rows.")]


def _slices(report: Mapping[str, Any]) -> list[Block]:
    body = report.get("slices")
    if not body:
        return []
    if not any(each["is_worse"] for each in body["worst"]):
        text = f"None of {body['n_tested']} slices is worse by more than chance."
        return [Paragraph(text)]
    rows = [
        [
            each["column"],
            each["rows"],
            str(each["n_rows"]),
            f"{_show(each['loss'])} ({_show(each['lower'])} to {_show(each['upper'])})",
        ]
        for each in body["worst"]
        if each["is_worse"]
    ]
    head = ["column", "rows where it is", "test rows", body["loss"]]
    return [Table(head, rows), Paragraph(f"All test rows: {_show(body['overall'])}.")]


def _origin(about: About, report: Mapping[str, Any]) -> list[Block]:
    listed = [[name, kind] for name, kind in [*about.columns.items()][:MAX_LISTED]]
    left = len(about.columns) - len(listed)
    ignored = [
        [name, f"not used: {why}"]
        for name, why in [*about.ignored.items()][:MAX_LISTED]
    ]
    more = [Paragraph(f"And {left} columns more.")] if left > 0 else []
    return [
        Heading("What it was made from"),
        *_pairs({**about.data, "target": about.target}),
        Table(["column", "taken as"], listed + ignored),
        *more,
        Heading("How it was made"),
        *_pairs({f"split: {k}": v for k, v in about.split.items()}),
        *_pairs(about.settings),
        Heading("Versions"),
        *_pairs({**about.identity, **report.get("versions", {})}),
        *_pairs({f"seconds: {k}": v for k, v in report.get("timings", {}).items()}),
    ]


def _limits(report: Mapping[str, Any]) -> list[Block]:
    texts = [
        "It knows rows like those it was trained on. A number outside the ranges above "
        "is taken as the nearest end, a category that is not listed as none.",
        "Its scores are of one split of one table; rows of another time or place may "
        "be answered worse.",
        "Importance and effects say what the model uses, not what causes the target.",
        *report.get("warnings", []),
    ]
    if report["task"] != "regression":
        texts.insert(2, "Calibration: " + DEFINITIONS["ece"])
    return [Heading("Limits"), Items(texts)]


def _call(about: About) -> list[Block]:
    if about.address is None:
        return []
    body = json.dumps({"rows": [dict(about.example)]}, ensure_ascii=False)
    quoted = body.replace("'", "'\\''")
    return [
        Heading("How to ask it"),
        Code(
            f'curl -X POST "$LOMETAB_URL{about.address}" \\\n'
            '  -H "Authorization: Bearer $LOMETAB_KEY" \\\n'
            "  -H 'Content-Type: application/json' \\\n"
            f"  -d '{quoted}'"
        ),
        Paragraph(
            "With `calibrated`, `coverage` or `explain` in the body it tells more. The "
            "file answers without a service too, by `lometab.Predictor`."
        ),
    ]


def _pairs(found: Mapping[str, Any]) -> list[Block]:
    rows = [[name, _show(value)] for name, value in found.items() if value is not None]
    return [Table([], rows)] if rows else []


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, float):
        is_plain = isinstance(value, str | int)
        return str(value) if is_plain else json.dumps(value, ensure_ascii=False)
    return f"{value:.4g}"


# ----------------------------------------------------------------------------
# HTML

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1f2933; --faint: #52606d;
  --line: #d9dee4; --box: #f5f7fa; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #14181d;
  --text: #e6e9ed; --faint: #a5b0bb; --line: #2f3740; --box: #1c2229; } }
body { background: var(--page); color: var(--text); max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Liberation Sans", sans-serif; overflow-wrap: anywhere; }
h1 { margin-bottom: 0; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.about { color: var(--faint); margin-top: .2rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92em; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { color: var(--faint); font-weight: 500; }
figure { margin: 1.5rem 0; break-inside: avoid; } img { max-width: 100%; }
figcaption { color: var(--faint); font-size: .92em; }
pre { background: var(--box); padding: 1rem; white-space: pre-wrap; }
@media print { body { margin: 0; max-width: none; font-size: 11pt; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } }
"""


def to_html(about: About, reports: Reports) -> str:
    """One page that loads nothing and runs nothing; dark where the reader's is."""
    body = "\n".join(
        _html_block(block, reports) for block in make_blocks(about, reports)
    )
    title = html.escape(about.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n{_html_about(about, reports)}\n{body}\n</body>\n</html>\n"
    )


def to_fragment(reports: Reports) -> str:
    """Summary and figures alone, for a notebook."""
    texts = [each["text"] for each in reports["report"]["summary"]]
    blocks: list[Block] = [Items(texts), *_scores(reports["report"])]
    blocks += [
        Picture(each.name, each.about)
        for each in list_figures(reports)
        if each.why_absent is None
    ]
    return "\n".join(_html_block(block, reports) for block in blocks)


def _html_about(about: About, reports: Reports) -> str:
    report = reports["report"]
    texts = [report["task"], f"{report['k']} members", about.made_at or ""]
    shown = " · ".join(html.escape(text) for text in texts if text)
    return f'<p class="about">{shown}</p>'


def _html_block(block: Block, reports: Reports) -> str:
    match block:
        case Heading(text):
            return f"<h2>{html.escape(text)}</h2>"
        case Paragraph(text):
            return f"<p>{html.escape(text)}</p>"
        case Items(texts):
            return f"<ul>{_wrap('li', texts)}</ul>"
        case Table(head, rows):
            lines = "".join(f"<tr>{_wrap('td', row)}</tr>" for row in rows)
            top = f"<thead><tr>{_wrap('th', head)}</tr></thead>" if head else ""
            return f"<table>{top}<tbody>{lines}</tbody></table>"
        case Picture(name, about):
            return _html_picture(name, about, reports)
        case Code(text):
            return f"<pre><code>{html.escape(text)}</code></pre>"


def _wrap(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def _html_picture(name: str, about: str, reports: Reports) -> str:
    """Both themes, as images: nothing in them can act on the page."""
    light, dark = (
        base64.b64encode(render(draw(name, reports, theme))).decode()
        for theme in ("light", "dark")
    )
    kind = "data:image/svg+xml;base64,"
    return (
        f'<figure id="{html.escape(name)}"><picture>'
        '<source media="screen and (prefers-color-scheme: dark)" '
        f'srcset="{kind}{dark}">'
        f'<img alt="{html.escape(about)}" src="{kind}{light}"></picture>'
        f"<figcaption>{html.escape(about)}</figcaption></figure>"
    )


# ----------------------------------------------------------------------------
# Markdown

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:>$@=])")


def to_markdown(about: About, reports: Reports) -> str:
    """The same with addresses in place of figures."""
    lines = [f"# {escape_markdown(about.title)}"]
    report = reports["report"]
    lines.append(f"{report['task']}, {report['k']} members")
    for block in make_blocks(about, reports):
        lines.append(_markdown_block(block, about))
    return "\n\n".join(line for line in lines if line) + "\n"


def _markdown_block(block: Block, about: About) -> str:
    match block:
        case Heading(text):
            return f"## {escape_markdown(text)}"
        case Paragraph(text):
            return escape_markdown(text)
        case Items(texts):
            return "\n".join(f"- {escape_markdown(text)}" for text in texts)
        case Table(head, rows):
            width = len(head or (rows[0] if rows else []))
            lines = [head or [""] * width, ["---"] * width]
            shown = [f"| {' | '.join(map(escape_markdown, row))} |" for row in rows]
            top = [f"| {' | '.join(map(escape_markdown, lines[0]))} |"]
            return "\n".join([*top, f"| {' | '.join(lines[1])} |", *shown])
        case Picture(name, what):
            if about.figures is None:
                return ""
            return f"![{escape_markdown(what)}]({about.figures}/{name}.svg)"
        case Code(text):
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            return f"{fence}sh\n{text}\n{fence}"


def escape_markdown(text: str) -> str:
    """On one line, and with nothing in it that Markdown or HTML would act on."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;")
    return _SPECIAL.sub(r"\\\1", flat)
