"""Whether rows that are served come from where the training rows came from.

Counts only, and numpy only: a process that serves can afford it.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_BINS = 10
MAX_LEVELS = 20
"""Levels of a categorical column that are counted by themselves."""
MAX_COLUMNS = 200
"""Columns of each kind that are watched."""
FALSE_ALARM_RATE = 0.01
"""How often a window of rows like the training rows gets an alarm for some column."""
FLOOR = 0.1
"""The PSI below which a shift is too small to matter, however sure it is."""


def make_reference(
    numeric: Sequence[str],
    categorical: Sequence[str],
    x_num: NDArray[np.float64],
    x_cat: NDArray[np.object_],
) -> dict[str, Any]:
    """Histograms of training rows, fit for JSON: what a model's file keeps.

    Numbers are counted in tenths of the training rows, fewer where these coincide, and
    texts by the most frequent levels; each column also has a share of missing ones.
    """
    columns: dict[str, Any] = {}
    for i, name in enumerate(numeric[:MAX_COLUMNS]):
        x = x_num[:, i]
        present = x[~np.isnan(x)]
        inner = np.linspace(0, 1, N_BINS + 1)[1:-1]
        edges = np.unique(np.quantile(present, inner)) if len(present) else np.empty(0)
        counts = count_numbers(x, edges)
        columns[name] = {"edges": edges.tolist(), "counts": counts.tolist()}
    for i, name in enumerate(categorical[:MAX_COLUMNS]):
        levels, counts = np.unique(x_cat[:, i].astype(str), return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MAX_LEVELS]
        kept = [str(levels[j]) for j in order]
        rest = int(counts.sum() - counts[order].sum())
        columns[name] = {"levels": kept, "counts": [*counts[order].tolist(), rest]}
    return {"n_rows": len(x_num), "columns": columns}


def count_numbers(x: NDArray[np.float64], edges: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers in each bin, those up to the first edge first, and missing ones last."""
    bins = np.searchsorted(edges, x, side="left")  # NaN comes after all edges
    bins[np.isnan(x)] = len(edges) + 1
    return np.bincount(bins, minlength=len(edges) + 2)


def psi(expected: Sequence[int], counts: Sequence[int]) -> float:
    """Population stability index of two histograms: sum (q - p) log(q / p).

    Each bin has half a row more on both sides, so that empty ones are no infinity.
    """
    p, q = (np.array(each, dtype=np.float64) + 0.5 for each in (expected, counts))
    p, q = p / p.sum(), q / q.sum()
    return float(((q - p) * np.log(q / p)).sum())


def critical_psi(n_expected: int, n_rows: int, n_bins: int, n_columns: int) -> float:
    """The PSI above which a column counts as drifted.

    Without drift, PSI is about (1/n + 1/m) chi2 with a degree less than there are bins.
    Above its quantile for the rate of false alarms, shared by all columns; and never
    below the floor.
    """
    if n_rows == 0 or n_bins < 2:
        return math.inf
    rate = FALSE_ALARM_RATE / max(1, n_columns)
    level = chi2_quantile(1 - rate, n_bins - 1) * (1 / n_rows + 1 / max(1, n_expected))
    return max(FLOOR, level)


def chi2_quantile(probability: float, degrees: int) -> float:
    """By Wilson and Hilferty: within 5 % for three degrees and more."""
    z = NormalDist().inv_cdf(probability)
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + z * math.sqrt(spread)) ** 3


def judge_column(
    expected: Mapping[str, Any], counts: Sequence[int], n_columns: int
) -> dict[str, Any]:
    """PSI of a column's counts against training, its bound, and whether it is above."""
    own = expected["counts"]
    used = [i for i, (p, q) in enumerate(zip(own, counts, strict=True)) if p or q]
    before, now = [own[i] for i in used], [counts[i] for i in used]
    n_rows: int = sum(now)
    value = psi(before, now) if len(used) > 1 and n_rows else 0.0
    bound = critical_psi(sum(before), n_rows, len(used), n_columns)
    return {
        "psi": value,
        "bound": bound if math.isfinite(bound) else None,
        "is_drifted": value > bound,
    }
