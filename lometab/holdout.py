"""Which rows an estimator trains on, and which it sets aside for validation."""

import math
import warnings
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from lometab.errors import ConfigError, DataError
from lometab.table import Label, Parts

Array = NDArray[Any]
Labels = tuple[Label, ...]

_MIN_TRAIN_ROWS = 3  # bins cannot be made of less


def hold_out(target: Array, share: float, *, labels: Labels | None, seed: int) -> Parts:
    """A random part of the rows to train on and one to validate on.

    Args:
        target: the numbers, or the index of each row's class.
        share: of the rows, for validation; of each class the same. The only row of a
            class is for training.
        labels: the classes; None for regression.
    """
    if not isinstance(share, Real) or not 0 < share < 1:
        raise ConfigError(
            "validation_fraction must be between 0 and 1, however: "
            f"validation_fraction={share}"
        )
    n_rows = len(target)
    n_classes = len(labels or ())
    single = _find_single(target, labels)
    others = np.setdiff1d(np.arange(n_rows), single)
    min_train = max(n_classes, _MIN_TRAIN_ROWS)
    min_val = max(n_classes - len(single), 1)
    if n_rows < min_train + min_val:
        raise DataError(
            f"at least {min_train + min_val} rows are needed to train and to "
            f"validate, however: n_samples={n_rows}"
        )
    if labels is not None and len(single):
        rare = [labels[target[row]] for row in single]
        if n_classes - len(rare) < 2:
            raise DataError(
                f"the class {rare[0]!r} has only one row, and training and validation "
                "need one each; add rows of it, leave it out, or give X_val and y_val"
            )
        warnings.warn(
            f"classes with only one row are trained on and not validated: {rare[:20]}",
            stacklevel=3,
        )
    n_val = min(max(math.ceil(share * n_rows), min_val), n_rows - min_train)
    train, val = train_test_split(
        others,
        test_size=n_val,
        random_state=seed,
        stratify=target[others] if n_classes else None,
    )
    return {"train": np.sort(np.concatenate([train, single])), "val": np.sort(val)}


def _find_single(target: Array, labels: Labels | None) -> NDArray[np.intp]:
    """The rows of classes that have no other."""
    if labels is None:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.bincount(target, minlength=len(labels))[target] == 1)


def check_train_part(target: Array, labels: Labels | None) -> None:
    """DataError where the training rows cannot be learned from."""
    if len(target) < _MIN_TRAIN_ROWS:
        raise DataError(
            f"at least {_MIN_TRAIN_ROWS} rows are needed to train, however: "
            f"n_samples={len(target)}"
        )
    if labels is None:
        if (target == target[0]).all():
            raise DataError(
                f"the target is {target[0]:g} in every training row; there is "
                "nothing to learn"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.std(target)
        if not 0 < spread < math.inf:
            raise DataError(
                f"the target goes from {target.min():g} to {target.max():g}, which "
                "floating point cannot standardise; give it in another unit"
            )
        return
    absent = np.flatnonzero(np.bincount(target, minlength=len(labels)) == 0)
    if len(absent):
        raise DataError(
            f"the class {labels[absent[0]]!r} has no row in the "
            "training part; add rows of it or lower validation_fraction"
        )
