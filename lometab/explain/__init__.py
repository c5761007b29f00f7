"""What a model uses, how its answers move, and where it fails.

It asks a model for answers to rows that it makes itself, and knows nothing else of it:
the file that is served or a fitted estimator are the same here.
"""

from lometab.explain.background import (
    pack_background,
    unpack_background,
)
from lometab.explain.effects import (
    measure_effects,
)
from lometab.explain.findings import (
    examine,
    find_all,
)
from lometab.explain.importance import (
    Plan,
    measure_importance,
    plan_importance,
)
from lometab.explain.naive import (
    Naive,
    fit_naive,
)
from lometab.explain.rows import (
    Model,
    Rows,
)
from lometab.explain.shapley import (
    MODEL_ROWS,
    Explanation,
    explain_row,
)
from lometab.explain.slices import (
    find_slices,
)

__all__ = [
    "MODEL_ROWS",
    "Explanation",
    "Model",
    "Naive",
    "Plan",
    "Rows",
    "examine",
    "explain_row",
    "find_all",
    "find_slices",
    "fit_naive",
    "measure_effects",
    "measure_importance",
    "pack_background",
    "plan_importance",
    "unpack_background",
]
