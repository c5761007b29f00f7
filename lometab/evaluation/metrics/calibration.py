"""How far probabilities, intervals and sets can be trusted, and what mends them."""

from fractions import Fraction
from math import ceil, inf
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import (
    BoolArray,
    FloatArray,
    check_classified,
    check_labels,
    check_numbers,
    check_probabilities,
    check_regressed,
    check_shape,
    check_targets,
    log,
    softmax,
)
from lometab.evaluation.metrics.scores import nll

N_BINS = 15
"""Confidence bins of the calibration error, as in the paper."""

TEMPERATURES = (0.1, 10.0)
"""The bounds between which a temperature is sought."""


class ReliabilityBin(TypedDict):
    """Rows whose confidence is in (lower, upper]; an empty bin has no averages."""

    lower: float
    upper: float
    count: int
    confidence: float | None
    accuracy: float | None


def reliability_bins(
    y: ArrayLike, mean: ArrayLike, n_bins: int = N_BINS
) -> list[ReliabilityBin]:
    """Confidence and accuracy of the ensemble in equal bins (lower, upper] of (0, 1].

    The confidence of a row is its largest probability. Edge m is the float64 nearest to
    m / n_bins, so a confidence of 0.2 lies on an edge of 15 bins, and below it.
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be positive, however: {n_bins=}")
    y, mean = check_classified(y, mean)
    right = mean.argmax(axis=1) == y
    confidence = np.minimum(mean.max(axis=1), 1.0)
    edges = np.arange(n_bins + 1) / n_bins
    bins = np.searchsorted(edges, confidence, side="left") - 1
    counts = np.bincount(bins, minlength=n_bins)
    confidences = np.bincount(bins, weights=confidence, minlength=n_bins)
    accuracies = np.bincount(bins, weights=right, minlength=n_bins)
    return [
        {
            "lower": float(edges[m]),
            "upper": float(edges[m + 1]),
            "count": int(counts[m]),
            "confidence": float(confidences[m] / counts[m]) if counts[m] else None,
            "accuracy": float(accuracies[m] / counts[m]) if counts[m] else None,
        }
        for m in range(n_bins)
    ]


def ece(y: ArrayLike, mean: ArrayLike, n_bins: int = N_BINS) -> float:
    """Expected calibration error sum_m |B_m|/N |acc(B_m) - conf(B_m)|.

    The bins are those of `reliability_bins`; empty ones contribute zero.
    """
    total = 0.0
    n = 0
    for each in reliability_bins(y, mean, n_bins):
        if each["accuracy"] is not None and each["confidence"] is not None:
            total += each["count"] * abs(each["accuracy"] - each["confidence"])
            n += each["count"]
    return total / n


def temper(mean: ArrayLike, temperature: float) -> FloatArray:
    """Probabilities made less (above 1) or more extreme: softmax(log mean / T).

    The order of the classes stays. At 1 the answer is what came in.

    Shape: (N, C) -> (N, C)
    """
    mean = check_probabilities("mean", mean, "(N, C)").astype(np.float64)
    if not 0 < temperature < inf:
        raise ValueError(
            f"temperature must be positive and finite, however: {temperature=}"
        )
    return mean if temperature == 1 else softmax(log(mean) / temperature)


def fit_temperature(y: ArrayLike, mean: ArrayLike) -> float:
    """The temperature within `TEMPERATURES` at which `temper` has the least NLL.

    The NLL is convex in 1/T, and its slope there is the mean over rows of
    sum_c q_c log p_c - log p_y, with p the mean and q the tempered one. So log T is
    bisected by the sign of the slope. 1 if that is no better, as where clips matter.
    """
    y, mean = check_classified(y, mean)
    logs = log(mean)
    of_truth = logs[np.arange(len(y)), y].mean()
    low, high = np.log(TEMPERATURES)
    for _ in range(32):
        middle = (low + high) / 2
        expected = (softmax(logs / np.exp(middle)) * logs).sum(axis=1).mean()
        if expected > of_truth:  # too sure
            low = middle
        else:
            high = middle
    fitted = float(np.exp((low + high) / 2))
    return fitted if nll(y, temper(mean, fitted)) < nll(y, mean) else 1.0


def member_interval(
    members: ArrayLike, alpha: float = 0.1
) -> tuple[FloatArray, FloatArray] | None:
    """The alpha/2 and 1 - alpha/2 quantiles of each row's members.

    Quantiles interpolate linearly, as NumPy's default. Members agree more than they
    are right, so these intervals usually cover less than 1 - alpha: see
    `conformal_interval`.

    Shape: (N, K) -> lower (N,), upper (N,); None if K = 1
    """
    _check_alpha(alpha)
    members = check_numbers("members", members, "(N, K)")
    if members.shape[1] == 1:
        return None
    lower, upper = np.quantile(members, [alpha / 2, 1 - alpha / 2], axis=1)
    return lower, upper


def conformal_scores(y: ArrayLike, mean: ArrayLike) -> FloatArray:
    """How badly each row's answer fits: |y - mean|, or 1 - p of the true class.

    Shape: (N,), (N,) for regression or (N, C) for classification -> (N,)
    """
    if np.ndim(mean) == 1:
        y, mean = check_regressed(y, mean)
        return np.abs(y - mean)
    y, mean = check_classified(y, mean)
    scores: FloatArray = 1.0 - mean[np.arange(len(y)), y]
    return scores


def conformal_quantile(scores: ArrayLike, alpha: float = 0.1) -> float:
    """The ceil((n+1)(1-alpha))-th smallest of n scores, those of validation rows.

    A new row exchangeable with them scores at most this with probability 1 - alpha or
    more. Infinite if n is too small for that: n < 1/alpha - 1.
    """
    _check_alpha(alpha)
    scores = check_numbers("scores", scores, "(N,)")
    n = len(scores)
    # In fractions, since 100 * (1 - 0.43) is 57.00000000000001 and would become 58.
    rank = ceil((n + 1) * (1 - Fraction(str(alpha))))
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= n else inf


def conformal_interval(
    mean: ArrayLike, quantile: float
) -> tuple[FloatArray, FloatArray]:
    """mean - quantile and mean + quantile, of the quantile of |y - mean|."""
    mean = check_numbers("mean", mean, "(N,)")
    return mean - quantile, mean + quantile


def conformal_set(mean: ArrayLike, quantile: float) -> BoolArray:
    """The classes with 1 - p up to the quantile: (N, C) -> (N, C), perhaps none."""
    mean = check_probabilities("mean", mean, "(N, C)").astype(np.float64)
    sets: BoolArray = 1.0 - mean <= quantile
    return sets


def interval_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of rows with lower <= y <= upper."""
    lower, upper = _check_interval(lower, upper)
    y = check_targets(y, len(lower))
    return float(np.mean((lower <= y) & (y <= upper)))


def interval_width(lower: ArrayLike, upper: ArrayLike) -> float:
    """Mean of upper - lower."""
    lower, upper = _check_interval(lower, upper)
    return float(np.mean(upper - lower))


def set_coverage(y: ArrayLike, sets: ArrayLike) -> float:
    """Share of rows whose set has the true class: (N,), (N, C) -> a number."""
    sets = _check_sets(sets)
    y = check_labels(y, *sets.shape)
    return float(sets[np.arange(len(y)), y].mean())


def set_size(sets: ArrayLike) -> float:
    """Mean number of classes in a set."""
    return float(_check_sets(sets).sum(axis=1).mean())


def _check_interval(
    lower: ArrayLike, upper: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    lower = check_shape("lower", lower, "(N,)").astype(np.float64)
    upper = check_shape("upper", upper, "(N,)").astype(np.float64)
    if lower.shape != upper.shape:
        raise ValueError(
            f"lower and upper must have the same shape, however: {lower.shape=}, "
            f"{upper.shape=}"
        )
    return lower, upper


def _check_sets(sets: ArrayLike) -> BoolArray:
    sets = check_shape("sets", sets, "(N, C)")
    if sets.dtype != np.bool_:
        raise ValueError(f"sets must be boolean, however: {sets.dtype=}")
    return sets


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1, however: {alpha=}")
