"""Which members of an ensemble do as well as all of them, or better."""

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
    log,
)


class MemberOrder(NamedTuple):
    """Members one by one, each the one that helps those before it the most."""

    members: list[int]
    losses: list[float]
    """Of the mean of the first 1, 2, ... of them: RMSE, or NLL for classes."""


def order_members(
    y: ArrayLike, members: ArrayLike, *, most: int | None = None
) -> MemberOrder:
    """Greedy and without repetition; of equal ones the first.

    Args:
        y: targets `(N,)`, or numbers of classes.
        members: each member's answers to these rows: `(N, K)`, or `(N, K, C)`.
        most: so many members at most.
    """
    columns, loss = _columns(y, members)
    n_members = columns.shape[1]
    order: list[int] = []
    losses: list[float] = []
    total = np.zeros(len(columns))
    while len(order) < min(most or n_members, n_members):
        left = np.setdiff1d(np.arange(n_members), order)
        reached = [loss((total + columns[:, k]) / (len(order) + 1)) for k in left]
        best = int(np.argmin(reached))
        order.append(int(left[best]))
        losses.append(reached[best])
        total += columns[:, left[best]]
    return MemberOrder(order, losses)


def choose_members(
    y: ArrayLike, members: ArrayLike, *, most: int | None = None
) -> list[int]:
    """Of the sets that `order_members` passes through, the one with the least loss.

    Ask it on rows that chose nothing else if its loss is to be believed.
    """
    order, losses = order_members(y, members, most=most)
    return order[: int(np.argmin(losses)) + 1]


def _columns(
    y: ArrayLike, members: ArrayLike
) -> tuple[FloatArray, Callable[[FloatArray], float]]:
    """A number of each member for each row, and the loss of a mean of such columns.

    The NLL of a mean asks for the true class's probabilities alone.
    """
    if np.ndim(members) == 2:
        numbers = check_numbers("members", members, "(N, K)")
        errors = numbers - check_targets(y, len(numbers))[:, None]
        return errors, lambda error: float(np.sqrt(np.mean(error**2)))
    p = check_probabilities("members", members, "(N, K, C)")
    labels = check_labels(y, len(p), p.shape[2])
    right = p[np.arange(len(p)), :, labels].astype(np.float64)
    return right, lambda probability: float(-log(probability).mean())
