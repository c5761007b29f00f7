"""Rows that count more or less: refused before the job, and felt by its model."""

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from lometab.errors import ConfigError
from lometab.weights import Weights, weigh_classes, weigh_rows
from tests.support.http import check_problem, post
from tests.support.models import TABLE

ROWS = TABLE.strip().splitlines()
WEIGHTED = "\n".join(
    [f"{ROWS[0]},w", *(f"{row},{i % 3}" for i, row in enumerate(ROWS[1:]))]
)


def test_a_weight_column_is_no_feature(client: TestClient) -> None:
    config = {"target": "y", "weight_column": "w"}
    job = post(client, WEIGHTED, config).json()
    assert job["columns"]["w"].startswith("ignored")
    assert job["config"]["weight_column"] == "w"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"target": "y", "weight_column": "v"}, "'v'"),
        ({"target": "w", "weight_column": "w"}, "target"),
        ({"target": "y", "class_weight": "balanced"}, "number"),
        ({"target": "label", "class_weight": {"nobody": 2.0}}, "no class"),
        ({"target": "label", "class_weight": "fair"}, "balanced"),
    ],
)
def test_weights_that_cannot_be_are_refused(
    client: TestClient, config: dict[str, Any], words: str
) -> None:
    check_problem(post(client, WEIGHTED, config), 422, words)


def test_negative_weights_are_refused_by_row(client: TestClient) -> None:
    spoilt = WEIGHTED.replace(",1\n", ",-1\n", 1)
    config = {"target": "y", "weight_column": "w"}
    check_problem(post(client, spoilt, config), 422, "0 or more", "row 2")


def test_balanced_classes_count_alike() -> None:
    y = np.array([0] * 90 + [1] * 10)
    found = weigh_classes("balanced", ["a", "b"], y)
    assert found[0] * 90 == pytest.approx(found[1] * 10) == pytest.approx(50)
    with pytest.raises(ConfigError, match="every class"):
        weigh_classes({"a": 0, "b": 0}, ["a", "b"], y)


def test_without_a_word_all_rows_count_alike() -> None:
    nothing: Any = None
    assert weigh_rows({}, nothing, Weights(), np.arange(3)) is None
