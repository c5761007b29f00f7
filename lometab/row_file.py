"""Training rows in a file: each row a record, read by blocks in an order drawn by lot.

Knows no torch. Blocks are read by position and not mapped into memory: pages of a
mapped file count as memory of the process, which is ended for taking too much of it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUFFER_BYTES = 64 * 2**20
"""What is in memory of a file at a time, half as much more at the end of an epoch."""
BUFFER_BLOCKS = 256
"""Of which blocks a buffer consists. Rows are shuffled in it; the more blocks it has,
the less it matters in which order the table came."""
SAMPLE_BYTES = 64 * 2**20
MAX_SAMPLE_ROWS = 2**18
"""Rows, evenly spread, that stand for all where quantiles are wanted."""

Arrays = tuple[
    NDArray[np.float32], NDArray[np.int64], NDArray[Any], NDArray[Any] | None
]
"""`x_num`, `x_cat`, `y` and `weight` of some rows."""


def record_of(
    n_numeric: int, n_codes: int, *, is_regression: bool, has_weight: bool
) -> np.dtype[Any]:
    """A row in the file."""
    fields: list[Any] = [("x_num", np.float32, (n_numeric,))]
    fields.append(("x_cat", np.int32, (n_codes,)))
    fields.append(("y", np.float32 if is_regression else np.int32))
    if has_weight:
        fields.append(("weight", np.float32))
    return np.dtype(fields)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowFile:
    """The rows of a part, in the order of the table."""

    path: Path
    record: np.dtype[Any]
    n_rows: int
    sample: NDArray[np.float32]
    """Numeric features of all rows; of a large part, of some, and the ends of each."""
    y_variance: float
    """Of `y` as it is in the file."""
    buffer_bytes: int = field(default=BUFFER_BYTES)

    def count_block_rows(self, batch_size: int) -> int:
        """Rows of a block. A full buffer is a whole number of batches."""
        unit = batch_size // math.gcd(batch_size, BUFFER_BLOCKS)
        block_bytes = self.buffer_bytes // BUFFER_BLOCKS
        return unit * max(1, block_bytes // (unit * self.record.itemsize))

    def read_buffers(
        self, batch_size: int, permute: Callable[[int], NDArray[Any]]
    ) -> Iterator[Arrays]:
        """All rows, each once, a buffer at a time; what was given before is gone then.

        Blocks come in the order that `permute` draws for so many of them, in a buffer
        in the order of the file. If one buffer takes all rows, nothing is drawn.
        """
        size = self.count_block_rows(batch_size)
        n_blocks = self.n_rows // size  # full ones; the rest comes last
        n_buffers = max(1, round(n_blocks / BUFFER_BLOCKS))
        order = permute(n_blocks) if n_buffers > 1 else np.arange(n_blocks)
        n_last = n_blocks - (n_buffers - 1) * BUFFER_BLOCKS
        n_most = n_last * size + self.n_rows % size
        if n_buffers > 1:
            n_most = max(n_most, BUFFER_BLOCKS * size)
        arrays = self._allocate(n_most)
        for number in range(n_buffers):
            is_last = number == n_buffers - 1
            start = number * BUFFER_BLOCKS
            blocks = order[start:] if is_last else order[start : start + BUFFER_BLOCKS]
            at = 0
            for block in np.sort(blocks):
                at += self._read(arrays, at, int(block) * size, size)
            if is_last:
                at += self._read(arrays, at, n_blocks * size, self.n_rows % size)
            x_num, x_cat, y, weight = arrays
            yield (
                x_num[:at],
                x_cat[:at],
                y[:at],
                None if weight is None else weight[:at],
            )

    def _allocate(self, n_rows: int) -> Arrays:
        y_type = np.float32 if self.record["y"].kind == "f" else np.int64
        has_weight = "weight" in (self.record.names or ())
        return (
            np.empty((n_rows, *self.record["x_num"].shape), dtype=np.float32),
            np.empty((n_rows, *self.record["x_cat"].shape), dtype=np.int64),
            np.empty(n_rows, dtype=y_type),
            np.empty(n_rows, dtype=np.float32) if has_weight else None,
        )

    def _read(self, arrays: Arrays, at: int, first: int, n_rows: int) -> int:
        offset = first * self.record.itemsize
        rows = np.fromfile(self.path, self.record, n_rows, offset=offset)
        if len(rows) != n_rows:
            raise OSError(f"{self.path} has fewer rows than were written")
        for name, array in zip(("x_num", "x_cat", "y", "weight"), arrays, strict=True):
            if array is not None:
                array[at : at + n_rows] = rows[name]
        return n_rows


def write_rows(
    path: Path,
    record: np.dtype[Any],
    n_rows: int,
    batches: Iterable[Arrays],
    *,
    y_variance: float,
    buffer_bytes: int = BUFFER_BYTES,
) -> RowFile:
    """Put rows into a file, batch by batch.

    Args:
        n_rows: of all batches.
    """
    step = _find_step(n_rows, record["x_num"].shape[0])
    some: list[NDArray[np.float32]] = []
    ends: list[NDArray[np.float32]] = []
    n_written = 0
    with path.open("wb") as file:
        for x_num, x_cat, y, weight in batches:
            rows = np.empty(len(y), dtype=record)
            rows["x_num"], rows["x_cat"], rows["y"] = x_num, x_cat, y
            if weight is not None:
                rows["weight"] = weight
            rows.tofile(file)
            some.append(x_num[-n_written % step :: step].copy())
            if len(y):
                ends.append(np.stack([x_num.min(axis=0), x_num.max(axis=0)]))
            n_written += len(y)
    if n_written != n_rows:
        raise ValueError(f"{n_rows=} were told, however {n_written} came")
    # A number that is rarely another one may be the same in all rows of the sample.
    if step > 1:
        joined = np.concatenate(ends)
        some += [joined.min(axis=0, keepdims=True), joined.max(axis=0, keepdims=True)]
    return RowFile(
        path=path,
        record=record,
        n_rows=n_rows,
        sample=np.concatenate(some),
        y_variance=y_variance,
        buffer_bytes=buffer_bytes,
    )


def _find_step(n_rows: int, n_numeric: int) -> int:
    """Every which row is in the sample."""
    by_bytes = SAMPLE_BYTES // (4 * max(1, n_numeric))
    return max(1, -(-n_rows // min(MAX_SAMPLE_ROWS, max(by_bytes, 1000))))
