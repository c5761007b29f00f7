"""Whether rows that are served come from where the training rows came from.

Counts only, and numpy only: a process that serves can afford it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
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
HEAVY_TAILS = 2.0
"""How much more often than chi-squared PSI gets beyond its quantile where a bin expects
about ten rows: what rates are divided by."""
FIRST_LOOK = 25
"""Rows before which counts that grow are not looked at: few of them say nothing."""


def make_reference(
    numeric: Sequence[str],
    categorical: Sequence[str],
    x_num: NDArray[np.float64],
    x_cat: NDArray[np.object_],
    moments: Collection[str] = (),
) -> dict[str, Any]:
    """Histograms of training rows, fit for JSON: what a model's file keeps.

    Numbers are counted in tenths of the training rows, fewer where these coincide, and
    texts by the most frequent levels; each column also has a share of missing ones.

    Args:
        moments: the numeric columns of which only missing ones are counted, as what is
            asked later lies after all training rows.
    """
    columns: dict[str, Any] = {}
    for i, name in enumerate(numeric[:MAX_COLUMNS]):
        x = x_num[:, i]
        present = x[~np.isnan(x)]
        inner = np.linspace(0, 1, N_BINS + 1)[1:-1]
        has_edges = len(present) and name not in moments
        edges = np.unique(np.quantile(present, inner)) if has_edges else np.empty(0)
        counts = count_numbers(x, edges)
        columns[name] = {"edges": edges.tolist(), "counts": counts.tolist()}
    order = np.random.default_rng(0).permutation(len(x_cat))
    for i, name in enumerate(categorical[:MAX_COLUMNS]):
        columns[name] = _count_levels(x_cat[order, i].astype(str))
    return {"n_rows": len(x_num), "columns": columns}


def _count_levels(texts: NDArray[np.str_]) -> dict[str, Any]:
    """The most frequent levels of one half of the rows, counted in the other: in those
    that they were chosen by, they are more frequent than elsewhere, and what is rare is
    rarer."""
    n_chosen_by = len(texts) // 2
    levels, counts = np.unique(texts[:n_chosen_by], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MAX_LEVELS]
    kept = [str(level) for level in levels[order]]
    others = texts[n_chosen_by:]
    found = [int((others == level).sum()) for level in kept]
    return {
        "levels": kept,
        "counts": [*found, len(others) - sum(found)],
        "n_chosen_by": n_chosen_by,
    }


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


def critical_psi(
    n_expected: int,
    n_rows: int,
    n_bins: int,
    n_columns: int,
    rate: float = FALSE_ALARM_RATE,
) -> float:
    """The PSI above which a column counts as drifted.

    Without drift, PSI is about (1/n + 1/m) chi2 with a degree less than there are bins.
    Above its quantile for the rate of false alarms, shared by all columns; and never
    below the floor.
    """
    if n_rows == 0 or n_bins < 2:
        return math.inf
    share = rate / max(1, n_columns) / HEAVY_TAILS
    level = chi2_quantile(1 - share, n_bins - 1) * (1 / n_rows + 1 / max(1, n_expected))
    return max(FLOOR, level)


def rate_of_look(number: int) -> float:
    """How often the look of this number at counts that grow, the first being 1, may be
    a false alarm: all of them together as often as a single one."""
    return FALSE_ALARM_RATE / (number * (number + 1))


def is_look_due(n_rows: int, n_looked_at: int) -> bool:
    """Whether counts have grown enough for another look: rates get small by many."""
    return n_rows >= max(FIRST_LOOK, 2 * n_looked_at)


def chi2_quantile(probability: float, degrees: int) -> float:
    """By Wilson and Hilferty: within 5 % for three degrees and more."""
    z = NormalDist().inv_cdf(probability)
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + z * math.sqrt(spread)) ** 3


def judge_column(
    expected: Mapping[str, Any],
    counts: Sequence[int],
    n_columns: int,
    rate: float = FALSE_ALARM_RATE,
) -> dict[str, Any]:
    """PSI of a column's counts against training, its bound, and whether it is above."""
    own = expected["counts"]
    if "levels" in expected and "n_chosen_by" not in expected:
        own, counts = _join_doubtful(own, counts)
    used = [i for i, (p, q) in enumerate(zip(own, counts, strict=True)) if p or q]
    before, now = [own[i] for i in used], [counts[i] for i in used]
    n_rows: int = sum(now)
    value = psi(before, now) if len(used) > 1 and n_rows else 0.0
    bound = critical_psi(sum(before), n_rows, len(used), n_columns, rate)
    return {
        "psi": value,
        "bound": bound if math.isfinite(bound) else None,
        "is_drifted": value > bound,
    }


def _join_doubtful(
    own: Sequence[int], counts: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Levels that chance may have chosen, with the rest: of models that chose levels by
    the rows they counted, these are less frequent in any others."""
    levels = own[:-1]
    least = levels[-1] if levels and own[-1] else 0  # else none was left out
    bound = max(least + 3 * math.sqrt(least), 10)
    clear = [i for i, n in enumerate(levels) if n > bound]
    others = [i for i in range(len(own)) if i not in clear]
    return (
        [*(own[i] for i in clear), sum(own[i] for i in others)],
        [*(counts[i] for i in clear), sum(counts[i] for i in others)],
    )
