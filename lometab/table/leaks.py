"""Columns that give the target away."""

import numpy as np
from numpy.typing import NDArray

from lometab.table.kinds import Float
from lometab.table.parquet import ParquetTable
from lometab.table.schema import Schema, features, target


def find_leaks(table: ParquetTable, schema: Schema) -> list[str]:
    """Warnings about columns each of which alone tells the target almost perfectly."""
    sample = table.sample(_LEAK_ROWS)
    x_num, x_cat = features(sample, schema)
    y = target(sample, schema)
    kept = ~np.isnan(y) if schema.classes is None else y >= 0
    if kept.sum() < 50:
        return []
    left: dict[str, float] = {}
    for i, name in enumerate(schema.numeric):
        values = x_num[kept, i]
        if schema.classes is None:
            left[name] = _left_of_order(y[kept], values)
        else:
            left[name] = _left_of_errors(y[kept], _bins(values))
    left_of_groups = _left_of_variance if schema.classes is None else _left_of_errors
    for i, name in enumerate(schema.categorical):
        groups = np.unique(x_cat[kept, i], return_inverse=True)[1]
        if groups.max() < kept.sum() / 5:
            left[name] = left_of_groups(y[kept], groups)
    return [
        f"column {name!r} alone tells the target almost perfectly; if it is not known "
        "before the target is, set it to `ignore`"
        for name, share in left.items()
        if share < _LEAK_LEFT
    ]


_LEAK_ROWS = 20_000
_LEAK_LEFT = 0.01
"""What a leak leaves of the errors, or of the variance."""


def _bins(values: Float) -> NDArray[np.intp]:
    """Which of up to 200 bins of as many values each holds a value; the missing ones
    have one of their own."""
    count = min(200, len(values) // 10)
    ends = np.unique(np.nanquantile(values, np.linspace(0, 1, count + 1)[1:-1]))
    bins = np.searchsorted(ends, values)
    return np.where(np.isnan(values), len(ends) + 1, bins)


def _left_of_order(y: Float, values: Float) -> float:
    """The share of the variance of y's ranks that those of the values do not tell."""
    known = np.where(np.isnan(values), np.nanmedian(values), values)
    one, other = (
        np.unique(array, return_inverse=True)[1].astype(np.float64)
        for array in (y, known)
    )
    scale = one.std() * other.std()
    if scale == 0:
        return 1.0
    correlation = ((one - one.mean()) * (other - other.mean())).mean() / scale
    return float(1 - correlation**2)


def _left_of_variance(y: Float, group: NDArray[np.intp]) -> float:
    """The share of the variance of y that is within groups."""
    sizes = np.bincount(group)
    means = np.bincount(group, weights=y) / np.maximum(sizes, 1)
    total = y.var()
    return float(((y - means[group]) ** 2).mean() / total) if total else 1.0


def _left_of_errors(y: NDArray[np.int64], group: NDArray[np.intp]) -> float:
    """The errors of the most frequent class of each group, relative to those of the
    most frequent of all."""
    n_errors = len(y) - np.bincount(y).max()
    counts = np.zeros((group.max() + 1, y.max() + 1), dtype=np.int64)
    np.add.at(counts, (group, y), 1)
    left = len(y) - counts.max(axis=1).sum()
    return float(left / n_errors) if n_errors else 1.0
