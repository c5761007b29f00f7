"""Every row is in one part; classes, groups and times are where they should be."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lometab import cells
from lometab.data import infer_schema
from lometab.errors import DataError
from lometab.splits import Parts, Split, split_rows


def make_parts(y: list[str], split: Split, **columns: list[str]) -> Parts:
    table = {"x": [str(i % 7) for i in range(len(y))], "y": y, **columns}
    schema = infer_schema(table, target="y", reserved=columns)
    return split_rows(table, schema, split)


def check_partition(parts: Parts, n_rows: int) -> None:
    rows = np.concatenate(list(parts.values()))
    assert sorted(rows.tolist()) == list(range(n_rows))


@settings(max_examples=50)
@given(
    n_rows=st.integers(40, 400),
    share=st.floats(0.1, 0.9),
    val=st.floats(0.1, 0.3),
    test=st.floats(0.1, 0.3),
    seed=st.integers(0, 5),
)
def test_random_split_is_stratified(
    n_rows: int, share: float, val: float, test: float, seed: int
) -> None:
    n_yes = max(10, round(n_rows * share))
    y = ["yes" if i < n_yes else "no" for i in range(n_rows)]
    if "no" not in y:
        return
    parts = make_parts(y, Split(val=val, test=test, seed=seed))
    check_partition(parts, n_rows)
    assert len(parts["val"]) == round(n_rows * val)
    assert len(parts["test"]) == round(n_rows * test)
    for rows in parts.values():
        n_in_part = sum(y[i] == "yes" for i in rows)
        assert abs(n_in_part - len(rows) * n_yes / n_rows) <= 2


def test_seed_decides() -> None:
    y = [str(i / 7) for i in range(100)]
    first, again, other = (make_parts(y, Split(seed=seed)) for seed in (1, 1, 2))
    for part in ("train", "val", "test"):
        np.testing.assert_array_equal(first[part], again[part])
    assert not np.array_equal(first["test"], other["test"])


def test_time_split_keeps_the_latest_for_the_test() -> None:
    rng = np.random.default_rng(0)
    days = rng.permutation(100)
    when = [str(np.datetime64("2024-01-01") + day) for day in days]
    y = [str(i / 7) for i in range(100)]
    parts = make_parts(y, Split(kind="time", column="when"), when=when)
    check_partition(parts, 100)
    in_order = [days[parts[part]] for part in ("train", "val", "test")]
    assert in_order[0].max() < in_order[1].min()
    assert in_order[1].max() < in_order[2].min()


def test_group_split_tears_no_group() -> None:
    groups = [f"g{i % 23}" for i in range(300)]
    y = [str(i / 7) for i in range(300)]
    parts = make_parts(y, Split(kind="group", column="who"), who=groups)
    check_partition(parts, 300)
    of = {part: {groups[i] for i in rows} for part, rows in parts.items()}
    assert not of["train"] & of["val"] and not of["val"] & of["test"]
    assert not of["train"] & of["test"]
    assert 40 <= len(parts["test"]) <= 80


def test_given_split() -> None:
    words = (["train"] * 6 + ["val", "Test"]) * 5
    y = [str(i / 7) for i in range(40)]
    parts = make_parts(y, Split(kind="column", column="part"), part=words)
    assert Counter(words) == {
        "train": len(parts["train"]),
        "val": len(parts["val"]),
        "Test": len(parts["test"]),
    }


@pytest.mark.parametrize(
    ("y", "split", "columns", "word"),
    [
        (["1.5", "2.5"] * 5, Split(), {}, "train part would have 6 rows"),
        (["a", "b"] * 20, Split(val=0.45, test=0.45), {}, "train part would"),
        (
            ["a", "b"] * 20 + ["c", "c"],
            Split(),
            {},
            "class 'c' of 'y' has 2 rows; each",
        ),
        (["1.5", "2.5"] * 20, Split(kind="group", column="g"), {"g": ["a"] * 40}, "3"),
        (
            ["1.5", "2.5"] * 20,
            Split(kind="column", column="part"),
            {"part": ["train"] * 39 + ["tets"]},
            "row 40 says 'tets'",
        ),
        (
            ["1.5", "2.5"] * 20,
            Split(kind="time", column="when"),
            {"when": ["2024-01-01"] * 39 + [""]},
            "missing in row 40",
        ),
    ],
)
def test_impossible_splits(
    y: list[str], split: Split, columns: dict[str, list[str]], word: str
) -> None:
    with pytest.raises(DataError, match=word):
        make_parts(y, split, **columns)


def test_a_class_must_be_in_train() -> None:
    words = ["train"] * 30 + ["val"] * 5 + ["test"] * 5
    y = ["a", "b"] * 15 + ["c"] * 3 + ["a"] * 7
    with pytest.raises(DataError, match="class 'c' of 'y' has 3 rows and none"):
        make_parts(y, Split(kind="column", column="part"), part=words)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="leave rows"):
        Split(val=0.6, test=0.5)
    with pytest.raises(ValueError, match="takes a column"):
        Split(kind="time")
    with pytest.raises(ValueError, match="takes no column"):
        Split(column="x")


def test_rows_without_a_target_are_in_no_part() -> None:
    table = {
        "x": [str(i / 7) for i in range(60)],
        "when": [f"{i % 28 + 1}/12/2024" for i in range(60)],
        "y": ["" if i % 6 == 0 else "ab"[i % 2] for i in range(60)],
    }
    for split in (Split(), Split(kind="time", column="when")):
        schema = infer_schema(
            table,
            target="y",
            reserved=[split.column] if split.column else [],
            drop_missing_target=True,
        )
        parts = split_rows(table, schema, split)
        rows = np.sort(np.concatenate([*parts.values()]))
        assert rows.tolist() == [i for i in range(60) if i % 6]
    times = cells.moments(table["when"], "when", format=schema.formats["when"])
    assert times[parts["train"]].max() <= times[parts["test"]].min()
