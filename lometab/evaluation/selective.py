"""What is gained by not answering the least certain rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import metrics
from lometab.evaluation.report import Selective, SelectivePoint
from lometab.evaluation.run import Run

SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
LARGE = 0.1
"""Regression: the share of the rows whose errors count as large."""


def report_selective(run: Run) -> Selective | None:
    """The curve of `abstain`, on the test rows; None if nothing orders them."""
    levels = run.calibrator.doubt_levels
    y, (mean, members) = run.targets["test"], run.answers["test"]
    doubt = find_doubt(mean, members)
    if levels is None or doubt is None:
        return None
    trust = metrics.trust(doubt, metrics.trust_ranks(levels))
    losses, is_error = _errors(y, mean)
    is_regression = mean.ndim == 1
    points = []
    for share in SHARES:
        is_kept = trust >= share
        remaining = float(losses[is_kept].mean()) if is_kept.any() else None
        if is_regression and remaining is not None:
            remaining = float(np.sqrt(remaining))
        points.append(
            SelectivePoint(
                abstain=share,
                abstained=float(np.mean(~is_kept)),
                remaining_error=remaining,
                caught=_share_caught(is_error, is_kept),
            )
        )
    return Selective(
        uncertainty="member_std" if is_regression else "entropy",
        error="rmse" if is_regression else "wrong class",
        points=points,
    )


def find_doubt(mean: NDArray[Any], members: NDArray[Any]) -> NDArray[Any] | None:
    """The uncertainty that rows are ordered by; None if one member answers numbers."""
    if mean.ndim == 1:
        return metrics.member_std(members)
    return metrics.predictive_entropy(mean)


def _errors(y: NDArray[Any], mean: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The loss of each row, and whether it counts as an error to be caught."""
    if mean.ndim == 2:
        wrong = metrics.is_wrong(y, mean)
        return wrong.astype(np.float64), wrong
    errors = metrics.conformal_scores(y, mean)
    return np.square(errors), errors > np.quantile(errors, 1 - LARGE)


def _share_caught(is_error: NDArray[Any], is_kept: NDArray[Any]) -> float | None:
    n_errors = int(is_error.sum())
    return float(is_error[~is_kept].sum() / n_errors) if n_errors else None
