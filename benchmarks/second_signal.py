"""What a second signal adds to a first in telling wrong answers from right ones.

The first alone and both together are judged in one way and on the same folds, so that
their difference is of the signals and not of the procedure: a score that is fitted and
cross-validated against one that is not would look worse by that alone.
"""

import math
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lometab.evaluation import metrics

Array = NDArray[Any]
N_FOLDS, N_REPEATS = 5, 4
MIN_ROWS = 10
"""Wrong rows, and right ones, below which nothing is fitted."""


class Way(TypedDict):
    """Held-out figures: means over the folds, and over rows."""

    auroc: float
    aurc: float
    log_likelihood: float
    """Of being wrong or right, in nats per row."""


class Comparison(TypedDict):
    alone: Way
    both: Way
    gain: float
    """Nats per row by which both are better held out."""
    gain_error: float
    """Its standard error over rows."""


def compare(wrong: Array, first: Array, second: Array) -> Comparison | None:
    """The first signal against the two together; None with too few wrong or right rows.

    A logistic regression is fitted in each fold, on the first signal and its square,
    without and with the second. The square is there because a second signal that is but
    a bent copy of the first would else seem to add to a straight line. One that says
    nothing comes out at 0, or a little below where rows are few: it is fitted too.

    Args:
        first, second: (N,), on a scale where differences count, such as logarithms.
    """
    if not MIN_ROWS <= wrong.sum() <= len(wrong) - MIN_ROWS:
        return None
    first = (first - first.mean()) / max(float(first.std()), 1e-12)
    signals = np.stack([first, first**2, second], axis=1)
    alone, alone_rows = _judge(wrong, signals[:, :2])
    both, both_rows = _judge(wrong, signals)
    gains = both_rows - alone_rows
    error = float(gains.std(ddof=1) / math.sqrt(len(gains)))
    return {
        "alone": alone,
        "both": both,
        "gain": float(gains.mean()),
        "gain_error": error,
    }


def _judge(wrong: Array, signals: Array) -> tuple[Way, Array]:
    """The figures, and each row's held-out log-likelihood, the mean of the repeats."""
    folds = RepeatedStratifiedKFold(
        n_splits=N_FOLDS, n_repeats=N_REPEATS, random_state=0
    )
    auroc, aurc = [], []
    likelihood = np.zeros(len(wrong))
    for train, held in folds.split(signals, wrong):
        model = make_pipeline(
            StandardScaler(), LogisticRegression(solver="newton-cholesky")
        )
        score = model.fit(signals[train], wrong[train]).predict_proba(signals[held])
        auroc.append(metrics.scores.roc_auc(wrong[held], score[:, 1]))
        aurc.append(metrics.aurc(wrong[held], score[:, 1]))
        of_truth = score[np.arange(len(held)), wrong[held].astype(int)]
        likelihood[held] += np.log(np.maximum(of_truth, 1e-12)) / N_REPEATS
    way: Way = {
        "auroc": float(np.mean(auroc)),
        "aurc": float(np.mean(aurc)),
        "log_likelihood": float(likelihood.mean()),
    }
    return way, likelihood
