"""The few numbers of an outcome, from the answers of an ensemble."""

from typing import Any

from numpy.typing import NDArray

from lometab.evaluation import metrics
from lometab.evaluation.outcome import Measures


def measure_part(
    y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any], train_variance: float
) -> Measures:
    """Of the answers to the rows of one part."""
    if mean.ndim == 1:
        spread = metrics.member_std(members)
        return Measures(
            score=metrics.rmse(y, mean),
            ece=None,
            diversity=metrics.normalized_ambiguity(members, train_variance),
            disagreement=None,
            error_auroc=None
            if spread is None
            else metrics.large_error_auroc(y, mean, spread),
        )
    pairs = (metrics.pairwise_kl, metrics.pairwise_disagreement)
    diversity, disagreement = (metrics.mean_over_pairs(f(members)) for f in pairs)
    return Measures(
        score=metrics.accuracy(y, mean),
        ece=metrics.ece(y, mean),
        diversity=diversity,
        disagreement=disagreement,
        nll=metrics.nll(y, mean),
        error_auroc=metrics.error_auroc(y, mean, metrics.predictive_entropy(mean)),
    )
