"""Conformal scores that follow how hard a row is, and what is made of them."""

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import (
    BoolArray,
    FloatArray,
    check_classified,
    check_numbers,
    check_probabilities,
    check_ranked,
)
from lometab.evaluation.metrics.calibration import (
    conformal_quantile,
    conformal_scores,
)

OFFSETS = tuple(2.0**power for power in range(-4, 7))
"""Offsets that are tried, in units of the mean spread: from the spread nearly alone to
intervals of nearly one width."""

_ALPHAS = (0.2, 0.1, 0.05)


def scaled_scores(
    y: ArrayLike, mean: ArrayLike, spread: ArrayLike, offset: float
) -> FloatArray:
    """|y - mean| / (spread + offset): an error in units of the row's own difficulty.

    Shape: (N,), (N,), (N,) -> (N,)
    """
    errors, spread = check_ranked(conformal_scores(y, mean), spread)
    scores: FloatArray = errors / (spread + offset)
    return scores


def fit_offset(
    y: ArrayLike, mean: ArrayLike, spread: ArrayLike
) -> tuple[float | None, float]:
    """The offset with the narrowest scaled intervals, and their relative width.

    Widths are means over rows, relative to intervals of one width on the same rows,
    and means over 80, 90 and 95 %. None and infinity where members do not differ or
    all answers are exact.

    Shape: (N,), (N,), (N,) -> offset, relative width
    """
    errors, spread = check_ranked(conformal_scores(y, mean), spread)
    alphas = [a for a in _ALPHAS if conformal_quantile(errors, a) < inf]
    constant = [conformal_quantile(errors, alpha) for alpha in alphas]
    unit = float(spread.mean())
    if unit <= 0 or not constant or min(constant) <= 0:
        return None, inf
    found: list[tuple[float, float]] = []
    for offset in (unit * each for each in OFFSETS):
        scores = errors / (spread + offset)
        width = unit + offset
        ratios = [
            conformal_quantile(scores, alpha) * width / quantile
            for alpha, quantile in zip(alphas, constant, strict=True)
        ]
        found.append((sum(ratios) / len(ratios), offset))
    ratio, offset = min(found)
    return offset, ratio


def probability_before(mean: ArrayLike) -> FloatArray:
    """For each class, the probability of those that are more probable: (N, C) -> same.

    Of equal ones the first counts as more probable. The first class of a row has 0.
    """
    mean = check_probabilities("mean", mean, "(N, C)").astype(np.float64)
    order = np.argsort(-mean, axis=1, kind="stable")
    ordered = np.take_along_axis(mean, order, axis=1)
    sums = np.zeros_like(ordered)
    np.cumsum(ordered[:, :-1], axis=1, out=sums[:, 1:])
    before = np.empty_like(sums)
    np.put_along_axis(before, order, sums, axis=1)
    return before


def adaptive_scores(y: ArrayLike, mean: ArrayLike) -> FloatArray:
    """`probability_before` of the true class: (N,), (N, C) -> (N,)."""
    y, mean = check_classified(y, mean)
    return probability_before(mean)[np.arange(len(y)), y]


def adaptive_set(mean: ArrayLike, quantile: ArrayLike) -> BoolArray:
    """The classes with `probability_before` up to the quantile, never none.

    Adaptive prediction sets (Romano, Sesia and Candes) without their random draw: the
    most probable class is always in, as nothing comes before it.

    Args:
        quantile: one, or one for each row (N, 1) or each class (C,).
    """
    sets: BoolArray = probability_before(mean) <= np.asarray(quantile)
    return sets


def coverage_by_class(y: ArrayLike, sets: BoolArray) -> list[float | None]:
    """Of each class's rows, the share whose set has it; None for no rows."""
    labels = np.asarray(y)
    inside = sets[np.arange(len(labels)), labels]
    found: list[float | None] = []
    for c in range(sets.shape[1]):
        rows = inside[labels == c]
        found.append(float(rows.mean()) if len(rows) else None)
    return found


def empty_share(sets: BoolArray) -> float:
    """Share of rows whose set has no class."""
    return float(np.mean(~sets.any(axis=1)))


def quantile_levels(values: ArrayLike, n_levels: int) -> FloatArray:
    """So many quantiles of numbers, evenly from the least to the largest."""
    values = check_numbers("values", values, "(N,)")
    quantiles: FloatArray = np.quantile(values, np.linspace(0, 1, n_levels))
    return quantiles
