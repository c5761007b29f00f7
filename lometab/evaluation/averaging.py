"""What averaging the members of a run is worth, and how many of them do as well."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import metrics
from lometab.evaluation.diversity_report import (
    Averaging,
    ClosePair,
    MemberCurve,
    MemberPoint,
    Share,
)
from lometab.evaluation.members import order_members
from lometab.evaluation.run import Run

CLOSE = 0.1
"""Members are nearly the same if the squared difference of their answers is below this
share of what pairs of members have on average."""
MAX_PAIRS = 10
_MAX_ROWS = 20_000
"""Rows by which members are put in order."""


def report_averaging(run: Run) -> Averaging | None:
    """What averaging removes of the members' error, on the test rows; None for one
    member."""
    y, (_, members) = run.targets["test"], run.answers["test"]
    if members.shape[1] < 2:
        return None
    errors = metrics.row_errors(y, members)
    own = errors.members.mean(axis=1)
    by_member = errors.members.mean(axis=0)
    best, chosen_by = _find_best(run, by_member)
    return Averaging(
        loss="squared error" if members.ndim == 2 else "brier",
        removed=_share(metrics.share_removed(errors.ensemble, own)),
        ensemble_error=float(errors.ensemble.mean()),
        mean_member_error=float(own.mean()),
        best_member=best,
        best_member_chosen_by=chosen_by,
        best_member_error=float(by_member[best]),
        against_best=_share(
            metrics.share_removed(errors.ensemble, errors.members[:, best])
        ),
        close_pairs=_close_pairs(members),
    )


def _share(estimate: metrics.Estimate | None) -> Share | None:
    if estimate is None:
        return None
    return Share(value=estimate.value, lower=estimate.lower, upper=estimate.upper)


def _find_best(run: Run, on_test: NDArray[Any]) -> tuple[int, Any]:
    """The best member by validation rows, as one would choose it."""
    if "val" not in run.answers:
        return int(on_test.argmin()), "test"
    errors = metrics.row_errors(run.targets["val"], run.answers["val"][1])
    return int(errors.members.mean(axis=0).argmin()), "val"


def _close_pairs(members: NDArray[Any]) -> list[ClosePair]:
    flat = members if members.ndim == 2 else _columns(members)
    matrix = metrics.pairwise_difference(flat)
    mean = metrics.mean_over_pairs(matrix)
    if not mean:
        return []
    i, j = np.triu_indices(len(matrix), 1)
    relative = matrix[i, j] / mean
    order = [n for n in np.argsort(relative) if relative[n] < CLOSE][:MAX_PAIRS]
    return [
        ClosePair(first=int(i[n]), second=int(j[n]), difference=float(relative[n]))
        for n in order
    ]


def _columns(members: NDArray[Any]) -> NDArray[Any]:
    """(N, K, C) -> (N * C, K): the squared differences are those of Brier's form."""
    _, k, _ = members.shape
    return members.swapaxes(1, 2).reshape(-1, k)


def report_curve(run: Run) -> MemberCurve | None:
    """Quality against the number of members, greedy on validation rows; None for one
    member, or without validation rows."""
    if "val" not in run.answers or run.answers["val"][1].shape[1] < 2:
        return None
    y, (_, members) = run.targets["val"], run.answers["val"]
    rows = slice(None, _MAX_ROWS)
    order, losses = order_members(y[rows], members[rows])
    tested = run.targets["test"], run.answers["test"][1]
    points = [
        MemberPoint(n=n, val=losses[n - 1], test=_loss(*tested, order[:n]))
        for n in range(1, len(order) + 1)
    ]
    enough = next(p.n for p in points if p.val <= points[-1].val * (1 + 1e-9))
    return MemberCurve(
        loss="rmse" if members.ndim == 2 else "nll",
        order=order,
        points=points,
        enough=enough,
        best=int(np.argmin(losses)) + 1,
    )


def _loss(y: NDArray[Any], members: NDArray[Any], chosen: list[int]) -> float:
    mean = members[:, chosen].mean(axis=1)
    return metrics.rmse(y, mean) if mean.ndim == 1 else metrics.nll(y, mean)


def tell(averaging: Averaging | None, curve: MemberCurve | None) -> str:
    """The same as one sentence that is true of this model."""
    if averaging is None:
        return "one member has nothing to average; set k to 2 or more"
    parts = [_tell_removed(averaging), _tell_best(averaging)]
    if averaging.close_pairs:
        pair = averaging.close_pairs[0]
        more = len(averaging.close_pairs) - 1
        others = f" (and {more} more pairs)" if more else ""
        parts.append(
            f"members {pair.first} and {pair.second} are nearly the same{others}"
        )
    if curve is not None and curve.enough < len(curve.order):
        parts.append(
            f"{curve.enough} of {len(curve.order)} members do as well on the "
            "validation rows"
        )
    return "; ".join(part for part in parts if part)


def _tell_removed(averaging: Averaging) -> str:
    removed = averaging.removed
    if removed is None:
        return "the members make no error that averaging could remove"
    return (
        f"averaging removes {_percent(removed)} of the members' error "
        f"({averaging.loss})"
    )


def _tell_best(averaging: Averaging) -> str:
    gain = averaging.against_best
    if gain is None:
        return ""
    name = f"the best single member ({averaging.best_member})"
    if gain.lower > 0:
        return f"the ensemble's error is {_percent(gain)} below that of {name}"
    if gain.upper < 0:
        return f"{name} alone is better: the ensemble's error is above its own"
    return f"{name} alone does about as well"


def _percent(share: Share) -> str:
    numbers = (100 * each for each in (share.value, share.lower, share.upper))
    value, lower, upper = (
        f"{each:.2g}" if abs(each) < 10 else f"{each:.0f}" for each in numbers
    )
    return f"{value} % [{lower}, {upper}]"
