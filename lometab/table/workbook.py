"""Excel workbooks: one sheet, written out as a CSV that the reader of CSVs takes.

So titles above the header, units, totals, texts that are numbers and all else that
people do in spreadsheets are found as in any file. openpyxl reads the workbook row by
row; before it does, everything that it would hold in memory is measured.
"""

import csv
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from xml.etree.ElementTree import ParseError

from lometab.errors import DataError, FileTooLarge, suggest
from lometab.table.arrow import Limits
from lometab.table.dialect import ReadOptions

_BLOCK = 2**20
_MAX_PART = 2**24
"""Bytes of a part that is parsed as a whole, and between two rows of a sheet: as
objects they take many times that."""
_MAX_PARTS = 1000
_MAX_UNPACKED = 2**31
_MAX_ROWS = 2**20
"""As many as a sheet can have."""
_ENDS = re.compile(rb"</(?:\w+:)?(?:row|si)\s*>|<(?:\w+:)?(?:row|si)\b[^<>]{0,1000}/>")
"""The end of a row, or of a shared text."""
_LONG = re.compile(r"(.*/)?(sharedStrings\.xml|worksheets/[^/]*\.xml)", re.IGNORECASE)
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, ParseError, EOFError, OSError),
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
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with zipfile.ZipFile(source) as archive:
            _measure(archive, min(limits.max_bytes, _MAX_UNPACKED))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of charts and formats that are not read
            book = load_workbook(
                source, read_only=True, data_only=True, keep_links=False
            )
            try:
                sheet = _choose(book.worksheets, options.sheet)
                _write_cells(sheet, target, limits)
                return Sheet(sheet.title, tuple(each.title for each in book.worksheets))
            finally:
                book.close()
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
# Before it is unpacked


def _measure(archive: zipfile.ZipFile, max_bytes: int) -> None:
    """Refuse a workbook that would take much more memory than a table may."""
    parts = [each for each in archive.infolist() if _is_read(each.filename)]
    if len(parts) > _MAX_PARTS:
        raise FileTooLarge(f"the workbook has more than {_MAX_PARTS} parts")
    # zipfile gives no more than a part says that it has.
    n_bytes = sum(part.file_size for part in parts)
    if n_bytes > max_bytes:
        raise FileTooLarge(
            f"the workbook unpacks to {n_bytes} bytes, beyond the limit of {max_bytes}"
        )
    for part in parts:
        _measure_part(archive, part)


def _is_read(name: str) -> bool:
    return name.lower().endswith((".xml", ".rels"))


def _measure_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    is_long = _LONG.fullmatch(part.filename) is not None
    if part.file_size > _MAX_PART and not is_long:
        raise FileTooLarge(
            f"the part {part.filename[:100]!r} of the workbook has {part.file_size} "
            f"bytes, beyond the limit of {_MAX_PART}"
        )
    n_since, tail = 0, b""
    with archive.open(part) as file:
        while block := file.read(_BLOCK):
            text = tail + block
            if b"<!" in text and re.search(rb"<!(DOCTYPE|ENTITY)", text):
                raise DataError(
                    f"the part {part.filename[:100]!r} of the workbook declares "
                    "entities, which no spreadsheet does"
                )
            if text.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in block:
                raise DataError("the workbook is not written in UTF-8")
            last = 0
            for match in _ENDS.finditer(text):
                last = match.end()
            n_since = len(text) - last if last else n_since + len(block)
            if n_since > _MAX_PART:
                raise FileTooLarge(
                    f"a row or a text of the workbook is longer than {_MAX_PART} bytes"
                )
            tail = text[max(last, len(text) - 2000) :]


# ----------------------------------------------------------------------------
# Cells


def _choose(sheets: Sequence[Any], name: str | None) -> Any:
    if not sheets:
        raise DataError("the workbook has no sheet with cells")
    if name is None:
        return sheets[0]
    titles = [sheet.title for sheet in sheets]
    if name not in titles:
        raise DataError(
            f"the workbook has no sheet {name!r}{suggest(name, titles)}; its sheets "
            f"are {', '.join(map(repr, titles[:20]))}"
        )
    return sheets[titles.index(name)]


def _write_cells(sheet: Any, target: IO[str], limits: Limits) -> None:
    """All rows as wide as the widest, without empty columns left and right of them.

    An empty row is a blank line, so that the lines are numbered as the rows are."""
    with TemporaryFile("w+", encoding="utf-8", newline="") as file:
        first, width, n_rows = _spool(sheet, file, limits)
        if not n_rows:
            raise DataError(
                f"the sheet {sheet.title!r} is empty; set `sheet` to another one"
            )
        file.seek(0)
        writer = csv.writer(target, lineterminator="\n")
        # A field may be as long as a part of the workbook.
        for _, row in zip(range(n_rows), csv.reader(file), strict=False):
            cells = row[first:]
            writer.writerow(cells + [""] * (width - len(cells)) if cells else [])


def _spool(sheet: Any, file: IO[str], limits: Limits) -> tuple[int, int, int]:
    """The first column that is used, the number of columns from there on, and the
    number of rows to the last that is not empty."""
    sheet.reset_dimensions()  # what a file says of them may be wrong
    writer = csv.writer(file, lineterminator="\n")
    first, end, n_rows = limits.max_columns, 0, 0
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        texts = [_write_cell(cell) for cell in cells]
        while texts and not texts[-1]:
            texts.pop()
        writer.writerow(texts)
        if texts:
            first = min(first, next(i for i, text in enumerate(texts) if text))
            end, n_rows = max(end, len(texts)), number
        _check(number, end - first, file, limits)
    return first, end - first, n_rows


def _check(n_rows: int, n_columns: int, file: IO[str], limits: Limits) -> None:
    most = min(limits.max_rows, _MAX_ROWS)
    if n_rows > most:
        raise FileTooLarge(f"the sheet has more than {most} rows")
    if n_columns > limits.max_columns:
        raise FileTooLarge(
            f"the sheet has {n_columns} columns, beyond the limit of "
            f"{limits.max_columns}"
        )
    if n_rows % 1000 == 0 and file.tell() > limits.max_bytes:
        raise FileTooLarge(f"the sheet has more than {limits.max_bytes} bytes")


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
    return str(value).replace("_x000D_", "").replace("\r\n", "\n")
