"""Tables: columns by their names, in memory or in a Parquet file.

Columns are called c0, c1, ... in the file, and by their own names in its metadata.
"""

import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Column: TypeAlias = "Sequence[object] | NDArray[Any] | pa.ChunkedArray"
Table = Mapping[str, Column]
"""The values of each column by its name."""

_METADATA = b"lometab"
"""The key of the columns' names in the metadata of the Parquet file."""
GROUP_BYTES = 2**22
_TAIL_BYTES = 8
"""The length of the footer, and the format's name."""


class ParquetTable(Mapping[str, pa.ChunkedArray]):
    """A table that `read_file` wrote. A column is read when it is asked for, and
    nobody but the caller keeps it."""

    def __init__(self, file: Path | IO[bytes] | io.RawIOBase) -> None:
        self._source = file
        self._file = pq.ParquetFile(file, pre_buffer=False)
        metadata = self._file.schema_arrow.metadata or {}
        self._names: list[str] = json.loads(metadata[_METADATA])["names"]
        self._numbers = {name: i for i, name in enumerate(self._names)}
        self.n_rows: int = self._file.metadata.num_rows

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self._file.read(columns=[f"c{self._numbers[name]}"]).column(0)

    def sample(self, n_rows: int) -> dict[str, pa.ChunkedArray]:
        """About so many rows from the beginning, the middle and the end."""
        last = self._file.num_row_groups - 1
        groups = sorted({0, last // 2, last})
        taken = [
            self._file.read_row_group(group).slice(0, n_rows // len(groups) + 1)
            for group in groups
        ]
        return dict(zip(self._names, pa.concat_tables(taken).columns, strict=True))

    def chunks(
        self, size: int, names: Collection[str] | None = None
    ) -> Iterator[dict[str, pa.Array]]:
        """All columns, or those named, at most so many rows at a time."""
        wanted = [n for n in self._names if names is None or n in names]
        columns = [f"c{self._numbers[name]}" for name in wanted]
        for batch in self._file.iter_batches(size, columns=columns):
            yield dict(zip(wanted, batch.columns, strict=True))

    def divide(self, size: int) -> list[tuple[int, int]]:
        """The first row and the number of rows of parts of about `size` rows, which end
        where row groups do unless these are large."""
        parts: list[tuple[int, int]] = []
        start = stop = 0
        for group in range(self._file.num_row_groups):
            stop += self._file.metadata.row_group(group).num_rows
            n_parts = max(1, round((stop - start) / size))
            if stop - start < size and stop < self.n_rows:
                continue
            ends = [start + (stop - start) * i // n_parts for i in range(n_parts + 1)]
            parts += [(a, b - a) for a, b in pairwise(ends)]
            start = stop
        return parts

    def rows(
        self, start: int, n_rows: int, names: Collection[str], size: int = 2**16
    ) -> Iterator[pa.RecordBatch]:
        """Some rows of some columns, in batches whose columns are called c0, c1, ..."""
        groups, skipped = self._find_groups(start, n_rows)
        columns = [f"c{i}" for i, name in enumerate(self._names) if name in names]
        keys = [f"c{i}" for i in range(len(columns))]
        for batch in self._file.iter_batches(size, row_groups=groups, columns=columns):
            part = batch.slice(skipped, n_rows)
            skipped = max(0, skipped - batch.num_rows)
            n_rows -= part.num_rows
            if part.num_rows:
                yield pa.record_batch(part.columns, names=keys)

    def _find_groups(self, start: int, n_rows: int) -> tuple[list[int], int]:
        """The row groups that hold some rows, and how many of theirs come before."""
        groups: list[int] = []
        first = 0
        skipped = start
        for group in range(self._file.num_row_groups):
            last = first + self._file.metadata.row_group(group).num_rows
            if first < start + n_rows and last > start:
                if not groups:
                    skipped = start - first
                groups.append(group)
            first = last
        return groups, skipped

    def copy_rows(
        self, start: int, n_rows: int, names: Collection[str], target: Path
    ) -> None:
        """The same bytes at the same places of another file, with holes for all other
        rows and columns: it tells of the whole table, but only these can be read.

        Nothing is unpacked, and the holes take no room.
        """
        groups, _ = self._find_groups(start, n_rows)
        wanted = [i for i, name in enumerate(self._names) if name in names]
        with _opened(self._source) as source, target.open("wb") as copy:
            end = source.seek(0, io.SEEK_END)
            tail = _read_at(source, end - _TAIL_BYTES, _TAIL_BYTES)
            n_footer = int.from_bytes(tail[:4], "little") + _TAIL_BYTES
            stretches = [(end - n_footer, n_footer)]
            for group in groups:
                stretches += self._find_pages(group, wanted)
            for place, n_bytes in stretches:
                copy.seek(place)
                copy.write(_read_at(source, place, n_bytes))

    def _find_pages(self, group: int, columns: Sequence[int]) -> list[tuple[int, int]]:
        """Where the pages of columns are in the file; neighbours are one stretch."""
        described = self._file.metadata.row_group(group)
        stretches: list[tuple[int, int]] = []
        for i in columns:
            column = described.column(i)
            first = column.data_page_offset
            if column.has_dictionary_page:
                first = min(first, column.dictionary_page_offset)
            n_bytes = column.total_compressed_size
            if stretches and sum(stretches[-1]) == first:
                n_bytes += stretches[-1][1]
                first = stretches.pop()[0]
            stretches.append((first, n_bytes))
        return stretches

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _opened(
    source: Path | IO[bytes] | io.RawIOBase,
) -> AbstractContextManager[IO[bytes] | io.RawIOBase]:
    return source.open("rb") if isinstance(source, Path) else nullcontext(source)


def _read_at(source: IO[bytes] | io.RawIOBase, place: int, n_bytes: int) -> bytes:
    source.seek(place)
    content = source.read(n_bytes)
    assert content is not None and len(content) == n_bytes
    return content


class SomeRows(Mapping[str, pa.ChunkedArray]):
    """Some rows of a table, in their order. Of a column that is asked for, what is
    left out is in memory for a moment only."""

    def __init__(self, table: ParquetTable, rows: NDArray[np.intp]) -> None:
        self._table, self.rows = table, rows
        self.n_rows = len(rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self._table[name].take(pa.array(self.rows))

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def n_rows(table: Table) -> int:
    if isinstance(table, ParquetTable | SomeRows):
        return table.n_rows
    return len(next(iter(table.values())))


def write_table(
    destination: Path | IO[bytes],
    names: Sequence[str],
    batches: Iterable[pa.RecordBatch],
    *,
    compression: str = "zstd",
) -> tuple[int, int]:
    """Write batches of columns c0, c1, ...; the number of rows, and of bytes in
    memory."""
    writer = None
    n_rows = n_bytes = 0
    metadata = {_METADATA: json.dumps({"names": [*names]}).encode()}
    try:
        for group in _groups(batches):
            if writer is None:
                writer = pq.ParquetWriter(
                    destination,
                    group.schema.with_metadata(metadata),
                    compression=compression,
                    use_dictionary=_repeating(group),
                    write_statistics=False,
                )
            writer.write_table(group)
            n_rows += group.num_rows
            n_bytes += group.nbytes
    finally:
        if writer is not None:
            writer.close()
        pa.default_memory_pool().release_unused()
    return n_rows, n_bytes


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined to row groups of a few megabytes."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= GROUP_BYTES or len(waiting) >= 1000:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _repeating(group: pa.Table) -> list[str]:
    """The columns that are worth a dictionary, by their first rows."""
    return [
        name
        for name, column in zip(group.schema.names, group.columns, strict=True)
        if len(column[:1000].unique()) < 0.5 * min(len(column), 1000)
    ]
