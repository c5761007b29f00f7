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
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

# scikit-learn is imported by the four functions that call it: it takes a second and
# 100 MB to load, and a process that serves needs only the uncertainty of its answers.

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
Score = TypeVar("Score")

MIN_PROBABILITY = 1e-12
"""Smaller probabilities count as this one inside a logarithm, and only there."""

N_BINS = 15
"""Confidence bins of the calibration error, as in the paper."""

TEMPERATURES = (0.1, 10.0)
"""The bounds between which a temperature is sought."""

_CHUNK_SIZE = 2**20  # numbers converted to float64 at a time: 8 MiB

# Multiplications in one matrix product. OpenBLAS keeps a product of this size in the
# calling thread. Its own threads gain nothing here and wait for each other by spinning:
# on two busy cores that took 20 s for what takes one thread 0.4 s.
_PRODUCT_SIZE = 2**18


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
    width = max(1, _PRODUCT_SIZE // k**2)
    for rows in _chunks(members):
        p = members[rows].swapaxes(0, 1).astype(np.float64, order="C")
        p = p.reshape(k, -1)  # (K, n * C)
        log_p = _log(p)
        # A shift common to all members cancels in the differences. Without it, what
        # is left of nearly equal members would be the rounding error of large sums.
        p -= p.mean(axis=0)
        log_p -= log_p.mean(axis=0)
        for start in range(0, p.shape[1], width):
            part = slice(start, start + width)
            products += p[:, part] @ log_p[:, part].T  # (K, K)
    own = np.diag(products)
    matrix = own[:, None] + own[None, :] - (products + products.T)
    divergence: FloatArray = np.maximum(matrix / (2 * n), 0.0)
    return divergence


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
            "train_variance must be finite and not negative, however: "
            f"{train_variance=}"
        )
    value = ambiguity(members)
    return None if value is None or train_variance == 0 else value / train_variance


def pairwise_difference(members: ArrayLike) -> FloatArray:
    """Mean over rows of the squared difference of each pair of members.

    Entry (i, j) is 1/N sum_n (f_i(x_n) - f_j(x_n))^2, in squared target units. The
    ambiguity is (K - 1)/(2K) of its `mean_over_pairs`.

    Shape: (N, K) -> (K, K), symmetric, zero on the diagonal
    """
    members = _check_numbers("members", members, "(N, K)")
    n, k = members.shape
    products = np.zeros((k, k))
    width = max(1, _PRODUCT_SIZE // k**2)
    for start in range(0, n, width):
        # What all members share cancels in the differences, as in `pairwise_kl`.
        rows = members[start : start + width]
        rows = rows - rows.mean(axis=1, keepdims=True)
        products += rows.T @ rows  # (K, K)
    own = np.diag(products)
    matrix = own[:, None] + own[None, :] - (products + products.T)
    difference: FloatArray = np.maximum(matrix / n, 0.0)
    return difference


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


def decompose_brier(y: ArrayLike, members: ArrayLike) -> Decomposition:
    """The same decomposition of the Brier score, a squared error of probabilities.

    Errors are sums over classes, means over rows: `ensemble_error` is `brier` of the
    members' mean, `member_error` the mean of the members' own.
    """
    members = _check_probabilities("members", members, "(N, K, C)")
    n, k, n_classes = members.shape
    y = _check_labels(y, n, n_classes)
    terms = np.zeros(3)
    for rows in _chunks(members):
        p = members[rows].astype(np.float64)
        mean = p.mean(axis=1, keepdims=True)
        truth = np.eye(n_classes)[y[rows], None]  # (n, 1, C)
        parts = (mean - truth, p - truth, p - mean)
        terms += [np.square(part).sum() / part.shape[1] for part in parts]
    ensemble_error, member_error, spread = map(float, terms / n)
    return {
        "ensemble_error": ensemble_error,
        "member_error": member_error,
        "ambiguity": spread if k > 1 else None,
        "residual": ensemble_error - (member_error - spread) if k > 1 else None,
    }


# Scores of predictions: classification


def accuracy(y: ArrayLike, mean: ArrayLike) -> float:
    """Share of rows whose most probable class is the true one."""
    return float(np.mean(~is_wrong(y, mean)))


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
    truth = np.eye(mean.shape[1])[y]  # (N, C)
    return float(((mean - truth) ** 2).sum(axis=1).mean())


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


def confusion_matrix(y: ArrayLike, mean: ArrayLike) -> IntArray:
    """Rows of each true class (down) by the predicted one (across): -> (C, C)."""
    y, mean = _check_classified(y, mean)
    n_classes = mean.shape[1]
    cells = y * n_classes + mean.argmax(axis=1)
    return np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)


# Scores of predictions: regression


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error."""
    from sklearn.metrics import root_mean_squared_error

    return float(root_mean_squared_error(*_check_regressed(y, mean)))


def mae(y: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error."""
    from sklearn.metrics import mean_absolute_error

    return float(mean_absolute_error(*_check_regressed(y, mean)))


def r2(y: ArrayLike, mean: ArrayLike) -> float | None:
    """Coefficient of determination; None if `y` does not vary (one row included)."""
    from sklearn.metrics import r2_score

    y, mean = _check_regressed(y, mean)
    return float(r2_score(y, mean)) if np.ptp(y) > 0 else None


# Scores of each member


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


# Calibration


def reliability_bins(
    y: ArrayLike, mean: ArrayLike, n_bins: int = N_BINS
) -> list[ReliabilityBin]:
    """Confidence and accuracy of the ensemble in equal bins (lower, upper] of (0, 1].

    The confidence of a row is its largest probability. Edge m is the float64 nearest to
    m / n_bins, so a confidence of 0.2 lies on an edge of 15 bins, and below it.
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be positive, however: {n_bins=}")
    y, mean = _check_classified(y, mean)
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
    mean = _check_probabilities("mean", mean, "(N, C)").astype(np.float64)
    if not 0 < temperature < inf:
        raise ValueError(
            f"temperature must be positive and finite, however: {temperature=}"
        )
    return mean if temperature == 1 else _softmax(_log(mean) / temperature)


def fit_temperature(y: ArrayLike, mean: ArrayLike) -> float:
    """The temperature within `TEMPERATURES` at which `temper` has the least NLL.

    The NLL is convex in 1/T, and its slope there is the mean over rows of
    sum_c q_c log p_c - log p_y, with p the mean and q the tempered one. So log T is
    bisected by the sign of the slope. 1 if that is no better, as where clips matter.
    """
    y, mean = _check_classified(y, mean)
    logs = _log(mean)
    of_truth = logs[np.arange(len(y)), y].mean()
    low, high = np.log(TEMPERATURES)
    for _ in range(32):
        middle = (low + high) / 2
        expected = (_softmax(logs / np.exp(middle)) * logs).sum(axis=1).mean()
        if expected > of_truth:  # too sure
            low = middle
        else:
            high = middle
    fitted = float(np.exp((low + high) / 2))
    return fitted if nll(y, temper(mean, fitted)) < nll(y, mean) else 1.0


# Uncertainty of each row


def member_std(members: ArrayLike) -> FloatArray | None:
    """Standard deviation over the members (population): (N, K) -> (N,), None if K = 1.

    The mean of its square over rows is the ambiguity.
    """
    members = _check_numbers("members", members, "(N, K)")
    k = members.shape[1]
    if k == 1:
        return None
    # numpy's own takes three times as long for one row, which is what is served most.
    centred = members - members.sum(axis=1, keepdims=True) / k
    std: FloatArray = np.sqrt(np.einsum("nk,nk->n", centred, centred) / k)
    return std


def predictive_entropy(mean: ArrayLike) -> FloatArray:
    """Entropy -sum_c p_c log p_c of the ensemble's answer: (N, C) -> (N,), in nats."""
    return _entropy(_check_probabilities("mean", mean, "(N, C)").astype(np.float64))


def mutual_information(members: ArrayLike) -> FloatArray | None:
    """Entropy of the members' mean minus the mean of their entropies, at least 0.

    The part of the predictive entropy that comes from members not agreeing.

    Shape: (N, K, C) -> (N,), in nats; None if K = 1
    """
    members = _check_probabilities("members", members, "(N, K, C)")
    n, k, _ = members.shape
    if k == 1:
        return None
    information = np.empty(n)
    for rows in _chunks(members):
        p = members[rows].astype(np.float64)
        information[rows] = _entropy(p.mean(axis=1)) - _entropy(p).mean(axis=1)
    return np.maximum(information, 0.0)


def disagreement(members: ArrayLike) -> FloatArray | None:
    """Share of the K(K-1)/2 pairs of members that predict different classes.

    With v_c members voting for class c: 1 - sum_c v_c(v_c - 1) / (K(K-1)). The mean
    over rows is `mean_over_pairs(pairwise_disagreement(members))`.

    Shape: (N, K, C) -> (N,); None if K = 1
    """
    members = _check_probabilities("members", members, "(N, K, C)")
    n, k, n_classes = members.shape
    if k == 1:
        return None
    n_agreeing = np.empty(n)
    for rows in _chunks(members):
        labels = members[rows].argmax(axis=2)  # (n, K)
        cells = labels + n_classes * np.arange(len(labels))[:, None]
        votes = np.bincount(cells.ravel(), minlength=len(labels) * n_classes)
        votes = votes.reshape(-1, n_classes)
        n_agreeing[rows] = (votes * (votes - 1)).sum(axis=1)
    share: FloatArray = 1.0 - n_agreeing / (k * (k - 1))
    return share


# What the uncertainty is worth


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
    losses, uncertainty = _check_ranked(losses, uncertainty)
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
    wrong, uncertainty = _check_ranked(is_wrong(y, mean), uncertainty)
    return _roc_auc(wrong == 1, uncertainty)


def large_error_auroc(
    y: ArrayLike, mean: ArrayLike, uncertainty: ArrayLike, share: float = 0.1
) -> float | None:
    """How well an uncertainty tells the rows with the largest errors, in regression.

    The area under the ROC curve of |y - mean| above its 1 - `share` quantile by the
    uncertainty; None if no error is larger than the others.
    """
    errors, uncertainty = _check_ranked(conformal_scores(y, mean), uncertainty)
    return _roc_auc(errors > np.quantile(errors, 1 - share), uncertainty)


# Intervals and sets


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
    members = _check_numbers("members", members, "(N, K)")
    if members.shape[1] == 1:
        return None
    lower, upper = np.quantile(members, [alpha / 2, 1 - alpha / 2], axis=1)
    return lower, upper


def conformal_scores(y: ArrayLike, mean: ArrayLike) -> FloatArray:
    """How badly each row's answer fits: |y - mean|, or 1 - p of the true class.

    Shape: (N,), (N,) for regression or (N, C) for classification -> (N,)
    """
    if np.ndim(mean) == 1:
        y, mean = _check_regressed(y, mean)
        return np.abs(y - mean)
    y, mean = _check_classified(y, mean)
    scores: FloatArray = 1.0 - mean[np.arange(len(y)), y]
    return scores


def conformal_quantile(scores: ArrayLike, alpha: float = 0.1) -> float:
    """The ceil((n+1)(1-alpha))-th smallest of n scores, those of validation rows.

    A new row exchangeable with them scores at most this with probability 1 - alpha or
    more. Infinite if n is too small for that: n < 1/alpha - 1.
    """
    _check_alpha(alpha)
    scores = _check_numbers("scores", scores, "(N,)")
    n = len(scores)
    # In fractions, since 100 * (1 - 0.43) is 57.00000000000001 and would become 58.
    rank = ceil((n + 1) * (1 - Fraction(str(alpha))))
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= n else inf


def conformal_interval(
    mean: ArrayLike, quantile: float
) -> tuple[FloatArray, FloatArray]:
    """mean - quantile and mean + quantile, of the quantile of |y - mean|."""
    mean = _check_numbers("mean", mean, "(N,)")
    return mean - quantile, mean + quantile


def conformal_set(mean: ArrayLike, quantile: float) -> BoolArray:
    """The classes with 1 - p up to the quantile: (N, C) -> (N, C), perhaps none."""
    mean = _check_probabilities("mean", mean, "(N, C)").astype(np.float64)
    sets: BoolArray = 1.0 - mean <= quantile
    return sets


def interval_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of rows with lower <= y <= upper."""
    lower, upper = _check_interval(lower, upper)
    y = _check_targets(y, len(lower))
    return float(np.mean((lower <= y) & (y <= upper)))


def interval_width(lower: ArrayLike, upper: ArrayLike) -> float:
    """Mean of upper - lower."""
    lower, upper = _check_interval(lower, upper)
    return float(np.mean(upper - lower))


def set_coverage(y: ArrayLike, sets: ArrayLike) -> float:
    """Share of rows whose set has the true class: (N,), (N, C) -> a number."""
    sets = _check_sets(sets)
    y = _check_labels(y, *sets.shape)
    return float(sets[np.arange(len(y)), y].mean())


def set_size(sets: ArrayLike) -> float:
    """Mean number of classes in a set."""
    return float(_check_sets(sets).sum(axis=1).mean())


# Shared parts


def _log(p: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.clip(p, MIN_PROBABILITY, 1.0))
    return logs


def _softmax(logits: FloatArray) -> FloatArray:
    p: FloatArray = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def _entropy(p: FloatArray) -> FloatArray:
    # 0.0 - sum: minus the sum would be -0.0 where one class is certain.
    entropy: FloatArray = np.maximum(0.0 - (p * _log(p)).sum(axis=-1), 0.0)
    return entropy


def _roc_auc(positive: BoolArray, score: FloatArray) -> float | None:
    from sklearn.metrics import roc_auc_score

    if positive.all() or not positive.any():
        return None
    return float(roc_auc_score(positive, score))


def _chunks(members: Array) -> Iterator[slice]:
    """Slices of rows, each of about _CHUNK_SIZE numbers."""
    step = max(1, _CHUNK_SIZE * len(members) // members.size)
    for start in range(0, len(members), step):
        yield slice(start, start + step)


# Checks


def _check_shape(name: str, value: ArrayLike, shape: str) -> Array:
    array = np.asarray(value)
    if array.ndim != len(shape.strip("(,)").split(",")) or array.size == 0:
        raise ValueError(
            f"{name} must have shape {shape} and not be empty, however: "
            f"{name}.shape={array.shape}"
        )
    return array


def _check_numbers(name: str, value: ArrayLike, shape: str) -> FloatArray:
    array: FloatArray = np.asarray(_check_shape(name, value, shape), dtype=np.float64)
    if not np.isfinite(array).all():
        n_bad = np.count_nonzero(~np.isfinite(array))
        raise ValueError(f"{name} must be finite, however: {n_bad} of {array.size} not")
    return array


def _check_probabilities(name: str, value: ArrayLike, shape: str) -> Array:
    """The array in its own dtype: (N, K, C) can be large, its users cast by chunks."""
    array = _check_shape(name, value, shape)
    if array.shape[-1] < 2:
        raise ValueError(
            f"{name} must have a probability for each of two or more classes, however: "
            f"{name}.shape={array.shape}"
        )
    sums = np.einsum("...c->...", array, dtype=np.float64)
    # Wide enough for rounding, float16's too, and still tells logits and swapped axes;
    # NaN fails it as well.
    if not (array.min() > -1e-6 and sums.min() > 0.99 and sums.max() < 1.01):
        raise ValueError(
            f"{name} must be probabilities with sum 1 over the last axis, however: "
            f"min={array.min()}, sums from {sums.min()} to {sums.max()}"
        )
    return array


def _check_targets(y: ArrayLike, n: int) -> FloatArray:
    y = _check_numbers("y", y, "(N,)")
    if len(y) != n:
        raise ValueError(f"y must have one target per row, {n}, however: {len(y)=}")
    return y


def _check_labels(y: ArrayLike, n: int, n_classes: int) -> IntArray:
    y = _check_shape("y", y, "(N,)")
    if y.dtype.kind not in "biu":
        raise ValueError(f"y must be integer class indices, however: {y.dtype=}")
    if len(y) != n:
        raise ValueError(f"y must have one class per row, {n}, however: {len(y)=}")
    if not (0 <= y.min() and y.max() < n_classes):
        raise ValueError(
            f"y must be class indices from 0 to {n_classes - 1}, however: from "
            f"{y.min()} to {y.max()}"
        )
    return y.astype(np.intp)


def _check_regressed(y: ArrayLike, mean: ArrayLike) -> tuple[FloatArray, FloatArray]:
    mean = _check_numbers("mean", mean, "(N,)")
    return _check_targets(y, len(mean)), mean


def _check_classified(y: ArrayLike, mean: ArrayLike) -> tuple[IntArray, FloatArray]:
    mean = _check_probabilities("mean", mean, "(N, C)").astype(np.float64)
    return _check_labels(y, *mean.shape), mean


def _check_ranked(
    losses: ArrayLike, uncertainty: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    losses = _check_numbers("losses", losses, "(N,)")
    uncertainty = _check_numbers("uncertainty", uncertainty, "(N,)")
    if len(uncertainty) != len(losses):
        raise ValueError(
            f"uncertainty must have one number per row, {len(losses)}, however: "
            f"{len(uncertainty)=}"
        )
    return losses, uncertainty


def _check_interval(
    lower: ArrayLike, upper: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    lower = _check_shape("lower", lower, "(N,)").astype(np.float64)
    upper = _check_shape("upper", upper, "(N,)").astype(np.float64)
    if lower.shape != upper.shape:
        raise ValueError(
            f"lower and upper must have the same shape, however: {lower.shape=}, "
            f"{upper.shape=}"
        )
    return lower, upper


def _check_sets(sets: ArrayLike) -> BoolArray:
    sets = _check_shape("sets", sets, "(N, C)")
    if sets.dtype != np.bool_:
        raise ValueError(f"sets must be boolean, however: {sets.dtype=}")
    return sets


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1, however: {alpha=}")
