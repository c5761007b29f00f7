"""How much each row of a table counts: by a column of it, by its class, or both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lometab.errors import ConfigError, DataError, suggest
from lometab.table import Schema, Table, read_numbers, target

ClassWeight = Literal["balanced"] | Mapping[str, float]
Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What a job says of it; None: nothing."""

    column: str | None = None
    by_class: ClassWeight | None = None

    def __bool__(self) -> bool:
        return self.column is not None or self.by_class is not None


def weigh_rows(
    table: Table, schema: Schema, weights: Weights, train: NDArray[Any]
) -> Float | None:
    """A number for each row of the table; None if all count alike.

    Args:
        train: the rows that `balanced` is about.

    Raises:
        DataError: the column has no numbers, negative ones, or nothing but zeros.
        ConfigError: a class that there is not, or the target has no classes.
    """
    if not weights:
        return None
    found = np.ones(0)
    if weights.column is not None:
        found = _read_column(table, schema, weights.column, train)
    if weights.by_class is None:
        return found
    y = target(table, schema)
    if schema.classes is None:
        raise ConfigError("class_weight goes with classes, and the target is a number")
    names = [str(label) for label in schema.classes]
    by_class = weigh_classes(weights.by_class, names, y[train])
    each: Float = by_class[np.maximum(y, 0)]
    return each if weights.column is None else found * each


def _read_column(table: Table, schema: Schema, name: str, train: NDArray[Any]) -> Float:
    format = schema.formats.get(name)
    found = read_numbers(table[name], name, frozenset(schema.missing), format)
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        raise DataError(
            f"the weight column {name!r} must have a number of 0 or more in each row, "
            f"however not in row {bad[0] + 1}",
            column=name,
        )
    if not found[train].any():
        raise DataError(
            f"the weight column {name!r} is 0 in every training row", column=name
        )
    return found


def weigh_classes(by_class: ClassWeight, names: list[str], y: NDArray[Any]) -> Float:
    """How much a row of each class counts; `balanced`: each class alike."""
    if by_class == "balanced":
        counts = np.bincount(y[y >= 0], minlength=len(names))
        return len(y) / (len(names) * np.maximum(counts, 1.0))
    assert not isinstance(by_class, str)
    for label, number in by_class.items():
        if label not in names:
            raise ConfigError(
                f"class_weight has {label!r}, which is no class{suggest(label, names)}"
            )
        if not np.isfinite(number) or number < 0:
            raise ConfigError(f"the weight of {label!r} must be 0 or more")
    found = np.array([float(by_class.get(label, 1.0)) for label in names])
    if not found.any():
        raise ConfigError("class_weight must not be 0 for every class")
    return found
