"""Fewer rows of a table, drawn by lot: each part keeps its share, and each class its.

Parts are thinned after the split, row by row. So no row, group or moment changes its
part: what the split holds apart stays apart.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.table.parquet import ParquetTable, SomeRows

HELD_ROWS = 100_000
"""Of each part, the rows that are in memory at most when the others are in a file: they
validate, calibrate and make the reports."""

Rows = NDArray[np.intp]


def thin_rows(rows: Rows, strata: NDArray[Any] | None, n_rows: int, seed: int) -> Rows:
    """At most so many of the rows, in their order.

    Args:
        strata: a whole number for each row of the table. Each keeps its share of the
            rows, and one row at least while there is room.
    """
    if len(rows) <= n_rows:
        return rows
    shuffled = np.random.default_rng(seed).permutation(rows)
    if strata is None:
        return np.sort(shuffled[:n_rows])
    # The i-th of a stratum's n rows has the place i / n: the first of each comes first.
    place = np.empty(len(rows), dtype=np.float64)
    labels = strata[shuffled]
    for stratum in np.unique(labels):
        mine = np.flatnonzero(labels == stratum)
        place[mine] = np.arange(len(mine)) / len(mine)
    return np.sort(shuffled[np.argsort(place, kind="stable")[:n_rows]])


def share_rows(sizes: dict[Any, int], n_rows: int) -> dict[Any, int]:
    """How many rows each part keeps if all together may be so many; one at least.

    What rounding leaves goes to the first part that has room, the one to train on.
    """
    total = sum(sizes.values())
    if total <= n_rows:
        return sizes
    kept = {name: max(1, size * n_rows // total) for name, size in sizes.items()}
    left = n_rows - sum(kept.values())
    for name, size in sizes.items():
        more = max(min(left, size - kept[name]), 1 - kept[name])
        kept[name] += more
        left -= more
    return kept


def thin_parts(
    parts: dict[Any, Rows],
    strata: NDArray[Any] | None,
    sizes: dict[Any, int],
    seed: int,
) -> dict[Any, Rows]:
    """Each part with at most as many rows as its size says."""
    return {
        name: thin_rows(rows, strata, sizes[name], seed) for name, rows in parts.items()
    }


def pick_rows(
    table: ParquetTable, parts: dict[Any, Rows]
) -> tuple[SomeRows, dict[Any, Rows]]:
    """The rows of the parts as a table of their own, and the parts of that."""
    rows = np.sort(np.concatenate([*parts.values()]))
    own = {name: np.searchsorted(rows, each) for name, each in parts.items()}
    return SomeRows(table, rows), own
