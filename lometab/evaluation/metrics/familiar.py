"""Scores that people know from elsewhere, beside those of `scores`."""

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import check_classified
from lometab.evaluation.metrics.scores import confusion_matrix, roc_auc

LIFT_SHARE = 0.1
MAX_CLASSES = 30


def balanced_accuracy(y: ArrayLike, mean: ArrayLike) -> float:
    """Mean over the classes that occur of the share of their rows that is right."""
    matrix = confusion_matrix(y, mean)
    counts = matrix.sum(axis=1)
    found = counts > 0
    return float((matrix.diagonal()[found] / counts[found]).mean())


def f1(y: ArrayLike, mean: ArrayLike) -> float | None:
    """2 PR / (P + R) of class 1 for binary, the mean over classes for more; None for
    two classes if class 1 neither occurs nor is predicted."""
    matrix = confusion_matrix(y, mean)
    right = matrix.diagonal()
    total = matrix.sum(axis=0) + matrix.sum(axis=1)
    if len(matrix) == 2:
        return float(2 * right[1] / total[1]) if total[1] else None
    found = total > 0
    return float((2 * right[found] / total[found]).mean())


def macro_auroc(y: ArrayLike, mean: ArrayLike) -> float | None:
    """Mean over classes of the area under the ROC curve of each against the others;
    None for many classes, of which it would take too long."""
    y, mean = check_classified(y, mean)
    if mean.shape[1] > MAX_CLASSES:
        return None
    areas = [roc_auc(y == c, mean[:, c]) for c in range(mean.shape[1])]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else None


def lift(y: ArrayLike, mean: ArrayLike) -> float | None:
    """How many times more of class 1 there is among the tenth of the rows that are most
    likely of it than among all; None if there is none. Equal probabilities share."""
    y, mean = check_classified(y, mean)
    positive, score = y == 1, mean[:, 1]
    if not positive.any():
        return None
    n_taken = max(1, round(LIFT_SHARE * len(y)))
    edge = np.partition(score, len(y) - n_taken)[len(y) - n_taken]
    above, at = score > edge, score == edge
    taken = positive[above].sum() + (n_taken - above.sum()) * positive[at].mean()
    return float(taken / n_taken / positive.mean())
