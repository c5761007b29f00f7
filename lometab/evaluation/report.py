"""What the reports on one run hold, fit for JSON.

The field names are those of the JSON; `make_reports` makes the reports.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from lometab.evaluation.definitions import DEFINITIONS as DEFINITIONS
from lometab.evaluation.definitions import define as define
from lometab.evaluation.diversity_report import Diversity as Diversity
from lometab.evaluation.findings import (
    CurvePoint,
    Effects,
    Importance,
    NaiveGuess,
    Point,
    Slices,
)
from lometab.evaluation.head import ClassTask, Head, Label
from lometab.evaluation.outcome import Outcome

# No number is NaN or infinite: what is undefined is None.


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

    split: Literal["val", "calibration"]
    n_rows: int
    nll_before: float
    nll_after: float
    """Never more than before."""
    ece_before: float
    ece_after: float


@dataclass(frozen=True, kw_only=True)
class ConformalSets:
    """Sets of classes at one coverage."""

    coverage: float
    """What was asked for."""
    measured: float
    """Share of test rows whose set holds the true class."""
    standard_error: float
    mean_size: float
    """Classes in a set."""
    method: Literal["aps", "lac"] = "lac"
    empty_share: float = 0.0
    """Share of test rows with no class in their set."""
    by_class: list[float | None] = field(default_factory=list)
    """`measured` of each class's rows, in the order of the classes."""


@dataclass(frozen=True, kw_only=True)
class CalibratedOn:
    """The rows that quantiles and temperature are of."""

    part: Literal["val", "calibration"]
    n_rows: int


@dataclass(frozen=True, kw_only=True)
class GroupCoverage:
    """Intervals or sets of 90 % for the rows with one value of a column."""

    group: str
    """The value; of classes, the label."""
    n_rows: int
    measured: float
    mean_size: float | None
    """Width, or classes in a set."""
    n_calibration: int | None = None
    """Calibration rows with this value; null in reports from before, so the next."""
    is_apart: bool | None = None
    """Whether it has quantiles of its own, for which 20 of them are needed."""


@dataclass(frozen=True, kw_only=True)
class ClassCalibration(Head):
    """How far the ensemble's probabilities can be trusted."""

    task: ClassTask
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
    """As they are answered."""
    other_sets: list[ConformalSets] = field(default_factory=list)
    """By the other method, which can be asked for."""
    calibrated_on: CalibratedOn | None = None
    groups: list[GroupCoverage] = field(default_factory=list)
    """If calibration was asked to tell the values of a column apart."""
    warnings: list[str] = field(default_factory=list)
    """What speaks against the coverage."""


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Intervals at one coverage."""

    coverage: float
    """What was asked for."""
    measured: float
    """Share of test rows inside."""
    standard_error: float
    mean_width: float | None
    """In target units; null if they have no ends, for want of validation rows."""
    relative_width: float | None
    """Relative to the standard deviation of the training targets."""
    method: Literal["constant", "scaled", "members"] = "constant"


@dataclass(frozen=True, kw_only=True)
class IntervalChoice:
    """Whether intervals follow the members' spread."""

    method: Literal["constant", "scaled"]
    """As they are answered."""
    relative_width_val: float | None
    """By the rows that chose; null if members do not differ."""
    relative_width_test: float | None
    """At 90 % on the test rows."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class RegressionCalibration(Head):
    """How far intervals round the ensemble's numbers can be trusted."""

    task: Literal["regression"]
    definitions: dict[str, str]
    """What each number is, in words."""
    sharpness: float | None
    conformal_intervals: list[Intervals]
    """As they are answered."""
    member_intervals: list[Intervals]
    """Empty if there is one member."""
    other_intervals: list[Intervals] = field(default_factory=list)
    """By the other method, which can be asked for; empty if there is one member."""
    interval_choice: IntervalChoice | None = None
    calibrated_on: CalibratedOn | None = None
    groups: list[GroupCoverage] = field(default_factory=list)
    """If calibration was asked to tell the values of a column apart."""
    warnings: list[str] = field(default_factory=list)
    """What speaks against the coverage."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores on the rows of one part."""

    n_rows: int
    ensemble: dict[str, float | None]
    """rmse, mae, r2; or accuracy, nll (the log loss), brier, balanced_accuracy, f1,
    auroc and, for binary, lift of the tenth of the rows that are most likely."""
    members: dict[str, list[float | None]]
    """Of each member alone; without balanced_accuracy, f1, lift."""


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """ensemble_error = member_error - ambiguity, means over the test rows."""

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

    uncertainty: str
    """confidence (1 - the largest probability), entropy, mutual_information and
    disagreement; for regression member_std."""
    auroc: float | None
    """Null if there are no errors, or nothing else."""
    aurc: float


@dataclass(frozen=True, kw_only=True)
class SelectivePoint:
    """What comes of one `abstain`."""

    abstain: float
    """What was asked for."""
    abstained: float
    """Share of the test rows that are not answered then."""
    remaining_error: float | None
    """Of the rows that are; null if there is none."""
    caught: float | None
    """Share of the errors that are among the rows not answered; null without errors.
    In regression errors are the tenth of the rows with the largest ones."""


@dataclass(frozen=True, kw_only=True)
class Selective:
    """What is gained by not answering the least certain rows."""

    uncertainty: Literal["member_std", "entropy"]
    error: Literal["rmse", "wrong class"]
    points: list[SelectivePoint]


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Numbers of test rows by true and predicted class."""

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
class Pruning:
    """What was gained by keeping some of the members."""

    members: list[int]
    """Those that were kept, by their numbers in the whole model."""
    k_before: int
    k_after: int
    file_bytes_before: int
    file_bytes_after: int
    folded_bytes_before: int
    """What the weights take in memory."""
    folded_bytes_after: int
    seconds_before: float
    """Of a thousand rows on this machine, with one thread."""
    seconds_after: float
    score_before: dict[str, float] = field(default_factory=dict)
    """RMSE or accuracy of the whole model, by part."""
    score_after: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class UsedRows:
    """What was used of the table."""

    table: int
    """Rows of it."""
    used: int
    """Rows of all parts; fewer by `max_rows`, or where the target is missing."""
    train: int
    """Rows that were trained on."""
    reported: dict[str, int]
    """Rows of each part that the reports are of."""
    storage: Literal["memory", "file"]
    """Where the training rows were."""


@dataclass(frozen=True, kw_only=True)
class RunReport(Head):
    """The scores of a run, what its uncertainties are worth, and how it was made."""

    split: Literal["test"]
    """The part of everything but `scores`."""
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
    warnings: list[str]
    """What was decided about the data without being told, and what looks wrong."""
    timings: dict[str, float]
    """Seconds of each phase."""
    versions: dict[str, str]
    """Of Python and the libraries."""
    seeds: dict[str, int]
    """Of the split and of the training."""
    curve: list[CurvePoint] = field(default_factory=list)
    """Each epoch of training; of several seeds, the first's."""
    points: list[Point] | None = None
    """Regression: a sample of the test rows."""
    naive: list[NaiveGuess] = field(default_factory=list)
    """Guesses that need no model; empty in reports from before, so the next three."""
    importance: Importance | None = None
    """What the model uses; null if it was not measured."""
    effects: Effects | None = None
    """How the answer moves with the most important columns."""
    slices: Slices | None = None
    """Where it fails."""
    selective: Selective | None = None
    """What `abstain` does; null for regression with one member."""
    pruning: Pruning | None = None
    """If some members were left out."""
    rows: UsedRows | None = None
    """Null in reports from before."""


Calibration = ClassCalibration | RegressionCalibration


@dataclass(frozen=True, kw_only=True)
class Reports:
    """All reports on one run."""

    diversity: Diversity
    calibration: Calibration
    report: RunReport

    def to_json(self) -> dict[str, Any]:
        """By name, as JSON has them: None for what is no finite number."""
        state: dict[str, Any] = _to_json(self)
        return state


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        return {
            each.name: _to_json(getattr(value, each.name)) for each in fields(value)
        }
    if isinstance(value, Mapping):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
