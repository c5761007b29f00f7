"""Excel workbooks: one sheet, written out as a CSV that the reader of CSVs takes.

So titles above the header, units, totals, texts that are numbers and all else that
people do in spreadsheets are found as in any file. openpyxl reads the workbook row by
row; before it does, everything that it would hold in memory is measured
(`workbook_parts.py`). Many cells may share one text: rows are measured before they are
written.
"""

import csv
import io
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError

from lometab.errors import DataError, FileTooLarge, suggest
from lometab.table.arrow import MAX_VALUE, Limits
from lometab.table.dialect import ReadOptions
from lometab.table.scan import clip

_MAX_UNPACKED = 2**31
_MAX_ROWS = 2**20
"""As many as a sheet can have."""
_MAX_ROW = MAX_VALUE
"""Characters of a row, as of a record of a CSV."""
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, ParseError, ExpatError, EOFError, OSError),
    *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    *(NotImplementedError, RuntimeError, AssertionError, OverflowError),
)
"""What zipfile and openpyxl raise for files that are not as they should be."""


@dataclass(frozen=True)
class Sheet:
    """What was read of a workbook."""

    name: str
    names: tuple[str, ...]
    """Of all its sheets."""


def is_workbook(source: Path) -> bool:
    """Whether a zip file holds a workbook."""
    try:
        with zipfile.ZipFile(source) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def write_sheet(
    source: Path | bytes, target: IO[str], options: ReadOptions, limits: Limits
) -> Sheet:
    """Write a sheet as CSV; DataError if it cannot be read."""
    file: IO[bytes]
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        return _write_sheet(file, target, options, limits)


def _write_sheet(
    source: IO[bytes], target: IO[str], options: ReadOptions, limits: Limits
) -> Sheet:
    from openpyxl.utils.exceptions import InvalidFileException

    from lometab.table.workbook_parts import Book

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of charts and formats that are not read
            book = Book(source, min(limits.max_bytes, _MAX_UNPACKED))
            name = _choose(book.names, options.sheet)
            _write_cells(name, book.read_rows(name), target, limits)
            return Sheet(name, book.names)
    except DataError:
        raise
    except (InvalidFileException, *_BROKEN) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"the workbook cannot be read, so it is damaged or protected: {reason}"
        ) from None


def as_csv(options: ReadOptions) -> ReadOptions:
    """The options by which what `write_sheet` wrote is read."""
    return replace(options, encoding="utf-8", delimiter=",", quote='"', sheet=None)


# ----------------------------------------------------------------------------
# Cells


def _choose(titles: Sequence[str], name: str | None) -> str:
    if not titles:
        raise DataError("the workbook has no sheet with cells")
    if name is None:
        return titles[0]
    if name not in titles:
        raise DataError(
            f"the workbook has no sheet {name!r}{suggest(name, titles)}; its sheets "
            f"are {', '.join(repr(clip(title)) for title in titles[:20])}"
        )
    return name


def _write_cells(
    title: str, rows: Iterable[Sequence[object]], target: IO[str], limits: Limits
) -> None:
    """All rows as wide as the widest, without empty columns left and right of them.

    An empty row is a blank line, so that the lines are numbered as the rows are."""
    with TemporaryFile("w+", encoding="utf-8", newline="") as file:
        first, width, n_rows = _spool(rows, file, limits)
        if not n_rows:
            raise DataError(
                f"the sheet {clip(title)!r} is empty; set `sheet` to another one"
            )
        file.seek(0)
        writer = csv.writer(target, lineterminator="\n")
        n_bytes = 0
        for _, row in zip(range(n_rows), csv.reader(file), strict=False):
            cells = row[first:]
            n_bytes += sum(map(len, cells)) + (width if cells else 1)
            _check_bytes(n_bytes, limits)  # a row may be narrow, and have to be filled
            writer.writerow(cells + [""] * (width - len(cells)) if cells else [])


def _spool(
    rows: Iterable[Sequence[object]], file: IO[str], limits: Limits
) -> tuple[int, int, int]:
    """The first column that is used, the number of columns from there on, and the
    number of rows to the last that is not empty."""
    writer = csv.writer(file, lineterminator="\n")
    first, end, n_rows, n_bytes = limits.max_columns, 0, 0, 0
    for number, cells in enumerate(rows, start=1):
        n_bytes += _measure(cells, number)
        _check_bytes(n_bytes, limits)
        texts = [_write_cell(cell) for cell in cells]
        while texts and not texts[-1]:
            texts.pop()
        writer.writerow(texts)
        if texts:
            first = min(first, next(i for i, text in enumerate(texts) if text))
            end, n_rows = max(end, len(texts)), number
        _check(number, end - first, limits)
    return first, end - first, n_rows


def _measure(cells: Sequence[object], number: int) -> int:
    """About how long a row is; one that is too long is refused while it is not yet
    written, as many cells may have one text in common."""
    n_bytes = sum([len(cell) if isinstance(cell, str) else 8 for cell in cells])
    if n_bytes > _MAX_ROW:
        raise DataError(
            f"row {number} of the sheet has more than {_MAX_ROW >> 20} MiB", line=number
        )
    return n_bytes


def _check_bytes(n_bytes: int, limits: Limits) -> None:
    if n_bytes > limits.max_bytes:
        raise FileTooLarge(f"the sheet has more than {limits.max_bytes} bytes")


def _check(n_rows: int, n_columns: int, limits: Limits) -> None:
    if n_rows > min(limits.max_rows, _MAX_ROWS):
        most = min(limits.max_rows, _MAX_ROWS)
        raise FileTooLarge(f"the sheet has more than {most} rows")
    if n_columns > limits.max_columns:
        raise FileTooLarge(
            f"the sheet has {n_columns} columns, beyond the limit of "
            f"{limits.max_columns}"
        )


def _write_cell(value: object) -> str:
    """A value as the plain text that the reader takes for the same."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(int(value) if value.is_integer() and abs(value) < 1e15 else value)
    if isinstance(value, datetime):
        is_day = value.time() == time()
        return value.date().isoformat() if is_day else value.isoformat(" ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return repr(value.total_seconds())
    text = str(value).replace("_x000D_", "")
    return text.replace("\r\n", "\n").replace("\r", "\n")  # which would end a line
