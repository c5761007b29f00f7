"""How far a score may be trusted: the same resamples of rows for every run."""

from collections.abc import Sequence

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


def difference_error(runs: Sequence[Draws], others: Sequence[Draws]) -> float | None:
    """Standard error of the difference of two cells' mean scores; None if not known.

    By drawing rows and, where both have several, seeds. With one seed each, the luck
    of the seed is not in it.

    Args:
        runs, others: of each seed of a cell, its draws; seeds are paired by position.
    """
    if not runs or not others or not all([*runs, *others]):
        return None
    n_seeds = min(len(runs), len(others))
    one, other = np.array(runs[:n_seeds]), np.array(others[:n_seeds])  # (S, draws)
    differences = _draw_seeds(one - other)
    return float(differences.std(ddof=1))


def _draw_seeds(values: FloatArray) -> FloatArray:
    """For each draw the mean over seeds that are drawn too: (S, draws) -> (draws,)."""
    n_seeds, n_draws = values.shape
    seeds = np.random.default_rng(1).integers(n_seeds, size=(n_seeds, n_draws))
    means: FloatArray = np.take_along_axis(values, seeds, axis=0).mean(0)
    return means
