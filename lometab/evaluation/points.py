"""The parts of a report that are drawn as they are: epochs, and rows as points."""

import numpy as np

from lometab.evaluation import metrics
from lometab.evaluation.findings import CurvePoint, Point
from lometab.evaluation.run import Run

MAX_ROWS = 400
"""Rows of the test part that are shown as points."""


def make_curve(run: Run) -> list[CurvePoint]:
    return [
        CurvePoint(
            epoch=each.epoch,
            train_loss=each.train_loss,
            val_score=each.val_score,
            member_score=each.member_score,
            diversity=each.diversity,
        )
        for each in run.history
    ]


def make_points(run: Run) -> list[Point] | None:
    """A sample of the test rows of a regression, the same each time."""
    if run.task != "regression" or not run.shows_rows:
        return None
    y, (mean, _) = run.targets["test"], run.answers["test"]
    quantile = metrics.conformal_quantile(run.calibrator.conformity, 0.1)
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(y))[:MAX_ROWS]
    has_ends = bool(np.isfinite(quantile))
    return [
        Point(
            true=float(y[row]),
            mean=float(mean[row]),
            lower=float(mean[row] - quantile) if has_ends else None,
            upper=float(mean[row] + quantile) if has_ends else None,
        )
        for row in rows
    ]
