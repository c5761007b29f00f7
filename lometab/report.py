"""The reports on one run: diversity, calibration, scores. Plain data, fit for JSON."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lometab import metrics
from lometab.config import ModelConfig
from lometab.data import Float
from lometab.predictor import Predictor
from lometab.splits import Parts

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


def evaluate(
    predictor: Predictor,
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
    answers = {
        part: predictor.run(x_num[rows], x_cat[rows]) for part, rows in parts.items()
    }
    targets = {part: y[rows] for part, rows in parts.items()}
    mean, members = answers["test"]
    describe = _diversity_regression if y.dtype.kind == "f" else _diversity_classes
    trust = _calibration_regression if y.dtype.kind == "f" else _calibration_classes
    head = {"task": predictor.task, "split": "test", "n_rows": len(mean)}
    diversity = describe(members, float(np.var(targets["train"])))
    measure = diversity.pop("measure")
    regime, advice = advise(measure, config)
    return {
        "diversity": {
            **head,
            "k": predictor.k,
            **diversity,
            "trajectory": [
                {"epoch": each["epoch"], _measure(predictor.task): each["diversity"]}
                for each in history
            ],
            "regime": regime,
            "advice": advice,
        },
        "calibration": {
            **head,
            **trust(targets["test"], mean, members, targets["val"], answers["val"][0]),
        },
        "report": {
            "task": predictor.task,
            "k": predictor.k,
            "scores": {
                part: _scores(predictor.task, targets[part], *answers[part])
                for part in parts
            },
            "decomposition": metrics.decompose_error(targets["test"], members)
            if predictor.task == "regression"
            else None,
        },
    }


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


def _diversity_classes(members: NDArray[Any], _: float) -> dict[str, Any]:
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
    y: NDArray[Any],
    mean: NDArray[Any],
    members: NDArray[Any],
    y_val: NDArray[Any],
    mean_val: NDArray[Any],
) -> dict[str, Any]:
    scores = metrics.conformal_scores(y_val, mean_val)
    sets = []
    for coverage in COVERAGES:
        quantile = metrics.conformal_quantile(scores, round(1 - coverage, 10))
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
    y: NDArray[Any],
    mean: NDArray[Any],
    members: NDArray[Any],
    y_val: NDArray[Any],
    mean_val: NDArray[Any],
) -> dict[str, Any]:
    scores = metrics.conformal_scores(y_val, mean_val)
    conformal, spread = [], []
    for coverage in COVERAGES:
        alpha = round(1 - coverage, 10)
        quantile = metrics.conformal_quantile(scores, alpha)
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
