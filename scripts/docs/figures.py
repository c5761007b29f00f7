"""Numbers of docs/results.md for other pages: none of them is typed by hand."""

import re
from pathlib import Path

from scripts.docs.text import table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
_BEGIN, _END = "<!-- begin figures -->", "<!-- end figures -->"

Rows = list[list[str]]


def section(name: str) -> str:
    """What a benchmark wrote."""
    text = RESULTS.read_text(encoding="utf-8")
    found = re.search(
        rf"<!-- begin {name} -->(.*?)<!-- end {name} -->", text, re.DOTALL
    )
    if found is None:
        raise LookupError(f"docs/results.md has no section {name!r}")
    return found[1]


def read_table(text: str, head: str) -> Rows:
    """Rows of the first table whose head begins so, the head among them."""
    lines = text.splitlines()
    start = next(i for i, each in enumerate(lines) if each.startswith(f"| {head} |"))
    rows: Rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise LookupError(f"docs/results.md no longer says {pattern!r}")
    return found[1]


def _pick(rows: Rows, columns: tuple[str, ...]) -> list[str]:
    places = [rows[0].index(name) for name in columns]
    return table(columns, ([row[i] for i in places] for row in rows[1:]))


def quality() -> list[str]:
    """Scores beside published ones of trees and of TabM."""
    head, *rows = read_table(section("quality"), "data set")
    published = [row for row in rows if row[head.index("TabM")] != "-"]
    columns = ("data set", "score", "LoMETab, test", "TabM", "CatBoost")
    return _pick([head, *published], columns)


def serving() -> list[str]:
    """The same files behind other servers."""
    rows = read_table(section("serving"), "server")
    return _pick(rows, ("server", "model", "p50, 1 client (ms)", "rows/s, 64 clients"))


def training() -> list[str]:
    """Seconds of an epoch by rows."""
    return _pick(
        read_table(section("train"), "rows"), ("rows", "epoch", "a row", "memory")
    )


def memory() -> list[str]:
    """What a job took, beside what was estimated for it."""
    rows = read_table(section("estimate"), "shape")
    columns = ("shape", "rows, columns, settings", "job: estimated / measured")
    return _pick(rows, columns)


def write_readme(text: str) -> str:
    """The README with today's figures in their place."""
    before, _, rest = text.partition(_BEGIN)
    _, mark, after = rest.partition(_END)
    if not mark:
        raise LookupError(f"README.md has no {_BEGIN} ... {_END}")
    return f"{before}{_BEGIN}\n{_figures()}\n{_END}{after}"


def _figures() -> str:
    soak, coverage = section("soak"), section("coverage")
    wrong = dict(read_table(soak, "what went wrong")[1:])
    n_faults = find(r"(\d+) faults at random", soak)
    minutes = round(float(find(r"([\d.]+) minutes of mixed load", soak)))
    covered = find(r"(\d+ of \d+) cells meet the bar", coverage)
    both_sides = find(r"(\d+ of \d+) of intervals and smallest sets", coverage)
    at_least = find(r"(\d+ of \d+) of adaptive sets hold at least", coverage)
    n_splits = find(r"on (\d+) random splits", coverage)
    seeds = find(r"trained with (\w+) seeds", section("quality"))
    jobs = f"{wrong['lost']} jobs lost, {wrong['doubled']} doubled, {wrong['wrong']}"
    lines = [
        f"- **Nothing is lost.** {minutes} minutes of mixed load with {n_faults} "
        f"kills, freezes and wiped queues: {jobs} wrong answers.",
        f"- **Intervals and sets cover what they promise**, in {covered} settings of "
        f"data set, method and coverage, over {n_splits} random splits each: "
        f"intervals and smallest sets to within 3 standard errors ({both_sides}), "
        f"adaptive sets at least as much ({at_least}).",
        f"- **Its scores are those of strong models**, if not always the best: the "
        f"mean of {seeds} seeds on test rows, beside published scores.",
        "",
        *quality(),
    ]
    return "\n".join(lines).rstrip()
