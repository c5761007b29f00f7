"""Scores, diversity, calibration and uncertainty of an ensemble: functions of arrays.

Shapes are the same everywhere: N rows, K members, C classes (two for binary).

- `members`: (N, K) outputs for regression, (N, K, C) probabilities for classification;
- `mean`: the ensemble's own answer, (N,) or (N, C), the mean of the members';
- `y`: (N,) numbers for regression, (N,) integer class indices for classification.

Everything is computed in float64, whatever comes in, logarithms are natural, and the
predicted class is the first of the largest probabilities. What is undefined is None:
whatever compares members when K = 1, AUROC with one class, R2 of a constant target.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from math import ceil, inf
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import (
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

MIN_PROBABILITY = 1e-12
"""Smaller probabilities count as this one inside a logarithm, and only there."""

N_BINS = 15
"""Confidence bins of the calibration error, as in the paper."""

_CHUNK_SIZE = 2**20  # numbers converted to float64 at a time: 8 MiB


class Decomposition(TypedDict):
    """The terms of ensemble_error = member_error - ambiguity, means over rows."""

    ensemble_error: float
    member_error: float
    ambiguity: float | None
    residual: float | None


class ReliabilityBin(TypedDict):
    """Rows whose confidence is in (lower, upper]; an empty bin has no averages."""

    lower: float
    upper: float
    count: int
    confidence: float | None
    accuracy: float | None


# Diversity of members: classification


def pairwise_kl(members: ArrayLike) -> FloatArray:
    """Symmetric Kullback-Leibler divergence of each pair of members, mean over rows.

    Entry (i, j) is 1/N sum_n 1/2 [KL(p_i || p_j) + KL(p_j || p_i)], which is
    1/(2N) sum_nc (p_i - p_j)(log p_i - log p_j): bilinear in p and log p, so matrix
    products of the two give all pairs at once. The paper's diversity is
    `mean_over_pairs` of it.

    Shape: (N, K, C) -> (K, K), symmetric, zero on the diagonal
    """
    members = _check_probabilities("members", members, "(N, K, C)")
    n, k, _ = members.shape
    products = np.zeros((k, k))
    for rows in _chunks(members):
        p = members[rows].astype(np.float64)
        log_p = _log(p)
        # A shift common to all members cancels in the differences. Without it, what
        # is left of nearly equal members would be the rounding error of large sums.
        p -= p.mean(axis=1, keepdims=True)
        log_p -= log_p.mean(axis=1, keepdims=True)
        products += np.tensordot(p, log_p, axes=((0, 2), (0, 2)))  # (K, K)
    own = np.diag(products)
    doubled = own[:, None] + own[None, :] - (products + products.T)
    return np.maximum(doubled / (2 * n), 0.0)


def pairwise_disagreement(members: ArrayLike) -> FloatArray:
    """Share of rows on which two members predict different classes, for each pair.

    Entry (i, j) is 1/N sum_n 1[argmax p_i(x_n) != argmax p_j(x_n)]; the paper's D is
    `mean_over_pairs` of it.

    Shape: (N, K, C) -> (K, K), symmetric, zero on the diagonal
    """
    members = _check_probabilities("members", members, "(N, K, C)")
    n, k, n_classes = members.shape
    # One contiguous row of small integers per member: comparing two such rows is so
    # cheap that all pairs cost less than the products of their one-hot forms.
    labels = np.empty((k, n), dtype=np.min_scalar_type(n_classes))
    for rows in _chunks(members):
        labels[:, rows] = members[rows].argmax(axis=2).T
    matrix = np.zeros((k, k))
    for i, j in combinations(range(k), 2):
        matrix[i, j] = matrix[j, i] = np.count_nonzero(labels[i] != labels[j]) / n
    return matrix


def mean_over_pairs(matrix: ArrayLike) -> float | None:
    """2/(K(K-1)) sum_{i<j} of a pairwise matrix (K, K); None if there is no pair."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must have shape (K, K), however: {matrix.shape=}")
    if len(matrix) < 2:
        return None
    return float(matrix[np.triu_indices(len(matrix), 1)].mean())


# Diversity of members: regression


def ambiguity(members: ArrayLike) -> float | None:
    """A = 1/(NK) sum_nk (f_k(x_n) - mean_k f_k(x_n))^2, in squared target units.

    Shape: (N, K) -> a number; None if K = 1
    """
    members = _check_numbers("members", members, "(N, K)")
    return float(members.var(axis=1).mean()) if members.shape[1] > 1 else None


def normalized_ambiguity(members: ArrayLike, train_variance: float) -> float | None:
    """The ambiguity over the population variance of the raw training targets.

    None if K = 1, and if the training targets did not vary.
    """
    if not 0 <= train_variance < inf:
        raise ValueError(
            f"train_variance must be finite and not negative, however: {train_variance=}"
        )
    value = ambiguity(members)
    return None if value is None or train_variance == 0 else value / train_variance


def decompose_error(y: ArrayLike, members: ArrayLike) -> Decomposition:
    """Krogh and Vedelsby's decomposition of the squared error, means over rows.

    (mean_k f_k - y)^2 = 1/K sum_k (f_k - y)^2 - 1/K sum_k (f_k - mean_k f_k)^2.

    The mean is that of `members` in float64, so `residual`, the left side minus the
    right, is rounding error only. If K = 1 there is no ambiguity and no residual.
    """
    members = _check_numbers("members", members, "(N, K)")
    y = _check_targets(y, len(members))
    ensemble_error = float(np.mean((members.mean(axis=1) - y) ** 2))
    member_error = float(np.mean((members - y[:, None]) ** 2))
    spread = ambiguity(members)
    return {
        "ensemble_error": ensemble_error,
        "member_error": member_error,
        "ambiguity": spread,
        "residual": (
            None if spread is None else ensemble_error - (member_error - spread)
        ),
    }


# Scores of predictions: classification


def accuracy(y: ArrayLike, mean: ArrayLike) -> float:
    """Share of rows whose most probable class is the true one."""
    return 1.0 - float(is_wrong(y, mean).mean())


def is_wrong(y: ArrayLike, mean: ArrayLike) -> BoolArray:
    """Whether the most probable class is not the true one: (N,), (N, C) -> (N,)."""
    y, mean = _check_classified(y, mean)
    wrong: BoolArray = mean.argmax(axis=1) != y
    return wrong


def brier(y: ArrayLike, mean: ArrayLike) -> float:
    """Brier's original score, 1/N sum_nc (p_nc - 1[y_n = c])^2, between 0 and 2.

    Binary targets get the same form, both classes counted: twice the score that looks
    at the positive class only (scikit-learn's default for binary).
    """
    # Not scikit-learn's: it warns of float32 probabilities, whose sums are off by 1e-7,
    # and takes more than two classes only since 1.7. The same goes for its log_loss.
    y, mean = _check_classified(y, mean)
    error = mean.copy()
    error[np.arange(len(y)), y] -= 1.0
    return float((error**2).sum(axis=1).mean())


def nll(y: ArrayLike, mean: ArrayLike) -> float:
    """Negative log-likelihood -1/N sum_n log p_n,y_n, with MIN_PROBABILITY's clip."""
    y, mean = _check_classified(y, mean)
    return float(-_log(mean[np.arange(len(y)), y]).mean())


def auroc(y: ArrayLike, mean: ArrayLike) -> float | None:
    """Area under the ROC curve of class 1, for binary; None if `y` has one class."""
    y, mean = _check_classified(y, mean)
    if mean.shape[1] != 2:
        raise ValueError(f"mean must have shape (N, 2), however: {mean.shape=}")
    return _roc_auc(y == 1, mean[:, 1])


# Scores of predictions: regression


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error."""
    return float(root_mean_squared_error(*_check_regressed(y, mean)))


def mae(y: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error."""
    return float(mean_absolute_error(*_check_regressed(y, mean)))


def r2(y: ArrayLike, mean: ArrayLike) -> float | None:
    """Coefficient of determination; None if `y` does not vary (one row included)."""
    y, mean = _check_regressed(y, mean)
    return float(r2_score(y, mean)) if np.ptp(y) > 0 else None


# Scores of each member


def member_scores[Score](
    score: Callable[[ArrayLike, ArrayLike], Score], y: ArrayLike, members: ArrayLike
) -> list[Score]:
    """A score of this file for each member alone, as `member_scores(rmse, y, members)`.

    Shape: (N,), (N, K) or (N, K, C) -> K scores
    """
    members = np.asarray(members)
    if members.ndim not in (2, 3):
        raise ValueError(
            f"members must have shape (N, K) or (N, K, C), however: {members.shape=}"
        )
    return [score(y, members[:, k]) for k in range(members.shape[1])]
