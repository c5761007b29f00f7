"""Frames mean the same to the estimator and to the predictor."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lometab.table import columns_of, read_categories, read_column, to_array

MOMENTS = [datetime(2024, 1, 1), datetime(2024, 1, 2, 3, 4, 5), None]
COLUMNS: dict[str, list[Any]] = {
    "whole": [1, 2, 3],
    "whole, one missing": [1, None, 3],
    "floats": [1.0, 2.5, None],
    "texts": ["a", " b ", None],
    "spelled numbers": ["1.0", "1", "007"],
    "booleans": [True, False, True],
    "booleans, one missing": [True, None, False],
    "moments": MOMENTS,
    "days": [date(2024, 1, 1), date(2023, 12, 31), None],
    "moments with a zone": [datetime(2024, 1, 1, tzinfo=UTC), None, None],
    "decimals": [Decimal("1.50"), Decimal("2"), None],
}
LIBRARIES: dict[str, Any] = {
    "pandas": lambda values: pd.DataFrame({"a": pd.Series(values)}),
    "pandas objects": lambda values: pd.DataFrame(
        {"a": pd.Series(values, dtype=object)}
    ),
    "pandas of Arrow": lambda values: pd.DataFrame(
        {"a": pd.Series(pd.array(values, dtype=pd.ArrowDtype(pa.array(values).type)))}
    ),
    "polars": lambda values: pl.DataFrame({"a": values}),
    "pyarrow": lambda values: pa.table({"a": values}),
    "lists": lambda values: {"a": values},
    "records": lambda values: [{"a": value} for value in values],
}


def spell(text: str) -> str:
    """`1.50` and `1.5` are two texts for one decimal, by library."""
    return text.rstrip("0") if text == "1.50" else text


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", COLUMNS)
def test_one_meaning_for_estimator_and_predictor(name: str, library: str) -> None:
    frame = LIBRARIES[library](COLUMNS[name])
    _, table, n_rows = columns_of(frame, ["a"])  # as the predictor
    asked = read_categories(table["a"]).tolist()
    column = [row["a"] for row in frame] if isinstance(frame, list) else frame["a"]
    values, _ = read_column(column, "a")  # as the estimator
    trained = read_categories(to_array(values, "a")).tolist()
    assert asked == trained and n_rows == 3
    expected = read_categories(COLUMNS[name]).tolist()
    assert [*map(spell, asked)] == [*map(spell, expected)]


def test_arrays_are_named_by_position() -> None:
    names, table, n_rows = columns_of(np.array([[1.0, 2.0], [3.0, 4.0]]), ["x1"])
    assert [*names] == ["x0", "x1"] and n_rows == 2
    assert table["x1"].tolist() == [2.0, 4.0]


def test_spans_of_time_are_seconds() -> None:
    spans = [timedelta(seconds=90), timedelta(days=1)]
    for frame in (pd.DataFrame({"a": spans}), pa.table({"a": spans})):
        values, kind = read_column(frame["a"], "a")
        assert kind == "numeric" and [*values] == [90, 86400]


def test_datetimes_of_numpy_are_categories_by_day() -> None:
    moments = np.array(["2024-01-01", "NaT", "2024-01-01T12:30"], "datetime64[ns]")
    expected = ["2024-01-01", "", "2024-01-01 12:30:00"]
    assert read_categories(read_column(moments, "a")[0]).tolist() == expected
    assert read_categories([*moments]).tolist() == expected
