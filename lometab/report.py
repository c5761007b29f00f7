"""The reports on one run: diversity, calibration, scores. Plain data, fit for JSON."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lometab import metrics
from lometab.config import ModelConfig
from lometab.data import Float
from lometab.splits import Parts

if TYPE_CHECKING:  # it loads ONNX Runtime, which torch's answers do not need
    from lometab.predictor import Predictor

Regime = Literal["collapsed", "low", "active", "excessive"]

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
) -> dict[str, dict[str, Any]]:
    """The reports by name: scores of every part, the rest of the part `test`.

    Args:
        targets, answers: by part; `test` must be there.
        train_variance: of the training targets, which normalises the ambiguity.
        conformity: the conformal scores of the validation rows.
        history: the progress of each epoch, with its `epoch` and `diversity`.
    """
    y, (mean, members) = targets["test"], answers["test"]
    is_regression = task == "regression"
    diversity = (
        _diversity_regression(members, train_variance)
        if is_regression
        else _diversity_classes(members)
    )
    calibrate = _calibration_regression if is_regression else _calibration_classes
    head = {"task": task, "split": "test", "n_rows": len(mean)}
    regime, advice = advise(diversity.pop("measure"), config)
    return {
        "diversity": {
            **head,
            "k": members.shape[1],
            **diversity,
            "trajectory": [
                {"epoch": each["epoch"], _measure(task): each["diversity"]}
                for each in history
            ],
            "regime": regime,
            "advice": advice,
        },
        "calibration": {**head, **calibrate(y, mean, members, conformity)},
        "report": {
            "task": task,
            "k": members.shape[1],
            "scores": {
                part: _scores(task, targets[part], *answers[part]) for part in answers
            },
            "decomposition": metrics.decompose_error(y, members)
            if is_regression
            else None,
        },
    }


def conformity_quantiles(conformity: ArrayLike) -> list[float | None]:
    """What a file needs for intervals and sets: a quantile for each 0.01 to 0.99.

    None where validation has too few rows to tell.
    """
    quantiles = [
        metrics.conformal_quantile(conformity, round(1 - percent / 100, 2))
        for percent in range(1, 100)
    ]
    return [each if math.isfinite(each) else None for each in quantiles]


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


def _measure(task: str) -> str:
    return "ambiguity" if task == "regression" else "pairwise_kl"


def _diversity_classes(members: NDArray[Any]) -> dict[str, Any]:
    kl = metrics.pairwise_kl(members)
    differ = metrics.pairwise_disagreement(members)
    mean_kl = metrics.mean_over_pairs(kl)
    return {
        "pairwise_kl": _pairs(mean_kl, kl),
        "disagreement": _pairs(metrics.mean_over_pairs(differ), differ),
        "measure": mean_kl,
    }


def _pairs(mean: float | None, matrix: Float) -> dict[str, Any]:
    """A measure of pairs of members; with one member there are none."""
    return {"mean": mean, "matrix": None if mean is None else matrix.tolist()}


def _diversity_regression(
    members: NDArray[Any], train_variance: float
) -> dict[str, Any]:
    normalized = metrics.normalized_ambiguity(members, train_variance)
    return {
        "ambiguity": {"mean": metrics.ambiguity(members), "normalized": normalized},
        "measure": normalized,
    }


def _calibration_classes(
    y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any], conformity: ArrayLike
) -> dict[str, Any]:
    sets = []
    for coverage in COVERAGES:
        quantile = metrics.conformal_quantile(conformity, round(1 - coverage, 10))
        chosen = metrics.conformal_set(mean, quantile)
        sets.append(
            {
                "coverage": coverage,
                "measured": metrics.set_coverage(y, chosen),
                "mean_size": metrics.set_size(chosen),
            }
        )
    bins = metrics.reliability_bins(y, mean)
    return {
        "ece": metrics.ece(y, mean),
        "n_bins": len(bins),
        "bins": bins,
        "brier": metrics.brier(y, mean),
        "nll": metrics.nll(y, mean),
        "conformal_sets": sets,
    }


def _calibration_regression(
    y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any], conformity: ArrayLike
) -> dict[str, Any]:
    conformal, spread = [], []
    for coverage in COVERAGES:
        alpha = round(1 - coverage, 10)
        quantile = metrics.conformal_quantile(conformity, alpha)
        if math.isfinite(quantile):
            interval = metrics.conformal_interval(mean, quantile)
            conformal.append(_interval(coverage, y, interval))
        between = metrics.member_interval(members, alpha)
        if between is not None:
            spread.append(_interval(coverage, y, between))
    return {"conformal_intervals": conformal, "member_intervals": spread}


def _interval(
    coverage: float, y: NDArray[Any], interval: tuple[Float, Float]
) -> dict[str, float]:
    return {
        "coverage": coverage,
        "measured": metrics.interval_coverage(y, *interval),
        "mean_width": metrics.interval_width(*interval),
    }


def _scores(
    task: str, y: NDArray[Any], mean: NDArray[Any], members: NDArray[Any]
) -> dict[str, Any]:
    """Scores of the ensemble, and of each member by the one that stopped training."""
    if task == "regression":
        main: Callable[..., float] = metrics.rmse
        ensemble: dict[str, float | None] = {
            "rmse": metrics.rmse(y, mean),
            "mae": metrics.mae(y, mean),
            "r2": metrics.r2(y, mean),
        }
    else:
        main = metrics.accuracy
        ensemble = {
            "accuracy": metrics.accuracy(y, mean),
            "nll": metrics.nll(y, mean),
            "brier": metrics.brier(y, mean),
        }
        if task == "binary":
            ensemble["auroc"] = metrics.auroc(y, mean)
    return {
        "n_rows": len(y),
        "ensemble": ensemble,
        "members": {main.__name__: metrics.member_scores(main, y, members)},
    }
