"""From answers to reports: diversity, calibration, scores.

Read top to bottom: the whole, and the parts of each report.
"""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import lometab
from lometab import metrics
from lometab.config import ModelConfig
from lometab.data import Float
from lometab.report import (
    DEFINITIONS,
    Ambiguity,
    AmbiguityPoint,
    Bin,
    Calibration,
    ClassCalibration,
    ClassDiversity,
    ConformalSets,
    Confusion,
    Decomposition,
    Diversity,
    ErrorDetection,
    Intervals,
    KLPoint,
    Label,
    Pairs,
    Regime,
    RegressionCalibration,
    RegressionDiversity,
    Reliability,
    RiskCoverage,
    RunReport,
    Scores,
    TemperatureFit,
)
from lometab.splits import Parts

if TYPE_CHECKING:  # it loads ONNX Runtime, which torch's answers do not need
    from lometab.predictor import Predictor

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
        by_seed=[],
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
