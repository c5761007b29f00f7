"""What a file is: one function for the service, the command and whoever else asks."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from lometab.table.dialect import ReadOptions
from lometab.table.profile import Profile, profile_table
from lometab.table.reading import Reading, read_file

_INSIDE = ("names", "n_rows", "n_bytes", "first_line", "warnings")
"""What a reading has that is shown elsewhere, or nowhere."""


def examine_file(
    source: Path, target: Path, options: ReadOptions, **limits: Any
) -> tuple[Reading, Profile]:
    """Read a file, write its table as Parquet, and look at what is in it.

    Args:
        limits: `max_bytes`, `max_columns`, `max_rows` and `expected` of `read_file`.
    """
    reading = read_file(source, target, options, **limits)
    return reading, profile_table(target, reading, options)


def describe_file(
    source: Path, target: Path, options: ReadOptions, **limits: Any
) -> dict[str, Any]:
    """The same as the service shows a dataset, fit for JSON."""
    reading, profile = examine_file(source, target, options, **limits)
    state, shown = asdict(reading), profile.to_dict()
    return {
        "n_rows": reading.n_rows,
        "n_columns": len(reading.names),
        "read_options": asdict(options),
        "reading": {n: value for n, value in state.items() if n not in _INSIDE},
        **shown,
        "columns": [_describe(column) for column in shown["columns"]],
    }


def _describe(column: dict[str, Any]) -> dict[str, Any]:
    for name in ("top", "missing_words"):
        if column[name] is not None:
            pairs = column[name]
            column[name] = [{"value": value, "count": n} for value, n in pairs]
    return column
