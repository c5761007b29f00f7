"""What one training run came to, in a few numbers that can be set side by side."""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from lometab import metrics
from lometab.splits import PartName

if TYPE_CHECKING:  # the numbers are read where torch is not
    from lometab.ensemble import Ensemble, Prepared

Metric = Literal["rmse", "accuracy"]


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The ensemble on the rows of one part."""

    score: float
    """RMSE in target units, or accuracy."""
    ece: float | None
    """Expected calibration error; null for regression."""
    diversity: float | None
    """Mean pairwise KL, or normalised ambiguity; null for one member."""
    disagreement: float | None
    """Mean over pairs; null for regression and for one member."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run: one setting, one seed."""

    metric: Metric
    val: Measures
    """What choices are made by."""
    test: Measures
    """What is reported."""
    k: int
    n_parameters: int
    best_epoch: int
    epochs: int
    seconds: float
    """Of training."""
    is_pruned: bool = False
    """Ended early, because other settings were better at that epoch."""

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Outcome":
        parts = {name: Measures(**state[name]) for name in ("val", "test")}
        return cls(**{**state, **parts})


def measure(prepared: "Prepared", ensemble: "Ensemble") -> Outcome:
    """The outcome of an ensemble that was trained on what was prepared, by torch."""
    from lometab.ensemble import answer_scores

    models = [copy.deepcopy(model).double() for model in ensemble.models]
    variance = float(np.var(prepared.targets["train"].astype(np.float64)))

    def measured(name: PartName) -> Measures:
        part = prepared.parts[name]
        scores = part.x_num.astype(np.float64)
        answer = answer_scores(ensemble, models, scores, part.x_cat)
        return measure_part(prepared.targets[name], *answer, variance)

    is_regression = ensemble.schema.classes is None
    return Outcome(
        metric="rmse" if is_regression else "accuracy",
        val=measured("val"),
        test=measured("test"),
        k=ensemble.k,
        n_parameters=ensemble.n_parameters,
        best_epoch=ensemble.fit.best_epoch,
        epochs=len(ensemble.fit.history),
        seconds=round(ensemble.fit.seconds, 3),
    )


def measure_part(
    y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any], train_variance: float
) -> Measures:
    """Of the answers to the rows of one part."""
    if mean.ndim == 1:
        return Measures(
            score=metrics.rmse(y, mean),
            ece=None,
            diversity=metrics.normalized_ambiguity(members, train_variance),
            disagreement=None,
        )
    pairs = (metrics.pairwise_kl, metrics.pairwise_disagreement)
    diversity, disagreement = (metrics.mean_over_pairs(f(members)) for f in pairs)
    return Measures(
        score=metrics.accuracy(y, mean),
        ece=metrics.ece(y, mean),
        diversity=diversity,
        disagreement=disagreement,
    )
