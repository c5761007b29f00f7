"""The report on how far the members differ, and what to change about it."""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import metrics
from lometab.evaluation.averaging import report_averaging, report_curve, tell
from lometab.evaluation.definitions import define
from lometab.evaluation.diversity_report import (
    Ambiguity,
    AmbiguityPoint,
    Averaging,
    ClassDiversity,
    Diversity,
    KLPoint,
    MemberCurve,
    Pairs,
    Regime,
    RegressionDiversity,
)
from lometab.evaluation.run import Run

if TYPE_CHECKING:
    from lometab.config import ModelConfig

REGIMES: tuple[tuple[float, Regime], ...] = (
    (0.002, "collapsed"),
    (0.006, "low"),
    (0.1, "active"),
    (math.inf, "excessive"),
)
"""Upper ends of the regimes of diversity, in pairwise KL or normalised ambiguity.

They are read off the paper's grids over rank and sigma_init: at sigma_init up to 0.3
both stay near a floor of 0.001, from 0.5 on the rank begins to matter, and the
most diverse of the paper's cells have 0.04 to 0.05; twice that is called excessive.
"""


LITTLE = 0.01
"""Averaging that removes less of the members' error than this is worth little."""


def find_regime(diversity: float | None) -> Regime | None:
    """Where a diversity stands; None for that of one member."""
    if diversity is None:
        return None
    return next(name for end, name in REGIMES if diversity < end)


def report_diversity(run: Run) -> Diversity:
    """The report `diversity`, of the part `test`."""
    if run.task == "regression":
        return _of_numbers(run)
    return _of_classes(run)


def _of_classes(run: Run) -> ClassDiversity:
    _, members = run.answers["test"]
    kl = _pairs(metrics.pairwise_kl(members))
    averaging, curve = report_averaging(run), report_curve(run)
    return ClassDiversity(
        **run.head(),
        k=members.shape[1],
        definitions=define(
            "averaging",
            "member_curve",
            "pairwise_kl",
            "disagreement",
            "trajectory",
            "regime",
        ),
        pairwise_kl=kl,
        disagreement=_pairs(metrics.pairwise_disagreement(members)),
        trajectory=[
            KLPoint(epoch=each.epoch, pairwise_kl=each.diversity)
            for each in run.history
        ],
        trajectory_split="val",
        regime=find_regime(kl.mean),
        advice=_advise(run, kl.mean, averaging, curve),
        averaging=averaging,
        member_curve=curve,
    )


def _of_numbers(run: Run) -> RegressionDiversity:
    _, members = run.answers["test"]
    normalized = metrics.normalized_ambiguity(members, run.train_variance)
    averaging, curve = report_averaging(run), report_curve(run)
    return RegressionDiversity(
        **run.head(),
        k=members.shape[1],
        definitions=define(
            "averaging",
            "member_curve",
            "ambiguity",
            "squared_difference",
            "trajectory",
            "regime",
        ),
        ambiguity=Ambiguity(mean=metrics.ambiguity(members), normalized=normalized),
        squared_difference=_pairs(metrics.pairwise_difference(members)),
        trajectory=[
            AmbiguityPoint(epoch=each.epoch, ambiguity=each.diversity)
            for each in run.history
        ],
        trajectory_split="val",
        regime=find_regime(normalized),
        advice=_advise(run, normalized, averaging, curve),
        averaging=averaging,
        member_curve=curve,
    )


def _advise(
    run: Run,
    diversity: float | None,
    averaging: Averaging | None,
    curve: MemberCurve | None,
) -> str:
    """What averaging is worth, and what to change where it is worth nothing."""
    text = tell(averaging, curve)
    if averaging is None or averaging.removed is None:
        return text
    if averaging.removed.upper < LITTLE:
        return f"{text}; members that differ more may help: {_more(run.config)}"
    if averaging.against_best is not None and averaging.against_best.upper < 0:
        return f"{text}; lower sigma_init or rank, so that members differ less"
    return text


def _more(config: "ModelConfig") -> str:
    return {
        "lometab": "raise sigma_init (the strongest lever) or rank",
        "additive": "raise sigma_init (the strongest lever) or rank",
    }.get(config.variant, "try the variant lometab, whose sigma_init and rank set it")


def _pairs(matrix: NDArray[np.float64]) -> Pairs:
    """With one member there are none."""
    mean = metrics.mean_over_pairs(matrix)
    return Pairs(mean=mean, matrix=None if mean is None else matrix.tolist())
