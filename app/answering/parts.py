"""Answers to a part of a table, in a file: parts end to end are the answers to all.

Of CSV the first part has the header. Of Arrow the first has the schema, and the last
the end of the stream. Parts in Parquet are files of their own: `join_parts` joins them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.answering.columns import Columns
from app.answering.writers import ArrowWriter, CsvWriter, flatten, skip
from lometab.predictor import Label

Output = Literal["csv", "parquet", "arrow"]
MEDIA_TYPES: dict[Output, str] = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}


class PartFile:
    """One part, written batch by batch."""

    def __init__(
        self,
        path: Path,
        output: Output,
        classes: Sequence[Label] | None,
        head: dict[str, Any],
        *,
        is_first: bool,
        is_last: bool,
        is_spreadsheet_safe: bool = False,
    ) -> None:
        """
        Args:
            head: what is told of the model; the same for all parts.
        """
        self._output, self._classes = output, classes
        self._is_first, self._is_last = is_first, is_last
        self._csv = CsvWriter(classes, is_spreadsheet_safe, has_header=is_first)
        self._arrow = ArrowWriter(classes)
        self._arrow.begin(head)
        self._parquet: pq.ParquetWriter | None = None
        self._file: IO[bytes] = path.open("wb")
        self._has_begun = False

    def write(self, columns: Columns, skipped: NDArray[np.bool_] | None) -> None:
        """
        Args:
            skipped: which rows have no answer; None: all have one.
        """
        if self._output == "csv":
            self._file.write(self._csv.write(columns, skipped))
        elif self._output == "arrow":
            content = self._arrow.write(columns, skipped)
            if not self._has_begun and not self._is_first:
                content = content[self._arrow.n_head :]
            self._file.write(content)
        else:
            self._write_parquet(skip(flatten(columns, self._classes), skipped))
        self._has_begun = True

    def _write_parquet(self, arrays: dict[str, pa.Array]) -> None:
        table = pa.table(arrays)
        if self._parquet is None:
            self._parquet = _open_parquet(self._file, table.schema)
        self._parquet.write_table(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._file:
            if self._parquet is not None:
                self._parquet.close()
            if kind is None and self._output == "arrow" and self._is_last:
                self._file.write(self._arrow.end())


def join_parts(parts: Iterable[Path], destination: Path) -> None:
    """Parts in Parquet as one file; each of them is removed when it is read."""
    writer: pq.ParquetWriter | None = None
    try:
        for path in parts:
            with pq.ParquetFile(path) as file:
                writer = writer or _open_parquet(destination, file.schema_arrow)
                for batch in file.iter_batches(2**16):
                    writer.write_batch(batch)
            path.unlink()
    finally:
        if writer is not None:
            writer.close()


def _open_parquet(sink: Path | IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """Fractions hardly repeat: a dictionary of them costs time and room."""
    repeating = [each.name for each in schema if not pa.types.is_floating(each.type)]
    return pq.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=repeating or False
    )
