"""What a trained ensemble is worth: metrics, reports on one run, runs side by side.

Loads no torch, and scikit-learn only when a score needs it.
"""

from lometab.evaluation import metrics
from lometab.evaluation.calibrator import (
    Calibrator,
    Method,
    Rows,
    calibrate_rows,
    group_rows,
)
from lometab.evaluation.comparison import (
    COMPARISON_DEFINITIONS,
    Comparison,
    Ranked,
    Spread,
    compare_cells,
    delta_percent,
    rank_methods,
)
from lometab.evaluation.conformal import (
    Conformal,
)
from lometab.evaluation.diversity import (
    find_regime,
)
from lometab.evaluation.diversity_report import (
    Diversity,
    Regime,
)
from lometab.evaluation.findings import (
    ColumnImportance,
    Effect,
    EffectCurve,
    Effects,
    Findings,
    GroupImportance,
    Importance,
    NaiveGuess,
    Sentence,
    Slice,
    Slices,
)
from lometab.evaluation.head import (
    ClassTask,
)
from lometab.evaluation.members import (
    MemberOrder,
    choose_members,
    order_members,
)
from lometab.evaluation.noise import (
    difference_error,
    draw_scores,
)
from lometab.evaluation.outcome import (
    DRAWS,
    Measures,
    Metric,
    Outcome,
    measure_part,
)
from lometab.evaluation.report import (
    DEFINITIONS,
    Baseline,
    Calibration,
    Pruning,
    Reports,
    RunReport,
    SeedOutcome,
    Training,
)
from lometab.evaluation.reports import (
    make_reports,
)
from lometab.evaluation.run import (
    Answer,
    Run,
)
from lometab.evaluation.scores import (
    score_all,
)

__all__ = [
    "COMPARISON_DEFINITIONS",
    "DEFINITIONS",
    "DRAWS",
    "Answer",
    "Baseline",
    "Calibration",
    "Calibrator",
    "ClassTask",
    "ColumnImportance",
    "Comparison",
    "Conformal",
    "Diversity",
    "Effect",
    "EffectCurve",
    "Effects",
    "Findings",
    "GroupImportance",
    "Importance",
    "Measures",
    "MemberOrder",
    "Method",
    "Metric",
    "NaiveGuess",
    "Outcome",
    "Pruning",
    "Ranked",
    "Regime",
    "Reports",
    "Rows",
    "Run",
    "RunReport",
    "SeedOutcome",
    "Sentence",
    "Slice",
    "Slices",
    "Spread",
    "Training",
    "calibrate_rows",
    "choose_members",
    "compare_cells",
    "delta_percent",
    "difference_error",
    "draw_scores",
    "find_regime",
    "group_rows",
    "make_reports",
    "measure_part",
    "metrics",
    "order_members",
    "rank_methods",
    "score_all",
]
