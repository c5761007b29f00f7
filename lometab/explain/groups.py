"""Columns that go together: one can stand in for another, so that each alone looks
unimportant."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lometab.explain.rows import Rows

MAX_ROWS = 1000
MAX_COLUMNS = 100
MAX_LEVELS = 50
TOGETHER = 0.8
"""From this association on two columns are in one group."""


def find_groups(rows: Rows, columns: list[str]) -> list[tuple[list[str], float]]:
    """Groups of two and more columns that are linked by pairs that go together, each
    with the largest association of its pairs.

    Of two numbers it is the absolute rank correlation, of two categories Cramér's V
    with the usual correction, of a number and a category the correlation ratio of the
    ranks.
    """
    columns = columns[:MAX_COLUMNS]
    rng = np.random.default_rng(0)
    sample = rows.take(rng.permutation(len(rows))[:MAX_ROWS])
    codes = {column: _encode(sample, column) for column in columns}
    links: dict[tuple[str, str], float] = {}
    for one, other in combinations(columns, 2):
        strength = _associate(
            codes[one],
            codes[other],
            sample.is_numeric(one),
            sample.is_numeric(other),
        )
        if strength >= TOGETHER:
            links[one, other] = strength
    return _connect(columns, links)


def _encode(rows: Rows, column: str) -> NDArray[np.float64]:
    """Ranks of numbers, with NaN where missing; numbers of levels."""
    values = rows.get(column)
    if rows.is_numeric(column):
        return _rank(values)
    names, inverse, counts = np.unique(
        values.astype(str), return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(names), dtype=np.intp)
    place[order] = np.arange(len(names))
    return np.minimum(place[inverse], MAX_LEVELS).astype(np.float64)


def _rank(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 0, equal numbers the same."""
    ranks = np.full(len(values), np.nan)
    present = ~np.isnan(values)
    _, inverse, counts = np.unique(
        values[present], return_inverse=True, return_counts=True
    )
    ends = counts.cumsum()
    ranks[present] = (ends - (counts + 1) / 2)[inverse]
    return ranks


def _associate(
    one: NDArray[np.float64],
    other: NDArray[np.float64],
    is_number: bool,
    is_other_number: bool,
) -> float:
    present = ~(np.isnan(one) | np.isnan(other))
    one, other = one[present], other[present]
    if len(one) < 20 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    if is_number and is_other_number:
        return float(abs(np.corrcoef(one, other)[0, 1]))
    if is_number:
        return _correlation_ratio(one, other)
    if is_other_number:
        return _correlation_ratio(other, one)
    return _cramers_v(one.astype(np.intp), other.astype(np.intp))


def _correlation_ratio(
    numbers: NDArray[np.float64], levels: NDArray[np.float64]
) -> float:
    """The share of the numbers' deviation that the levels explain, corrected for the
    number of levels, as a root."""
    codes = levels.astype(np.intp)
    counts = np.bincount(codes)
    sums = np.bincount(codes, weights=numbers)
    used = counts > 0
    n, n_levels = len(numbers), int(used.sum())
    means = sums[used] / counts[used]
    within = ((numbers - (sums / np.maximum(counts, 1))[codes]) ** 2).sum()
    total = ((numbers - numbers.mean()) ** 2).sum()
    if n <= n_levels or not len(means):
        return 0.0
    ratio = 1 - (within / (n - n_levels)) / (total / (n - 1))
    return float(np.sqrt(max(0.0, ratio)))


def _cramers_v(one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
    """With the correction of Bergsma."""
    n = len(one)
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    phi2 = ((table - expected) ** 2 / expected).sum() / n
    r, c = table.shape
    phi2 = max(0.0, phi2 - (r - 1) * (c - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), c - (c - 1) ** 2 / (n - 1)) - 1
    return float(np.sqrt(phi2 / least)) if least > 0 else 0.0


def _connect(
    columns: list[str], links: dict[tuple[str, str], float]
) -> list[tuple[list[str], float]]:
    home = {column: column for column in columns}

    def find(column: str) -> str:
        while home[column] != column:
            column = home[column]
        return column

    for one, other in links:
        home[find(other)] = find(one)
    groups: dict[str, list[str]] = {}
    for column in columns:
        groups.setdefault(find(column), []).append(column)
    return [
        (found, max(s for (one, _), s in links.items() if one in found))
        for found in groups.values()
        if len(found) > 1
    ]
