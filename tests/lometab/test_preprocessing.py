"""The fitted preprocessing against its definition."""

import json
from collections import Counter
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import QuantileTransformer

from lometab.table import (
    PERIODS,
    Levels,
    Preprocessor,
    count_levels,
    describe_rare,
    infer_schema,
)
from lometab.table.schema import default_min_frequency


def fit_numbers(x: np.ndarray, **kwargs: object) -> Preprocessor:
    text = np.empty((len(x), 0), dtype=object)
    return Preprocessor().fit(x, text, np.zeros(len(x)), task="binary", **kwargs)  # type: ignore[arg-type]


def transform_numbers(fitted: Preprocessor, x: np.ndarray) -> np.ndarray:
    return fitted.transform(x, np.empty((len(x), 0), dtype=object))[0]


def slow_score(x: float, quantiles: list[float], scores: list[float]) -> float:
    """The definition: linear between the scores of the quantiles, ends clipped."""
    if x <= quantiles[0]:
        return scores[0]
    if x >= quantiles[-1]:
        return scores[-1]
    j = max(i for i in range(len(quantiles)) if quantiles[i] <= x)
    share = (x - quantiles[j]) / (quantiles[j + 1] - quantiles[j])
    return scores[j] + share * (scores[j + 1] - scores[j])


@settings(max_examples=60)
@given(
    arrays(np.float64, st.integers(5, 80), elements=st.floats(-1e6, 1e6)),
    arrays(np.float64, 20, elements=st.floats(-1e7, 1e7)),
)
def test_transform_is_its_definition(train: np.ndarray, new: np.ndarray) -> None:
    assume(np.ptp(train) > 0)
    fitted = fit_numbers(train[:, None])
    (quantiles,), (scores,) = fitted.quantiles_, fitted.scores_
    assert (np.diff(quantiles) > 0).all()
    answers = transform_numbers(fitted, new[:, None])[:, 0]
    expected = [slow_score(x, quantiles.tolist(), scores.tolist()) for x in new]
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-6)


def test_number_of_quantiles_and_their_scores() -> None:
    rng = np.random.default_rng(0)
    for n_rows, n_quantiles in ((60, 10), (3000, 100), (90_000, 1000)):
        fitted = fit_numbers(rng.normal(size=(n_rows, 1)))
        assert len(fitted.quantiles_[0]) == n_quantiles
        end = NormalDist().inv_cdf(1 - 1e-7)
        assert fitted.scores_[0][[0, -1]] == pytest.approx([-end, end])


def test_close_to_scikit_learn_within_the_quantiles() -> None:
    rng = np.random.default_rng(0)
    x = rng.exponential(size=(6000, 1))
    theirs = QuantileTransformer(
        n_quantiles=200, output_distribution="normal", subsample=10**9
    ).fit(x)
    inner = np.quantile(x, np.linspace(0.02, 0.98, 500))[:, None]
    ours = transform_numbers(fit_numbers(x), inner)
    np.testing.assert_allclose(ours, theirs.transform(inner), atol=0.01)


def test_huge_numbers_do_not_collapse() -> None:
    x = 2.0**40 + np.arange(300.0)[:, None]
    scores = transform_numbers(fit_numbers(x), x)[:, 0]
    assert len(np.unique(scores)) > 250


def test_missing_numbers() -> None:
    x = np.array([[1.0, 5], [2, np.nan], [3, 7], [4, 8], [np.nan, 9]] * 10)[:, ::-1]
    x[:, 1] = np.arange(50) % 7
    fitted = fit_numbers(x)
    assert fitted.indicators_ == [0]
    assert fitted.cardinalities_ == [1]
    text = np.empty((2, 0), dtype=object)
    scores, codes = fitted.transform(np.array([[np.nan, 1], [6.0, np.nan]]), text)
    median = transform_numbers(fitted, np.array([[fitted.medians_[0], 1]]))
    assert scores[0, 0] == median[0, 0]
    assert codes.tolist() == [[0], [1]]  # 0: missing; 1, the cardinality: zeros


def test_constant_columns_give_no_feature() -> None:
    x = np.column_stack([np.arange(50.0), np.full(50, 3.0), np.full(50, np.nan)])
    fitted = fit_numbers(x)
    assert [feature.column for feature in fitted.features_] == [0]
    assert fitted.indicators_ == [2]


def test_categories() -> None:
    x_cat = np.array([["a", "x"], ["b", ""], ["a", "x"]], dtype=object)
    fitted = Preprocessor().fit(
        np.empty((3, 0)), x_cat, np.array([0, 1, 0]), task="binary"
    )
    assert fitted.categories_ == [["a", "b"], ["", "x"]]
    new = np.array([["b", ""], ["c", "y"], ["", "x"]], dtype=object)
    _, codes = fitted.transform(np.empty((3, 0)), new)
    # Unseen, and missing where train had none, are the cardinality: all zeros.
    assert codes.tolist() == [[1, 0], [2, 2], [2, 1]]


def test_moments_give_waves() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3e8, size=(500, 1))
    fitted = fit_numbers(x, datetime=[0])
    assert [feature.wave for feature in fitted.features_] == [
        None,
        *[(wave, p) for p in PERIODS.values() for wave in ("sin", "cos")],
    ]
    day = PERIODS["day"]
    quarter = fitted.features_[1].of(np.array([[day / 4], [day * 10 + day / 4]]))
    np.testing.assert_allclose(quarter, 1.0)
    # Dates without a time of day: the waves of the day do not move.
    dates = rng.integers(0, 3000, size=(500, 1)) * day
    waves = [feature.wave for feature in fit_numbers(dates, datetime=[0]).features_]
    assert ("sin", day) not in waves and ("sin", 7 * day) in waves


def test_target_is_standardised() -> None:
    y = np.array([1.0, 3.0, 8.0])
    text = np.empty((3, 0), dtype=object)
    fitted = Preprocessor().fit(np.arange(3.0)[:, None], text, y, task="regression")
    scaled = fitted.scale_target(y, "regression")
    assert scaled.dtype == np.float32
    np.testing.assert_allclose([scaled.mean(), scaled.std()], [0, 1], atol=1e-6)


def test_state_is_plain_json() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    x[::7, 1] = np.nan
    x_cat = rng.choice(["a", "b", ""], size=(100, 1)).astype(object)
    fitted = Preprocessor(seed=3).fit(
        x, x_cat, x[:, 0], task="regression", datetime=[0]
    )
    again = Preprocessor.from_dict(json.loads(json.dumps(fitted.to_dict())))
    for ours, theirs in zip(
        fitted.transform(x, x_cat), again.transform(x, x_cat), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert again.cardinalities_ == fitted.cardinalities_


def test_rows_that_are_told_are_as_a_table_of_those_rows_alone() -> None:
    rng = np.random.default_rng(0)
    x_num = rng.normal(size=(60, 3))
    x_num[5, 1] = np.nan
    x_cat = rng.choice(np.array(["a", "b", "c"], dtype=object), size=(60, 2))
    y = rng.normal(size=60)
    rows = rng.permutation(60)[:40]
    fitted = Preprocessor().fit(x_num, x_cat, y, task="regression", rows=rows)
    alone = Preprocessor().fit(x_num[rows], x_cat[rows], y[rows], task="regression")
    assert fitted.to_dict() == alone.to_dict()
    others = np.setdiff1d(np.arange(60), rows)
    for found, expected in zip(
        fitted.transform(x_num, x_cat, rows=others),
        alone.transform(x_num[others], x_cat[others]),
        strict=True,
    ):
        assert np.array_equal(found, expected)


def test_rare_categories_share_a_level() -> None:
    texts = ["a"] * 5 + ["b"] * 3 + ["c", "d", ""]
    x_cat = np.array([texts, ["x"] * 11], dtype=object).T
    fitted = Preprocessor().fit(
        np.empty((11, 0)), x_cat, np.arange(11) % 2, task="binary", min_frequency=3
    )
    # What is missing is told apart, however rare.
    assert fitted.categories_ == [["", "a", "b"], ["x"]]
    assert fitted.n_rare_ == [2, 0]
    assert fitted.cardinalities_ == [4, 1]
    new = np.array([["b", "x"], ["c", "y"], ["never", "x"], ["", "x"]], dtype=object)
    for each in (fitted, Preprocessor.from_dict(fitted.to_dict())):
        codes = each.transform(np.empty((4, 0)), new)[1]
        # In a column without rare ones, what is unseen is none of the levels.
        assert codes.tolist() == [[2, 0], [3, 1], [3, 0], [0, 0]]


def test_a_state_from_before_rare_categories_is_read() -> None:
    x_cat = np.array([["a"], ["b"], ["a"]], dtype=object)
    fitted = Preprocessor().fit(
        np.empty((3, 0)), x_cat, np.array([0, 1, 0]), task="binary"
    )
    state = fitted.to_dict()
    del state["n_rare"]
    assert Preprocessor.from_dict(state).cardinalities_ == [2]


@pytest.mark.parametrize(
    ("n_rows", "least"), [(1, 1), (399, 1), (400, 2), (10_000, 10), (10**6, 100)]
)
def test_the_least_frequency_goes_by_the_rows(n_rows: int, least: int) -> None:
    assert default_min_frequency(n_rows) == least


def test_categories_are_counted_and_told() -> None:
    rng = np.random.default_rng(0)
    names = [f"name {i}" for i in rng.integers(0, 300, 1000)]
    table: dict[str, Any] = {
        "name": names,
        "color": [*"rgb "] * 250,
        "y": rng.normal(size=1000).tolist(),
    }
    schema = infer_schema(table, target="y")
    assert schema.min_frequency == 3
    counts = Counter(names)
    n_rare = sum(n < 3 for n in counts.values())
    levels = count_levels(table, schema)
    assert levels == {
        "name": Levels(len(counts) - n_rare, n_rare),
        "color": Levels(4, 0),
    }
    assert levels["name"].width == len(counts) - n_rare + 1
    (warning,) = describe_rare(levels, schema)
    assert f"'name': {n_rare} categories are each in fewer than 3 rows" in warning
    exact = infer_schema(table, target="y", min_frequency=1)
    assert count_levels(table, exact)["name"] == Levels(len(counts), 0)
    arrow = {name: pa.chunked_array([values]) for name, values in table.items()}
    assert count_levels(arrow, schema) == levels
