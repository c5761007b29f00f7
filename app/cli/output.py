"""What commands print: tables and lines for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs, and nothing else.")
]


def get_console() -> Console:
    """Lines for a program to read are not folded."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=300)


def complain(text: str) -> None:
    """Say what is wrong, on standard error."""
    Console(stderr=True, highlight=False).print(
        f"[bold red]lometab:[/] {_escape(text)}", soft_wrap=True
    )


def note(text: str) -> None:
    """Say something beside the answer, on standard error."""
    Console(stderr=True, highlight=False).print(_escape(text), soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    sys.stdout.write("\n")


def print_lines(*lines: str) -> None:
    console = get_console()
    for line in lines:
        console.print(line, soft_wrap=True)


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], empty: str
) -> None:
    """A table, or one sentence if there is nothing in it.

    Args:
        columns: the head of each column, and the field that it shows.
    """
    if not rows:
        print_lines(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in columns:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(_escape(to_text(_find(row, n))) for n in columns.values()))
    console = get_console()
    console.print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values below each other."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _escape(to_text(value)))
    get_console().print(table)


def _find(row: Mapping[str, Any], path: str) -> Any:
    found: Any = row
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def to_text(value: Any) -> str:
    """
    >>> to_text([1, 0.123456789, None, "x"])
    '1, 0.1235, -, x'
    """
    if value is None or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {to_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(to_text, value))
    return str(value)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


# ----------------------------------------------------------------------------
# Charts


def draw_reliability(bins: Sequence[Mapping[str, Any]], width: int = 40) -> list[str]:
    """The reliability diagram: for each bin of confidence how often it was right.

    A bar is as long as the accuracy; the mark `|` is where it would be if confidence
    told the truth.
    """
    lines = ["confidence    accuracy (bar) against confidence (|)          rows"]
    for each in bins:
        if not each["count"]:
            continue
        accuracy, confidence = each["accuracy"], each["confidence"]
        bar = ["█" if i < round(accuracy * width) else "·" for i in range(width)]
        bar[min(width - 1, round(confidence * width))] = "|"
        about = f"{each['lower']:.2f}-{each['upper']:.2f}"
        lines.append(
            f"{about:>10}    {''.join(bar)} {accuracy:6.3f} {each['count']:>6}"
        )
    return lines


def draw_coverage(intervals: Sequence[Mapping[str, Any]], width: int = 40) -> list[str]:
    """The same of conformal intervals: how many rows lie in them, and should."""
    lines = ["  coverage    measured (bar) against asked for (|)            width"]
    for each in intervals:
        asked, measured = each["coverage"], each["measured"]
        bar = ["█" if i < round(measured * width) else "·" for i in range(width)]
        bar[min(width - 1, round(asked * width))] = "|"
        size = to_text(each["mean_width"])
        lines.append(f"{asked:>10.2f}    {''.join(bar)} {measured:6.3f} {size:>8}")
    return lines
