"""One value, one meaning, whether it comes from CSV, JSON or an array."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lometab.errors import DataError
from lometab.table import MISSING, category, read_categories, read_moments, read_numbers
from lometab.table.values import MomentFormat, NumberFormat, moment, number


@pytest.mark.parametrize(
    "value", [3, 3.0, "3", "3.0", " 3.00 ", np.int64(3), Decimal(3)]
)
def test_equal_numbers_are_one_category(value: object) -> None:
    assert category(value) == "3"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("007", "007"),
        ("3.10", "3.10"),
        (3.1, "3.1"),
        (-0.0, "0"),
        (True, "true"),
        ("TRUE", "true"),
        (np.bool_(False), "false"),
        (10**20, str(10**20)),
        (2**24 + 1, "16777217"),
        ("naïve ", "naïve"),
    ],
)
def test_category_text(value: object, text: str) -> None:
    assert category(value) == text


@pytest.mark.parametrize("value", [None, math.nan, np.nan, "", " ", "NA", "?", "-"])
def test_missing(value: object) -> None:
    assert category(value) == ""
    assert math.isnan(number(value))
    assert math.isnan(moment(value))


@pytest.mark.parametrize("value", ["0", "unknown", "999", "N", "no"])
def test_not_missing(value: str) -> None:
    assert category(value) == value


def test_own_list_of_missing_texts() -> None:
    assert category("NA", ("999",)) == "NA"
    assert category("999", ("999",)) == ""
    assert math.isnan(number("999", ("999",)))
    assert category(None, ("999",)) == ""


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()))
def test_category_of_a_category_is_itself(value: object) -> None:
    text = category(value)
    assert category(text) == text


@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_agree_in_every_spelling(value: int) -> None:
    texts = {category(v) for v in (value, float(value), str(value), f"{value}.0")}
    assert len(texts) == 1


@given(st.lists(st.one_of(st.text(), st.floats(), st.none())))
def test_columns_are_read_value_by_value(values: list[object]) -> None:
    assert read_categories(values).tolist() == [category(v) for v in values]


@pytest.mark.parametrize("text", ["1_000", "0x10", "abc", "1,5", "12 kg"])
def test_not_a_number(text: str) -> None:
    with pytest.raises(ValueError):
        number(text)
    with pytest.raises(DataError, match=r"'price'.*row 2 holds") as caught:
        read_numbers(["1", text], "price")
    assert caught.value.column == "price"


def test_moments() -> None:
    day = 86400.0
    for value in (
        "1970-01-02",
        "1970-01-02T00:00:00Z",
        "1970-01-02 01:00:00+01:00",
        date(1970, 1, 2),
        datetime(1970, 1, 2, tzinfo=UTC),
        datetime(1970, 1, 2),
        np.datetime64("1970-01-02"),
        day,
    ):
        assert moment(value) == day, value
    assert math.isnan(moment(np.datetime64("NaT")))
    for text in ("19700102", "2/1/1970", "yesterday"):
        with pytest.raises(ValueError):
            moment(text)


def test_a_value_is_single() -> None:
    with pytest.raises(DataError, match="must be single"):
        category([1, 2])


@pytest.mark.parametrize(
    ("text", "format", "value"),
    [
        ("1,234.5", "1,234.5", 1234.5),
        ("-12,345,678", "1,234.5", -12345678.0),
        ("12.5", "1,234.5", 12.5),
        ("1 234.5", "1,234.5", 1234.5),
        ("1.234,5", "1.234,5", 1234.5),
        ("1'234,5", "1.234,5", 1234.5),
        ("1\u202f234,5", "1.234,5", 1234.5),
        (",5", "1.234,5", 0.5),
        ("12,34", "1,234.5", None),
        ("1.23", "1.234,5", None),
    ],
)
def test_formats_of_numbers(text: str, format: Any, value: float | None) -> None:
    column = pa.array([text, None, "NA"])
    if value is None:
        with pytest.raises(ValueError):
            number(text, format=format)
        with pytest.raises(DataError):
            read_numbers(column, "x", format=format)
    else:
        assert number(text, format=format) == value
        read = read_numbers(column, "x", format=format)
        np.testing.assert_array_equal(read, [value, math.nan, math.nan])


@pytest.mark.parametrize(
    ("text", "format", "wanted"),
    [
        ("31/12/1999", "d/m/y", datetime(1999, 12, 31)),
        ("12/31/99", "m/d/y", datetime(1999, 12, 31)),
        ("1.2.2024 13:05", "d/m/y", datetime(2024, 2, 1, 13, 5)),
        ("1/2/2024 1:05:09 PM", "m/d/y", datetime(2024, 1, 2, 13, 5, 9)),
        ("1/2/2024 12:05 am", "m/d/y", datetime(2024, 1, 2, 0, 5)),
        ("2024-02-01", "d/m/y", datetime(2024, 2, 1)),
        ("30/2/2024", "d/m/y", None),
        ("13/13/2024", "m/d/y", None),
        ("1/2/2024 13:05 pm", "m/d/y", None),
        ("1/2/2024", None, None),
    ],
)
def test_formats_of_moments(text: str, format: Any, wanted: datetime | None) -> None:
    if wanted is None:
        with pytest.raises(ValueError):
            moment(text, format=format)
    else:
        seconds = wanted.replace(tzinfo=UTC).timestamp()
        assert moment(text, format=format) == seconds
        assert read_moments(pa.array([text]), "x", format=format)[0] == seconds


TEXTS = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.text("0123456789.,-+eE_ '\u00a0", max_size=8),
    st.floats().map(repr),
    st.integers(-(10**6), 10**6).map("{:,}".format),
    st.dates().map(str),
    st.datetimes().map(str),
    st.dates().map("{:%d/%m/%Y}".format),
    st.sampled_from([*MISSING, "inf", "TRUE", "1.0", "007", "-0.0", "nan(1)"]),
)


@given(
    st.lists(TEXTS, max_size=6),
    st.sampled_from([None, *get_args(NumberFormat)]),
    st.sampled_from([None, *get_args(MomentFormat)]),
    st.integers(0, 6),
)
def test_columns_of_arrow_mean_the_same(
    values: list[str | None], number: Any, moment: Any, cut: int
) -> None:
    column = pa.chunked_array([values[:cut], values[cut:]], pa.string())
    texts = read_categories(column)
    assert texts.tolist() == read_categories(values).tolist()
    for convert, format in (
        (read_numbers, number),
        (read_moments, moment),
    ):
        try:
            wanted = convert(values, "x", format=format)
        except DataError as error:
            with pytest.raises(DataError) as caught:
                convert(column, "x", format=format)
            assert str(caught.value) == str(error)
        else:
            np.testing.assert_array_equal(convert(column, "x", format=format), wanted)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 2**53 + 1]),
        pa.array([1.5, math.nan, None, -0.0]),
        pa.array([True, False, None]),
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.array([date(2024, 1, 2), None]),
        pa.array([datetime(2024, 1, 2, 3), None], pa.timestamp("ns", "UTC")),
        pa.array([], pa.string()),
        pa.chunked_array([], pa.string()),
    ],
)
def test_typed_columns_of_arrow(column: pa.Array) -> None:
    values = column.to_pylist()
    assert read_categories(column).tolist() == read_categories(values).tolist()
    for convert in (read_numbers, read_moments):
        try:
            wanted = convert(values, "x")
        except DataError:
            with pytest.raises(DataError):
                convert(column, "x")
        else:
            np.testing.assert_array_equal(convert(column, "x"), wanted)
