"""The schema, the raw inputs."""

import numpy as np
import pytest

from lometab.errors import DataError
from lometab.table import Schema, features, infer_schema, target


def make_table() -> dict[str, list[object]]:
    n = 60
    return {
        "row": [str(i) for i in range(n)],
        "customer_id": [str(97 * i % 61) for i in range(n)],
        "age": [str(20 + i % 7) for i in range(n)],
        "gap": ["" if i % 9 == 0 else str(i / 7) for i in range(n)],
        "empty": ["NA"] * n,
        "same": ["x"] * n,
        "city": ["abc"[i % 3] for i in range(n)],
        "note": [f"text {i}" for i in range(n)],
        "day": [f"2024-01-{i % 28 + 1:02d}" for i in range(n)],
        "y": [str(i / 3) for i in range(n)],
    }


def test_kinds_are_decided_by_the_whole_column() -> None:
    schema = infer_schema(make_table(), target="y")
    assert schema.numeric == ("age", "gap", "day")
    assert schema.datetime == ("day",)
    assert schema.categorical == ("city",)
    assert {n: why.split(" (")[0] for n, why in schema.ignored.items()} == {
        "row": "it looks like an identifier",
        "customer_id": "it looks like an identifier",
        "empty": "every value is missing",
        "same": "every value is the same",
        "note": "it looks like free text",
    }
    table = make_table()
    table["age"][-1] = "old"
    assert "age" in infer_schema(table, target="y").categorical


def test_callers_choice_wins() -> None:
    schema = infer_schema(
        make_table(),
        target="y",
        columns={"row": "numeric", "age": "categorical", "day": "ignore"},
        reserved=["city"],
    )
    assert "row" in schema.numeric
    assert "age" in schema.categorical
    assert schema.ignored["day"] == "the caller said so"
    assert schema.ignored["city"] == "it decides the split"


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["1", "0", "1"], "binary", (0, 1)),
        (["no", "yes"], "binary", ("no", "yes")),
        (["True", "false"], "binary", (False, True)),
        (["10", "9"], "binary", (9, 10)),
        (["1", "2", "3"], "multiclass", (1, 2, 3)),
        (["a", "b", "c"], "multiclass", ("a", "b", "c")),
        (["3", "4", "5"], "regression", None),
        (["0", "2", "4"], "regression", None),
        (["0.5", "1.5", "2.5"], "regression", None),
    ],
)
def test_task_is_guessed(
    values: list[str], task: str, classes: tuple[object, ...] | None
) -> None:
    table = {"x": [str(i % 5) for i in range(30)], "y": (values * 30)[:30]}
    schema = infer_schema(table, target="y")
    assert (schema.task, schema.classes) == (task, classes)
    y = target(table, schema)
    if classes is not None:
        labels = [str(classes[i]).lower() for i in y]
        assert labels == [value.lower() for value in table["y"]]


@pytest.mark.parametrize(
    ("values", "task", "word"),
    [
        (["a"] * 30, "auto", "only one value"),
        (["a", "b", "c"] * 10, "binary", "must have 2 values"),
        (["a", "b", "c"] * 10, "regression", "must hold a number"),
        ([str(i) for i in range(30)], "multiclass", "too many to be classes"),
        (["1", ""] * 15, "auto", "missing in 15 rows"),
        (["1.5", "inf", "2.5"] * 10, "regression", "infinite"),
    ],
)
def test_unusable_targets(values: list[str], task: str, word: str) -> None:
    table = {"x": [str(i % 5) for i in range(30)], "y": values}
    with pytest.raises(DataError, match=word) as caught:
        infer_schema(table, target="y", task=task)  # type: ignore[arg-type]
    assert caught.value.column == "y"


def test_raw_inputs() -> None:
    table = {
        "n": ["1", "NA", "16777217"],
        "c": ["a", None, 3.0],
        "t": ["1970-01-02", "", "1970-01-01"],
    }
    schema = Schema(
        target="y",
        task="regression",
        classes=None,
        numeric=("n", "t"),
        categorical=("c",),
        datetime=("t",),
    )
    x_num, x_cat = features(table, schema)
    np.testing.assert_array_equal(x_num, [[1, 86400], [np.nan, np.nan], [16777217, 0]])
    assert x_cat.tolist() == [["a"], [""], ["3"]]
    with pytest.raises(DataError, match="infinite number in row 1"):
        features({**table, "n": ["inf", "1", "2"]}, schema)
    assert Schema.from_dict(schema.to_dict()) == schema
