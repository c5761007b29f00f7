"""How uncertain each row's answer is, and what that uncertainty is worth."""

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import (
    FloatArray,
    check_numbers,
    check_probabilities,
    check_ranked,
    entropy,
    row_chunks,
)
from lometab.evaluation.metrics.calibration import conformal_scores
from lometab.evaluation.metrics.scores import is_wrong, roc_auc


def member_std(members: ArrayLike) -> FloatArray | None:
    """Standard deviation over the members (population): (N, K) -> (N,), None if K = 1.

    The mean of its square over rows is the ambiguity.
    """
    members = check_numbers("members", members, "(N, K)")
    k = members.shape[1]
    if k == 1:
        return None
    # numpy's own takes three times as long for one row, which is what is served most.
    centred = members - members.sum(axis=1, keepdims=True) / k
    std: FloatArray = np.sqrt(np.einsum("nk,nk->n", centred, centred) / k)
    return std


def predictive_entropy(mean: ArrayLike) -> FloatArray:
    """Entropy -sum_c p_c log p_c of the ensemble's answer: (N, C) -> (N,), in nats."""
    return entropy(check_probabilities("mean", mean, "(N, C)").astype(np.float64))


def mutual_information(members: ArrayLike) -> FloatArray | None:
    """Entropy of the members' mean minus the mean of their entropies, at least 0.

    The part of the predictive entropy that comes from members not agreeing.

    Shape: (N, K, C) -> (N,), in nats; None if K = 1
    """
    members = check_probabilities("members", members, "(N, K, C)")
    n, k, _ = members.shape
    if k == 1:
        return None
    information = np.empty(n)
    for rows in row_chunks(members):
        p = members[rows].astype(np.float64)
        information[rows] = entropy(p.mean(axis=1)) - entropy(p).mean(axis=1)
    return np.maximum(information, 0.0)


def disagreement(members: ArrayLike) -> FloatArray | None:
    """Share of the K(K-1)/2 pairs of members that predict different classes.

    With v_c members voting for class c: 1 - sum_c v_c(v_c - 1) / (K(K-1)). The mean
    over rows is `mean_over_pairs(pairwise_disagreement(members))`.

    Shape: (N, K, C) -> (N,); None if K = 1
    """
    members = check_probabilities("members", members, "(N, K, C)")
    n, k, n_classes = members.shape
    if k == 1:
        return None
    n_agreeing = np.empty(n)
    for rows in row_chunks(members):
        labels = members[rows].argmax(axis=2)  # (n, K)
        flat = labels + n_classes * np.arange(len(labels))[:, None]
        votes = np.bincount(flat.ravel(), minlength=len(labels) * n_classes)
        votes = votes.reshape(-1, n_classes)
        n_agreeing[rows] = (votes * (votes - 1)).sum(axis=1)
    share: FloatArray = 1.0 - n_agreeing / (k * (k - 1))
    return share


_SAME = 1e-9
"""Levels of an uncertainty that differ by no more than this share are ties."""
_BESIDE = 1e-4
"""Share by which a level reaches out to both sides: an answer's last bits change with
how many rows are in the same run, and a tie must stay one."""


def trust_ranks(levels: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """What `trust` looks uncertainties up in: values, ascending, and the rank of each.

    The rank of a level that many rows share is the middle of theirs: as many of them
    count as more certain than as less. Between two levels it goes from the last rank of
    one to the first of the next. Below the least value it is 0, above all 1.

    Args:
        levels: of calibration rows, ascending, evenly from the least to the largest.

    Shape: (L,) -> (at most 3 L,), the same
    """
    levels = check_numbers("levels", levels, "(L,)")
    ranks = np.linspace(0.0, 1.0, len(levels))
    is_new = np.diff(levels, prepend=-np.inf) > _SAME * np.abs(levels)
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(levels)) - 1
    distinct = levels[first]
    gaps = np.diff(distinct, prepend=-np.inf, append=np.inf)
    reach = np.maximum(_BESIDE * np.abs(distinct), 1e-12)
    reach = np.minimum(reach, np.minimum(gaps[:-1], gaps[1:]) / 3)
    values = np.stack([distinct - reach, distinct, distinct + reach], axis=1)
    middle = (ranks[first] + ranks[last]) / 2
    of_values = np.stack([ranks[first], middle, ranks[last]], axis=1)
    of_values[0, 0], of_values[-1, -1] = 0.0, 1.0
    return values.ravel(), of_values.ravel()


def trust(uncertainty: ArrayLike, ranks: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Share of calibration rows that were less certain than each row: (N,) -> (N,).

    Calibration rows that were as certain count half, so the mean over rows like them
    is one half.

    Args:
        ranks: what `trust_ranks` gave.
    """
    found: FloatArray = 1.0 - np.interp(np.asarray(uncertainty), *ranks)
    return found


def risk_coverage_curve(
    losses: ArrayLike, uncertainty: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Mean loss of the rows one keeps when only the most certain ones are answered.

    Point i of N: coverage (i+1)/N and risk, the mean loss of the i+1 most certain rows.
    Rows of equal uncertainty enter in random order, in expectation, so the curve does
    not depend on the order of rows. Losses are `is_wrong(y, mean)`, squared errors, or
    any numbers.

    Shape: (N,), (N,) -> (N,), (N,)
    """
    losses, uncertainty = check_ranked(losses, uncertainty)
    _, group, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)
    group_losses = np.bincount(group, weights=losses) / counts
    rank = np.arange(1, len(losses) + 1)
    return rank / len(losses), np.cumsum(np.repeat(group_losses, counts)) / rank


def aurc(losses: ArrayLike, uncertainty: ArrayLike) -> float:
    """Area under the risk-coverage curve, the mean of its N risks; less is better."""
    return float(risk_coverage_curve(losses, uncertainty)[1].mean())


def error_auroc(y: ArrayLike, mean: ArrayLike, uncertainty: ArrayLike) -> float | None:
    """How well an uncertainty tells wrong answers of the ensemble from right ones.

    The area under the ROC curve of `is_wrong(y, mean)` by the uncertainty: 1 if each
    wrong row is less certain than each right one; None if all are right or all wrong.
    """
    wrong, uncertainty = check_ranked(is_wrong(y, mean), uncertainty)
    return roc_auc(wrong == 1, uncertainty)


def large_error_auroc(
    y: ArrayLike, mean: ArrayLike, uncertainty: ArrayLike, share: float = 0.1
) -> float | None:
    """How well an uncertainty tells the rows with the largest errors, in regression.

    The area under the ROC curve of |y - mean| above its 1 - `share` quantile by the
    uncertainty; None if no error is larger than the others.
    """
    errors, uncertainty = check_ranked(conformal_scores(y, mean), uncertainty)
    return roc_auc(errors > np.quantile(errors, 1 - share), uncertainty)
