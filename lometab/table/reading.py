"""From a file as people have it to a table as we keep it: Parquet, value for value.

Everything about the file is detected, can be set instead, and is reported. Rows are
never dropped or shifted: the table has as many rows as the file has records, or a
DataError names the line.

The texts of a CSV are kept as they are; what they mean is decided later, by whole
columns.
"""

import io
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lometab.errors import DataError, FileTooLarge, FileTypeError
from lometab.table.arrow import (
    ArrowFile,
    Limits,
    ParquetInput,
    check_table,
    keep,
    kept_type,
    measure_column,
)
from lometab.table.dialect import Dialect, Expected, Guess, ReadOptions
from lometab.table.headers import distinguish
from lometab.table.json_rows import read_json_table
from lometab.table.layout import find_layout
from lometab.table.parquet import GROUP_BYTES, ParquetTable, write_table
from lometab.table.records import key_of, read_records
from lometab.table.scan import BLOCK, clip
from lometab.table.values import BLANKS
from lometab.table.workbook import as_csv, is_workbook, write_sheet

Compression = Literal["gzip", "zstd"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a file turned out to be."""

    format: Literal["csv", "parquet", "arrow", "json", "xlsx"]
    compression: Compression | None
    names: tuple[str, ...]
    n_rows: int
    n_bytes: int
    """Of the table in memory."""
    encoding: Guess | None = None
    delimiter: Guess | None = None
    quote: Guess | None = None
    header: Guess | None = None
    skip_lines: Guess | None = None
    skip_footer: Guess | None = None
    first_line: int | None = None
    """The line of the first row, if then each row has a line of its own."""
    sheet: Guess | None = None
    """The name of that of a workbook."""
    warnings: tuple[str, ...] = ()

    @property
    def dialect(self) -> Dialect | None:
        """How it is written, if it is a CSV."""
        guesses = {
            "encoding": self.encoding,
            "delimiter": self.delimiter,
            "quote": self.quote,
            "header": self.header,
        }
        found = {name: each.value for name, each in guesses.items() if each is not None}
        return Dialect(**found) if found else None


def read_file(
    source: Path,
    destination: Path | IO[bytes],
    options: ReadOptions | None = None,
    *,
    scratch: Path | None = None,
    max_bytes: int = sys.maxsize,
    max_columns: int = 10_000,
    max_rows: int = sys.maxsize,
    expected: Expected | None = None,
) -> Reading:
    """Write the table in a CSV, Parquet, Arrow, JSON or Excel file, packed or not, as
    Parquet.

    Args:
        expected: what is known of a file to predict; it decides where it can.
        scratch: a folder for what is unpacked; the system's if None.
        max_bytes: how large the file may be once unpacked.
    """
    limits = Limits(max_rows=max_rows, max_columns=max_columns, max_bytes=max_bytes)
    with tempfile.TemporaryDirectory(prefix="lometab-read-", dir=scratch) as folder:
        return _read_file(
            source,
            destination,
            options or ReadOptions(),
            limits,
            Path(folder),
            expected,
        )


def _read_file(
    source: Path,
    destination: Path | IO[bytes],
    options: ReadOptions,
    limits: Limits,
    folder: Path,
    expected: Expected | None,
) -> Reading:
    compression = _find_compression(source)
    if compression is not None:
        source = _unpack(source, folder / "unpacked", compression, limits.max_bytes)
    kind = _find_format(source)
    if options.sheet is not None and kind != "xlsx":
        raise DataError(f"`sheet` is for Excel workbooks, and this is {kind.upper()}")
    if kind == "xlsx":
        return _read_workbook(
            source, destination, options, compression, limits, folder, expected
        )
    if kind == "csv":
        return _read_csv(source, destination, options, compression, limits, expected)
    if kind == "json":
        return _read_json(source, destination, compression, limits)
    return _read_arrow(source, destination, kind, compression, limits)


def read_csv(content: bytes, options: ReadOptions | None = None) -> ParquetTable:
    """The table in a file's bytes: a CSV, or whatever else `read_file` reads."""
    with tempfile.TemporaryDirectory(prefix="lometab-read-") as folder:
        source = Path(folder) / "file"
        source.write_bytes(content)
        table = io.BytesIO()
        read_file(source, table, options)
    return ParquetTable(table)


# ----------------------------------------------------------------------------
# What kind of file it is


def _start(path: Path, size: int = 8) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _find_compression(path: Path) -> Literal["gzip", "zstd"] | None:
    start = _start(path)
    if start.startswith(b"\x1f\x8b"):
        return "gzip"
    return "zstd" if start.startswith(b"\x28\xb5\x2f\xfd") else None


def _unpack(source: Path, target: Path, compression: str, max_bytes: int) -> Path:
    n_bytes = 0
    try:
        with (
            pa.OSFile(str(source)) as packed,
            pa.CompressedInputStream(packed, compression) as stream,
            target.open("wb") as file,
        ):
            while block := stream.read(BLOCK):
                n_bytes += len(block)
                if n_bytes > max_bytes:
                    raise FileTooLarge(
                        f"the file unpacks to more than the limit of {max_bytes} bytes"
                    )
                file.write(block)
    except OSError as error:
        raise DataError(
            f"the {compression} file cannot be unpacked, so it is damaged or cut "
            f"short: {clip(str(error))}"
        ) from None
    return target


def _find_format(path: Path) -> Literal["csv", "parquet", "arrow", "json", "xlsx"]:
    start = _start(path, 200)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if start.startswith(b"PK\x03\x04") and is_workbook(path):
        return "xlsx"
    for magic, what in _OTHERS.items():
        if start.startswith(magic):
            raise FileTypeError(
                f"this is {what}; CSV, Parquet, Arrow, JSON and .xlsx are read, plain "
                "or packed with gzip or zstd"
            )
    content = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if re.match(rb'\{\s*("|$)|\[\s*(\{|$)', content):
        return "json"
    for pattern, what in _TEXTS.items():
        if re.match(pattern, content, re.IGNORECASE):
            raise FileTypeError(f"this is {what}")
    return "csv"


_TEXTS = {
    rb"<!doctype html|<html|<head|<script": "an HTML page, perhaps of a login or an "
    "error, and not the file itself; download the file again",
    rb"<\?xml|<[a-z]+:?[a-z]*[ >]": "XML; save the table as CSV",
    rb"version https://git-lfs": "a Git LFS pointer and not the file itself; fetch it "
    "with `git lfs pull`",
}


_OTHERS = {
    b"PK\x03\x04": "a zip file that is damaged or no .xlsx workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook, or one with a password (save it as "
    ".xlsx without one)",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "a 7-zip file",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite f": "a SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"\xff\xfe\x00\x00": "text in UTF-32 (save it as UTF-8)",
}


# ----------------------------------------------------------------------------
# CSV


def _read_csv(
    source: Path,
    destination: Path | IO[bytes],
    options: ReadOptions,
    compression: Compression | None,
    limits: Limits,
    expected: Expected | None,
) -> Reading:
    layout = find_layout(
        source,
        options,
        expected=expected,
        max_bytes=limits.max_bytes,
        max_columns=limits.max_columns,
    )
    check_table(layout.n_rows, 0, limits)
    n_rows, n_bytes = write_table(destination, layout.names, read_records(layout))
    if n_rows != layout.n_rows:
        raise DataError(
            f"the file has {layout.n_rows} records, of which {n_rows} could be read; "
            "please report this with the file"
        )
    if n_rows == 0:
        raise DataError("the file has a header but no rows")
    return Reading(
        format="csv",
        compression=compression,
        names=layout.names,
        n_rows=n_rows,
        n_bytes=n_bytes,
        encoding=layout.guess("encoding"),
        delimiter=layout.guess("delimiter"),
        quote=layout.guess("quote"),
        header=layout.guess("header"),
        skip_lines=layout.skip_lines,
        skip_footer=layout.skip_footer,
        first_line=layout.first_line,
        warnings=layout.warnings,
    )


# ----------------------------------------------------------------------------
# Excel


def _read_workbook(
    source: Path,
    destination: Path | IO[bytes],
    options: ReadOptions,
    compression: Compression | None,
    limits: Limits,
    folder: Path,
    expected: Expected | None,
) -> Reading:
    if expected is not None:  # the training file's dialect is none of a sheet's
        expected = replace(expected, dialect=None)
    written = folder / "sheet.csv"
    with written.open("w", encoding="utf-8", newline="") as target:
        sheet = write_sheet(source, target, options, limits)
    reading = _read_csv(
        written, destination, as_csv(options), compression, limits, expected
    )
    warnings = reading.warnings
    if options.sheet is None and len(sheet.names) > 1:
        others = ", ".join(map(repr, sheet.names[1:11]))
        warnings = (
            f"the workbook has {len(sheet.names)} sheets, of which {sheet.name!r} was "
            f"read and not {others}; set `sheet` to read another",
            *warnings,
        )
    confidence = 1.0 if options.sheet or len(sheet.names) == 1 else 0.5
    return replace(
        reading,
        format="xlsx",
        encoding=None,
        delimiter=None,
        quote=None,
        sheet=Guess(value=sheet.name, confidence=confidence),
        warnings=warnings,
    )


# ----------------------------------------------------------------------------
# JSON


def _read_json(
    source: Path,
    destination: Path | IO[bytes],
    compression: Compression | None,
    limits: Limits,
) -> Reading:
    names, batches, warnings = read_json_table(source, limits)
    n_rows, n_bytes = write_table(destination, names, _within(batches, limits))
    return Reading(
        format="json",
        compression=compression,
        names=tuple(names),
        n_rows=n_rows,
        n_bytes=n_bytes,
        warnings=tuple(warnings),
    )


def _within(
    batches: Iterable[pa.RecordBatch], limits: Limits
) -> Iterator[pa.RecordBatch]:
    n_rows = n_bytes = 0
    for batch in batches:
        n_rows += batch.num_rows
        n_bytes += batch.nbytes
        check_table(n_rows, n_bytes, limits)
        yield batch


# ----------------------------------------------------------------------------
# Parquet and Arrow


def _read_arrow(
    source: Path,
    destination: Path | IO[bytes],
    kind: Literal["parquet", "arrow"],
    compression: Compression | None,
    limits: Limits,
) -> Reading:
    warnings: list[str] = []
    try:
        file: ArrowFile | ParquetInput = (
            ParquetInput(source, limits)
            if kind == "parquet"
            else ArrowFile(source, limits)
        )
        names = _check_schema(file.schema, limits, warnings)
        check_table(file.n_rows or 0, 0, limits)
        batches = _normalise(file, names, limits)
        n_rows, n_bytes = write_table(destination, names, batches)
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"the file holds what is not read: {clip(str(error), 200)}"
        ) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the file cannot be read as {kind.capitalize()}, so it is damaged or cut "
            f"short: {clip(str(error), 200)}"
        ) from None
    if n_rows == 0:
        raise DataError("the file has columns but no rows")
    return Reading(
        format=kind,
        compression=compression,
        names=tuple(names),
        n_rows=n_rows,
        n_bytes=n_bytes,
        warnings=tuple(warnings),
    )


def _check_schema(schema: pa.Schema, limits: Limits, warnings: list[str]) -> list[str]:
    """The names of columns that can all be kept."""
    if len(schema) > limits.max_columns:
        raise FileTooLarge(
            f"the file has {len(schema)} columns, beyond the limit of "
            f"{limits.max_columns}"
        )
    if len(schema) == 0:
        raise DataError("the file has no columns")
    names = distinguish([name.strip(BLANKS) for name in schema.names], warnings)
    for name, field in zip(names, schema, strict=True):
        kept_type(field.type, name)
        if "\0" in name:
            raise DataError("a column's name holds a NUL character")
    return names


def _normalise(
    file: ArrowFile | ParquetInput, names: list[str], limits: Limits
) -> Iterator[pa.RecordBatch]:
    n_rows = n_bytes = 0
    for batch in file.batches(range(len(names))):
        pairs = [*zip(batch.columns, names, strict=True)]
        size = sum(measure_column(column, name) for column, name in pairs)
        n_rows += batch.num_rows
        n_bytes += size
        check_table(n_rows, n_bytes, limits)
        # A dictionary's texts are written out a few megabytes at a time.
        step = max(1, batch.num_rows * GROUP_BYTES // max(size, 1))
        for start in range(0, batch.num_rows, step):
            columns = [
                _without_nul(keep(column.slice(start, step), name), name)
                for column, name in pairs
            ]
            yield pa.record_batch(columns, names=[key_of(i) for i in range(len(names))])


def _without_nul(column: pa.Array, name: str) -> pa.Array:
    is_text = pa.types.is_string(column.type)
    if is_text and pc.any(pc.match_substring(column, "\0")).as_py():
        raise DataError(f"column {name!r} holds NUL characters", column=name)
    return column
