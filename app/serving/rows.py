"""Rows as clients send them, read in chunks: JSON, CSV, Arrow, Parquet or Excel.

Every kind has `names` and `chunks`, and can be gone through more than once: first to
find what is wrong with it, then to answer it. What is wrong is a DataError.
"""

import codecs
import io
import reprlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import orjson
import pyarrow as pa

from app.errors import TooLarge
from app.settings import get_settings
from lometab.errors import DataError, FileTooLarge
from lometab.table import (
    MAX_VALUE,
    ArrowFile,
    Dialect,
    Expected,
    Limits,
    ParquetInput,
    ParquetTable,
    ReadOptions,
    as_csv,
    check_batch,
    find_layout,
    kept_type,
    measure_column,
    read_json_lines,
    read_records,
    write_sheet,
)

Kind = Literal["json", "lines", "csv", "arrow", "parquet", "xlsx"]
KINDS: dict[str, Kind] = {
    "application/json": "json",
    "application/x-ndjson": "lines",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
"""Media types of the bodies that are read."""

Body = bytes | Path
"""What was sent: in memory if it is small, else in a file."""
Chunk = tuple[dict[str, Any], int]
"""The values of each column, and the number of rows."""


class Rows(Protocol):
    """A table that was sent."""

    @property
    def names(self) -> Collection[str]: ...

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        """The wanted columns there are, at most `size` rows at a time."""


def open_rows(
    body: Body,
    kind: Kind,
    known: Collection[str],
    charset: str = "",
    *,
    trained: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
) -> Rows:
    """The rows of a body that is not JSON; the arguments are those of `CsvRows`."""
    if kind == "lines":
        content = body if isinstance(body, bytes) else body.read_bytes()
        check_lists(content)
        with _refusing("JSON lines"):
            return Records(read_json_lines(content.decode("utf-8-sig")))
    if kind == "csv":
        return CsvRows(body, known, charset, trained=trained, options=options)
    if kind == "xlsx":
        return _open_sheet(body, known, options or ReadOptions())
    return ParquetRows(body) if kind == "parquet" else ArrowRows(body)


# ----------------------------------------------------------------------------
# JSON


def read_json(body: Body) -> tuple[Rows, dict[str, Any]]:
    """The rows, and what else the object holds."""
    content = body if isinstance(body, bytes) else body.read_bytes()
    check_lists(content)
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        hint = ""
        if b"NaN" in content[max(0, error.pos - 3) : error.pos + 3]:
            hint = "; JSON has no NaN, a missing value is null"
        raise DataError(f"the body is no JSON: {error}{hint}") from None
    if isinstance(found, list):
        return Records(found), {}
    if not isinstance(found, dict):
        raise DataError('the body must be an object such as {"rows": [{...}]}')
    if "rows" in found:
        if "columns" in found or "data" in found:
            raise DataError("send either `rows`, or `columns` and `data`")
        return Records(found.pop("rows")), found
    if "columns" not in found or "data" not in found:
        raise DataError(
            'send {"rows": [{...}]}, or {"columns": [...], "data": [[...]]}'
        )
    matrix = Matrix(found.pop("columns"), found.pop("data"))
    if isinstance(found.get("index"), list):
        found.pop("index")  # as pandas' to_json(orient="split") writes it
    return matrix, found


def check_lists(content: bytes) -> None:
    """Refuse JSON that is lists in lists: as objects they take thirty times their
    bytes, and nothing else is done while millions of them are made.

    A row is one of them; as many again may be in texts.
    """
    most = 2 * get_settings().max_predict_rows
    if len(content) <= most:
        return
    if content.count(b"[") + content.count(b"{") > most:
        raise TooLarge(
            f"the JSON has more than {most} lists and objects; send the rows in parts"
        )


class Records:
    """One object for each row. A column may be absent from some of them."""

    def __init__(self, rows: Any) -> None:
        if not isinstance(rows, list):
            raise DataError("rows must be a list of objects")
        _refuse_none(rows)
        for i, row in enumerate(rows, start=1):
            if not isinstance(row, dict):
                raise DataError(
                    f"row {i} must be an object with a value for each column, however "
                    f"it is {_shown(row)}"
                )
        self._rows = rows
        self.only: dict[str, Any] | None = rows[0] if len(rows) == 1 else None
        """The row, if there is but one."""
        self.names: Collection[str] = self.only or _union(rows)

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        names = [name for name in wanted if name in self.names]
        for start in range(0, len(self._rows), size):
            rows = self._rows[start : start + size]
            yield {name: [row.get(name) for row in rows] for name in names}, len(rows)


class Matrix:
    """Names once, then a list of values for each row."""

    def __init__(self, names: Any, data: Any) -> None:
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise DataError("columns must be a list of names")
        _refuse_doubles(names)
        if not isinstance(data, list):
            raise DataError("data must be a list of lists of values")
        _refuse_none(data)
        for i, row in enumerate(data, start=1):
            if not isinstance(row, list) or len(row) != len(names):
                raise DataError(
                    f"row {i} of data must be a list of {len(names)} values, however "
                    f"it is {_shown(row)}"
                )
        self.names: list[str] = names
        self._data = data

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        numbers = {n: i for i, n in enumerate(self.names) if n in wanted}
        for start in range(0, len(self._data), size):
            rows = self._data[start : start + size]
            yield {n: [row[i] for row in rows] for n, i in numbers.items()}, len(rows)


def _refuse_none(rows: Sequence[Any]) -> None:
    if not rows:
        raise DataError("there are no rows to predict")


def _union(rows: Sequence[dict[str, Any]]) -> Collection[str]:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return names


def _shown(value: object) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse_doubles(names: Sequence[str]) -> None:
    if len({*names}) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"column {name!r} is there more than once", column=name)
        seen.add(name)


# ----------------------------------------------------------------------------
# CSV


class CsvRows:
    """A CSV, read as the file that trained the model was. All values are texts; what
    they mean is decided later."""

    def __init__(
        self,
        body: Body,
        known: Collection[str],
        charset: str = "",
        *,
        trained: Mapping[str, Any] | None = None,
        options: ReadOptions | None = None,
    ) -> None:
        """
        Args:
            known: the columns that the model takes.
            charset: of the content type.
            trained: how the training file was read, as the model's metadata tells.
            options: what the request sets.
        """
        dialect = Dialect.from_dict(trained) if trained else None
        with _refusing("CSV"):
            self._layout = find_layout(
                body,
                options or ReadOptions(),
                encoding=_find_encoding(charset) if charset else None,
                expected=Expected(columns=known, dialect=dialect),
                max_bytes=_MAX_DECODED,
            )
        self.names: Sequence[str] = self._layout.names
        self.delimiter = self._layout.dialect.delimiter
        self.warnings: Sequence[str] = self._layout.warnings
        """What was done to the names, and about the encoding."""
        if known and not any(name in self.names for name in known):
            raise self._explain(known, dialect)

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        numbers = [i for i, name in enumerate(self.names) if name in wanted]
        names = [self.names[i] for i in numbers]
        # Rows are counted even if no column is wanted. In a single column, a blank line
        # is a missing value.
        batches = read_records(
            self._layout,
            numbers or [0],
            keep_blank=len(self.names) == 1,
            use_threads=False,
        )
        with _refusing("CSV"):
            yield from _slices(batches, names, size)

    def _explain(self, known: Collection[str], trained: Dialect | None) -> DataError:
        """What was tried, if no column is one that the model takes."""
        used = self._layout.dialect
        as_trained = ""
        if trained is not None and trained.delimiter != used.delimiter:
            as_trained = f", nor by {trained.delimiter!r} as the training file"
        first = "first line" if used.header else "number of columns"
        sample = ", ".join(repr(name[:60]) for name in self.names[:5])
        absent = next(iter(known))
        return DataError(
            f"column {absent!r} is absent from every row, and so is every other that "
            f"the model takes: read by {used.delimiter!r}{as_trained}, the {first} "
            f"gives {sample}; send the columns' names in the first line, or set "
            "`delimiter`, `quote`, `encoding` or `header`",
            column=absent,
        )


_MAX_DECODED = 2**30


def _open_sheet(body: Body, known: Collection[str], options: ReadOptions) -> CsvRows:
    """A sheet of a workbook, as the CSV that it is written out to."""
    written = io.BytesIO()
    with (
        _refusing("an Excel workbook"),
        io.TextIOWrapper(written, "utf-8", newline="", write_through=True) as text,
    ):
        sheet = write_sheet(body, text, options, _SHEET_LIMITS)
        content = written.getvalue()
    rows = CsvRows(content, known, options=as_csv(options))
    if options.sheet is None and len(sheet.names) > 1:
        told = f"the first of {len(sheet.names)} sheets was read, {sheet.name!r}; set "
        rows.warnings = [told + "`sheet` to read another", *rows.warnings]
    return rows


_SHEET_LIMITS = Limits(
    max_rows=sys.maxsize, max_columns=16_384, max_bytes=2**28, max_batch=2**28
)


def _find_encoding(charset: str) -> str:
    try:
        "".encode(charset)  # not all codecs are for texts
        return codecs.lookup(charset).name
    except (LookupError, ValueError):
        raise DataError(f"the charset {charset!r} is not known") from None


# ----------------------------------------------------------------------------
# Arrow and Parquet


class ArrowRows:
    """A stream of Arrow's record batches."""

    what = "Arrow stream"
    opens: ClassVar[type[ArrowFile] | type[ParquetInput]] = ArrowFile

    def __init__(self, body: Body) -> None:
        with _refusing(self.what):
            self._file = self.opens(body, _LIMITS)
            self.names: Sequence[str] = self._file.schema.names
        self.n_rows = self._file.n_rows
        _refuse_doubles(self.names)

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        numbers = [i for i, name in enumerate(self.names) if name in wanted]
        names = [self.names[i] for i in numbers]
        for i, name in zip(numbers, names, strict=True):
            kept_type(self._file.schema.field(i).type, name)
        if not names and self.n_rows is not None:
            for start in range(0, self.n_rows, size):
                yield {}, min(size, self.n_rows - start)
            return
        with _refusing(self.what):
            batches = self._file.batches(numbers, size)
            yield from _slices(batches, names, size) if names else _count(batches, size)


class ParquetRows(ArrowRows):
    """A Parquet file."""

    what = "Parquet file"
    opens = ParquetInput


_LIMITS = Limits(
    max_rows=sys.maxsize,
    max_columns=sys.maxsize,
    max_bytes=sys.maxsize,
    max_batch=2**28,
)
"""Of rows that are in memory together; how many there may be is a setting."""
_STRING = pa.string()


class StoredRows:
    """A table that is kept: its texts are as they were in the file."""

    def __init__(self, table: ParquetTable, delimiter: str | None) -> None:
        """
        Args:
            delimiter: of the CSV that it was; None: it was none.
        """
        self._table, self.delimiter = table, delimiter
        self.names: Collection[str] = [*table]

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        names = [name for name in self.names if name in wanted]
        for batch in self._table.rows(0, self._table.n_rows, names, size):
            yield dict(zip(names, batch.columns, strict=True)), batch.num_rows


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """What Arrow says of a body that it cannot read becomes a DataError."""
    try:
        yield
    except FileTooLarge as error:  # not the body, which has a limit of its own
        raise DataError(str(error)) from None
    except (pa.ArrowException, OSError, UnicodeError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise DataError(f"the body cannot be read as {what}: {lines[0]}") from None


def _slices(
    batches: Iterable[pa.RecordBatch], names: list[str], size: int
) -> Iterator[Chunk]:
    """Chunks of one size, whatever that of the batches is; the last may be smaller."""
    held: list[pa.RecordBatch] = []
    n_held = n_bytes = 0
    for batch in batches:
        held.append(batch)
        n_bytes += batch.nbytes
        check_batch(n_bytes, _LIMITS)
        n_held += batch.num_rows
        if n_held < size:
            continue
        table = pa.Table.from_batches(held)
        whole = n_held - n_held % size
        for start in range(0, whole, size):
            yield _chunk(table.slice(start, size), names)
        held = table.slice(whole).to_batches()
        n_held -= whole
        n_bytes = sum(each.nbytes for each in held)
    if n_held:
        yield _chunk(pa.Table.from_batches(held), names)


def _count(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[Chunk]:
    """Chunks of rows without columns, of which Arrow's tables lose count."""
    n_held = 0
    for batch in batches:
        n_held += batch.num_rows
        while n_held >= size:
            yield {}, size
            n_held -= size
    if n_held:
        yield {}, n_held


def _chunk(table: pa.Table, names: list[str]) -> Chunk:
    """A dictionary stays one, within what its texts would take if written out."""
    n_rows = table.num_rows
    found: dict[str, Any] = {}
    n_bytes = 0
    max_bytes = _LIMITS.max_batch // 4
    is_small = table.nbytes <= min(MAX_VALUE, max_bytes)
    for name, column in zip(names, table.columns, strict=True):
        values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0)
        if is_small and values.type == _STRING:
            found[name] = values
            continue
        n_bytes += measure_column(values, name)
        check_batch(n_bytes, replace(_LIMITS, max_batch=max_bytes))
        found[name] = _simple(values)
    return found, n_rows


def _simple(column: pa.Array) -> pa.Array:
    """The same values in a type that has all kernels."""
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column
