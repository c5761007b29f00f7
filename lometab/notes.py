"""What is worth a warning about rows to predict, and names that are not there."""

import reprlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from typing import Any

from lometab.errors import DataError, nearest

NOVEL = 0.995
"""The `novelty` from which a row counts as unlike the training rows."""
_RARE = 0.005
"""Share of rows that may be so, or have a number beyond the range, by chance."""


@dataclass(slots=True)
class Notes:
    """What is worth a warning about rows. Chunks of one table share their notes."""

    absent: list[str] = field(default_factory=list)
    """Columns that no row has."""
    extra: list[str] = field(default_factory=list)
    """Columns that the model does not know."""
    n_rows: int = 0
    """How many rows have been encoded."""
    n_unseen: dict[str, int] = field(default_factory=dict)
    """For each column, values with a category that the file does not know."""
    unseen: dict[str, set[str]] = field(default_factory=dict)
    """Some of these categories: enough to name the first ones."""
    rare: Collection[str] = ()
    """Columns in which such a category may have been in training, but rarely."""
    n_beyond: dict[str, int] = field(default_factory=dict)
    """For each column, numbers that are beyond the training range."""
    n_missing: dict[str, int] = field(default_factory=dict)
    """For each column that had no missing value in training, those that are missing."""
    n_novel: int = 0
    """Rows farther from the training rows than all but a few of these."""

    def see(self, column: str, texts: Collection[str], n_values: int) -> None:
        self.n_unseen[column] = self.n_unseen.get(column, 0) + n_values
        kept = {*self.unseen.get(column, ()), *texts}
        self.unseen[column] = {*sorted(kept)[: _N_LISTED + 1]}

    def see_beyond(self, column: str, n_values: int) -> None:
        self.n_beyond[column] = self.n_beyond.get(column, 0) + n_values

    def see_missing(self, column: str, n_values: int) -> None:
        self.n_missing[column] = self.n_missing.get(column, 0) + n_values

    def see_novel(self, novelty: Any) -> None:
        """The `novelty` of each of some rows."""
        if len(novelty) == 1:
            self.n_novel += novelty.item() >= NOVEL
        else:
            self.n_novel += int((novelty >= NOVEL).sum())

    def add(self, other: "Notes") -> None:
        """What was noticed about other rows of the same table."""
        self.absent, self.extra, self.rare = other.absent, other.extra, other.rare
        self.n_rows += other.n_rows
        self.n_novel += other.n_novel
        for name, count in other.n_unseen.items():
            self.see(name, other.unseen[name], count)
        for name, count in other.n_beyond.items():
            self.see_beyond(name, count)
        for name, count in other.n_missing.items():
            self.see_missing(name, count)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        unseen = {name: sorted(texts) for name, texts in self.unseen.items()}
        return {**asdict(self), "unseen": unseen, "rare": [*self.rare]}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> "Notes":
        unseen = {name: {*texts} for name, texts in state["unseen"].items()}
        return cls(**{**state, "unseen": unseen})

    def _how(self, name: str) -> str:
        if name in self.rare:
            return "had rarely or not at all, and which are taken as one,"
        return "did not have"

    def _is_many(self, count: int) -> bool:
        """Whether it is more than chance gives: one of one row is, one of 400 not."""
        usual = _RARE * self.n_rows
        return count > usual + 3 * sqrt(usual)

    def warnings(self) -> list[str]:
        found = [
            f"column {name!r} is absent from every row and was filled as missing"
            for name in self.absent
        ]
        if self.extra:
            found.append(f"columns not used: {_listed(self.extra)}")
        found += [
            f"column {name!r} holds categories that training {self._how(name)} in "
            f"{count} of {self.n_rows} rows: {_listed(sorted(self.unseen[name]))}"
            for name, count in self.n_unseen.items()
        ]
        found += [
            f"column {name!r} holds numbers beyond the range of training in {count} of "
            f"{self.n_rows} rows"
            for name, count in self.n_beyond.items()
            if self._is_many(count)
        ]
        if self.n_missing:
            found.append(
                "values are missing, which training had in every row, in up to "
                f"{max(self.n_missing.values())} of {self.n_rows} rows: "
                f"{_listed([*self.n_missing])}"
            )
        if self._is_many(self.n_novel):
            found.append(
                f"{self.n_novel} of {self.n_rows} rows are unlike the training rows: "
                "see their `novelty`, and trust their answers less"
            )
        return found


def absent_columns(absent: list[str], extra: list[str]) -> DataError:
    """The error for columns no row has; it names what may have been meant by them."""
    near = nearest(absent[0], extra)
    if near:
        hint = f"; {near!r} is unknown (did you mean {absent[0]!r}?)"
    else:
        hint = "; values may be null, but the column must be there"
    if len(absent) == 1:
        sentence = f"column {absent[0]!r} is absent from every row"
    else:
        sentence = f"{len(absent)} columns are absent from every row: {_listed(absent)}"
    hint += '; `missing_columns` set to "fill" takes it as missing'
    return DataError(sentence + hint, column=absent[0])


_N_LISTED = 5


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(reprlib.repr(name) for name in names[:_N_LISTED])
    return shown + (", ..." if len(names) > _N_LISTED else "")
