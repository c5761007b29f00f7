"""One cell, one meaning, whether it comes from CSV, JSON or an array."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lometab import cells
from lometab.errors import DataError


@pytest.mark.parametrize(
    "value", [3, 3.0, "3", "3.0", " 3.00 ", np.int64(3), Decimal(3)]
)
def test_equal_numbers_are_one_category(value: object) -> None:
    assert cells.category(value) == "3"


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
    assert cells.category(value) == text


@pytest.mark.parametrize("value", [None, math.nan, np.nan, "", " ", "NA", "?", "-"])
def test_missing(value: object) -> None:
    assert cells.category(value) == ""
    assert math.isnan(cells.number(value))
    assert math.isnan(cells.moment(value))


@pytest.mark.parametrize("value", ["0", "unknown", "999", "N", "no"])
def test_not_missing(value: str) -> None:
    assert cells.category(value) == value


def test_own_list_of_missing_texts() -> None:
    assert cells.category("NA", ("999",)) == "NA"
    assert cells.category("999", ("999",)) == ""
    assert math.isnan(cells.number("999", ("999",)))
    assert cells.category(None, ("999",)) == ""


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()))
def test_category_of_a_category_is_itself(value: object) -> None:
    text = cells.category(value)
    assert cells.category(text) == text


@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_agree_in_every_spelling(value: int) -> None:
    texts = {cells.category(v) for v in (value, float(value), str(value), f"{value}.0")}
    assert len(texts) == 1


@given(st.lists(st.one_of(st.text(), st.floats(), st.none())))
def test_columns_are_read_cell_by_cell(values: list[object]) -> None:
    assert cells.categories(values).tolist() == [cells.category(v) for v in values]


@pytest.mark.parametrize("text", ["1_000", "0x10", "abc", "1,5", "12 kg"])
def test_not_a_number(text: str) -> None:
    with pytest.raises(ValueError):
        cells.number(text)
    with pytest.raises(DataError, match=r"'price'.*row 2 holds") as caught:
        cells.numbers(["1", text], "price")
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
        assert cells.moment(value) == day, value
    assert math.isnan(cells.moment(np.datetime64("NaT")))
    for text in ("19700102", "2/1/1970", "yesterday"):
        with pytest.raises(ValueError):
            cells.moment(text)


def test_a_cell_holds_one_value() -> None:
    with pytest.raises(DataError, match="one value"):
        cells.category([1, 2])
