"""How unlike the training rows a row is: what an ensemble's members cannot tell.

Numbers are clipped to the training range, missing ones are filled, and unseen
categories are zeros, so members cannot disagree about any of these. A row's distance is
-2 log of a simple density: a Gaussian of the normal scores of its numbers, and the
shares of its categories and of which numbers are missing, each by itself. `novelty` is
the share of training rows that are nearer. A number that is beyond the training range
by more than its width makes the row farther than all, whatever its other columns hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
MARGIN = 0.05
"""A number is out of range if it is beyond the training range by more than this share
of its width: a little beyond, a network is as good as within."""
N_LEVELS = 200
"""Distances of training rows that others are held against."""
MAX_ROWS = 20_000
MAX_FEATURES = 256
"""With more numbers, their correlations are left out: they would cost more than the
network."""
_SHRINKAGE = 0.05


@dataclass(frozen=True, eq=False)
class Novelty:
    """What the distance of a row is measured with."""

    features: list[int]
    """Which of the preprocessor's features count: moments themselves do not, as what
    is asked is always later than what was learned."""
    lower: Float
    upper: Float
    """Beyond which a number is out of range, for those features that are columns."""
    columns: list[int]
    """The columns of these."""
    center: Float
    """Of the scores, (F,)."""
    whitening: Float
    """(F, F), or (F,) if correlations are left out."""
    surprises: list[Float]
    """For each categorical column -2 log of each level's share, and of none of them."""
    levels: Float
    """Ascending distances of training rows."""
    gaps: Float
    """For each numeric column -2 log of the shares of rows that have it and that lack
    it, (n_num, 2); (0, 2) in states of before, which did not count this."""

    @property
    def far_lower(self) -> Float:
        """Beyond which a number by itself makes a row unlike all training rows."""
        return self.lower - (self.upper - self.lower)

    @property
    def far_upper(self) -> Float:
        return self.upper + (self.upper - self.lower)

    @property
    def far(self) -> float:
        """What such a number adds: more than the distance of any training row."""
        return 1.0 + 1.01 * float(self.levels[-1])

    @classmethod
    def fit(
        cls,
        x_num: Float,
        scores: NDArray[Any],
        codes: NDArray[np.int64],
        *,
        features: Sequence[int],
        columns: Sequence[int],
        ranges: Sequence[tuple[float, float]],
        cardinalities: Sequence[int],
    ) -> Self:
        """From transformed training rows.

        The distances that others are held against are those of each half of the rows
        by what the other half gave: a row is not told by itself.

        Args:
            x_num: the rows as they came, NaN missing.
            codes: of the categorical columns alone.
            ranges: the training range of each of `columns`.
        """
        x = scores[:, features].astype(np.float64)
        is_missing = np.isnan(x_num)
        ends = np.array(ranges, dtype=np.float64).reshape(-1, 2)
        margin = MARGIN * (ends[:, 1] - ends[:, 0])
        halves = np.arange(len(x)) % 2 == 0
        distances = [
            _distance(
                x[~half],
                codes[~half],
                is_missing[~half],
                *_fit_numbers(x[half]),
                _fit_texts(codes[half], cardinalities),
                _fit_gaps(is_missing[half]),
            )
            for half in (halves, ~halves)
            if half.any() and not half.all()
        ]
        shares = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
        levels = np.quantile(np.concatenate(distances), shares)
        center, whitening = _fit_numbers(x)
        return cls(
            features=[*features],
            lower=ends[:, 0] - margin,
            upper=ends[:, 1] + margin,
            columns=[*columns],
            center=center,
            whitening=whitening,
            surprises=_fit_texts(codes, cardinalities),
            # Equal distances are equal whatever the order in which they are summed.
            levels=levels * (1 + 1e-5) + 1e-5,
            gaps=_fit_gaps(is_missing),
        )

    def measure(
        self, x_num: Float, scores: NDArray[Any], codes: NDArray[np.int64]
    ) -> Float:
        """`novelty`, share of numbers out of range, share of unseen categories.

        Args:
            x_num: the rows as they came, NaN missing.
            scores, codes: as the preprocessor transforms them.

        Shape: -> (N, 3)
        """
        n_cat = len(self.surprises)
        distance = _distance(
            scores[:, self.features].astype(np.float64),
            codes[:, :n_cat],
            np.isnan(x_num[:, : len(self.gaps)]),
            self.center,
            self.whitening,
            self.surprises,
            self.gaps,
        )
        x = x_num[:, self.columns]
        is_far = (x < self.far_lower) | (x > self.far_upper)
        distance += self.far * is_far.sum(axis=1)
        novelty = (distance[:, None] > self.levels).mean(axis=1)
        outside = (x < self.lower) | (x > self.upper)
        unseen = codes[:, :n_cat] == [len(each) - 1 for each in self.surprises]
        shares = [
            each.mean(axis=1) if each.size else 0 * novelty
            for each in (outside, unseen)
        ]
        return np.stack([novelty, *shares], axis=1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "features": self.features,
            "columns": self.columns,
            "lower": self.lower.tolist(),
            "upper": self.upper.tolist(),
            "center": self.center.tolist(),
            "whitening": self.whitening.tolist(),
            "surprises": [each.tolist() for each in self.surprises],
            "levels": self.levels.tolist(),
            "gaps": self.gaps.tolist(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        arrays = {
            name: np.array(state[name], dtype=np.float64)
            for name in ("lower", "upper", "center", "whitening", "levels")
        }
        return cls(
            features=[*state["features"]],
            columns=[*state["columns"]],
            surprises=[np.array(each) for each in state["surprises"]],
            gaps=np.array(state.get("gaps", []), dtype=np.float64).reshape(-1, 2),
            **arrays,
        )


def _fit_numbers(x: Float) -> tuple[Float, Float]:
    """Where scores are, and what makes them of one size in every direction.

    The covariance is drawn a little towards its own diagonal, so that numbers which
    always went together do not make a row infinitely far.
    """
    center = x.mean(axis=0)
    if x.shape[1] > MAX_FEATURES:
        return center, 1.0 / np.sqrt(x.var(axis=0) + _SHRINKAGE)
    if x.shape[1] == 0:
        return center, np.zeros((0, 0))
    covariance = np.atleast_2d(np.cov(x, rowvar=False, bias=True))
    variances = np.diag(np.diag(covariance))
    covariance = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * variances
    covariance += _SHRINKAGE * np.eye(len(covariance))
    values, vectors = np.linalg.eigh(covariance)
    return center, vectors / np.sqrt(values)


def _fit_texts(codes: NDArray[np.int64], cardinalities: Sequence[int]) -> list[Float]:
    """-2 log of shares in which each level, and an unseen one, counts once more."""
    found = []
    for column, size in zip(codes.T, cardinalities, strict=True):
        counts = np.bincount(column, minlength=size + 1)[: size + 1] + 1.0
        found.append(-2 * np.log(counts / counts.sum()))
    return found


def _fit_gaps(is_missing: NDArray[np.bool_]) -> Float:
    """The same of numbers that are there, and of those that are missing."""
    n_missing = is_missing.sum(axis=0)
    counts = np.stack([len(is_missing) - n_missing, n_missing], axis=1) + 1.0
    surprises: Float = -2 * np.log(counts / (len(is_missing) + 2))
    return surprises


def _distance(
    x: Float,
    codes: NDArray[np.int64],
    is_missing: NDArray[np.bool_],
    center: Float,
    whitening: Float,
    surprises: Sequence[Float],
    gaps: Float,
) -> Float:
    shifted = x - center
    white = shifted @ whitening if whitening.ndim == 2 else shifted * whitening
    distance: Float = np.square(white).sum(axis=1)
    for column, surprise in zip(codes.T, surprises, strict=True):
        distance += surprise[column]
    distance += np.where(is_missing, gaps[:, 1], gaps[:, 0]).sum(axis=1)
    return distance
