"""Checks of the arrays that metrics take, and small functions that they share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

MIN_PROBABILITY = 1e-12
"""Smaller probabilities count as this one inside a logarithm, and only there."""

_CHUNK_SIZE = 2**20  # numbers converted to float64 at a time: 8 MiB


def log(p: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.clip(p, MIN_PROBABILITY, 1.0))
    return logs


def softmax(logits: FloatArray) -> FloatArray:
    p: FloatArray = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def entropy(p: FloatArray) -> FloatArray:
    # 0.0 - sum: minus the sum would be -0.0 where one class is certain.
    entropy: FloatArray = np.maximum(0.0 - (p * log(p)).sum(axis=-1), 0.0)
    return entropy


def row_chunks(members: Array) -> Iterator[slice]:
    """Slices of rows, each of about _CHUNK_SIZE numbers."""
    step = max(1, _CHUNK_SIZE * len(members) // members.size)
    for start in range(0, len(members), step):
        yield slice(start, start + step)


def check_shape(name: str, value: ArrayLike, shape: str) -> Array:
    array = np.asarray(value)
    if array.ndim != len(shape.strip("(,)").split(",")) or array.size == 0:
        raise ValueError(
            f"{name} must have shape {shape} and not be empty, however: "
            f"{name}.shape={array.shape}"
        )
    return array


def check_numbers(name: str, value: ArrayLike, shape: str) -> FloatArray:
    array: FloatArray = np.asarray(check_shape(name, value, shape), dtype=np.float64)
    if not np.isfinite(array).all():
        n_bad = np.count_nonzero(~np.isfinite(array))
        raise ValueError(f"{name} must be finite, however: {n_bad} of {array.size} not")
    return array


def check_probabilities(name: str, value: ArrayLike, shape: str) -> Array:
    """The array in its own dtype: (N, K, C) can be large, its users cast by chunks."""
    array = check_shape(name, value, shape)
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


def check_targets(y: ArrayLike, n: int) -> FloatArray:
    y = check_numbers("y", y, "(N,)")
    if len(y) != n:
        raise ValueError(f"y must have one target per row, {n}, however: {len(y)=}")
    return y


def check_labels(y: ArrayLike, n: int, n_classes: int) -> IntArray:
    y = check_shape("y", y, "(N,)")
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


def check_regressed(y: ArrayLike, mean: ArrayLike) -> tuple[FloatArray, FloatArray]:
    mean = check_numbers("mean", mean, "(N,)")
    return check_targets(y, len(mean)), mean


def check_classified(y: ArrayLike, mean: ArrayLike) -> tuple[IntArray, FloatArray]:
    mean = check_probabilities("mean", mean, "(N, C)").astype(np.float64)
    return check_labels(y, *mean.shape), mean


def check_ranked(
    losses: ArrayLike, uncertainty: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    losses = check_numbers("losses", losses, "(N,)")
    uncertainty = check_numbers("uncertainty", uncertainty, "(N,)")
    if len(uncertainty) != len(losses):
        raise ValueError(
            f"uncertainty must have one number per row, {len(losses)}, however: "
            f"{len(uncertainty)=}"
        )
    return losses, uncertainty
