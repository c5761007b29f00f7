"""Where a model fails: rows with something in common whose error is larger.

Many slices are looked at, and some are worse by chance: p-values are Holm's and
intervals Bonferroni's, so that they hold for all slices at once.
"""

import itertools
import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import Answer, Slice, Slices, metrics
from lometab.explain.rows import Rows

N_BINS = 4
MAX_LEVELS = 20
"""Levels of a category that are looked at: the most frequent ones."""
N_WORST = 10
LEVEL = 0.05


class _Found(NamedTuple):
    column: str
    rows: str
    mask: NDArray[np.bool_]


class _Measured(NamedTuple):
    found: _Found
    loss: float
    p_value: float
    """By itself."""


def find_slices(
    rows: Rows,
    y: NDArray[Any],
    answer: Answer,
    interval: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> Slices:
    """The worst slices of the test rows.

    Args:
        interval: lower and upper ends of each row's interval of 90 %, of a regression.
    """
    mean = answer[0]
    is_regression = mean.ndim == 1
    wrong = np.abs(y - mean) if is_regression else metrics.is_wrong(y, mean)
    losses: NDArray[np.float64] = np.asarray(wrong, dtype=np.float64)
    min_rows = max(10, min(30, len(y) // 20))
    measured = [_test(each, losses) for each in _cut_all(rows, min_rows)]
    adjusted = _adjust([each.p_value for each in measured])
    worst = [
        Slice(
            column=each.found.column,
            rows=each.found.rows,
            n_rows=int(each.found.mask.sum()),
            loss=each.loss,
            **_interval(losses[each.found.mask], len(measured), is_regression),
            p_value=p_value,
            is_worse=p_value < LEVEL,
            confidence_gap=None
            if is_regression
            else _gap(losses[each.found.mask], mean[each.found.mask]),
            covered=_cover(y, interval, each.found.mask),
        )
        for each, p_value in zip(measured, adjusted, strict=True)
        if each.loss > losses.mean()
    ]
    worst.sort(key=lambda each: (each.p_value, -each.loss))
    return Slices(
        loss="absolute error" if is_regression else "wrong class",
        overall=float(losses.mean()),
        n_tested=len(measured),
        min_rows=min_rows,
        worst=worst[:N_WORST],
    )


def _cut_all(rows: Rows, min_rows: int) -> Iterator[_Found]:
    """Slices that have enough rows, and leave enough."""
    for column in rows.columns:
        cut = _cut_numbers if rows.is_numeric(column) else _cut_levels
        for found in cut(rows, column):
            n = int(found.mask.sum())
            if min_rows <= n <= len(rows) - min_rows:
                yield found


def _cut_numbers(rows: Rows, column: str) -> Iterator[_Found]:
    values = rows.get(column)
    missing = np.isnan(values)
    yield _Found(column, "missing", missing)
    if missing.all():
        return
    edges = np.unique(np.quantile(values[~missing], np.linspace(0, 1, N_BINS + 1)))
    for i, (lower, upper) in enumerate(itertools.pairwise(edges)):
        above = values >= lower if i == 0 else values > lower
        yield _Found(
            column, _name(rows, column, lower, upper), above & (values <= upper)
        )
    if len(edges) == 1:
        yield _Found(column, _name(rows, column, edges[0], edges[0]), ~missing)


def _name(rows: Rows, column: str, lower: float, upper: float) -> str:
    if column in rows.datetime:
        ends = [str(np.datetime64(int(each), "s"))[:10] for each in (lower, upper)]
    else:
        ends = [f"{each:.4g}" for each in (lower, upper)]
    return f"{ends[0]} to {ends[1]}"


def _cut_levels(rows: Rows, column: str) -> Iterator[_Found]:
    values = rows.get(column).astype(str)
    names, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    for i in np.argsort(-counts, kind="stable")[:MAX_LEVELS]:
        name = f"= {names[i]}" if names[i] else "missing"
        yield _Found(column, name, inverse == i)


def _test(found: _Found, losses: NDArray[np.float64]) -> _Measured:
    """Whether the slice is worse than the other rows, by Welch's statistic."""
    inside, outside = losses[found.mask], losses[~found.mask]
    deviation = math.sqrt(
        _variance(inside) / len(inside) + _variance(outside) / len(outside)
    )
    z = float(inside.mean() - outside.mean()) / deviation if deviation > 0 else 0.0
    return _Measured(found, float(inside.mean()), 1 - NormalDist().cdf(z))


def _variance(losses: NDArray[np.float64]) -> float:
    """With one row more that is right and one that is wrong: a slice in which all is
    wrong is not known for certain."""
    if set(np.unique(losses)) <= {0.0, 1.0}:
        p = (losses.sum() + 1) / (len(losses) + 2)
        return float(p * (1 - p))
    return float(losses.var(ddof=1))


def _adjust(p_values: list[float]) -> list[float]:
    """Holm's for all of them at once."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    least = 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = least
    return adjusted


def _interval(
    losses: NDArray[np.float64], n_tested: int, is_regression: bool
) -> dict[str, float]:
    n, mean = len(losses), float(losses.mean())
    z = NormalDist().inv_cdf(1 - LEVEL / (2 * n_tested))
    if is_regression:
        half = z * float(losses.std(ddof=1)) / math.sqrt(n)
        return {"lower": max(0.0, mean - half), "upper": mean + half}
    # Wilson's
    scale = 1 + z * z / n
    center = (mean + z * z / (2 * n)) / scale
    half = z * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n)) / scale
    return {"lower": max(0.0, center - half), "upper": min(1.0, center + half)}


def _gap(wrong: NDArray[np.float64], mean: NDArray[Any]) -> float:
    return float(mean.max(axis=1).mean() - (1 - wrong.mean()))


def _cover(
    y: NDArray[Any],
    interval: tuple[NDArray[Any], NDArray[Any]] | None,
    mask: NDArray[np.bool_],
) -> float | None:
    if interval is None:
        return None
    lower, upper = (each[mask] for each in interval)
    return float(((lower <= y[mask]) & (y[mask] <= upper)).mean())
