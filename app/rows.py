"""Rows as clients send them, read in chunks: JSON, CSV, Arrow or Parquet.

Every kind has `names` and `chunks`, and can be gone through more than once: first to
find what is wrong with it, then to answer it. What is wrong is a DataError.
"""

import codecs
import csv
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
from flatbuffers.table import Table

from lometab.errors import DataError

Kind = Literal["json", "csv", "arrow", "parquet"]
KINDS: dict[str, Kind] = {
    "application/json": "json",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.parquet": "parquet",
}
"""Media types of the bodies that are read."""

Body = bytes | Path
"""What was sent: in memory if it is small, else in a file."""
Chunk = tuple[dict[str, Any], int]
"""The cells of each column, and the number of rows."""

_BLOCK = 2**22  # bytes of a CSV that are parsed at a time; a record must fit in
_HEADER = 2**20
_MAX_BATCH = 2**28  # bytes of rows that are in memory together
_OLD_COMPRESSION = b"ARROW:experimental_compression"
_DELIMITERS = ",;\t|"


class Rows(Protocol):
    """A table that was sent."""

    @property
    def names(self) -> Collection[str]: ...

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        """The wanted columns there are, at most `size` rows at a time."""


def open_rows(
    body: Body, kind: Kind, known: Collection[str], charset: str = "utf-8"
) -> Rows:
    """The rows of a body that is not JSON.

    Args:
        known: the names of columns by which a CSV's delimiter is recognised.
    """
    if kind == "csv":
        return CsvRows(body, known, charset)
    return ParquetRows(body) if kind == "parquet" else ArrowRows(body)


# ----------------------------------------------------------------------------
# JSON


def read_json(body: Body) -> tuple[Rows, dict[str, Any]]:
    """The rows, and what else the object holds."""
    content = body if isinstance(body, bytes) else body.read_bytes()
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        hint = ""
        if b"NaN" in content[max(0, error.pos - 3) : error.pos + 3]:
            hint = "; JSON has no NaN, a missing cell is null"
        raise DataError(f"the body is no JSON: {error}{hint}") from None
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
    return Matrix(found.pop("columns"), found.pop("data")), found


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
    """Names once, then a list of cells for each row."""

    def __init__(self, names: Any, data: Any) -> None:
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise DataError("columns must be a list of names")
        _refuse_doubles(names)
        if not isinstance(data, list):
            raise DataError("data must be a list of lists of cells")
        _refuse_none(data)
        for i, row in enumerate(data, start=1):
            if not isinstance(row, list) or len(row) != len(names):
                raise DataError(
                    f"row {i} of data must be a list of {len(names)} cells, however it "
                    f"is {_shown(row)}"
                )
        self.names: list[str] = names
        self._data = data

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        places = {n: i for i, n in enumerate(self.names) if n in wanted}
        for start in range(0, len(self._data), size):
            rows = self._data[start : start + size]
            yield {n: [row[i] for row in rows] for n, i in places.items()}, len(rows)


def _refuse_none(rows: Sequence[Any]) -> None:
    if not rows:
        raise DataError("there are no rows to predict")


def _union(rows: Sequence[dict[str, Any]]) -> Collection[str]:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return names


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse_doubles(names: Sequence[str]) -> None:
    if len({*names}) == len(names):
        return
    double = next(name for name in names if names.count(name) > 1)
    raise DataError(f"column {double!r} is there more than once", column=double)


# ----------------------------------------------------------------------------
# CSV


class CsvRows:
    """A CSV with a header. All cells are texts; what they mean is decided later."""

    def __init__(self, body: Body, known: Collection[str], charset: str) -> None:
        try:
            self._charset = codecs.lookup(charset).name
        except LookupError:
            raise DataError(f"the charset {charset!r} is not known") from None
        self._body = body
        start = body[:_HEADER] if isinstance(body, bytes) else _start(body)
        text = start.decode(self._charset, "replace").removeprefix("\ufeff")
        # The one by which the header holds the most columns that the model takes.
        headers = {each: _read_header(text, each) for each in _DELIMITERS}
        self._delimiter, (names, self._n_lines) = max(
            headers.items(), key=lambda item: sum(n in known for n in item[1][0])
        )
        if not names:
            raise DataError("the CSV must begin with a line that names its columns")
        _refuse_doubles(names)
        self.names: list[str] = names
        self._refuse_open_quote()

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        names = [name for name in self.names if name in wanted]
        read = names or self.names[:1]  # rows are counted even if no column is wanted
        with _refusing("CSV"), _opened(self._body) as file:
            reader = pyarrow.csv.open_csv(
                file,
                pyarrow.csv.ReadOptions(
                    column_names=self.names,
                    skip_rows=self._n_lines,
                    block_size=_BLOCK,
                    encoding=self._charset,
                    use_threads=False,
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    # In a single column, an empty line is a missing cell.
                    ignore_empty_lines=len(self.names) > 1,
                ),
                pyarrow.csv.ConvertOptions(
                    include_columns=read,
                    column_types=dict.fromkeys(read, pa.string()),
                    strings_can_be_null=False,
                ),
            )
            yield from _slices(reader, names, size)

    def _refuse_open_quote(self) -> None:
        """Arrow takes all lines behind a quote that is never closed for one cell."""
        n_quotes = 0
        with _open_binary(self._body) as file:
            while content := file.read(_BLOCK):
                n_quotes += content.count(b'"')
        if n_quotes % 2 == 0:
            return
        with io.TextIOWrapper(
            _open_binary(self._body), self._charset, "replace", newline=""
        ) as lines:
            reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
            start = 1
            try:
                for _ in reader:
                    start = reader.line_num + 1
            except csv.Error as error:
                if "end of data" in str(error):
                    raise DataError(
                        f"a quote in the record of line {start} is never closed",
                        line=start,
                    ) from None


def _open_binary(body: Body) -> IO[bytes]:
    return io.BytesIO(body) if isinstance(body, bytes) else body.open("rb")


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER)


def _read_header(text: str, delimiter: str) -> tuple[list[str], int]:
    """The names, and how many lines they take."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for header in reader:
            if header:
                named = enumerate(header, start=1)
                names = [name.strip() or f"column_{i}" for i, name in named]
                return names, reader.line_num
    except csv.Error:
        pass
    return [], 0


# ----------------------------------------------------------------------------
# Arrow and Parquet


class ArrowRows:
    """A stream of Arrow's record batches."""

    def __init__(self, body: Body) -> None:
        self._body = body
        with _refusing("Arrow stream"), _opened(body) as file:
            self._schema = pa.ipc.open_stream(file).schema
        with _refusing("Arrow stream"), _opened(body) as file:
            n_bytes = 0  # dictionaries stay, batches come one after the other
            for message in pa.ipc.MessageReader.open_stream(file):
                unpacked = _unpacked_bytes(message)
                _refuse_size(n_bytes + unpacked)
                n_bytes += unpacked if message.type == "dictionary" else 0
        self.names: list[str] = self._schema.names
        _refuse_doubles(self.names)

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        names = [name for name in self.names if name in wanted]
        for name in names:
            _refuse_type(name, self._schema.field(name).type)
        with _refusing("Arrow stream"), _opened(self._body) as file:
            yield from _slices(_validated(pa.ipc.open_stream(file)), names, size)


class ParquetRows:
    """A Parquet file."""

    def __init__(self, body: Body) -> None:
        self._body = body
        with _refusing("Parquet file"), _opened(body) as file:
            parquet = pq.ParquetFile(file)
            self._schema = parquet.schema_arrow
            self.n_rows: int = parquet.metadata.num_rows
        self.names: list[str] = self._schema.names
        _refuse_doubles(self.names)

    def chunks(self, wanted: Collection[str], size: int) -> Iterator[Chunk]:
        names = [name for name in self.names if name in wanted]
        for name in names:
            _refuse_type(name, self._schema.field(name).type)
        # By name, `a.b` would be the field b of the column a.
        read = None if any("." in name for name in names) else names
        with _refusing("Parquet file"), _opened(self._body) as file:
            parquet = pq.ParquetFile(file)
            if names:
                batches = parquet.iter_batches(size, columns=read, use_threads=False)
                yield from _slices(_validated(batches), names, size)
            else:
                for start in range(0, self.n_rows, size):
                    yield {}, min(size, self.n_rows - start)


def _refuse_size(n_bytes: int) -> None:
    if n_bytes > _MAX_BATCH:
        raise DataError(
            f"some rows take {n_bytes / 2**20:.0f} MiB of memory together, beyond the "
            f"{_MAX_BATCH // 2**20} that are taken; send batches of fewer rows, and no "
            "columns that the model does not use"
        )


def _unpacked_bytes(message: pa.ipc.Message) -> int:
    """What a compressed batch comes to; 0 for other messages.

    Arrow unpacks a batch as a whole, whatever memory its buffers ask for. By its format
    (Message.fbs) each compressed buffer begins with the length that it will have.
    """
    batch = {"record batch": (2,), "dictionary": (2, 1)}.get(message.type)
    if batch is None:
        return 0
    metadata = message.metadata.to_pybytes()
    if _OLD_COMPRESSION in metadata:
        raise DataError("the stream is compressed as before Arrow 1.0; write it anew")
    root = Table(metadata, int.from_bytes(metadata[:4], "little"))
    for number in batch:
        place = _find_field(root, number)
        if not place:
            return 0  # Arrow refuses it when it comes to it
        root = Table(metadata, root.Indirect(root.Pos + place))
    buffers = _find_field(root, 2)
    if not buffers or not _find_field(root, 3):  # no buffers, or not compressed
        return 0
    n_buffers, start = root.VectorLen(buffers), root.Vector(buffers)
    places = np.frombuffer(metadata, "<i8", 2 * n_buffers, start).reshape(-1, 2)
    total = 0
    for offset, length in places.tolist():
        if length >= 8 and 0 <= offset <= message.body.size - 8:
            (unpacked,) = np.frombuffer(message.body, "<i8", 1, offset).tolist()
            total += max(unpacked, 0)  # -1: it is not
    return total


def _find_field(table: Table, number: int) -> int:
    """Where a field is, from the table's begin; 0: it is not there."""
    return int(table.Offset(4 + 2 * number))


@contextmanager
def _opened(body: Body) -> Iterator[pa.NativeFile]:
    with (
        pa.BufferReader(body)
        if isinstance(body, bytes)
        else pa.OSFile(str(body)) as file
    ):
        yield file


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """What Arrow says of a body that it cannot read becomes a DataError."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise DataError(f"the body cannot be read as {what}: {lines[0]}") from None


def _refuse_type(name: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_cell = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_null(kind)
    )
    if not is_cell:
        raise DataError(
            f"column {name!r} must hold numbers, texts or dates, however: {kind}",
            column=name,
        )


def _validated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        batch.validate(full=True)  # offsets out of a buffer would be followed
        yield batch


def _slices(
    batches: Iterable[pa.RecordBatch], names: list[str], size: int
) -> Iterator[Chunk]:
    """Chunks of one size, whatever that of the batches is; the last may be smaller."""
    held: list[pa.RecordBatch] = []
    n_held = n_bytes = 0
    for whole_batch in batches:
        batch = whole_batch.select(names or whole_batch.schema.names[:1])
        held.append(batch)
        n_bytes += batch.nbytes
        _refuse_size(n_bytes)
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


def _chunk(table: pa.Table, names: list[str]) -> Chunk:
    table = table.combine_chunks()
    return {name: _plain(table[name].chunk(0)) for name in names}, table.num_rows


def _plain(column: pa.Array) -> pa.Array:
    """The same cells in a type that has all kernels."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column
