"""What an ensemble gains by averaging its members, with how sure that is."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import (
    FloatArray,
    check_labels,
    check_numbers,
    check_probabilities,
    check_targets,
    row_chunks,
)

N_RESAMPLES = 1000
_MAX_BLOCKS = 2000


class RowErrors(NamedTuple):
    """Squared errors of each row; of classes, of the probabilities, summed (Brier)."""

    ensemble: FloatArray
    """(N,)"""
    members: FloatArray
    """(N, K)"""


class Estimate(NamedTuple):
    """A number of the rows, and the 95 % bootstrap interval over rows."""

    value: float
    lower: float
    upper: float


def row_errors(y: ArrayLike, members: ArrayLike) -> RowErrors:
    """Of the members' mean, and of each member: (N,), (N, K) or (N, K, C)."""
    if np.ndim(members) == 2:
        numbers = check_numbers("members", members, "(N, K)")
        errors = numbers - check_targets(y, len(numbers))[:, None]
        return RowErrors(np.square(errors.mean(axis=1)), np.square(errors))
    p = check_probabilities("members", members, "(N, K, C)")
    n, k, n_classes = p.shape
    labels = check_labels(y, n, n_classes)
    found = RowErrors(np.empty(n), np.empty((n, k)))
    for rows in row_chunks(p):
        errors = p[rows] - np.eye(n_classes)[labels[rows], None]
        found.ensemble[rows] = np.square(errors.mean(axis=1)).sum(axis=1)
        found.members[rows] = np.square(errors).sum(axis=2)
    return found


def share_removed(ensemble: FloatArray, single: FloatArray) -> Estimate | None:
    """1 - ensemble / single, of two errors of each row; None if there is none at all.

    With the members' mean error as `single` it is the ambiguity over that error (Krogh
    and Vedelsby): the share of the members' error that averaging removes.
    """
    if single.sum() <= 0:
        return None
    return bootstrap(
        lambda weights: 1 - (weights @ ensemble) / np.maximum(weights @ single, 1e-300),
        len(ensemble),
    )


def bootstrap(measure: Callable[[FloatArray], FloatArray], n_rows: int) -> Estimate:
    """A measure of weighted rows, and how it spreads when rows are drawn again.

    Beyond some thousand rows, blocks of rows are drawn in their place.

    Args:
        measure: takes weights (B, N) and gives (B,).
    """
    value = float(measure(np.ones((1, n_rows)))[0])
    rng = np.random.default_rng(0)
    n_blocks = min(n_rows, _MAX_BLOCKS)
    block_of = rng.permutation(n_rows) % n_blocks
    found = []
    step = max(1, 2**21 // n_rows)
    for start in range(0, N_RESAMPLES, step):
        size = min(step, N_RESAMPLES - start)
        drawn = rng.multinomial(n_blocks, np.full(n_blocks, 1 / n_blocks), size=size)
        found.append(measure(drawn[:, block_of].astype(np.float64)))
    lower, upper = np.quantile(np.concatenate(found), [0.025, 0.975])
    return Estimate(value, float(lower), float(upper))
