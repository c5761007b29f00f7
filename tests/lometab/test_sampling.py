"""Fewer rows of a table: what is drawn, and what is held apart all the same."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lometab.errors import DataError
from lometab.table import (
    ParquetTable,
    Split,
    infer_schema,
    pick_rows,
    share_rows,
    split_rows,
    thin_rows,
    write_table,
)

N_ROWS = 3000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ParquetTable:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "x": rng.normal(size=N_ROWS),
        "colour": rng.choice(["red", "green"], size=N_ROWS),
        "who": rng.integers(0, 200, size=N_ROWS).astype(str),
        "when": rng.permutation(N_ROWS),
        "part": rng.choice(["train", "val", "test"], p=[0.6, 0.2, 0.2], size=N_ROWS),
        "y": rng.normal(size=N_ROWS),
        "label": rng.choice(["a", "b", "c"], p=[0.9, 0.09, 0.01], size=N_ROWS),
    }
    path = tmp_path_factory.mktemp("sampling") / "table.parquet"
    keys = [f"c{i}" for i in range(len(columns))]
    batch = pa.record_batch([pa.array(each) for each in columns.values()], names=keys)
    write_table(path, [*columns], [batch])
    return ParquetTable(path)


SPLITS = {
    "random": Split(),
    "random, calibrated apart": Split(calibration=0.1),
    "time": Split(kind="time", column="when"),
    "group": Split(kind="group", column="who"),
    "column": Split(kind="column", column="part"),
}


@pytest.mark.parametrize("target", ["y", "label"])
@pytest.mark.parametrize("kind", SPLITS)
def test_each_part_keeps_its_share_and_no_row_changes_its_part(
    table: ParquetTable, kind: str, target: str
) -> None:
    split = SPLITS[kind]
    reserved = [split.column] if split.column else []
    schema = infer_schema(table, target=target, reserved=reserved)
    whole = split_rows(table, schema, split)
    some = split_rows(table, schema, split, max_rows=500)
    assert sum(map(len, some.values())) == 500
    for name, rows in some.items():
        assert np.isin(rows, whole[name]).all() and (np.diff(rows) > 0).all()
        assert len(rows) == pytest.approx(len(whole[name]) / 6, abs=3)
    again = split_rows(table, schema, split, max_rows=500)
    assert all((some[name] == again[name]).all() for name in some)


def test_other_seeds_draw_others(table: ParquetTable) -> None:
    schema = infer_schema(table, target="y")
    rows = np.arange(N_ROWS)
    one, other = (thin_rows(rows, None, 100, seed) for seed in (0, 1))
    assert len(one) == len(other) == 100 and set(one) != set(other)
    assert split_rows(table, schema, Split(seed=1), max_rows=100)


def test_classes_keep_their_shares(table: ParquetTable) -> None:
    schema = infer_schema(table, target="label")
    labels = table["label"].to_numpy()
    whole = split_rows(table, schema, Split())
    some = split_rows(table, schema, Split(), max_rows=300)
    for name in some:
        for label in ("a", "b", "c"):
            share = (labels[whole[name]] == label).mean()
            found = (labels[some[name]] == label).sum()
            assert found >= 1
            assert found == pytest.approx(share * len(some[name]), abs=1.5)


def test_groups_stay_in_one_part(table: ParquetTable) -> None:
    split = SPLITS["group"]
    schema = infer_schema(table, target="y", reserved=["who"])
    some = split_rows(table, schema, split, max_rows=700)
    who = table["who"].to_numpy()
    groups = [set(who[rows]) for rows in some.values()]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_the_future_stays_the_test(table: ParquetTable) -> None:
    schema = infer_schema(table, target="y", reserved=["when"])
    some = split_rows(table, schema, SPLITS["time"], max_rows=200)
    when = table["when"].to_numpy()
    assert when[some["train"]].max() < when[some["val"]].min()
    assert when[some["val"]].max() < when[some["test"]].min()


def test_all_rows_if_there_is_room(table: ParquetTable) -> None:
    schema = infer_schema(table, target="y")
    whole = split_rows(table, schema, Split())
    same = split_rows(table, schema, Split(), max_rows=N_ROWS)
    assert all((whole[name] == same[name]).all() for name in whole)


def test_too_few_says_how_many(table: ParquetTable) -> None:
    schema = infer_schema(table, target="y")
    with pytest.raises(DataError, match=r"leaves 9 rows .* 10 are .* at least 14"):
        split_rows(table, schema, Split(), max_rows=12)
    assert split_rows(table, schema, Split(), max_rows=14)


def test_rows_as_a_table_of_their_own(table: ParquetTable) -> None:
    schema = infer_schema(table, target="label")
    some = split_rows(table, schema, Split(), max_rows=250)
    own, parts = pick_rows(table, some)
    assert [*own] == [*table] and own.n_rows == 250 and "x" in own
    for column in table:
        whole, picked = table[column].to_numpy(), own[column].to_numpy()
        for name in some:
            assert (picked[parts[name]] == whole[some[name]]).all()


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=4),
    st.integers(4, 4000),
)
def test_shares_add_up(sizes: list[int], n_rows: int) -> None:
    named = dict(enumerate(sizes))
    kept = share_rows(named, n_rows)
    assert sum(kept.values()) == min(n_rows, sum(sizes))
    assert all(1 <= kept[name] <= size for name, size in named.items())


def test_rare_categories_are_by_the_rows_that_are_used(table: ParquetTable) -> None:
    assert infer_schema(table, target="y").min_frequency == 5
    assert infer_schema(table, target="y", max_rows=450).min_frequency == 2
