"""Which members of an ensemble do as well as all of them, or better."""

from collections.abc import Callable, Sequence
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
    return MemberOrder(*_order(columns, [1] * columns.shape[1], loss, most))


def choose_members(
    y: ArrayLike, members: ArrayLike, *, most: int | None = None, least: int = 1
) -> list[int]:
    """Of the sets that `order_members` passes through, the one with the least loss.

    Ask it on rows that chose nothing else if its loss is to be believed.

    Args:
        least: so many members at least, if there are so many.
    """
    return _best_beginning(*order_members(y, members, most=most), least)


def choose_networks(
    y: ArrayLike,
    members: ArrayLike,
    sizes: Sequence[int],
    *,
    most: int | None = None,
    least: int = 1,
) -> list[int]:
    """The same with whole networks: numbers of them, the first that was taken first.

    Args:
        members: those of all networks, side by side.
        sizes: how many members each network has.
        most, least: so many networks, if there are so many.
    """
    columns, loss = _columns(y, members)
    starts = np.cumsum([0, *sizes[:-1]])
    sums = np.add.reduceat(columns, starts, axis=1)
    return _best_beginning(*_order(sums, sizes, loss, most), least)


def _order(
    sums: FloatArray,
    sizes: Sequence[int],
    loss: Callable[[FloatArray], float],
    most: int | None,
) -> tuple[list[int], list[float]]:
    """What to take one by one, and the loss of the mean of all members taken by then.

    Args:
        sums: of what may be taken, the sum over its members for each row.
        sizes: how many members each of them has.
    """
    order: list[int] = []
    losses: list[float] = []
    total, n_members = np.zeros(len(sums)), 0
    while len(order) < min(most or len(sizes), len(sizes)):
        left = np.setdiff1d(np.arange(len(sizes)), order)
        reached = [loss((total + sums[:, k]) / (n_members + sizes[k])) for k in left]
        best = int(np.argmin(reached))
        order.append(int(left[best]))
        losses.append(reached[best])
        total += sums[:, left[best]]
        n_members += sizes[left[best]]
    return order, losses


def _best_beginning(order: list[int], losses: list[float], least: int) -> list[int]:
    start = min(least, len(order)) - 1
    return order[: start + int(np.argmin(losses[start:])) + 1]


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
