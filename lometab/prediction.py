"""What is said of rows that were asked."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Label = str | int | bool
Array = NDArray[Any]


class Answered(NamedTuple):
    """What the file gives for encoded rows."""

    mean: NDArray[np.float32]
    members: NDArray[np.float32]
    novelty: NDArray[np.float32] | None = None
    """(N, 3): novelty, share of numbers out of range, share of unseen categories; None
    in files of before."""


class Encoded(NamedTuple):
    """Rows as the inputs of the file, and what was noticed on the way."""

    x_num: NDArray[np.float64]
    """(N, n_num), NaN missing."""
    x_cat: NDArray[np.object_]
    """(N, n_cat), "" missing."""
    warnings: list[str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """The answers for N rows by K members. What does not apply is None."""

    mean: Array
    """(N,) target values, or (N, C) probabilities, calibrated if that was asked."""
    members: Array
    """(N, K) or (N, K, C): each member's own."""
    label: list[Label] | None = None
    """Classification: the most probable class, as it was in the training data."""
    member_std: Array | None = None
    """Regression: standard deviation over members, (N,); None if K = 1. No error bar:
    members agree more than they are right. `interval` is one."""
    entropy: Array | None = None
    """Classification: of the mean, in nats, (N,)."""
    mutual_information: Array | None = None
    """Classification: the entropy that members do not share; None if K = 1."""
    disagreement: Array | None = None
    """Classification: share of pairs of members with other labels; None if K = 1."""
    interval: Array | None = None
    """Regression: conformal lower and upper end, (N, 2), if the file has quantiles."""
    set: list[list[Label]] | None = None
    """Classification: conformal set of each row, if the file has quantiles."""
    trust: Array | None = None
    """Share of calibration rows that were less certain than this one, (N,), if the
    file knows: 0.03 is among the 3 % least certain. Those as certain count half."""
    novelty: Array | None = None
    """Share of training rows that are nearer to the others than this one, (N,), if the
    file tells. Members cannot disagree about what training did not show them."""
    out_of_range: Array | None = None
    """Share of the row's numbers beyond the range of training, (N,)."""
    unseen: Array | None = None
    """Share of the row's categories that training did not have, (N,)."""
    warnings: list[str] = field(default_factory=list)
    """Unseen categories, numbers beyond the range, values missing that training always
    had, rows unlike those of training, columns filled as missing or not used."""

    @property
    def std(self) -> Array | None:
        """The former name of `member_std`."""
        return self.member_std
