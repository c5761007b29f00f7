"""How far the members of an ensemble differ, and what that gains."""

from itertools import combinations
from math import inf
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from lometab.evaluation.metrics.arrays import (
    FloatArray,
    check_labels,
    check_numbers,
    check_probabilities,
    check_targets,
    log,
    row_chunks,
)

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


def pairwise_kl(members: ArrayLike) -> FloatArray:
    """Symmetric Kullback-Leibler divergence of each pair of members, mean over rows.

    Entry (i, j) is 1/N sum_n 1/2 [KL(p_i || p_j) + KL(p_j || p_i)], which is
    1/(2N) sum_nc (p_i - p_j)(log p_i - log p_j): bilinear in p and log p, so matrix
    products of the two give all pairs at once. The paper's diversity is
    `mean_over_pairs` of it.

    Shape: (N, K, C) -> (K, K), symmetric, zero on the diagonal
    """
    members = check_probabilities("members", members, "(N, K, C)")
    n, k, _ = members.shape
    products = np.zeros((k, k))
    width = max(1, _PRODUCT_SIZE // k**2)
    for rows in row_chunks(members):
        p = members[rows].swapaxes(0, 1).astype(np.float64, order="C")
        p = p.reshape(k, -1)  # (K, n * C)
        log_p = log(p)
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
    members = check_probabilities("members", members, "(N, K, C)")
    n, k, n_classes = members.shape
    # One contiguous row of small integers per member: comparing two such rows is so
    # cheap that all pairs cost less than the products of their one-hot forms.
    labels = np.empty((k, n), dtype=np.min_scalar_type(n_classes))
    for rows in row_chunks(members):
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


def ambiguity(members: ArrayLike) -> float | None:
    """A = 1/(NK) sum_nk (f_k(x_n) - mean_k f_k(x_n))^2, in squared target units.

    Shape: (N, K) -> a number; None if K = 1
    """
    members = check_numbers("members", members, "(N, K)")
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
    members = check_numbers("members", members, "(N, K)")
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
    members = check_numbers("members", members, "(N, K)")
    y = check_targets(y, len(members))
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
    members = check_probabilities("members", members, "(N, K, C)")
    n, k, n_classes = members.shape
    y = check_labels(y, n, n_classes)
    terms = np.zeros(3)
    for rows in row_chunks(members):
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
