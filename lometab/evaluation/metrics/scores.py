"""How good the answers of an ensemble, or of one member, are."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_classified,
    check_regressed,
    log,
)

Score = TypeVar("Score")


def accuracy(y: ArrayLike, mean: ArrayLike) -> float:
    """Share of rows whose most probable class is the true one."""
    return float(np.mean(~is_wrong(y, mean)))


def is_wrong(y: ArrayLike, mean: ArrayLike) -> BoolArray:
    """Whether the most probable class is not the true one: (N,), (N, C) -> (N,)."""
    y, mean = check_classified(y, mean)
    wrong: BoolArray = mean.argmax(axis=1) != y
    return wrong


def brier(y: ArrayLike, mean: ArrayLike) -> float:
    """Brier's original score, 1/N sum_nc (p_nc - 1[y_n = c])^2, between 0 and 2.

    Binary targets get the same form, both classes counted: twice the score that looks
    at the positive class only (scikit-learn's default for binary).
    """
    # Not scikit-learn's: it warns of float32 probabilities, whose sums are off by 1e-7,
    # and takes more than two classes only since 1.7. The same goes for its log_loss.
    y, mean = check_classified(y, mean)
    truth = np.eye(mean.shape[1])[y]  # (N, C)
    return float(((mean - truth) ** 2).sum(axis=1).mean())


def nll(y: ArrayLike, mean: ArrayLike) -> float:
    """Negative log-likelihood -1/N sum_n log p_n,y_n, with MIN_PROBABILITY's clip."""
    y, mean = check_classified(y, mean)
    return float(-log(mean[np.arange(len(y)), y]).mean())


def auroc(y: ArrayLike, mean: ArrayLike) -> float | None:
    """Area under the ROC curve of class 1, for binary; None if `y` has one class."""
    y, mean = check_classified(y, mean)
    if mean.shape[1] != 2:
        raise ValueError(f"mean must have shape (N, 2), however: {mean.shape=}")
    return roc_auc(y == 1, mean[:, 1])


def confusion_matrix(y: ArrayLike, mean: ArrayLike) -> IntArray:
    """Rows of each true class (down) by the predicted one (across): -> (C, C)."""
    y, mean = check_classified(y, mean)
    n_classes = mean.shape[1]
    pairs = y * n_classes + mean.argmax(axis=1)
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error."""
    y, mean = check_regressed(y, mean)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def mae(y: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error."""
    y, mean = check_regressed(y, mean)
    return float(np.mean(np.abs(y - mean)))


def r2(y: ArrayLike, mean: ArrayLike) -> float | None:
    """Coefficient of determination; None if `y` does not vary (one row included)."""
    y, mean = check_regressed(y, mean)
    if np.ptp(y) == 0:
        return None
    return float(1 - np.sum((y - mean) ** 2) / np.sum((y - y.mean()) ** 2))


def member_scores(
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


def roc_auc(positive: BoolArray, score: FloatArray) -> float | None:
    """The area under the ROC curve; None if all rows are positive, or none.

    By ranks (Mann and Whitney); equal scores share their mean rank.
    """
    if positive.all() or not positive.any():
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n = np.count_nonzero(positive)
    above = ranks[positive].sum() - n * (n + 1) / 2
    return float(above / (n * (len(positive) - n)))
