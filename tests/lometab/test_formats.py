"""Numbers as people write them come back as the number, or the doubt is told."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lometab.errors import DataError
from lometab.table import (
    ParquetTable,
    features,
    infer_schema,
    profile_table,
    read_file,
    read_numbers,
)
from lometab.table.formats import to_plain
from tests.support.written_files import NUMBERS

GROUPS = st.sampled_from(["", ",", ".", " ", "'", "\u2019", "\u202f", "india"])
UNITS = st.sampled_from(
    [("", ""), ("$", ""), ("", " €"), ("CHF ", ""), ("", " kg"), ("", "%"), ("", "mm")]
)
MINUS = st.sampled_from(["-", "\u2212", "("])


def group(digits: str, mark: str) -> str:
    """Whole digits with marks between thousands."""
    if not mark or len(digits) < 4:
        return digits
    head, tail = digits[:-3], digits[-3:]
    size = 2 if mark == "india" else 3
    parts = []
    while head:
        parts.insert(0, head[-size:])
        head = head[:-size]
    return ("," if mark == "india" else mark).join([*parts, tail])


def write(
    value: float, n_digits: int, mark: str, unit: tuple[str, str], minus: str
) -> str:
    whole, _, rest = f"{abs(value):.{n_digits}f}".partition(".")
    decimal = "," if mark == "." else "."
    text = unit[0] + group(whole, mark) + (decimal + rest if rest else "") + unit[1]
    if float(f"{value:.{n_digits}f}") >= 0:
        return text
    return f"({text})" if minus == "(" else minus + text


@pytest.mark.slow
@given(
    values=st.lists(st.floats(-1e7, 1e7), min_size=3, max_size=30, unique=True),
    n_digits=st.integers(0, 4),
    mark=GROUPS,
    unit=UNITS,
    minus=MINUS,
    delimiter=st.sampled_from([",", ";", "\t"]),
)
@settings(max_examples=150, deadline=None)
def test_a_number_comes_back_or_the_doubt_is_told(
    values: list[float],
    n_digits: int,
    mark: str,
    unit: tuple[str, str],
    minus: str,
    delimiter: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    texts = [write(value, n_digits, mark, unit, minus) for value in values]
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerows(
        [("x", "y"), *((text, "ab"[i % 2]) for i, text in enumerate(texts))]
    )
    folder = tmp_path_factory.mktemp("written")
    (folder / "file").write_bytes(file.getvalue().encode())
    reading = read_file(folder / "file", folder / "table")
    column = profile_table(folder / "table", reading).columns[0]
    verdict = column.verdict
    if verdict.kind == "ignore":
        assert verdict.reason is not None
        return
    assert verdict.kind == "numeric", (texts, verdict)
    table = ParquetTable(folder / "table")
    numbers = read_numbers(table["x"], "x", format=verdict.format)
    wanted = np.array([float(f"{value:.{n_digits}f}") for value in values])
    if not np.array_equal(numbers, wanted):
        assert "number_format" in (verdict.note or ""), (texts, verdict)
    elif column.range is not None:
        assert column.range == (wanted.min(), wanted.max())


@pytest.mark.parametrize("name", NUMBERS)
def test_forms_of_the_files(name: str) -> None:
    written, form, first = NUMBERS[name]
    text = written(0).strip('"')
    assert float(to_plain(text, form)) == pytest.approx(first)
    with pytest.raises(ValueError):
        to_plain(f"{text}?", form)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("0,123", "1,234.5"),
        ("1,2345", "1,234.5"),
        ("--1", "1,234.5"),
        ("(-1)", "1,234.5"),
        ("5 g", "1,234.5 kg"),
        ("$$5", "$1,234.5"),
        ("", "1,234.5"),
        ("kg", "1,234.5 kg"),
    ],
)
def test_what_is_no_number_of_a_form(text: str, form: str) -> None:
    with pytest.raises(ValueError):
        to_plain(text, form)
    with pytest.raises(DataError):
        read_numbers([text], "x", (), form)


def test_a_spoiled_column_is_numeric_if_that_is_set() -> None:
    table = {
        "x": [*(f"{i}.5 kg" for i in range(60)), "4O kg"],
        "y": [i % 2 for i in range(61)],
    }
    schema = infer_schema(table, target="y", columns={"x": "numeric"})
    assert schema.missing_in == {"x": ("4O kg",)}
    assert schema.formats == {"x": "1,234.5 kg"}
    assert schema == type(schema).from_dict(schema.to_dict())


def test_a_table_without_names_says_so() -> None:
    table = {"column_1": ["1", "2"], "column_2": ["a", "b"]}
    with pytest.raises(DataError, match=r"first line was taken as data.*`header`"):
        infer_schema(table, target="label")


def test_the_folder_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x,y\n1,2\n3,4\nTotal,6\n")
    read_file(tmp_path / "file", tmp_path / "table")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "table"}


def test_dates_but_for_a_few_can_be_set_to_datetime() -> None:
    days = [f"{i % 28 + 1}-Jun-{1990 + i}" for i in range(100)]
    table = {"x": [*days[:50], "soon", *days[50:]], "y": [*range(101)]}
    # The message says so.
    with pytest.raises(DataError, match="set the column to `datetime`"):
        infer_schema(table, target="y")
    schema = infer_schema(table, target="y", columns={"x": "datetime"})
    assert schema.datetime == ("x",)
    assert schema.missing_in == {"x": ("soon",)}
    x_num, _ = features(table, schema)
    assert np.isnan(x_num[:, 0]).nonzero()[0].tolist() == [50]
