"""How far a score may be trusted: the same resamples of rows for every run."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import (
    FloatArray,
    check_classified,
    check_regressed,
)

N_DRAWS = 100
"""Resamples of the validation rows; a standard error is then known to 7 %."""
_CHUNK = 2**22  # row numbers drawn at a time
Draws = Sequence[float]
"""A run's score on each resample."""


def draw_scores(y: ArrayLike, mean: ArrayLike) -> list[float]:
    """RMSE or accuracy on resamples of the rows, drawn with replacement.

    They depend on the number of rows alone, so that runs on the same rows are paired:
    where their draws move together, their difference is surer than either of them.
    """
    if np.ndim(mean) == 1:
        y, mean = check_regressed(y, mean)
        losses = (y - mean) ** 2
    else:
        y, mean = check_classified(y, mean)
        losses = (mean.argmax(1) == y).astype(np.float64)
    n_rows, rng = len(losses), np.random.default_rng(0)
    size = max(1, _CHUNK // n_rows)
    found: list[float] = []
    while len(found) < N_DRAWS:
        rows = rng.integers(n_rows, size=(min(size, N_DRAWS - len(found)), n_rows))
        found += losses[rows].mean(1).tolist()
    scores = np.sqrt(found) if np.ndim(mean) == 1 else np.array(found)
    return [float(f"{score:.6g}") for score in scores]


def difference_error(
    runs: Mapping[int, Draws], others: Mapping[int, Draws]
) -> float | None:
    """Standard error of the difference of two cells' mean scores; None if not known.

    Of rows and, where both cells have several seeds in common, of seeds. Otherwise the
    luck of the seed is not in it.

    Args:
        runs, others: of each seed of a cell, its draws; runs of the same seed are
            pairs.
    """
    one = {seed: draws for seed, draws in runs.items() if draws}
    other = {seed: draws for seed, draws in others.items() if draws}
    if not one or not other:
        return None
    common = sorted(one.keys() & other.keys())
    if not common:
        return float((_mean(one) - _mean(other)).std(ddof=1))
    pairs = [np.subtract(one[seed], other[seed]) for seed in common]
    return float(np.sqrt(_variance_of_mean(np.array(pairs))))


def _mean(draws: Mapping[int, Draws]) -> FloatArray:
    means: FloatArray = np.mean([*draws.values()], axis=0)
    return means


def _variance_of_mean(values: FloatArray) -> float:
    """Of the mean over seeds and rows: (S, draws).

    Few seeds spread less than all do, hence S - 1. Each seed's own luck with the rows
    is in the spread over draws and in that over seeds, and so is taken off once.
    """
    n_seeds = len(values)
    by_rows = float(values.mean(0).var(ddof=1))
    if n_seeds == 1:
        return by_rows
    by_seeds = float(values.mean(1).var(ddof=1)) / n_seeds
    own = values - values.mean(0)
    by_both = float(own.var(axis=1, ddof=1).mean()) / (n_seeds - 1)
    return by_rows + max(0.0, by_seeds - by_both)
