"""What a fitted estimator can be asked beyond scikit-learn's own methods.

Intervals, sets and uncertainties are those of the exported file: whatever the service
answers, an estimator does too.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.predictor import Prediction, Predictor

Array = NDArray[Any]
_FIELDS = (
    *("member_std", "entropy", "mutual_information", "disagreement"),
    *("trust", "novelty"),
)


class Answering:
    """For estimators that have `_read_new`, `ensemble_` and `_export`."""

    def _read_new(self, X: Any) -> dict[str, Array]:
        raise NotImplementedError

    def _export(self) -> bytes:
        raise NotImplementedError

    @cached_property
    def _predictor(self) -> Predictor:
        """The file, made when it is first needed and let go of by `fit`."""
        return Predictor(self._export())

    def _forget_predictor(self) -> None:
        self.__dict__.pop("_predictor", None)

    def _describe(
        self, X: Any, *, coverage: float = 0.9, calibrated: bool = False
    ) -> Prediction:
        table = self._read_new(X)
        return self._predictor.predict(table, coverage=coverage, calibrated=calibrated)

    def uncertainty(self, X: Any) -> dict[str, Array]:
        """How unsure the ensemble is of each row, and how unlike training the row is.

        Of numbers `member_std`, the members' standard deviation, which is no error bar
        (`predict_interval` gives one); of classes `entropy`, `mutual_information` and
        `disagreement`. `trust` is the share of validation rows that were less certain:
        0.03 is among the 3 % least certain. `novelty` is the share of training rows
        that are nearer to the others than the row: 1 is farther than all. With one
        member there are the novelty and, of classes, entropy and trust.
        """
        found = self._describe(X)
        named = {name: getattr(found, name) for name in _FIELDS}
        return {name: np.asarray(v) for name, v in named.items() if v is not None}


class AnsweringNumbers(Answering):
    """Intervals of a regressor."""

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Conformal intervals, (N, 2): lower and upper end.

        They hold the truth with the probability `coverage`, by the validation rows of
        `fit`. Ends are infinite where these rows are too few to tell.

        Args:
            coverage: in whole hundredths, 0.01 to 0.99.
        """
        found = self._describe(X, coverage=coverage).interval
        assert found is not None
        return found


class AnsweringClasses(Answering):
    """Sets of a classifier."""

    classes_: Array

    def predict_set(self, X: Any, coverage: float = 0.9) -> list[Array]:
        """For each row the classes that hold the truth with this probability."""
        found = self._describe(X, coverage=coverage).set
        assert found is not None and self._predictor.classes is not None
        places = {label: i for i, label in enumerate(self._predictor.classes)}
        return [self.classes_[[places[label] for label in row]] for row in found]
