"""What a trained ensemble is worth: metrics, reports on one run, runs side by side.

Loads no torch, and scikit-learn only when a score needs it. Names are loaded when they
are first used (PEP 562): whoever keeps an outcome needs no metrics.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lometab.evaluation import metrics as metrics
    from lometab.evaluation.calibrator import CHOSEN_BY_THE_SAME as CHOSEN_BY_THE_SAME
    from lometab.evaluation.calibrator import Calibrator as Calibrator
    from lometab.evaluation.calibrator import Method as Method
    from lometab.evaluation.calibrator import Rows as Rows
    from lometab.evaluation.calibrator import calibrate_rows as calibrate_rows
    from lometab.evaluation.calibrator import group_rows as group_rows
    from lometab.evaluation.comparison import (
        COMPARISON_DEFINITIONS as COMPARISON_DEFINITIONS,
    )
    from lometab.evaluation.comparison import Comparison as Comparison
    from lometab.evaluation.comparison import Ranked as Ranked
    from lometab.evaluation.comparison import Spread as Spread
    from lometab.evaluation.comparison import compare_cells as compare_cells
    from lometab.evaluation.comparison import delta_percent as delta_percent
    from lometab.evaluation.comparison import rank_methods as rank_methods
    from lometab.evaluation.conformal import Conformal as Conformal
    from lometab.evaluation.diversity import find_regime as find_regime
    from lometab.evaluation.diversity_report import Diversity as Diversity
    from lometab.evaluation.diversity_report import Regime as Regime
    from lometab.evaluation.findings import ColumnImportance as ColumnImportance
    from lometab.evaluation.findings import Effect as Effect
    from lometab.evaluation.findings import EffectCurve as EffectCurve
    from lometab.evaluation.findings import Effects as Effects
    from lometab.evaluation.findings import Findings as Findings
    from lometab.evaluation.findings import GroupImportance as GroupImportance
    from lometab.evaluation.findings import Importance as Importance
    from lometab.evaluation.findings import NaiveGuess as NaiveGuess
    from lometab.evaluation.findings import Sentence as Sentence
    from lometab.evaluation.findings import Slice as Slice
    from lometab.evaluation.findings import Slices as Slices
    from lometab.evaluation.head import ClassTask as ClassTask
    from lometab.evaluation.measuring import measure_part as measure_part
    from lometab.evaluation.members import MemberOrder as MemberOrder
    from lometab.evaluation.members import choose_members as choose_members
    from lometab.evaluation.members import choose_networks as choose_networks
    from lometab.evaluation.members import order_members as order_members
    from lometab.evaluation.noise import difference_error as difference_error
    from lometab.evaluation.noise import draw_scores as draw_scores
    from lometab.evaluation.outcome import DRAWS as DRAWS
    from lometab.evaluation.outcome import Measures as Measures
    from lometab.evaluation.outcome import Metric as Metric
    from lometab.evaluation.outcome import Outcome as Outcome
    from lometab.evaluation.report import DEFINITIONS as DEFINITIONS
    from lometab.evaluation.report import Baseline as Baseline
    from lometab.evaluation.report import Calibration as Calibration
    from lometab.evaluation.report import Pruning as Pruning
    from lometab.evaluation.report import Reports as Reports
    from lometab.evaluation.report import RunReport as RunReport
    from lometab.evaluation.report import SeedOutcome as SeedOutcome
    from lometab.evaluation.report import Training as Training
    from lometab.evaluation.reports import make_reports as make_reports
    from lometab.evaluation.run import Answer as Answer
    from lometab.evaluation.run import Run as Run
    from lometab.evaluation.scores import score_all as score_all

_NAMES = {
    "calibrator": "CHOSEN_BY_THE_SAME Calibrator Method Rows calibrate_rows group_rows",
    "comparison": "COMPARISON_DEFINITIONS Comparison Ranked Spread compare_cells "
    "delta_percent rank_methods",
    "conformal": "Conformal",
    "diversity": "find_regime",
    "diversity_report": "Diversity Regime",
    "findings": "ColumnImportance Effect EffectCurve Effects Findings GroupImportance "
    "Importance NaiveGuess Sentence Slice Slices",
    "head": "ClassTask",
    "measuring": "measure_part",
    "members": "MemberOrder choose_members choose_networks order_members",
    "noise": "difference_error draw_scores",
    "outcome": "DRAWS Measures Metric Outcome",
    "report": "Baseline Calibration DEFINITIONS Pruning Reports RunReport SeedOutcome "
    "Training",
    "reports": "make_reports",
    "run": "Answer Run",
    "scores": "score_all",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULES, "metrics"])


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("lometab.evaluation.metrics")
    if name in _MODULES:
        return getattr(import_module(f"lometab.evaluation.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
