"""The report on a run: scores, what the uncertainties are worth, how it was made."""

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lometab
from lometab.evaluation import metrics
from lometab.evaluation.points import make_curve, make_points
from lometab.evaluation.report import (
    Confusion,
    Decomposition,
    ErrorDetection,
    RiskCoverage,
    RunReport,
    Scores,
    UsedRows,
    define,
)
from lometab.evaluation.run import Run
from lometab.evaluation.selective import report_selective

MAX_POINTS = 101
"""Points of a curve at most."""

IDENTITY_TOLERANCE = 1e-6
"""How far a decomposition may be off, relative to the members' error, by rounding."""

_Score = Callable[..., float | None]
_OF_CLASSES: dict[str, _Score] = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier": metrics.brier,
}
_SCORES: dict[str, dict[str, _Score]] = {
    "regression": {"rmse": metrics.rmse, "mae": metrics.mae, "r2": metrics.r2},
    "binary": {**_OF_CLASSES, "auroc": metrics.auroc},
    "multiclass": _OF_CLASSES,
}
"""By task: what is told of the ensemble and of each member."""
_BALANCED: dict[str, _Score] = {
    "balanced_accuracy": metrics.balanced_accuracy,
    "f1": metrics.f1,
}
_MORE: dict[str, dict[str, _Score]] = {
    "regression": {},
    "binary": {**_BALANCED, "lift": metrics.lift},
    "multiclass": {**_BALANCED, "auroc": metrics.macro_auroc},
}
"""What is told of the ensemble alone."""


def score_all(task: str, y: NDArray[Any], mean: NDArray[Any]) -> dict[str, Any]:
    """Every score of the task."""
    scores = {**_SCORES[task], **_MORE[task]}
    return {name: score(y, mean) for name, score in scores.items()}


def report_run(run: Run) -> RunReport:
    """The report `report`: scores of every part, all else of the part `test`."""
    y, (mean, members) = run.targets["test"], run.answers["test"]
    names = ["scores", "decomposition", "risk_coverage", "error_detection"]
    names.append("selective")
    if run.task != "regression":
        names.append("confusion")
    scores = {
        part: _scores(run.task, run.targets[part], *answer)
        for part, answer in run.answers.items()
    }
    return RunReport(
        **run.head(),
        k=members.shape[1],
        n_parameters=run.n_parameters,
        definitions=define(*names),
        scores=scores,
        decomposition=_decompose(y, members),
        risk_coverage=_risk_coverage(y, mean, members),
        error_detection=_error_detection(y, mean, members),
        confusion=_confusion(run),
        baselines=[*run.baselines],
        by_seed=[*run.by_seed],
        training=run.training,
        warnings=[*dict.fromkeys([*run.warnings, *run.warn_of_calibration()])],
        versions=library_versions(),
        seeds=dict(run.seeds or {}),
        curve=make_curve(run),
        points=make_points(run),
        selective=report_selective(run),
        pruning=run.pruning,
        rows=None if run.rows is None else UsedRows(**run.rows),
        **({} if run.findings is None else vars(run.findings)),
        timings=dict(run.timings()),
    )


def _confusion(run: Run) -> Confusion | None:
    if run.task == "regression":
        return None
    y, (mean, _) = run.targets["test"], run.answers["test"]
    return Confusion(
        classes=list(range(mean.shape[1]) if run.classes is None else run.classes),
        matrix=metrics.confusion_matrix(y, mean).tolist(),
    )


def _scores(
    task: str, y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any]
) -> Scores:
    return Scores(
        n_rows=len(y),
        ensemble=score_all(task, y, mean),
        members={
            name: metrics.member_scores(score, y, members)
            for name, score in _SCORES[task].items()
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
        found = {"member_std": metrics.member_std(members)}
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
