"""Rows as people have them in memory, as columns: for the estimator, which trains on
them, and for the predictor, so that a value cannot mean two things.

Frames of pandas, polars and pyarrow, arrays of NumPy, dicts of lists, and records are
all read by `read_column`, one column at a time.
"""

import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lometab.errors import DataError

FrameKind = Literal["numeric", "categorical", "datetime"]


def columns_of(
    rows: Any, wanted: Collection[str]
) -> tuple[Collection[str], dict[str, Any], int]:
    """The names of all columns, values of those that are wanted, the number of rows.

    Columns of an array without names are x0, x1, ..., as the estimator calls them.
    """
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        rows = {f"x{i}": column for i, column in enumerate(rows.T)}
    if isinstance(rows, list | tuple):
        return _from_records(rows, wanted)
    names = rows if isinstance(rows, Mapping) else getattr(rows, "column_names", None)
    if names is None:  # not pyarrow's, whose `columns` are not names
        names = getattr(rows, "columns", None)
    if names is None:
        raise DataError(
            "rows must be a list of records, a dict of columns or a frame, however: "
            f"{type(rows).__name__}"
        )
    names = [*names]
    known = [name for name in names if name in wanted] or names[:1]
    table = {name: read_column(rows[name], name)[0] for name in known}
    n_rows = len(table[known[0]]) if known else 0
    for name, column in table.items():
        if len(column) != n_rows:
            raise DataError(
                f"all columns must have as many values, however {known[0]!r} has "
                f"{n_rows} and {name!r} has {len(column)}",
                column=name,
            )
    return names, table, n_rows


def _from_records(
    rows: Sequence[Any], wanted: Collection[str]
) -> tuple[Collection[str], dict[str, Any], int]:
    names: dict[str, None] = {}
    for i, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DataError(
                f"row {i} must be an object with a value for each column, however it "
                f"is {reprlib.repr(row)}"
            )
        names.update(dict.fromkeys(row))
    table = {name: [row.get(name) for row in rows] for name in names if name in wanted}
    return names, table, len(rows)


def read_column(column: Any, name: str) -> tuple[Any, FrameKind | None]:
    """The values of a column, and its kind if its type tells.

    They are a list, an array in which missing ones are None, NaN or NaT, or a column of
    Arrow's; `values` reads all of them.
    """
    if isinstance(column, list | tuple):
        return column, None
    if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__len__"):
        raise DataError(
            f"column {name!r} must be a list of values, however it is "
            f"{reprlib.repr(column)}; one row is a list of one record",
            column=name,
        )
    if _is_arrow(column) and not str(column.type).startswith("duration"):
        return column, _kind_of_arrow(column, name)
    array: NDArray[Any] = np.asarray(column)
    if array.ndim != 1:
        raise DataError(
            f"column {name!r} must have one dimension, however: {array.shape}",
            column=name,
        )
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]"), "datetime"
    if array.dtype.kind == "m":
        return array / np.timedelta64(1, "s"), "numeric"
    if array.dtype.kind == "O" and hasattr(column, "notna"):
        # pandas has several objects that mean missing, and some cannot be compared.
        array = array.copy()
        array[~np.asarray(column.notna())] = None
    dtype = str(getattr(column, "dtype", "")).lower()
    if array.dtype.kind == "b" or dtype.startswith(("bool", "categor", "enum")):
        return array, "categorical"
    return array, "numeric" if array.dtype.kind in "fiu" else None


def to_array(column: Any, name: str) -> NDArray[Any]:
    """What `read_column` gave as an array that can be indexed, of the same meaning."""
    if not _is_arrow(column):
        return np.asarray(column)
    from lometab.table.arrow import keep

    kept = keep(column, name)
    if str(kept.type) in ("double", "int64") and (
        str(kept.type) == "double" or kept.null_count == 0
    ):
        return np.asarray(kept.to_numpy())
    return np.array(kept.to_pylist(), dtype=object)


def _is_arrow(column: Any) -> bool:
    return hasattr(column, "null_count") and hasattr(column, "dictionary_encode")


def _kind_of_arrow(column: Any, name: str) -> FrameKind | None:
    from lometab.table.arrow import kept_type

    if str(column.type).startswith("dictionary"):
        return "categorical"
    kinds: dict[str, FrameKind] = {
        "int64": "numeric",
        "double": "numeric",
        "bool": "categorical",
        "timestamp[us]": "datetime",
    }
    return kinds.get(str(kept_type(column.type, name)))
