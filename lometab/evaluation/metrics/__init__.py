"""Scores, diversity, calibration and uncertainty of an ensemble: functions of arrays.

Shapes are the same everywhere: N rows, K members, C classes (two for binary).

- `members`: (N, K) outputs for regression, (N, K, C) probabilities for classification;
- `mean`: the ensemble's own answer, (N,) or (N, C), the mean of the members';
- `y`: (N,) numbers for regression, (N,) integer class indices for classification.

Everything is computed in float64, whatever comes in, logarithms are natural, and the
predicted class is the first of the largest probabilities. What is undefined is None:
whatever compares members when K = 1, AUROC with one class, R2 of a constant target.
"""

from lometab.evaluation.metrics.arrays import (
    MIN_PROBABILITY,
)
from lometab.evaluation.metrics.averaging import (
    Estimate,
    RowErrors,
    bootstrap,
    row_errors,
    share_removed,
)
from lometab.evaluation.metrics.calibration import (
    N_BINS,
    TEMPERATURES,
    ReliabilityBin,
    conformal_interval,
    conformal_quantile,
    conformal_scores,
    conformal_set,
    ece,
    fit_temperature,
    interval_coverage,
    interval_width,
    member_interval,
    reliability_bins,
    set_coverage,
    set_size,
    temper,
)
from lometab.evaluation.metrics.conformal import (
    adaptive_scores,
    adaptive_set,
    coverage_by_class,
    empty_share,
    fit_offset,
    probability_before,
    quantile_levels,
    scaled_scores,
)
from lometab.evaluation.metrics.diversity import (
    Decomposition,
    ambiguity,
    decompose_brier,
    decompose_error,
    mean_over_pairs,
    normalized_ambiguity,
    pairwise_difference,
    pairwise_disagreement,
    pairwise_kl,
)
from lometab.evaluation.metrics.familiar import (
    balanced_accuracy,
    f1,
    lift,
    macro_auroc,
)
from lometab.evaluation.metrics.scores import (
    accuracy,
    auroc,
    brier,
    confusion_matrix,
    is_wrong,
    mae,
    member_scores,
    nll,
    r2,
    rmse,
)
from lometab.evaluation.metrics.uncertainty import (
    aurc,
    disagreement,
    error_auroc,
    large_error_auroc,
    member_std,
    mutual_information,
    predictive_entropy,
    risk_coverage_curve,
    trust,
    trust_ranks,
)

__all__ = [
    "MIN_PROBABILITY",
    "N_BINS",
    "TEMPERATURES",
    "Decomposition",
    "Estimate",
    "ReliabilityBin",
    "RowErrors",
    "accuracy",
    "adaptive_scores",
    "adaptive_set",
    "ambiguity",
    "aurc",
    "auroc",
    "balanced_accuracy",
    "bootstrap",
    "brier",
    "conformal_interval",
    "conformal_quantile",
    "conformal_scores",
    "conformal_set",
    "confusion_matrix",
    "coverage_by_class",
    "decompose_brier",
    "decompose_error",
    "disagreement",
    "ece",
    "empty_share",
    "error_auroc",
    "f1",
    "fit_offset",
    "fit_temperature",
    "interval_coverage",
    "interval_width",
    "is_wrong",
    "large_error_auroc",
    "lift",
    "macro_auroc",
    "mae",
    "mean_over_pairs",
    "member_interval",
    "member_scores",
    "member_std",
    "mutual_information",
    "nll",
    "normalized_ambiguity",
    "pairwise_difference",
    "pairwise_disagreement",
    "pairwise_kl",
    "predictive_entropy",
    "probability_before",
    "quantile_levels",
    "r2",
    "reliability_bins",
    "risk_coverage_curve",
    "rmse",
    "row_errors",
    "scaled_scores",
    "set_coverage",
    "set_size",
    "share_removed",
    "temper",
    "trust",
    "trust_ranks",
]
