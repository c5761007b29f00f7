"""Guesses that need no model: one class or number for all, or the best single column.

They are fitted on training rows, and tell what a model has to beat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import NaiveGuess, score_all
from lometab.explain.rows import Rows

MAX_ROWS = 5000
"""Training rows that a rule on one column is fitted on."""
N_CUTS = 15
"""Places at which the range of a number may be cut in two."""
_PRIOR_ROWS = 10.0
"""A level with few rows is drawn towards all rows, as if it had so many of them."""


@dataclass(frozen=True, kw_only=True)
class Stump:
    """The best rule on one column: cut a number in two, or look at its category."""

    column: str
    cut: float | None
    """Of a number: up to it, or above."""
    levels: dict[str, list[float]]
    """What is guessed for a level, or for `low`, `high` and `missing`."""
    otherwise: list[float]
    """For levels that training did not have."""

    def guess(self, rows: Rows) -> NDArray[np.float64]:
        """(N, C) probabilities, or (N, 1) numbers."""
        keys = _keys(rows.get(self.column), self.cut)
        return np.array([self.levels.get(key, self.otherwise) for key in keys])


@dataclass(frozen=True, kw_only=True)
class Naive:
    """What is known of the target without a model."""

    task: str
    all_rows: list[float]
    """The share of each class, or the mean."""
    stump: Stump | None
    ranking: list[str]
    """All columns, the one with the best rule first."""

    def to_dict(self) -> dict[str, Any]:
        stump = None if self.stump is None else vars(self.stump)
        return {**vars(self), "stump": stump}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Naive":
        stump = None if state["stump"] is None else Stump(**state["stump"])
        return cls(**{**state, "stump": stump})

    def measure(self, rows: Rows, y: NDArray[Any]) -> list[NaiveGuess]:
        """How good the guesses are on other rows."""
        is_regression = self.task == "regression"
        every = np.tile(self.all_rows, (len(rows), 1))
        name = "mean" if is_regression else "most frequent class"
        guesses: list[tuple[str, str | None, NDArray[Any]]] = [(name, None, every)]
        if self.stump is not None:
            guess = self.stump.guess(rows)
            guesses.append(("best single column", self.stump.column, guess))
        return [
            NaiveGuess(
                name=name,  # type: ignore[arg-type]
                column=column,
                scores=score_all(self.task, y, g[:, 0] if is_regression else g),
            )
            for name, column, g in guesses
        ]


def fit_naive(
    rows: Rows,
    y: NDArray[Any],
    task: str,
    classes: Sequence[Any] | None,
    seed: int = 0,
) -> Naive:
    """Learn from training rows.

    Args:
        y: numbers, or indices of `classes`.
    """
    truth = y[:, None].astype(np.float64)
    if classes is not None:
        truth = np.eye(len(classes))[y]
    kept = np.random.default_rng(seed).permutation(len(rows))[:MAX_ROWS]
    # The rule is fitted on one half and chosen on the other: a column with a level for
    # each row knows nothing.
    fitted, chosen = kept[::2], kept[1::2]
    found: list[tuple[float, str, Stump]] = []
    for column in rows.columns if len(chosen) else []:
        stump = _fit_column(rows.take(fitted), truth[fitted], column)
        guess = stump.guess(rows.take(chosen))
        error = float(((guess - truth[chosen]) ** 2).sum(axis=1).mean())
        found.append((error, column, stump))
    found.sort(key=lambda each: each[0])
    return Naive(
        task=task,
        all_rows=truth.mean(axis=0).tolist(),
        stump=found[0][2] if found else None,
        ranking=[column for _, column, _ in found],
    )


def _keys(values: NDArray[Any], cut: float | None) -> NDArray[Any]:
    if cut is None:
        return values
    keys = np.where(values <= cut, "low", "high").astype(object)
    keys[np.isnan(values.astype(np.float64))] = "missing"
    return keys


def _fit_column(rows: Rows, truth: NDArray[np.float64], column: str) -> Stump:
    values = rows.get(column)
    cut = _find_cut(values, truth) if rows.is_numeric(column) else None
    mean = truth.mean(axis=0)
    names, inverse = np.unique(_keys(values, cut).astype(str), return_inverse=True)
    counts = np.bincount(inverse, minlength=len(names))[:, None]
    sums = np.stack(
        [np.bincount(inverse, weights=each, minlength=len(names)) for each in truth.T],
        axis=1,
    )
    guesses = (sums + _PRIOR_ROWS * mean) / (counts + _PRIOR_ROWS)
    return Stump(
        column=column,
        cut=cut,
        levels=dict(zip(names.tolist(), guesses.tolist(), strict=True)),
        otherwise=mean.tolist(),
    )


def _find_cut(values: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    """Where cutting in two takes most off the squared error."""
    present = ~np.isnan(values)
    x, t = values[present], truth[present]
    if not len(x):
        return 0.0
    cuts = np.unique(np.quantile(x, np.linspace(0, 1, N_CUTS + 2)[1:-1]))
    bins = np.searchsorted(cuts, x, side="left")
    counts = np.bincount(bins, minlength=len(cuts) + 1)
    low_n = counts.cumsum()[:-1]
    high_n = len(x) - low_n
    gain = np.zeros(len(cuts))
    for each in t.T:
        sums = np.bincount(bins, weights=each, minlength=len(cuts) + 1).cumsum()
        low, high = sums[:-1], sums[-1] - sums[:-1]
        gain += low**2 / np.maximum(low_n, 1) + high**2 / np.maximum(high_n, 1)
    return float(cuts[gain.argmax()])
