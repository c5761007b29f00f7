"""What is in a table: SQL over the file says what the cells say."""

import os
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lometab.table import (
    ReadOptions,
    column_facts,
    find_leaks,
    infer_schema,
    judge,
    profile_table,
    read_csv,
    read_file,
    read_numbers,
)
from lometab.table.kinds import find_facts

DATA = Path(__file__).parents[3] / "shared" / "data"

PLAIN = st.one_of(
    st.integers(-5, 5).map(str), st.floats(allow_nan=False).map(repr), st.just("1_0")
)
MARKED = st.integers(0, 10**7).map("{:,}".format)
DATES = st.dates(date(1990, 1, 1), date(2030, 1, 1))
COLUMNS = st.one_of(
    *(
        st.lists(st.one_of(cell, st.sampled_from(["", "NA", " ? ", " 7", "inf"])))
        for cell in (PLAIN, MARKED, DATES.map(str), DATES.map("{:%d/%m/%Y}".format))
    ),
    st.lists(st.one_of(PLAIN, st.text(max_size=3), st.sampled_from(["Yes", "no"]))),
    st.lists(st.booleans() | st.none()),
    st.lists(st.integers(-(2**40), 2**40) | st.none()),
    st.lists(st.floats() | st.none()),
    st.lists(st.datetimes() | st.none()),
)


@pytest.mark.slow
@pytest.mark.parametrize("max_counted", [0, 10_000])
@given(column=COLUMNS.filter(lambda column: len(column) > 0))
@settings(max_examples=60, deadline=None)
def test_queries_say_what_cells_say(
    column: list[Any], max_counted: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("table")
    has_value = any(value is not None for value in column)
    values = pa.array(column) if has_value else pa.array(column, pa.string())
    pq.write_table(pa.table({"x": values}), folder / "file")
    reading = read_file(folder / "file", folder / "table")
    with pytest.MonkeyPatch.context() as patch:
        [few] = profile_table(folder / "table", reading).columns
        patch.setattr(column_facts, "_FEW_ROWS", 0)
        patch.setattr(column_facts, "_MAX_COUNTED", max_counted)
        [many] = profile_table(folder / "table", reading).columns
    if max_counted:
        assert many.verdict == few.verdict
    else:  # whether they may be codes is not looked into where there are many
        assert many.verdict == replace(few.verdict, note=many.verdict.note)
    assert (many.n_missing, many.example) == (few.n_missing, few.example)
    assert many.range == few.range
    if many.top is not None:
        assert (many.top, many.n_distinct) == (few.top, few.n_distinct)
    if pa.types.is_string(values.type):
        assert few.verdict == judge("x", find_facts(column), number_format=None)


KINDS: dict[str, tuple[int, str, dict[str, str]]] = {
    # rows, target, and the kinds of columns that are not numeric
    "california.csv.gz": (20640, "MedHouseVal", {}),
    "adult.csv.gz": (
        48842,
        "income",
        dict.fromkeys(
            [
                "workclass",
                "education",
                "marital-status",
                "occupation",
                "relationship",
                "race",
                "sex",
                "native-country",
                "income",
            ],
            "categorical",
        ),
    ),
    "churn.csv": (
        10000,
        "Exited",
        {
            "RowNumber": "ignore",
            "CustomerId": "ignore",
            "Surname": "categorical",
            "Geography": "categorical",
            "Gender": "categorical",
        },
    ),
    "diamonds.csv.gz": (
        53940,
        "price",
        dict.fromkeys(["cut", "color", "clarity"], "categorical"),
    ),
    "phoneme.csv": (5404, "Class", {}),
    "wine_quality.csv": (6497, "quality", {}),
    "bank_marketing.csv.gz": (
        45211,
        "y",
        dict.fromkeys(
            [
                "job",
                "marital",
                "education",
                "default",
                "housing",
                "loan",
                "contact",
                "month",
                "poutcome",
                "y",
            ],
            "categorical",
        ),
    ),
    "bike_sharing_hour.csv.gz": (
        17379,
        "cnt",
        {"instant": "ignore", "dteday": "datetime"},
    ),
    "magic_telescope.csv.gz": (19020, "class", {"class": "categorical"}),
    "titanic.csv": (
        891,
        "Survived",
        {
            "PassengerId": "ignore",
            "Name": "ignore",
            "Sex": "categorical",
            "Ticket": "ignore",
            "Cabin": "ignore",
            "Embarked": "categorical",
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_real_files(name: str, tmp_path: Path) -> None:
    if not DATA.exists():
        pytest.skip("the shared data sets are not here")
    n_rows, target, kinds = KINDS[name]
    table = tmp_path / "table"
    reading = read_file(DATA / name, table, scratch=tmp_path)
    found = profile_table(table, reading)
    assert reading.n_rows == n_rows
    assert reading.delimiter is not None and reading.delimiter.value == ","
    other = {
        c.name: c.verdict.kind for c in found.columns if c.verdict.kind != "numeric"
    }
    assert other == kinds
    assert target in reading.names


def test_every_file_of_the_folder_is_tested() -> None:
    if not DATA.exists():
        pytest.skip("the shared data sets are not here")
    files = {name for name in os.listdir(DATA) if ".csv" in name}
    assert files == KINDS.keys()


def test_numbers_are_described(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=30_000)
    lines = [f"{value!r},{i % 7}" for i, value in enumerate(values.tolist())]
    (tmp_path / "file").write_text("x,code\n" + "\n".join(lines))
    reading = read_file(tmp_path / "file", tmp_path / "table")
    x, code = profile_table(tmp_path / "table", reading).columns
    assert x.range == (values.min(), values.max())
    assert x.quantiles is not None and code.quantiles is not None
    quantiles = np.quantile(values, [float(q) for q in x.quantiles])
    np.testing.assert_allclose([*x.quantiles.values()], quantiles, atol=1e-9)
    assert abs(x.n_distinct - 30_000) < 3000
    assert code.top is not None and code.top[0] == ("0", 4286)
    assert code.n_distinct == 7 and "codes" in str(code.verdict.note)


def test_targets_are_suggested(tmp_path: Path) -> None:
    rows = [f"{i % 3},{i / 7:.3f},{'ab'[i % 2]}" for i in range(90)]
    (tmp_path / "file").write_text("class,price,kind\n" + "\n".join(rows))
    reading = read_file(tmp_path / "file", tmp_path / "table")
    suggestions = profile_table(tmp_path / "table", reading).suggestions
    assert [(s["target"], s["task"]) for s in suggestions] == [
        ("class", "multiclass"),
        ("price", "regression"),
        ("kind", "binary"),
    ]
    assert suggestions[0]["why"] == "its name, it is the first column"


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("PassengerId,Survived,Pclass,Age", "Survived"),
        ("Age,Attrition,Level,Years", "Attrition"),
        ("x1,x2,x3,y", "y"),
        ("Id,LotArea,SalePrice,MoSold", "SalePrice"),
        ("label,p1,p2,p3", "label"),
        ("class,rank,size,Response", "Response"),
        ("a,b,c,d", "d"),
    ],
)
def test_the_best_guess_is_the_first(tmp_path: Path, header: str, wanted: str) -> None:
    rows = [f"{i * 7 % 5},{i % 2},{i * i % 7},{i // 2 % 2}" for i in range(90)]
    (tmp_path / "file").write_text(header + "\n" + "\n".join(rows))
    reading = read_file(tmp_path / "file", tmp_path / "table")
    best = profile_table(tmp_path / "table", reading).suggestions[0]
    assert best["target"] == wanted and best["why"]


def test_leaks_are_told() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 600))
    y = y + x
    told = ["churned" if value > 0.5 else "stayed" for value in y]
    rows = [
        f"{a:.4f},{b:.4f},{1000 * b:.2f},{word},{word == 'churned'}"
        for a, b, word in zip(x, y, told, strict=True)
    ]
    table = read_csv(("x,y,cents,state,left\n" + "\n".join(rows)).encode())
    [leak] = find_leaks(table, infer_schema(table, target="y"))
    assert "'cents'" in leak
    schema = infer_schema(table, target="state", columns={"y": "ignore"})
    leaks = find_leaks(table, schema)
    assert [word for word in ("'left'", "'cents'") if word in str(leaks)] == [
        "'left'",
        "'cents'",
    ]
    assert "'x'" not in str(leaks)


def test_told_formats_win(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a;b\n" + "1,234;1/2/2024\n2,500;3/4/2024\n" * 9)
    options = ReadOptions(number_format="1,234.5", date_format="m/d/y")
    reading = read_file(tmp_path / "file", tmp_path / "table", options)
    a, b = profile_table(tmp_path / "table", reading, options).columns
    assert (a.verdict.format, b.verdict.format) == ("1,234.5", "m/d/y")
    table = read_csv((tmp_path / "file").read_bytes(), options)
    assert read_numbers(table["a"], "a", format="1,234.5").tolist()[:2] == [
        1234,
        2500,
    ]
