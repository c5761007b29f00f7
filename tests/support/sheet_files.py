"""Excel workbooks as people have them, for the table of hostile files."""

import datetime as dt
from typing import Any

from tests.support.hostile_files import BAD, Case
from tests.support.workbooks import END, HEAD, SHEET, replace_part, write_workbook

ROWS: list[list[Any]] = [
    ["shop", "x", "y"],
    *([f"shop {i % 4}", i + 0.5, i % 7] for i in range(60)),
]
NAMES = [f"shop {i}" for i in range(4)]
PLAIN = write_workbook(ROWS)
XLSX = {"format": "xlsx", "sheet": "Data"}


def column(name: str, values: list[Any]) -> bytes:
    """A column of such cells beside numbers."""
    cells = [[values[i % len(values)], i % 7] for i in range(60)]
    return write_workbook([[name, "y"], *cells])


SHEETS = [
    Case(
        "a workbook", PLAIN, n_rows=60, found=XLSX, cells={"shop": NAMES, "x": ["0.5"]}
    ),
    Case(
        "a workbook of several sheets",
        write_workbook(ROWS, others={"Notes": [["read me"]]}),
        n_rows=60,
        found=XLSX,
        warns="set `sheet`",
    ),
    Case(
        "a sheet, told",
        write_workbook([["read me"]], name="Notes", others={"Data": ROWS}),
        {"sheet": "Data"},
        n_rows=60,
        found=XLSX,
    ),
    Case(
        "a sheet that is not there",
        PLAIN,
        {"sheet": "data"},
        **BAD,
        says="did you mean 'Data'?",
    ),
    Case(
        "a workbook with a title",
        write_workbook([["Report of 2024"], [], *ROWS]),
        n_rows=60,
        found={"skip_lines": 1, "header": True},
        warns="title",
    ),
    Case(
        "a table in the middle of a sheet",
        write_workbook(ROWS, at=(4, 3)),
        n_rows=60,
        cells={"shop": NAMES},
    ),
    Case(
        "a workbook with a total",
        write_workbook([*ROWS, ["Total", 1830, 200]]),
        n_rows=60,
        found={"skip_footer": 1},
    ),
    Case(
        "a workbook with empty rows",
        write_workbook([*ROWS[:30], [], [None, None], *ROWS[30:], [], []]),
        n_rows=60,
        warns="blank lines",
    ),
    Case(
        "dates in a workbook",
        column("day", [dt.date(2024, 1, 1 + i) for i in range(28)]),
        kinds={"day": "datetime"},
        cells={"day": ["2024-01-01"]},
        n_rows=60,
    ),
    Case(
        "moments in a workbook",
        column("at", [dt.datetime(2024, 1, 1, i, 30) for i in range(24)]),
        kinds={"at": "datetime"},
        n_rows=60,
    ),
    Case(
        "times in a workbook",
        column("at", [dt.time(i, 15) for i in range(24)]),
        kinds={"at": "datetime"},
        formats={"at": "h:m"},
        n_rows=60,
    ),
    Case(
        "booleans in a workbook",
        column("ok", [True, False]),
        kinds={"ok": "categorical"},
        looks={"ok": "boolean"},
        cells={"ok": ["true", "false"]},
        n_rows=60,
    ),
    Case(
        "texts that are numbers in a workbook",
        column("x", [f"{i},5 €" for i in range(20)]),
        kinds={"x": "numeric"},
        formats={"x": "1.234,5 €"},
        n_rows=60,
    ),
    Case(
        "errors of formulas in a workbook",
        column("x", [1.5, 2.5, "#N/A", 4.25, 3.5]),
        kinds={"x": "numeric"},
        n_rows=60,
    ),
    Case(
        "formulas that were never computed",
        column("x", ["=1+1"]),
        looks={"x": "empty"},
        n_rows=60,
    ),
    Case(
        "newlines and quotes in a workbook",
        column("c", ['a "b"\nc', "d, e"]),
        kinds={"c": "categorical"},
        cells={"c": ['a "b"\nc', "d, e"]},
        n_rows=60,
    ),
    Case("a workbook without a cell", write_workbook([]), **BAD, says="is empty"),
    Case(
        "a workbook cut short",
        PLAIN[: len(PLAIN) // 2],
        status=415,
        code="unsupported_media_type",
        says="damaged",
    ),
    Case(
        "a workbook of one endless row",
        replace_part(PLAIN, SHEET, HEAD + b"<row>" + b"<c/>" * 5_000_000),
        status=413,
        code="too_large",
        says="beyond the limit",
    ),
    Case(
        "a workbook that declares entities",
        replace_part(PLAIN, SHEET, b"<!DOCTYPE x>" + HEAD + END),
        **BAD,
        says="entities",
    ),
    Case(
        "a sheet of a CSV",
        b"a,b\n1,2\n",
        {"sheet": "Data"},
        **BAD,
        says="`sheet` is for Excel",
    ),
]
