"""What the reports on one run hold. Plain data, fit for JSON.

The field names are those of the JSON; `lometab.evaluation` makes the reports.
"""

from dataclasses import dataclass
from typing import Literal

from lometab.outcome import Outcome

Regime = Literal["collapsed", "low", "active", "excessive"]
ClassTask = Literal["binary", "multiclass"]
Label = str | int | bool

DEFINITIONS = {
    "pairwise_kl": "Mean over rows of the symmetric Kullback-Leibler divergence "
    "(KL(p||q) + KL(q||p)) / 2 of two members' probabilities, in nats; `mean` is over "
    "all pairs.",
    "disagreement": "Share of rows on which two members predict different classes; "
    "`mean` is over all pairs.",
    "ambiguity": "Mean over rows of the variance of the members' answers (Krogh and "
    "Vedelsby), in squared target units; `normalized` is relative to the variance of "
    "the training targets.",
    "squared_difference": "Mean over rows of the squared difference of two members' "
    "answers, in squared target units; `mean` is over all pairs, and 2k/(k-1) times "
    "the ambiguity.",
    "trajectory": "The measure after each epoch, on the validation rows.",
    "regime": "Where pairwise KL or normalised ambiguity stands: collapsed below "
    "0.002, low below 0.006, active below 0.1, then excessive.",
    "ece": "Expected calibration error: the mean over bins, weighted by their rows, of "
    "|accuracy - confidence|. Confidence is the largest probability of the ensemble's "
    "mean; the 15 bins (lower, upper] are equally wide.",
    "brier": "Mean over rows of the squared distance of the probabilities to the true "
    "class, summed over all classes: 0 to 2.",
    "nll": "Mean of -log of the true class's probability, in nats.",
    "temperature": "T in softmax(log(mean) / T), fitted on the validation rows by the "
    "least nll; above 1 the ensemble was too sure. Members are not changed.",
    "conformal_sets": "The classes whose 1 - p is at most its split-conformal quantile "
    "on the validation rows, of the mean before the temperature; `measured` is the "
    "share of rows whose set holds the true class.",
    "conformal_intervals": "Mean plus and minus the split-conformal quantile of "
    "|y - mean| on the validation rows; `measured` is the share of rows inside.",
    "member_intervals": "Between quantiles of the members' answers. Members agree more "
    "than they are right, so these usually cover less than their name says.",
    "standard_error": "What sampling of validation and test rows alone would spread "
    "`measured` by: sqrt(c (1 - c) (1/n_val + 1/n_test)), without n_val for "
    "member_intervals.",
    "sharpness": "Mean width of the conformal intervals of 90 %; narrower is better "
    "where the coverage is right. Widths are null where validation is too small.",
    "decomposition": "Krogh and Vedelsby: the ensemble's squared error is the mean of "
    "its members' minus their ambiguity. For classes it is that of the Brier score.",
    "risk_coverage": "The mean loss of the share `coverage` of rows that are the most "
    "certain; `area` is the mean over all rows' coverages.",
    "error_detection": "auroc: how well an uncertainty tells wrong classes from right "
    "ones (regression: the tenth of the rows with the largest absolute errors from the "
    "others); 0.5 is chance, 1 perfect. aurc: the area under its risk-coverage curve.",
    "confusion": "Numbers of rows: true classes down, predicted ones across.",
    "scores": "Of the mean of the members, and of each member alone, in their order.",
}
"""What the numbers of the reports are, in words; each report has those it uses."""


# ----------------------------------------------------------------------------
# What the reports hold. No number is NaN or infinite: what is undefined is None.

_DOCUMENTED = {"use_attribute_docstrings": True}  # read by pydantic, for OpenAPI


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """A measure of pairs of members."""

    __pydantic_config__ = _DOCUMENTED

    mean: float | None
    """Over all pairs of members; null if there is one member."""
    matrix: list[list[float]] | None
    """K x K, symmetric, zero on the diagonal; null if there is one member."""


@dataclass(frozen=True, kw_only=True)
class Ambiguity:
    """How far the members' numbers spread round their mean."""

    __pydantic_config__ = _DOCUMENTED

    mean: float | None
    """In squared target units; null if there is one member."""
    normalized: float | None
    """Relative to the variance of the training targets."""


@dataclass(frozen=True, kw_only=True)
class KLPoint:
    """Diversity after an epoch, classification."""

    epoch: int
    pairwise_kl: float | None


@dataclass(frozen=True, kw_only=True)
class AmbiguityPoint:
    """Diversity after an epoch, regression."""

    epoch: int
    ambiguity: float | None


@dataclass(frozen=True, kw_only=True)
class ClassDiversity:
    """How far the members' probabilities differ."""

    __pydantic_config__ = _DOCUMENTED

    version: Literal[1]
    """Of the report's form."""
    job_id: str | None
    """The job whose model this is about; null outside the service."""
    task: ClassTask
    split: Literal["test"]
    """The part whose rows were measured."""
    n_rows: int
    k: int
    definitions: dict[str, str]
    """What each number is, in words."""
    pairwise_kl: Pairs
    disagreement: Pairs
    trajectory: list[KLPoint]
    trajectory_split: Literal["val"]
    """The part on which the trajectory was measured."""
    regime: Regime | None
    advice: str


@dataclass(frozen=True, kw_only=True)
class RegressionDiversity:
    """How far the members' numbers differ."""

    __pydantic_config__ = _DOCUMENTED

    version: Literal[1]
    """Of the report's form."""
    job_id: str | None
    """The job whose model this is about; null outside the service."""
    task: Literal["regression"]
    split: Literal["test"]
    """The part whose rows were measured."""
    n_rows: int
    k: int
    definitions: dict[str, str]
    """What each number is, in words."""
    ambiguity: Ambiguity
    squared_difference: Pairs
    trajectory: list[AmbiguityPoint]
    trajectory_split: Literal["val"]
    """The part on which the trajectory was measured."""
    regime: Regime | None
    advice: str


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Rows whose confidence is in (lower, upper]; an empty bin has no averages."""

    lower: float
    upper: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """How far the probabilities can be trusted."""

    ece: float
    bins: list[Bin]
    brier: float
    nll: float


@dataclass(frozen=True, kw_only=True)
class TemperatureFit:
    """What the temperature changed on the rows it was fitted on."""

    __pydantic_config__ = _DOCUMENTED

    split: Literal["val"]
    n_rows: int
    nll_before: float
    nll_after: float
    """Never more than before."""
    ece_before: float
    ece_after: float


@dataclass(frozen=True, kw_only=True)
class ConformalSets:
    """Sets of classes at one coverage."""

    __pydantic_config__ = _DOCUMENTED

    coverage: float
    """What was asked for."""
    measured: float
    """Share of test rows whose set holds the true class."""
    standard_error: float
    mean_size: float
    """Classes in a set."""


@dataclass(frozen=True, kw_only=True)
class ClassCalibration:
    """How far the ensemble's probabilities can be trusted."""

    __pydantic_config__ = _DOCUMENTED

    version: Literal[1]
    """Of the report's form."""
    job_id: str | None
    """The job whose model this is about; null outside the service."""
    task: ClassTask
    split: Literal["test"]
    """The part whose rows were measured."""
    n_rows: int
    definitions: dict[str, str]
    """What each number is, in words."""
    ece: float
    n_bins: int
    bins: list[Bin]
    brier: float
    nll: float
    temperature: float | None
    """Null if none was fitted."""
    temperature_fit: TemperatureFit | None
    calibrated: Reliability | None
    """The same numbers of the answers at the temperature."""
    conformal_sets: list[ConformalSets]


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Intervals at one coverage."""

    __pydantic_config__ = _DOCUMENTED

    coverage: float
    """What was asked for."""
    measured: float
    """Share of test rows inside."""
    standard_error: float
    mean_width: float | None
    """In target units; null if they have no ends, for want of validation rows."""
    relative_width: float | None
    """Relative to the standard deviation of the training targets."""


@dataclass(frozen=True, kw_only=True)
class RegressionCalibration:
    """How far intervals round the ensemble's numbers can be trusted."""

    __pydantic_config__ = _DOCUMENTED

    version: Literal[1]
    """Of the report's form."""
    job_id: str | None
    """The job whose model this is about; null outside the service."""
    task: Literal["regression"]
    split: Literal["test"]
    """The part whose rows were measured."""
    n_rows: int
    definitions: dict[str, str]
    """What each number is, in words."""
    sharpness: float | None
    conformal_intervals: list[Intervals]
    member_intervals: list[Intervals]
    """Empty if there is one member."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores on the rows of one part."""

    __pydantic_config__ = _DOCUMENTED

    n_rows: int
    ensemble: dict[str, float | None]
    """rmse, mae, r2; or accuracy, nll, brier and, for binary, auroc."""
    members: dict[str, list[float | None]]
    """The same of each member alone."""


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """ensemble_error = member_error - ambiguity, means over the test rows."""

    __pydantic_config__ = _DOCUMENTED

    loss: Literal["squared error", "brier"]
    ensemble_error: float
    member_error: float
    ambiguity: float | None
    """Null if there is one member."""
    residual: float | None
    """The left side minus the right."""
    holds: bool | None
    """Whether the residual is rounding error only."""


@dataclass(frozen=True, kw_only=True)
class RiskCoverage:
    """What one gains by answering only the most certain rows."""

    __pydantic_config__ = _DOCUMENTED

    uncertainty: str
    """What the rows are ordered by."""
    loss: Literal["squared error", "wrong class"]
    coverage: list[float]
    """At most 101 shares of the rows, ascending to 1."""
    risk: list[float]
    """The mean loss of each share."""
    area: float
    """Under the whole curve; less is better."""


@dataclass(frozen=True, kw_only=True)
class ErrorDetection:
    """How well one uncertainty tells errors."""

    __pydantic_config__ = _DOCUMENTED

    uncertainty: str
    """confidence (1 - the largest probability), entropy, mutual_information and
    disagreement; for regression std."""
    auroc: float | None
    """Null if there are no errors, or nothing else."""
    aurc: float


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Numbers of test rows by true and predicted class."""

    __pydantic_config__ = _DOCUMENTED

    classes: list[Label]
    matrix: list[list[int]]
    """True classes down, predicted ones across, in the order of `classes`."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How training went."""

    best_epoch: int
    best_score: float
    epochs: int
    seconds: float
    stopped_early: bool


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A model on the same split with the same seeds, trained for comparison."""

    __pydantic_config__ = _DOCUMENTED

    name: Literal["lometab", "additive", "tabm", "deep-ensemble", "mlp", "catboost"]
    k: int
    n_parameters: int | None
    """Null for trees."""
    seconds: float
    """Of training one seed."""
    n_seeds: int
    metric: Literal["rmse", "accuracy"]
    score: float
    """Mean over seeds."""
    std: float | None
    """Over seeds; null if there is one."""
    delta_percent: float | None
    """By how much better than this model, in percent; null for itself."""
    ece: float | None
    """Null for regression."""
    diversity: float | None
    """Mean pairwise KL, or normalised ambiguity; null for one member."""


@dataclass(frozen=True, kw_only=True)
class SeedOutcome:
    """What the members of one seed came to by themselves."""

    seed: int
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The scores of a run, what its uncertainties are worth, and how it was made."""

    __pydantic_config__ = _DOCUMENTED

    version: Literal[1]
    """Of the report's form."""
    job_id: str | None
    """The job whose model this is about; null outside the service."""
    task: Literal["regression", "binary", "multiclass"]
    split: Literal["test"]
    """The part of everything but `scores`."""
    n_rows: int
    k: int
    n_parameters: int | None
    definitions: dict[str, str]
    """What each number is, in words."""
    scores: dict[str, Scores]
    """By part: train, val and test."""
    decomposition: Decomposition
    risk_coverage: RiskCoverage | None
    """By the entropy or the members' std; null for regression with one member."""
    error_detection: list[ErrorDetection]
    confusion: Confusion | None
    """Null for regression."""
    baselines: list[Baseline]
    """If any were asked for: this model, then each of them, on the test part; means
    over the seeds, each by itself."""
    by_seed: list[SeedOutcome]
    """If there are several, or baselines."""
    training: Training | None
    timings: dict[str, float]
    """Seconds of each phase."""
    versions: dict[str, str]
    """Of Python and the libraries."""
    seeds: dict[str, int]
    """Of the split and of the training."""


Diversity = ClassDiversity | RegressionDiversity
Calibration = ClassCalibration | RegressionCalibration
