"""Every row is in one part; classes, groups and times are where they should be."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lometab.errors import ConfigError, DataError
from lometab.table import (
    Parts,
    Split,
    find_duplicates,
    infer_schema,
    read_moments,
    split_rows,
)


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
    assume("no" in y)
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
    times = read_moments(table["when"], "when", format=schema.formats["when"])
    assert times[parts["train"]].max() <= times[parts["test"]].min()


def test_copies_are_told_and_kept_in_one_part() -> None:
    table = {
        "x": [str(i % 60) for i in range(240)],
        "c": ["ab"[i % 2] for i in range(240)],
        "y": [i % 60 / 7 for i in range(240)],
    }
    schema = infer_schema(table, target="y")
    parts = split_rows(table, schema, Split())
    [warning] = find_duplicates(table, schema, parts)
    assert "180 of 240 rows are exact copies" in warning
    assert "group_duplicates" in warning
    parts = split_rows(table, schema, Split(group_duplicates=True))
    assert sum(map(len, parts.values())) == 240
    assert find_duplicates(table, schema, parts) == []
    assert len(parts["test"]) == 48
    with pytest.raises(ConfigError, match="group_duplicates"):
        Split(kind="group", column="c", group_duplicates=True)


def test_rows_that_differ_are_no_copies() -> None:
    table = {"x": [str(i) for i in range(99)], "c": ["ab"[i % 2] for i in range(99)]}
    schema = infer_schema(table, target="c", columns={"x": "numeric"})
    parts = split_rows(table, schema, Split())
    assert find_duplicates(table, schema, parts) == []


def test_a_calibration_part_is_taken_from_train_alone() -> None:
    y = [str(i / 7) for i in range(200)]
    plain, own = make_parts(y, Split()), make_parts(y, Split(calibration=0.1))
    assert "calibration" not in plain
    check_partition(own, 200)
    assert len(own["calibration"]) == 20
    for part in ("val", "test"):
        np.testing.assert_array_equal(plain[part], own[part])
    train = np.concatenate([own["train"], own["calibration"]])
    np.testing.assert_array_equal(np.sort(train), plain["train"])


def test_by_time_the_calibration_part_is_the_latest_before_the_test() -> None:
    y = [str(i / 7) for i in range(200)]
    when = [f"2024-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(200)]
    split = Split(kind="time", column="when", calibration=0.1)
    parts = make_parts(y, split, when=when)
    check_partition(parts, 200)
    assert parts["calibration"].tolist() == [*range(140, 160)]
    assert parts["val"].max() == 139
    assert parts["test"].min() == 160


def test_groups_and_columns_may_have_a_calibration_part() -> None:
    y = [str(i / 7) for i in range(300)]
    groups = [str(i % 50) for i in range(300)]
    split = Split(kind="group", column="who", calibration=0.2)
    parts = make_parts(y, split, who=groups)
    check_partition(parts, 300)
    sets = [{groups[i] for i in rows} for rows in parts.values()]
    assert sum(map(len, sets)) == 50
    assert len(parts["calibration"]) == pytest.approx(60, abs=12)
    told = ["train", "val", "test", "calibration"] * 75
    parts = make_parts(y, Split(kind="column", column="part"), part=told)
    assert parts["calibration"].tolist() == [*range(3, 300, 4)]


def test_shares_must_leave_rows_to_train_on() -> None:
    with pytest.raises(ConfigError, match="val, test and calibration must leave rows"):
        Split(val=0.3, test=0.3, calibration=0.4)
