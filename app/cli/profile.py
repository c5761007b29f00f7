"""`lometab profile`: what a file is, without a service."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import (
    AsJson,
    note,
    print_facts,
    print_json,
    print_lines,
    print_rows,
)


def add(cli: typer.Typer) -> None:
    cli.command()(profile)


def profile(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV, Parquet, Arrow or JSON.")
    ],
    as_json: AsJson = False,
) -> None:
    """How a file would be read and what each column would be used as.

    It is what the service finds when the file is uploaded.
    """
    from lometab.errors import DataError
    from lometab.table import ReadOptions, describe_file

    if not file.is_file():
        raise DataError(f"there is no file {str(file)!r}")
    with tempfile.TemporaryDirectory(prefix="lometab-") as folder:
        found = describe_file(file, Path(folder) / "table.parquet", ReadOptions())
    if as_json:
        print_json(found)
    else:
        print_profile(found)


def print_profile(found: Mapping[str, Any], *, id_: str | None = None) -> None:
    """For people: how it was read, the columns, and what to think of."""
    reading = found["reading"]
    guesses = {
        name: guess["value"]
        for name, guess in reading.items()
        if isinstance(guess, dict) and "value" in guess
    }
    print_facts(
        {
            **({} if id_ is None else {"dataset": id_}),
            "rows": found["n_rows"],
            "columns": found["n_columns"],
            "format": reading["format"],
            **guesses,
        }
    )
    print_lines("")
    print_rows(
        [_describe(column) for column in found["columns"]],
        {
            "column": "name",
            "used as": "kind",
            "missing": "missing",
            "distinct": "n_distinct",
            "values": "values",
            "note": "note",
        },
        "the file has no columns",
    )
    for each in found["suggestions"][:3]:
        print_lines(f"target? {each['target']} ({each['task']}): {each['why']}")
    for warning in found["warnings"]:
        note(f"warning: {warning}")


def _describe(column: Mapping[str, Any]) -> dict[str, Any]:
    values: Any = column["range"]
    if values is not None:
        values = f"{values[0]:.6g} to {values[1]:.6g}"
    elif column["top"]:
        values = [each["value"] for each in column["top"][:3]]
    return {
        **column,
        "missing": f"{100 * column['missing_share']:.1f} %",
        "values": values,
        "note": column["reason"] or column["note"],
    }
