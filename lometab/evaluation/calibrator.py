"""What calibration rows say about the answers to other rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import metrics

FloatArray = NDArray[np.float64]
Method = Literal["constant", "scaled", "aps", "lac"]
"""How conformal answers are made: intervals of one width, or of the members' spread;
adaptive sets, or the smallest ones, which may be empty."""
CalibrationPart = Literal["val", "calibration"]

MIN_GROUP = 20
"""Calibration rows that a group needs to have quantiles of its own."""
N_LEVELS = 201
"""Quantiles of the uncertainty that a file keeps."""
CHOSEN_BY_THE_SAME = (
    "the rows that choose the members also calibrate the model, so its intervals or "
    "sets may cover less than their name says; let the split have a part `calibration`"
)
_WORTH = 0.99
"""Scaled intervals are taken if their width is below this, relative to constant ones:
less is within what a few hundred rows can tell."""


class Rows(NamedTuple):
    """Answered rows: their targets, the ensemble's mean and its members'."""

    y: NDArray[Any]
    mean: NDArray[Any]
    members: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    """The value by which each row is calibrated apart, as text."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibrator:
    """What intervals, sets, trust and calibrated probabilities are made with."""

    conformity: FloatArray
    """|y - mean|, or 1 - p of the true class, of each calibration row."""
    temperature: float | None = None
    """Classification: at which the calibration rows have the least NLL."""
    adapted: FloatArray | None = None
    """The scores that follow difficulty: `scaled_scores`, or `adaptive_scores`."""
    offset: float | None = None
    """Regression: what is added to the spread."""
    relative_width: float | None = None
    """Regression: of scaled intervals to constant ones, on the rows that chose."""
    method: Method | None = None
    """What is answered unless another one is asked for; None: the plain scores'."""
    doubt: FloatArray | None = None
    """The uncertainty of each calibration row: the members' deviation or entropy."""
    label_shares: FloatArray | None = None
    """Classification: how often each class is the answer, on calibration rows."""
    by: str | None = None
    """The column by whose values rows are calibrated apart; the target: by class."""
    groups: NDArray[Any] | None = None
    """The group of each calibration row."""
    part: CalibrationPart = "val"
    """`calibration`: rows of which nothing else was chosen."""

    @classmethod
    def fit(
        cls,
        y: NDArray[Any],
        mean: NDArray[Any],
        members: NDArray[Any] | None = None,
        *,
        groups: NDArray[Any] | None = None,
        by: str | None = None,
        chooser: Rows | None = None,
    ) -> "Calibrator":
        """From the targets of calibration rows and the ensemble's answers to them.

        Args:
            groups: of each row, the value of the column `by`.
            chooser: validation rows by which offset and method are chosen, if the
                others are a part of their own.
        """
        rows = Rows(y, mean, members, groups)
        common: dict[str, Any] = {
            "conformity": metrics.conformal_scores(y, mean),
            "by": by,
            "groups": groups,
            "part": "val" if chooser is None else "calibration",
        }
        if mean.ndim == 1:
            return cls(**common, **_fit_numbers(rows, chooser or rows))
        return cls(
            **common,
            temperature=metrics.fit_temperature(y, mean),
            adapted=metrics.adaptive_scores(y, mean),
            method="aps",
            doubt=metrics.predictive_entropy(mean),
            label_shares=np.bincount(mean.argmax(axis=1), minlength=mean.shape[1])
            / len(mean),
        )

    def warnings(self, *, is_pruned: bool) -> list[str]:
        """What speaks against the coverage.

        Args:
            is_pruned: whether members were chosen, by the rows of `val`.
        """
        found = []
        if is_pruned and self.part == "val":
            found.append(CHOSEN_BY_THE_SAME)
        counts = self.count_groups()
        if counts and max(counts.values()) < MIN_GROUP:
            found.append(
                f"no value of {self.by!r} has quantiles of its own, and `calibrate_by` "
                f"changes nothing: the most frequent one has {max(counts.values())} "
                f"calibration rows, and {MIN_GROUP} are needed"
            )
        return found

    def count_groups(self) -> dict[str, int]:
        """Calibration rows of each group, by its name."""
        if self.by is None or self.groups is None:
            return {}
        names, counts = np.unique(self.groups, return_counts=True)
        return dict(zip(map(str, names), counts.tolist(), strict=True))

    @property
    def plain(self) -> Method:
        """The method of `conformity`."""
        return "lac" if self.method == "aps" else "constant"

    @property
    def following(self) -> Method:
        """The method of `adapted`."""
        return "aps" if self.method == "aps" else "scaled"

    @property
    def doubt_levels(self) -> FloatArray | None:
        """What `trust` is measured by."""
        if self.doubt is None:
            return None
        return metrics.quantile_levels(self.doubt, N_LEVELS)

    def to_metadata(self) -> dict[str, Any]:
        """What a model file needs: a quantile of the scores for each 0.01 to 0.99.

        A quantile is None where there are too few rows to tell it.
        """
        found: dict[str, Any] = {"conformity": _quantiles(self.conformity)}
        if self.temperature is not None:
            found["temperature"] = self.temperature
        if self.method is not None:
            found["conformal"] = self._describe_methods()
        if (levels := self.doubt_levels) is not None:
            found["doubt"] = levels.tolist()
        if self.label_shares is not None:
            found["label_shares"] = self.label_shares.tolist()
        return found

    def _describe_methods(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "method": self.method,
            "part": self.part,
            "n_rows": len(self.conformity),
            "quantiles": {},
        }
        if self.adapted is not None:
            found["quantiles"][self.following] = _quantiles(self.adapted)
        if self.offset is not None:
            found["offset"] = self.offset
            found["relative_width"] = self.relative_width
        if self.by is not None and self.groups is not None:
            found["by"] = self.by
            found["groups"] = self._describe_groups(self.groups)
        return found

    def _describe_groups(self, groups: NDArray[Any]) -> dict[str, Any]:
        """Quantiles of each group, and of the rows of all small ones together."""
        counts = self.count_groups()
        large = [name for name, count in counts.items() if count >= MIN_GROUP]
        is_rest = ~np.isin(groups, large)
        if is_rest.sum() < MIN_GROUP:
            is_rest[:] = True
        apart = {name: self._of_rows(groups == name) for name in large}
        return {"apart": apart, "rest": self._of_rows(is_rest)}

    def _of_rows(self, rows: NDArray[np.bool_]) -> dict[str, Any]:
        found: dict[str, Any] = {self.plain: _quantiles(self.conformity[rows])}
        if self.adapted is not None:
            found[self.following] = _quantiles(self.adapted[rows])
        return {"n_rows": int(rows.sum()), **found}


def _fit_numbers(rows: Rows, chooser: Rows) -> dict[str, Any]:
    """Offset, scores and method of regression; nothing with one member."""
    if rows.members is None or chooser.members is None or rows.members.shape[1] < 2:
        return {"method": "constant"}
    spread = metrics.member_std(rows.members)
    chosen_by = metrics.member_std(chooser.members)
    assert spread is not None and chosen_by is not None
    offset, ratio = metrics.fit_offset(chooser.y, chooser.mean, chosen_by)
    if offset is None:
        return {"method": "constant", "doubt": spread}
    return {
        "method": "scaled" if ratio < _WORTH else "constant",
        "offset": offset,
        "relative_width": ratio,
        "adapted": metrics.scaled_scores(rows.y, rows.mean, spread, offset),
        "doubt": spread,
    }


def _quantiles(scores: FloatArray) -> list[float | None]:
    quantiles = [
        metrics.conformal_quantile(scores, round(1 - percent / 100, 2))
        for percent in range(1, 100)
    ]
    return [each if math.isfinite(each) else None for each in quantiles]


def calibrate_rows(val: Rows, own: Rows | None = None, *, by: str | None) -> Calibrator:
    """By the rows of `val`, or by a calibration part of its own beside it."""
    rows, chooser = (val, None) if own is None else (own, val)
    return Calibrator.fit(*rows[:3], groups=rows.groups, by=by, chooser=chooser)


def group_rows(
    by: str | None,
    target: str,
    categorical: Sequence[str],
    x_cat: NDArray[Any],
    y: NDArray[Any],
) -> NDArray[Any] | None:
    """The value of each row by which it is calibrated: a category, or its class."""
    if by is None:
        return None
    texts = y if by == target else x_cat[:, [*categorical].index(by)]
    return texts.astype(str)
