"""What a run of a sweep leaves."""

from typing import Any

from lometab.evaluation import Measures, Outcome


def outcome(
    score: float,
    ece: float | None = 0.1,
    diversity: float | None = 0.01,
    metric: Any = "accuracy",
) -> Outcome:
    part = Measures(score=score, ece=ece, diversity=diversity, disagreement=None)
    return Outcome(
        metric=metric,
        val=part,
        test=part,
        k=2,
        n_parameters=10,
        best_epoch=1,
        epochs=2,
        seconds=1.0,
    )
