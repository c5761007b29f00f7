"""What the report on the members' differences holds."""

from dataclasses import dataclass
from typing import Literal

from lometab.evaluation.head import ClassTask, Head

Regime = Literal["collapsed", "low", "active", "excessive"]


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """A measure of pairs of members."""

    mean: float | None
    """Over all pairs of members; null if there is one member."""
    matrix: list[list[float]] | None
    """K x K, symmetric, zero on the diagonal; null if there is one member."""


@dataclass(frozen=True, kw_only=True)
class Ambiguity:
    """How far the members' numbers spread round their mean."""

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
class Share:
    """A share with its 95 % interval, by drawing the test rows again."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class ClosePair:
    """Two members that are nearly the same."""

    first: int
    second: int
    difference: float
    """Squared difference of their answers, relative to the mean over all pairs."""


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """What averaging the members is worth, on the test rows."""

    loss: Literal["squared error", "brier"]
    removed: Share | None
    """Of the members' mean error, the share that the ensemble does not have: the
    ambiguity over that error. Null if there is no error."""
    ensemble_error: float
    mean_member_error: float
    best_member: int
    best_member_chosen_by: Literal["val", "test"]
    best_member_error: float
    against_best: Share | None
    """1 - the ensemble's error over that of the best member; negative if averaging
    does harm."""
    close_pairs: list[ClosePair]
    """Members that are nearly the same, the closest first; at most 10 pairs."""


@dataclass(frozen=True, kw_only=True)
class MemberPoint:
    """The mean of the first n members."""

    n: int
    val: float
    test: float


@dataclass(frozen=True, kw_only=True)
class MemberCurve:
    """Quality against the number of members."""

    loss: Literal["rmse", "nll"]
    order: list[int]
    """Members, each the one that helps those before it the most on validation rows."""
    points: list[MemberPoint]
    enough: int
    """The least number with a validation loss no higher than that of all members."""
    best: int
    """The number with the least validation loss: what `members: "selected"` keeps."""


@dataclass(frozen=True, kw_only=True)
class ClassDiversity(Head):
    """How far the members' probabilities differ."""

    task: ClassTask
    k: int
    definitions: dict[str, str]
    """What each number is, in words."""
    pairwise_kl: Pairs
    disagreement: Pairs
    trajectory: list[KLPoint]
    trajectory_split: Literal["val"]
    """The part on which the trajectory was measured."""
    regime: Regime | None
    """Where the measure stands among the paper's; no verdict: `averaging` is."""
    advice: str
    """What averaging is worth in this model, in words."""
    averaging: Averaging | None = None
    """Null for one member, and in reports from before it was measured."""
    member_curve: MemberCurve | None = None
    """Null for one member or without validation rows."""


@dataclass(frozen=True, kw_only=True)
class RegressionDiversity(Head):
    """How far the members' numbers differ."""

    task: Literal["regression"]
    k: int
    definitions: dict[str, str]
    """What each number is, in words."""
    ambiguity: Ambiguity
    squared_difference: Pairs
    trajectory: list[AmbiguityPoint]
    trajectory_split: Literal["val"]
    """The part on which the trajectory was measured."""
    regime: Regime | None
    """Where the measure stands among the paper's; no verdict: `averaging` is."""
    advice: str
    """What averaging is worth in this model, in words."""
    averaging: Averaging | None = None
    """Null for one member, and in reports from before it was measured."""
    member_curve: MemberCurve | None = None
    """Null for one member or without validation rows."""


Diversity = ClassDiversity | RegressionDiversity
