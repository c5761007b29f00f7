"""Rows as the inputs of a model, whose columns can be changed by their names."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import Answer

Model = Callable[[NDArray[np.float64], NDArray[np.object_]], Answer]
"""Gives `mean` and `members` of encoded rows, as `Predictor.run` does."""


@dataclass(frozen=True, eq=False)
class Rows:
    """N rows: (N, n_num) with NaN missing, and (N, n_cat) with "" missing."""

    numeric: Sequence[str]
    categorical: Sequence[str]
    x_num: NDArray[np.float64]
    x_cat: NDArray[np.object_]
    datetime: Collection[str] = field(default=())
    """Those of `numeric` that hold moments, in seconds."""

    def __len__(self) -> int:
        return len(self.x_num)

    @property
    def columns(self) -> list[str]:
        return [*self.numeric, *self.categorical]

    def is_numeric(self, column: str) -> bool:
        return column in self.numeric

    def get(self, column: str) -> NDArray[Any]:
        if self.is_numeric(column):
            return self.x_num[:, self.numeric.index(column)]
        return self.x_cat[:, self.categorical.index(column)]

    def take(self, rows: Any) -> "Rows":
        return replace(self, x_num=self.x_num[rows], x_cat=self.x_cat[rows])

    def put(self, column: str, values: Any) -> "Rows":
        """A copy with other values in a column."""
        changed = replace(self, x_num=self.x_num.copy(), x_cat=self.x_cat.copy())
        changed.get(column)[:] = values
        return changed

    def shuffled(self, columns: Collection[str], order: NDArray[np.intp]) -> "Rows":
        """A copy with these columns in another order of rows, the same for all."""
        changed = replace(self, x_num=self.x_num.copy(), x_cat=self.x_cat.copy())
        for column in columns:
            changed.get(column)[:] = self.get(column)[order]
        return changed

    @staticmethod
    def join(parts: Sequence["Rows"]) -> "Rows":
        return replace(
            parts[0],
            x_num=np.concatenate([part.x_num for part in parts]),
            x_cat=np.concatenate([part.x_cat for part in parts]),
        )
