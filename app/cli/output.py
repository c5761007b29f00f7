"""What commands print: tables and lines for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs, and nothing else.")
]


MAX_NAME = 32
"""Names up to so long are not folded."""
MIN_FOLDED = 10
"""A column that is folded is not narrower."""


def refuse_options(context: typer.Context) -> None:
    """Options of a list, given before a command of the same group, would be lost."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            command = f"{context.command_path} {context.invoked_subcommand}"
            raise typer.BadParameter(
                f"give it after the command: {command} ... {parameter.opts[0]}",
                param_hint=parameter.opts[0],
            )


def get_console() -> Console:
    """Lines for a program to read are not folded."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=300)


def complain(text: str) -> None:
    """Say what is wrong, on standard error."""
    _say(f"[bold red]lometab:[/] {_escape(text)}")


def note(text: str) -> None:
    """Say something beside the answer, on standard error."""
    _say(_escape(text))


def _say(markup: str) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(markup, soft_wrap=not console.is_terminal)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    sys.stdout.write("\n")


def print_done(value: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """What was done: a line for people, or the same for programs."""
    if as_json:
        print_json(value)
    else:
        print_text(text)


def print_lines(*lines: str) -> None:
    console = get_console()
    for line in lines:
        console.print(_escape(line), soft_wrap=True)


def print_text(text: str) -> None:
    """Sentences: in a terminal folded between words, where a line that is there to be
    copied is not."""
    console = get_console()
    console.print(_escape(text), soft_wrap=not console.is_terminal)


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    empty: str,
    *,
    spare: Sequence[str] = (),
) -> None:
    """A table, or one sentence if there is nothing in it.

    Ids are never folded: they are there to be copied. Where there is no room for them
    side by side, each row is a paragraph.

    Args:
        columns: the head of each column, and the field that it shows.
        spare: columns that are left out where the terminal is too narrow, first those
            that are missed least.
    """
    if not rows:
        print_lines(empty)
        return
    console = get_console()
    shown, left_out = dict(columns), [*spare]
    table = _make_table(rows, shown, console.is_terminal)
    while left_out and _measure(console, table) > console.width:
        del shown[left_out.pop(0)]
        table = _make_table(rows, shown, console.is_terminal)
    if _measure_least(console, table) <= console.width:
        console.print(table)
        return
    for i, row in enumerate(rows):
        cells = {head: _to_cell(row, field, True) for head, field in columns.items()}
        print_lines(*([""] if i else []))
        print_facts(cells)


def _make_table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], for_people: bool
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, field in columns.items():
        is_whole = field == "id" or field.endswith("_id") or _is_short(rows, field)
        table.add_column(head, overflow="fold", no_wrap=is_whole)
    for row in rows:
        table.add_row(
            *(_escape(_to_cell(row, field, for_people)) for field in columns.values())
        )
    return table


def _is_short(rows: Sequence[Mapping[str, Any]], field: str) -> bool:
    """Whether it is a name, and none too long to stand in one line."""
    return field == "name" and max(len(str(row[field])) for row in rows) <= MAX_NAME


def _measure(console: Console, table: Table) -> int:
    """Columns of the terminal that it would need to fold nothing."""
    options = console.options.update(width=10_000)
    return console.measure(table, options=options).maximum


def _measure_least(console: Console, table: Table) -> int:
    """Columns that it needs for what is not folded, and a little for the rest."""
    least = 0
    for column in table.columns:
        cells = (*column.cells, column.header)
        widest = max(console.measure(str(cell)).maximum for cell in cells)
        least += widest if column.no_wrap else min(widest, MIN_FOLDED)
    return least + 2 * (len(table.columns) - 1)


def _to_cell(row: Mapping[str, Any], field: str, for_people: bool) -> str:
    value = _find(row, field)
    if for_people and field.endswith("_at") and value is not None:
        return describe_age(str(value), datetime.now(UTC))
    return to_text(value)


def describe_age(moment: str, now: datetime) -> str:
    """
    >>> describe_age("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, 5, tzinfo=UTC))
    '5 min ago'
    """
    then = datetime.fromisoformat(moment)
    seconds = (now - then).total_seconds()
    if not 0 <= seconds < 86400:
        return f"{then:%Y-%m-%d %H:%M}"
    if seconds < 60:
        return "just now"
    return (
        f"{seconds / 60:.0f} min ago"
        if seconds < 3600
        else f"{seconds / 3600:.0f} h ago"
    )


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
    """As it is shown: no markup, and nothing of a file that steers a terminal."""
    from rich.markup import escape

    plain = (
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return escape("".join(plain))


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
