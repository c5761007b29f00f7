"""What a report tells beside scores, fit for JSON: in words, what drives the model,
where it fails, how training went.

Reports from before a part of this was measured do not have it.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """What one epoch of training came to."""

    epoch: int
    train_loss: float
    """Mean over members and rows during the epoch."""
    val_score: float
    """The ensemble on validation: RMSE in target units, or accuracy."""
    member_score: float
    """Mean of the members' own scores there."""
    diversity: float | None
    """Ambiguity in squared target units, or pairwise KL; null for one member."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A test row of a regression."""

    true: float
    mean: float
    """What the ensemble says."""
    lower: float | None
    """Ends of the conformal interval of 90 %; null for want of validation rows."""
    upper: float | None


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """One sentence of the summary, and the numbers that it is made of."""

    about: Literal["quality", "naive", "drivers", "trust", "warning", "next"]
    text: str
    fields: list[str]
    """Where its numbers stand, as `report.scores.test.ensemble.accuracy`."""


@dataclass(frozen=True, kw_only=True)
class NaiveGuess:
    """What a guess that needs no model comes to on the test rows."""

    name: Literal["most frequent class", "mean", "best single column"]
    column: str | None
    """Of the best single column: which one."""
    scores: dict[str, float | None]
    """As `scores.test.ensemble` has them."""


@dataclass(frozen=True, kw_only=True)
class ColumnImportance:
    """How much worse the model is when the values of a column, or of a group of them,
    are shuffled among the rows."""

    column: str
    mean: float
    """Increase of the ensemble's error, mean over repeats; near 0: it is not used."""
    std: float
    """Over repeats."""
    members: list[float]
    """The same of each member alone, in their order."""
    member_std: float | None
    """Over members; null if there is one."""


@dataclass(frozen=True, kw_only=True)
class GroupImportance:
    """Columns that go together, shuffled together: each alone looks less important than
    they are, for the others stand in for it."""

    columns: list[str]
    association: float | None
    """The largest of its pairs, from 0 to 1; null for a group that was asked for."""
    mean: float
    std: float
    members: list[float]
    member_std: float | None


@dataclass(frozen=True, kw_only=True)
class Importance:
    """Permutation importance on the test rows, by the file that is served."""

    metric: Literal["rmse", "nll"]
    """The error whose increase is measured."""
    n_rows: int
    """Test rows in one repeat; each repeat draws its own."""
    n_repeats: int
    n_model_rows: int
    """Rows that the model answered for it."""
    columns: list[ColumnImportance]
    """The most important first."""
    groups: list[GroupImportance]
    agreement: float | None
    """Mean over pairs of members of the rank correlation of their importances: 1 if
    they agree on what matters; null with one member or one column."""
    n_skipped: int
    """Columns that were not measured, those that tell least of the target alone."""
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class EffectCurve:
    """The answer over the grid: of a number, or of one class's probability."""

    label: str | int | bool | None
    """The class; null for a regression."""
    mean: list[float]
    """The ensemble's answer at each point, mean over rows."""
    members: list[list[float]]
    """Each member's."""
    ice: list[list[float]]
    """The ensemble's answer for single rows; empty if no rows may be shown."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Partial dependence: the mean answer if every row had this value in a column."""

    column: str
    kind: Literal["numeric", "categorical", "datetime"]
    part: str | None
    """Of a datetime column: moment, hour, weekday or month."""
    grid: list[float] | list[str]
    outputs: list[EffectCurve]
    """One of a number; of classes the last one if there are two, else the most
    frequent ones."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """How the answer moves with the most important columns."""

    n_rows: int
    """Rows that each point is a mean over."""
    n_model_rows: int
    columns: list[Effect]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Test rows that have something in common."""

    column: str
    rows: str
    """What they have in common, such as `= Germany`, `40 to 60` or `missing`."""
    n_rows: int
    loss: float
    lower: float
    """Ends of an interval that holds for all slices at once with 95 %."""
    upper: float
    p_value: float
    """That the rows are no worse than the others, by Holm for all slices at once."""
    is_worse: bool
    """Whether that is below 0.05."""
    confidence_gap: float | None
    """Mean confidence minus accuracy; null for a regression."""
    covered: float | None
    """Share inside intervals of 90 %; null for classes, or without intervals."""


@dataclass(frozen=True, kw_only=True)
class Slices:
    """Where the model fails: levels of categories, ranges of numbers, missing values"""

    loss: Literal["wrong class", "absolute error"]
    overall: float
    """Of all test rows."""
    n_tested: int
    min_rows: int
    """Smaller slices are not looked at."""
    worst: list[Slice]
    """At most 10 that are worse than all rows, the surest first."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What is found by the rows themselves: what drives a model and where it fails."""

    naive: list[NaiveGuess]
    importance: Importance | None
    effects: Effects | None
    slices: Slices | None
