"""The reports on one run: diversity, calibration, scores. Plain data, fit for JSON.

Read top to bottom: what the reports hold, as types whose field names are those of the
JSON; how they come from answers; and the parts of each.
"""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

import lometab
from lometab import metrics
from lometab.config import ModelConfig
from lometab.data import Float
from lometab.splits import Parts

if TYPE_CHECKING:  # it loads ONNX Runtime, which torch's answers do not need
    from lometab.predictor import Predictor

Regime = Literal["collapsed", "low", "active", "excessive"]
ClassTask = Literal["binary", "multiclass"]
Label = str | int | bool

REGIMES: tuple[tuple[float, Regime], ...] = (
    (0.002, "collapsed"),
    (0.006, "low"),
    (0.1, "active"),
    (math.inf, "excessive"),
)
"""Upper ends of the regimes of diversity, in pairwise KL or normalised ambiguity.

They are read off the paper's grids over rank and sigma_init: at sigma_init up to 0.3
both measures stay near a floor of 0.001, from 0.5 on the rank begins to matter, and the
most diverse of the paper's cells have 0.04 to 0.05; twice that is called excessive.
"""

COVERAGES = (0.5, 0.8, 0.9, 0.95)

MAX_POINTS = 101
"""Points of a curve at most."""

IDENTITY_TOLERANCE = 1e-6
"""How far a decomposition may be off, relative to the members' error, by rounding."""

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
    baselines: list[dict[str, Any]]
    """Other models on the same rows; none yet."""
    training: Training | None
    timings: dict[str, float]
    """Seconds of each phase."""
    versions: dict[str, str]
    """Of Python and the libraries."""
    seeds: dict[str, int]
    """Of the split and of the training."""


Diversity = ClassDiversity | RegressionDiversity
Calibration = ClassCalibration | RegressionCalibration


# ----------------------------------------------------------------------------
# From answers to reports

Answers = Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
"""`mean` and `members` of the rows of each part."""


def evaluate(
    predictor: "Predictor",
    x_num: Float,
    x_cat: NDArray[np.object_],
    y: NDArray[Any],
    parts: Parts,
    *,
    config: ModelConfig,
    history: Sequence[Mapping[str, Any]] = (),
) -> dict[str, dict[str, Any]]:
    """The reports by name, all from the outputs that the predictor serves.

    Args:
        x_num, x_cat, y: all rows, as `lometab.data` gives them.
        history: the progress of each epoch, with its `epoch` and `diversity`.
    """
    answers: Answers = {
        part: predictor.run(x_num[rows], x_cat[rows]) for part, rows in parts.items()
    }
    targets: dict[str, NDArray[Any]] = {part: y[rows] for part, rows in parts.items()}
    return describe(
        predictor.task,
        targets,
        answers,
        train_variance=float(np.var(targets["train"])),
        conformity=metrics.conformal_scores(targets["val"], answers["val"][0]),
        config=config,
        history=history,
        classes=predictor.classes,
        temperature=predictor.metadata.get("temperature"),
    )


def describe(
    task: str,
    targets: Mapping[str, NDArray[Any]],
    answers: Answers,
    *,
    train_variance: float,
    conformity: ArrayLike,
    config: ModelConfig,
    history: Sequence[Mapping[str, Any]] = (),
    classes: Sequence[Label] | None = None,
    temperature: float | None = None,
) -> dict[str, dict[str, Any]]:
    """The reports by name, as JSON has them: `Diversity`, `Calibration`, `RunReport`.

    Scores are of every part, the rest is of the part `test`. What only the caller
    knows is left for it to fill in: `n_parameters`, `training`, `timings`, `seeds`.

    Args:
        targets, answers: by part; `test` must be there.
        train_variance: of the training targets, which normalises the ambiguity.
        conformity: the conformal scores of the validation rows.
        history: the progress of each epoch, with its `epoch` and `diversity`.
        classes: the labels in the order of the probabilities.
        temperature: fitted on the part `val`, whose answers show what it changed.
    """
    members = answers["test"][1]
    head = {
        "version": 1,
        "job_id": None,
        "task": task,
        "split": "test",
        "n_rows": len(members),
    }
    diversity: Diversity
    calibration: Calibration
    if task == "regression":
        diversity = _diversity_regression(
            head, members, history, train_variance, config
        )
        calibration = _calibration_regression(
            head, targets["test"], answers["test"], conformity, train_variance
        )
    else:
        diversity = _diversity_classes(head, members, history, config)
        calibration = _calibration_classes(
            head, targets, answers, conformity, temperature
        )
    report = _run_report(head, targets, answers, classes)
    return {
        "diversity": _plain(diversity),
        "calibration": _plain(calibration),
        "report": _plain(report),
    }


def _plain(value: Any) -> Any:
    """The value as JSON has it, with None for what is no finite number."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def conformity_quantiles(conformity: ArrayLike) -> list[float | None]:
    """What a file needs for intervals and sets: a quantile for each 0.01 to 0.99.

    None where validation has too few rows to tell.
    """
    quantiles = [
        metrics.conformal_quantile(conformity, round(1 - percent / 100, 2))
        for percent in range(1, 100)
    ]
    return [each if math.isfinite(each) else None for each in quantiles]


def library_versions() -> dict[str, str]:
    """Of Python, of lometab and of the libraries that the numbers may depend on."""
    found = {"python": platform.python_version(), "lometab": lometab.__version__}
    for name in _LIBRARIES:
        try:
            found[name.removesuffix("-gpu")] = version(name)
        except PackageNotFoundError:
            continue
    return found


_LIBRARIES = (
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "scikit-learn",
    "torch",
)


def _define(*names: str) -> dict[str, str]:
    return {name: DEFINITIONS[name] for name in names}


# ----------------------------------------------------------------------------
# Diversity


def advise(measure: float | None, config: ModelConfig) -> tuple[Regime | None, str]:
    """Where the diversity stands, and which way to move rank and sigma_init."""
    if measure is None:
        return None, "one member has no diversity; set k to 2 or more"
    regime = next(name for end, name in REGIMES if measure < end)
    more = {
        "lometab": "raise sigma_init (the strongest lever) or rank",
        "additive": "raise sigma_init (the strongest lever) or rank",
    }.get(config.variant, "try the variant lometab, whose sigma_init and rank set it")
    advice = {
        "collapsed": f"the members are nearly the same; for more diversity {more}",
        "low": f"the members differ little; for more diversity {more}",
        "active": "the members differ as in the cells where the paper's ensembles "
        "do best; compare neighbouring sigma_init by validation score",
        "excessive": "the members differ more than in any cell of the paper; if the "
        "score suffers, lower sigma_init or rank",
    }[regime]
    return regime, advice


def _diversity_classes(
    head: Mapping[str, Any],
    members: NDArray[Any],
    history: Sequence[Mapping[str, Any]],
    config: ModelConfig,
) -> ClassDiversity:
    kl = _pairs(metrics.pairwise_kl(members))
    regime, advice = advise(kl.mean, config)
    return ClassDiversity(
        **head,
        k=members.shape[1],
        definitions=_define("pairwise_kl", "disagreement", "trajectory", "regime"),
        pairwise_kl=kl,
        disagreement=_pairs(metrics.pairwise_disagreement(members)),
        trajectory=[
            KLPoint(epoch=each["epoch"], pairwise_kl=each["diversity"])
            for each in history
        ],
        trajectory_split="val",
        regime=regime,
        advice=advice,
    )


def _diversity_regression(
    head: Mapping[str, Any],
    members: NDArray[Any],
    history: Sequence[Mapping[str, Any]],
    train_variance: float,
    config: ModelConfig,
) -> RegressionDiversity:
    normalized = metrics.normalized_ambiguity(members, train_variance)
    regime, advice = advise(normalized, config)
    return RegressionDiversity(
        **head,
        k=members.shape[1],
        definitions=_define("ambiguity", "squared_difference", "trajectory", "regime"),
        ambiguity=Ambiguity(mean=metrics.ambiguity(members), normalized=normalized),
        squared_difference=_pairs(metrics.pairwise_difference(members)),
        trajectory=[
            AmbiguityPoint(epoch=each["epoch"], ambiguity=each["diversity"])
            for each in history
        ],
        trajectory_split="val",
        regime=regime,
        advice=advice,
    )


def _pairs(matrix: Float) -> Pairs:
    """A measure of pairs of members; with one member there are none."""
    mean = metrics.mean_over_pairs(matrix)
    return Pairs(mean=mean, matrix=None if mean is None else matrix.tolist())


# ----------------------------------------------------------------------------
# Calibration


def _calibration_classes(
    head: Mapping[str, Any],
    targets: Mapping[str, NDArray[Any]],
    answers: Answers,
    conformity: ArrayLike,
    temperature: float | None,
) -> ClassCalibration:
    y, (mean, _) = targets["test"], answers["test"]
    before = _reliability(y, mean)
    calibrated = fit = None
    if temperature is not None:
        calibrated = _reliability(y, metrics.temper(mean, temperature))
        if "val" in answers:
            fit = _temperature_fit(targets["val"], answers["val"][0], temperature)
    sets = []
    for coverage in COVERAGES:
        quantile = metrics.conformal_quantile(conformity, round(1 - coverage, 10))
        chosen = metrics.conformal_set(mean, quantile)
        sets.append(
            ConformalSets(
                coverage=coverage,
                measured=metrics.set_coverage(y, chosen),
                standard_error=_standard_error(coverage, np.size(conformity), len(y)),
                mean_size=metrics.set_size(chosen),
            )
        )
    return ClassCalibration(
        **head,
        definitions=_define(
            "ece", "brier", "nll", "temperature", "conformal_sets", "standard_error"
        ),
        ece=before.ece,
        n_bins=len(before.bins),
        bins=before.bins,
        brier=before.brier,
        nll=before.nll,
        temperature=temperature,
        temperature_fit=fit,
        calibrated=calibrated,
        conformal_sets=sets,
    )


def _reliability(y: NDArray[Any], mean: NDArray[Any]) -> Reliability:
    return Reliability(
        ece=metrics.ece(y, mean),
        bins=[Bin(**each) for each in metrics.reliability_bins(y, mean)],
        brier=metrics.brier(y, mean),
        nll=metrics.nll(y, mean),
    )


def _temperature_fit(
    y: NDArray[Any], mean: NDArray[Any], temperature: float
) -> TemperatureFit:
    tempered = metrics.temper(mean, temperature)
    return TemperatureFit(
        split="val",
        n_rows=len(y),
        nll_before=metrics.nll(y, mean),
        nll_after=metrics.nll(y, tempered),
        ece_before=metrics.ece(y, mean),
        ece_after=metrics.ece(y, tempered),
    )


def _calibration_regression(
    head: Mapping[str, Any],
    y: NDArray[Any],
    answer: tuple[NDArray[Any], NDArray[Any]],
    conformity: ArrayLike,
    train_variance: float,
) -> RegressionCalibration:
    mean, members = answer
    scale = math.sqrt(train_variance)
    n_val = np.size(conformity)
    conformal, spread = [], []
    for coverage in COVERAGES:
        alpha = round(1 - coverage, 10)
        quantile = metrics.conformal_quantile(conformity, alpha)
        interval = metrics.conformal_interval(mean, quantile)
        conformal.append(_intervals(coverage, y, interval, scale, n_val))
        between = metrics.member_interval(members, alpha)
        if between is not None:
            spread.append(_intervals(coverage, y, between, scale, math.inf))
    return RegressionCalibration(
        **head,
        definitions=_define(
            "conformal_intervals", "member_intervals", "sharpness", "standard_error"
        ),
        sharpness=conformal[COVERAGES.index(0.9)].mean_width,
        conformal_intervals=conformal,
        member_intervals=spread,
    )


def _intervals(
    coverage: float,
    y: NDArray[Any],
    interval: tuple[Float, Float],
    scale: float,
    n_val: float,
) -> Intervals:
    width = metrics.interval_width(*interval)
    return Intervals(
        coverage=coverage,
        measured=metrics.interval_coverage(y, *interval),
        standard_error=_standard_error(coverage, n_val, len(y)),
        mean_width=width,
        relative_width=width / scale if scale > 0 else None,
    )


def _standard_error(coverage: float, n_val: float, n_test: int) -> float:
    return math.sqrt(coverage * (1 - coverage) * (1 / n_val + 1 / n_test))


# ----------------------------------------------------------------------------
# Scores, and what the uncertainties are worth

_SCORES: dict[str, tuple[Callable[..., float | None], ...]] = {
    "regression": (metrics.rmse, metrics.mae, metrics.r2),
    "binary": (metrics.accuracy, metrics.nll, metrics.brier, metrics.auroc),
    "multiclass": (metrics.accuracy, metrics.nll, metrics.brier),
}


def _run_report(
    head: Mapping[str, Any],
    targets: Mapping[str, NDArray[Any]],
    answers: Answers,
    classes: Sequence[Label] | None,
) -> RunReport:
    y, (mean, members) = targets["test"], answers["test"]
    names = ["scores", "decomposition", "risk_coverage", "error_detection"]
    confusion = None
    if head["task"] != "regression":
        names.append("confusion")
        confusion = Confusion(
            classes=list(range(mean.shape[1]) if classes is None else classes),
            matrix=metrics.confusion_matrix(y, mean).tolist(),
        )
    return RunReport(
        **head,
        k=members.shape[1],
        n_parameters=None,
        definitions=_define(*names),
        scores={
            part: _scores(_SCORES[head["task"]], targets[part], *answers[part])
            for part in answers
        },
        decomposition=_decompose(y, members),
        risk_coverage=_risk_coverage(y, mean, members),
        error_detection=_error_detection(y, mean, members),
        confusion=confusion,
        baselines=[],
        training=None,
        timings={},
        versions=library_versions(),
        seeds={},
    )


def _scores(
    scores: Sequence[Callable[..., float | None]],
    y: NDArray[Any],
    mean: NDArray[Any],
    members: NDArray[Any],
) -> Scores:
    return Scores(
        n_rows=len(y),
        ensemble={score.__name__: score(y, mean) for score in scores},
        members={
            score.__name__: metrics.member_scores(score, y, members) for score in scores
        },
    )


def _decompose(y: NDArray[Any], members: NDArray[Any]) -> Decomposition:
    if members.ndim == 2:
        terms = metrics.decompose_error(y, members)
    else:
        terms = metrics.decompose_brier(y, members)
    residual = terms["residual"]
    bound = IDENTITY_TOLERANCE * terms["member_error"]
    return Decomposition(
        loss="squared error" if members.ndim == 2 else "brier",
        **terms,
        holds=None if residual is None else abs(residual) <= bound,
    )


def _uncertainties(
    mean: NDArray[Any], members: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """What can order rows by their uncertainty, the first of them as the main one."""
    if mean.ndim == 1:
        found = {"std": metrics.member_std(members)}
    else:
        found = {
            "entropy": metrics.predictive_entropy(mean),
            "confidence": 1.0 - mean.max(axis=1).astype(np.float64),
            "mutual_information": metrics.mutual_information(members),
            "disagreement": metrics.disagreement(members),
        }
    return {name: each for name, each in found.items() if each is not None}


def _losses(y: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    if mean.ndim == 1:
        return metrics.conformal_scores(y, mean) ** 2
    return metrics.is_wrong(y, mean)


def _risk_coverage(
    y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any]
) -> RiskCoverage | None:
    found = _uncertainties(mean, members)
    if not found:
        return None
    name = next(iter(found))
    coverage, risk = metrics.risk_coverage_curve(_losses(y, mean), found[name])
    n_points = min(len(coverage), MAX_POINTS)
    kept = np.linspace(0, len(coverage) - 1, n_points).round().astype(np.intp)
    return RiskCoverage(
        uncertainty=name,
        loss="squared error" if mean.ndim == 1 else "wrong class",
        coverage=coverage[kept].tolist(),
        risk=risk[kept].tolist(),
        area=float(risk.mean()),
    )


def _error_detection(
    y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any]
) -> list[ErrorDetection]:
    auroc = metrics.large_error_auroc if mean.ndim == 1 else metrics.error_auroc
    return [
        ErrorDetection(
            uncertainty=name,
            auroc=auroc(y, mean, uncertainty),
            aurc=metrics.aurc(_losses(y, mean), uncertainty),
        )
        for name, uncertainty in _uncertainties(mean, members).items()
    ]
