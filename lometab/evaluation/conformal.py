"""Conformal intervals and sets, by the quantiles that a model file keeps."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lometab.errors import ConfigError
from lometab.evaluation import metrics
from lometab.evaluation.calibrator import Method

Array = NDArray[Any]
Quantiles = Sequence[float | None]


class Choice(NamedTuple):
    """How one question is answered."""

    method: Method
    quantile: Any
    """A number, or for groups one for each row (N, 1) or each class (C,)."""


class Conformal:
    """What a file's metadata say of intervals and sets.

    Attributes:
        method: what is answered unless another one is asked for.
        by: the column whose values have quantiles of their own; the target: by class.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        """
        Args:
            metadata: with `conformity`, and what `Calibrator.to_metadata` adds to it.
        """
        is_classified = metadata["task"] != "regression"
        plain: Method = "lac" if is_classified else "constant"
        about = metadata.get("conformal", {})
        self.method: Method = about.get("method", plain)
        self.by: str | None = about.get("by")
        is_by_target = self.by is not None and self.by == metadata.get("target")
        self.is_by_class = is_classified and is_by_target
        self._offset: float = about.get("offset", 0.0)
        self._tables: dict[str, Quantiles] = {
            plain: metadata["conformity"],
            **about.get("quantiles", {}),
        }
        self._groups: Mapping[str, Any] = about.get("groups", {})
        self._classes: Sequence[Any] = metadata.get("classes") or ()
        self._n_rows: int | None = about.get("n_rows")  # not in files of before
        self._warnings: dict[tuple[float, Method | None], list[str]] = {}

    def choose(
        self, coverage: float, method: Method | None = None, groups: Any = None
    ) -> Choice:
        """How to answer at this coverage.

        Args:
            method: None: the model's own.
            groups: each row's value of the column `by`, if it is one.

        Raises:
            ConfigError: the model has no such method, or the coverage is no hundredth.
        """
        method = self.method if method is None else method
        if method not in self._tables:
            raise ConfigError(
                f"this model answers by {_listed(self._tables)} and not by "
                f"{method!r}; leave out `conformal` or name one of these"
            )
        place = _find_place(coverage)
        if self.is_by_class:
            names: Sequence[str] = [str(c) for c in range(len(self._classes))]
            return Choice(method, np.array([self._of(n, method, place) for n in names]))
        if self.by is not None and groups is not None:
            found = [self._of(name, method, place) for name in groups]
            return Choice(method, np.array(found)[:, None])
        return Choice(method, _number(self._tables[method][place]))

    def warnings(self, coverage: float, method: Method | None = None) -> list[str]:
        """Where too few rows calibrated to answer at this coverage, if anywhere."""
        key = coverage, method
        if key not in self._warnings:
            self._warnings[key] = self._find_warnings(*key)
        return self._warnings[key]

    def _find_warnings(self, coverage: float, method: Method | None) -> list[str]:
        method = self.method if method is None else method
        place = _find_place(coverage)
        if method not in self._tables:  # which `choose` says
            return []
        is_set = method in ("aps", "lac")
        which = "every class" if is_set else "no ends"
        answers = f"{'sets' if is_set else 'intervals'} have {which}"
        needed = f"for a coverage of {coverage}, which needs {count_needed(coverage)}"
        if self.by is None:
            if self._tables[method][place] is not None:
                return []
            number = "" if self._n_rows is None else f"{self._n_rows} "
            return [f"the {number}calibration rows are too few {needed}: {answers}"]
        groups = {**self._groups["apart"], "others": self._groups["rest"]}
        names = [n for n, found in groups.items() if found[method][place] is None]
        if not names:
            return []
        if self.is_by_class:
            names = [n if n == "others" else str(self._classes[int(n)]) for n in names]
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return [
            f"the calibration rows are too few {needed}, where {self.by!r} is one of "
            f"these: {shown}; there, {answers}"
        ]

    def _of(self, group: str, method: Method, place: int) -> float:
        quantiles = self._groups["apart"].get(group, self._groups["rest"])
        return _number(quantiles[method][place])

    def interval(self, mean: Array, spread: Array | None, choice: Choice) -> Array:
        """Ends round each row's mean: (N,), (N,) -> (N, 2)."""
        quantile = choice.quantile
        if choice.method == "scaled":
            assert spread is not None
            if len(mean) == 1 and isinstance(quantile, float):
                return _around(mean.item(), quantile * (spread.item() + self._offset))
            half = np.reshape(quantile, (-1, 1)) * (spread + self._offset)[:, None]
        elif len(mean) == 1 and isinstance(quantile, float):
            return _around(mean.item(), quantile)
        else:
            half = np.reshape(quantile, (-1, 1))
        interval: Array = mean[:, None] + half * np.array([-1.0, 1.0])
        return interval

    def sets(self, mean: Array, choice: Choice) -> Array:
        """Whether each class is in the row's set: (N, C) -> (N, C)."""
        if choice.method == "aps":
            return metrics.adaptive_set(mean, choice.quantile)
        return metrics.conformal_set(mean, choice.quantile)

    def list_sets(self, mean: Array, choice: Choice) -> list[list[int]]:
        """The classes of each row's set, by number."""
        if len(mean) == 1 and isinstance(choice.quantile, float):
            return [_list_set(mean[0].tolist(), choice.method, choice.quantile)]
        return [np.flatnonzero(row).tolist() for row in self.sets(mean, choice)]


def count_needed(coverage: float) -> int:
    """The fewest calibration rows that intervals or sets of this coverage need."""
    percent = _find_place(coverage) + 1
    return -(-percent // (100 - percent))


def _around(center: float, half: float) -> Array:
    return np.array([[center - half, center + half]])


def _list_set(mean: list[float], method: Method, quantile: float) -> list[int]:
    """The set of one row, as `sets` gives it, sooner: most requests have one row."""
    if method == "lac":
        return [c for c, p in enumerate(mean) if 1.0 - p <= quantile]
    before, chosen = 0.0, []
    for c in sorted(range(len(mean)), key=lambda c: -mean[c]):
        if before > quantile:
            break
        chosen.append(c)
        before += mean[c]
    return sorted(chosen)


def _find_place(coverage: float) -> int:
    percent = round(100 * coverage)
    if not 1 <= percent <= 99 or abs(100 * coverage - percent) > 1e-6:
        raise ConfigError(
            f"coverage must be in whole hundredths, 0.01 to 0.99, however: {coverage=}"
        )
    return percent - 1


def _number(quantile: float | None) -> float:
    """Null: there were too few rows to tell, and everything is inside."""
    return math.inf if quantile is None else float(quantile)


def _listed(names: Mapping[str, Any]) -> str:
    return " and ".join(repr(name) for name in names)
