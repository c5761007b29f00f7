"""Arrow and Parquet: which types are read, and what reading them will take.

A kilobyte can unpack to gigabytes: by compression, by a dictionary that many rows point
at, by columns of nulls. So everything is measured before it is unpacked, and what is
beyond the limits is refused. Dictionaries are never written out for all rows.
"""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
from flatbuffers.table import Table

from lometab.errors import DataError, FileTooLarge
from lometab.table.pages import find_chunks, find_pages

MAX_VALUE = 2**20
"""Bytes of one text, as of one record of a CSV."""
_OLD_COMPRESSION = b"ARROW:experimental_compression"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a table may take."""

    max_rows: int
    max_columns: int
    max_bytes: int
    """Of the whole table, unpacked."""
    max_batch: int = 2**29
    """Of what is unpacked at a time."""


# ----------------------------------------------------------------------------
# Types


def kept_type(kind: pa.DataType, name: str = "") -> pa.DataType:
    """The type in which a column is kept. What a float64 would round stays a text."""
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(kind.value_type):
        return kept_type(kind.value_type, name)
    if pa.types.is_integer(kind):
        return pa.string() if kind == pa.uint64() else pa.int64()
    if pa.types.is_decimal(kind):
        return pa.float64() if kind.precision <= 15 else pa.string()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_boolean(kind):
        return pa.bool_()
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if kind in (pa.string(), pa.large_string(), pa.string_view(), pa.null()):
        return pa.string()
    raise DataError(
        f"column {name!r} holds {kind}; numbers, texts, booleans and dates are read",
        column=name,
    )


def keep(column: Any, name: str = "") -> Any:
    """A column in the type in which it is kept; so a value means one thing, in training
    and in prediction. A dictionary must have been measured."""
    if pa.types.is_dictionary(column.type):
        return _take(column, name)
    kind = kept_type(column.type, name)
    if not pa.types.is_timestamp(kind):
        return column.cast(kind, safe=False)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit))  # in UTC
    options = pc.CastOptions(kind, allow_time_truncate=True)
    try:
        kept = pc.cast(column, options=options)
        ends = pc.min_max(kept.cast(pa.int64()))
        low, high = ends["min"].as_py(), ends["max"].as_py()
    except pa.ArrowInvalid:
        low = high = _LAST + 1
    if low is not None and not (_FIRST <= low and high <= _LAST):
        raise DataError(
            f"column {name!r} holds dates outside the years 1 to 9999", column=name
        )
    return kept


def _take(column: Any, name: str) -> Any:
    """Each row's value of a dictionary that is converted once."""
    if isinstance(column, pa.ChunkedArray):
        kind = kept_type(column.type, name)
        return pa.chunked_array([_take(each, name) for each in column.chunks], kind)
    return keep(column.dictionary, name).take(column.indices)


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first moment of year 1 and of the last of year 9999."""


# ----------------------------------------------------------------------------
# Sizes


def measure_column(column: pa.Array, name: str) -> int:
    """Bytes of a column once each row has its value; one too long is refused."""
    kind = column.type
    texts = column.dictionary if pa.types.is_dictionary(kind) else column
    if not _is_text(texts.type):
        width = 8 if kept_type(kind, name) != pa.string() else 5
        return max(width * len(column), int(column.nbytes))
    lengths = _lengths(texts)
    # Views may share one text, so that their own dictionary has to be counted too.
    is_shared = texts is not column and pa.types.is_string_view(texts.type)
    n_bytes = int(pc.sum(lengths).as_py() or 0) if is_shared else 0
    if texts is not column:
        lengths = lengths.take(column.indices)
    if (pc.max(lengths).as_py() or 0) > MAX_VALUE:
        raise DataError(
            f"column {name!r} holds a text of more than {MAX_VALUE >> 20} MiB",
            column=name,
        )
    return n_bytes + int(pc.sum(lengths).as_py() or 0) + 5 * len(column)


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _lengths(texts: pa.Array) -> pa.Array:
    """The bytes of each text, in int64."""
    if not pa.types.is_string_view(texts.type):
        return pc.binary_length(texts.cast(pa.large_string()))
    views = texts.buffers()[1]
    found = np.frombuffer(views, "<i4")[:: 16 // 4] if views else np.empty(0, "<i4")
    found = found[texts.offset : texts.offset + len(texts)].astype(np.int64)
    return pc.if_else(texts.is_valid(), pa.array(found), None)


def check_batch(n_bytes: int, limits: Limits) -> None:
    if n_bytes > limits.max_batch:
        raise FileTooLarge(
            f"some rows take {n_bytes / 2**20:.0f} MiB of memory together, beyond the "
            f"limit of {limits.max_batch // 2**20} MiB; send batches of fewer rows, "
            "and no columns that are not used"
        )


def check_table(n_rows: int, n_bytes: int, limits: Limits) -> None:
    if n_rows > limits.max_rows:
        raise FileTooLarge(
            f"the file has {n_rows} rows or more, beyond the limit of {limits.max_rows}"
        )
    if n_bytes > limits.max_bytes:
        raise FileTooLarge(
            f"the file unpacks to more than the limit of {limits.max_bytes} bytes"
        )


def measure_stream(file: pa.NativeFile, limits: Limits) -> None:
    """Refuse a stream of which a message, or all, would unpack to too much.

    Dictionaries stay in memory, batches come one after the other.
    """
    n_held = n_bytes = 0
    for message in pa.ipc.MessageReader.open_stream(file):
        unpacked = _unpacked_bytes(message)
        check_batch(n_held + unpacked, limits)
        n_held += unpacked if message.type == "dictionary" else 0
        n_bytes += unpacked
        check_table(0, n_bytes, limits)


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
        offset = _find_field(root, number)
        if not offset:
            return 0  # Arrow refuses it when it comes to it
        root = Table(metadata, root.Indirect(root.Pos + offset))
    buffers = _find_field(root, 2)
    if not buffers or not _find_field(root, 3):  # no buffers, or not compressed
        return 0
    n_buffers, start = root.VectorLen(buffers), root.Vector(buffers)
    bounds = np.frombuffer(metadata, "<i8", 2 * n_buffers, start).reshape(-1, 2)
    total = 0
    for offset, length in bounds.tolist():
        if length >= 8 and 0 <= offset <= message.body.size - 8:
            (unpacked,) = np.frombuffer(message.body, "<i8", 1, offset).tolist()
            total += max(unpacked, 0)  # -1: it is not
    return total


def _find_field(table: Table, number: int) -> int:
    """Where a field is, from the table's begin; 0: it is not there."""
    return int(table.Offset(4 + 2 * number))


# ----------------------------------------------------------------------------
# Batches


@contextmanager
def opened(source: bytes | Path) -> Iterator[pa.NativeFile]:
    """A file for Arrow; one on disk is mapped, so that no length in it is believed."""
    if isinstance(source, bytes):
        with pa.BufferReader(source) as file:
            yield file
    elif source.stat().st_size == 0:
        with pa.BufferReader(b"") as file:
            yield file
    else:
        with pa.memory_map(str(source)) as file:
            yield file


class ArrowFile:
    """An Arrow stream; of a file with a footer, the stream inside it."""

    def __init__(self, source: bytes | Path, limits: Limits) -> None:
        self._source, self._limits = source, limits
        self.n_rows: int | None = None
        with opened(source) as file:
            self._start = 8 if file.read(6) == b"ARROW1" else 0
            file.seek(self._start)
            self.schema: pa.Schema = pa.ipc.open_stream(file).schema
            file.seek(self._start)
            measure_stream(file, limits)
            if self._start == 0:
                _check_end(file)

    def batches(
        self, columns: Sequence[int], size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these numbers, in batches as they are in the stream."""
        with opened(self._source) as file:
            file.seek(self._start)
            yield from _checked(pa.ipc.open_stream(file), columns)


def _check_end(file: pa.NativeFile) -> None:
    """A stream that was cut between two batches would else pass for whole."""
    size = file.size()
    file.seek(max(0, size - 8))
    if file.read(8) != b"\xff\xff\xff\xff\0\0\0\0":
        raise DataError("the Arrow stream has no end, so it was cut short")


class ParquetInput:
    """A Parquet file as people have it."""

    def __init__(self, source: bytes | Path, limits: Limits) -> None:
        self._source, self._limits = source, limits
        with opened(source) as file:
            parquet = pq.ParquetFile(file)
            self.schema: pa.Schema = parquet.schema_arrow
            self.n_rows: int = parquet.metadata.num_rows
            schema = parquet.schema
            self._paths = [schema.column(i).path for i in range(len(schema))]
            """Of all columns, those inside others too."""

    def batches(
        self, columns: Sequence[int], size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these numbers, at most so many rows at a time.

        Texts are kept as dictionaries where the file has them so: one of a megabyte in
        a million rows is one megabyte then.
        """
        most, written_out = self._measure_pages(columns)
        size = min(size or 2**16, most)
        names = [self.schema.names[i] for i in columns]
        texts = [
            self.schema.names[i]
            for i in columns
            if _is_text(self.schema.field(i).type)
            and self.schema.names[i] not in written_out
        ]
        # By name, `a.b` would be the field b of the column a.
        read = None if any("." in name for name in names) else names
        with opened(self._source) as file:
            parquet = pq.ParquetFile(file, read_dictionary=texts, pre_buffer=False)
            batches = parquet.iter_batches(size, columns=read, use_threads=False)
            yield from _checked(batches, columns if read is None else None)

    def _measure_pages(self, columns: Sequence[int]) -> tuple[int, set[str]]:
        """Refuse pages that unpack to too much; how many rows to read at a time, and
        the columns whose texts Arrow writes out for each row."""
        wanted = {self.schema.names[i] for i in columns}
        written_out: set[str] = set()
        longest: dict[str, int] = {}
        n_bytes = 0
        with _mapped(self._source) as content:
            for group in find_chunks(content):
                n_held = 0
                if len(group) != len(self._paths):
                    raise DataError("a row group lacks columns, so it is damaged")
                for name, chunk in zip(self._paths, group, strict=True):
                    if name not in wanted and name.split(".")[0] not in wanted:
                        continue
                    pages = [*find_pages(content, chunk)]
                    n_held += max((page.n_bytes for page in pages), default=0)
                    n_bytes += sum(page.n_bytes for page in pages)
                    if any(page.is_delta for page in pages):
                        written_out.add(name)
                    growing = [page.n_bytes for page in pages if page.is_growing]
                    longest[name] = max(longest.get(name, 0), *growing, 0)
                check_batch(n_held, self._limits)
                check_table(0, n_bytes, self._limits)
        most = max((longest[name] for name in written_out), default=0)
        n_rows = self._limits.max_batch // 4 // most if most else 2**16
        return max(1, n_rows), written_out


@contextmanager
def _mapped(source: bytes | Path) -> Iterator[Any]:
    if isinstance(source, bytes):
        yield source
        return
    with (
        source.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        yield content


def _checked(
    batches: Iterable[pa.RecordBatch], columns: Sequence[int] | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows < 0:  # what `validate` takes where there is no column
            raise DataError("a batch has a negative number of rows; write it anew")
        part = batch if columns is None else batch.select([*columns])
        part.validate(full=True)  # offsets out of a buffer would be followed
        yield part
