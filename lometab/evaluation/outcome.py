"""What one training run came to, in a few numbers that can be set side by side."""

from dataclasses import dataclass
from typing import Any, Literal

Metric = Literal["rmse", "accuracy"]
DRAWS = "draws"
"""Beside a stored outcome: its score on validation, row resample by row resample."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The ensemble on the rows of one part."""

    score: float
    """RMSE in target units, or accuracy."""
    ece: float | None
    """Expected calibration error; null for regression."""
    diversity: float | None
    """Mean pairwise KL, or normalised ambiguity; null for one member."""
    disagreement: float | None
    """Mean over pairs; null for regression and for one member."""
    nll: float | None = None
    """Mean of -log of the true class's probability; null for regression."""
    error_auroc: float | None = None
    """How well an uncertainty tells errors: the entropy wrong classes; the members' std
    the tenth of the rows with the largest errors. Null for one member of regression."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run: one setting, one seed."""

    metric: Metric
    val: Measures
    """What choices are made by."""
    test: Measures
    """What is reported."""
    k: int
    n_parameters: int
    best_epoch: int
    epochs: int
    seconds: float
    """Of training."""
    is_pruned: bool = False
    """Ended early, because other settings were better at that epoch."""

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Outcome":
        parts = {name: Measures(**state[name]) for name in ("val", "test")}
        kept = {name: value for name, value in state.items() if name != DRAWS}
        return cls(**{**kept, **parts})
