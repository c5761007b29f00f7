"""Tables: columns by their names, in memory or in a Parquet file."""

import io
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lometab.reading import METADATA, ReadOptions, read_file

Column: TypeAlias = "Sequence[object] | NDArray[Any] | pa.ChunkedArray"
Table = Mapping[str, Column]
"""The cells of each column by its name."""


class ParquetTable(Mapping[str, pa.ChunkedArray]):
    """A table that `read_file` wrote. A column is read when it is asked for, and
    nobody but the caller keeps it."""

    def __init__(self, file: Path | IO[bytes] | io.RawIOBase) -> None:
        self._file = pq.ParquetFile(file, pre_buffer=False)
        metadata = self._file.schema_arrow.metadata or {}
        self._names: list[str] = json.loads(metadata[METADATA])["names"]
        self._places = {name: i for i, name in enumerate(self._names)}
        self.n_rows: int = self._file.metadata.num_rows

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self._file.read(columns=[f"c{self._places[name]}"]).column(0)

    def sample(self, n_rows: int) -> dict[str, pa.ChunkedArray]:
        """About so many rows from the beginning, the middle and the end."""
        last = self._file.num_row_groups - 1
        groups = sorted({0, last // 2, last})
        taken = [
            self._file.read_row_group(group).slice(0, n_rows // len(groups) + 1)
            for group in groups
        ]
        return dict(zip(self._names, pa.concat_tables(taken).columns, strict=True))

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_csv(content: bytes, options: ReadOptions | None = None) -> ParquetTable:
    """The table in a file's bytes: a CSV, or whatever else `read_file` reads."""
    with tempfile.TemporaryDirectory(prefix="lometab-read-") as folder:
        source = Path(folder) / "file"
        source.write_bytes(content)
        table = io.BytesIO()
        read_file(source, table, options)
    return ParquetTable(table)


def n_rows(table: Table) -> int:
    if isinstance(table, ParquetTable):
        return table.n_rows
    return len(next(iter(table.values())))
