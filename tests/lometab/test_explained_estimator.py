"""What an estimator's report tells, against scikit-learn's own inspection."""

import json
from typing import Any

import numpy as np
import pytest
from sklearn.inspection import partial_dependence, permutation_importance

from lometab import LoMETabClassifier, LoMETabRegressor
from lometab.explain import Rows, measure_effects, measure_importance
from tests.support.statements import check_statements

SETTINGS: dict[str, Any] = {
    **{"k": 3, "rank": 2, "n_blocks": 1, "d_block": 16, "n_bins": 6},
    **{"d_embedding": 4, "max_epochs": 8, "batch_size": 32, "random_state": 0},
}


def make_data(n: int = 240) -> tuple[Any, Any]:
    """Only the first two columns matter, and the first most."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, 2 * X[:, 0] + X[:, 1]


@pytest.fixture(scope="module")
def regressor() -> LoMETabRegressor:
    return LoMETabRegressor(**SETTINGS).fit(*make_data())


def make_rows(X: Any) -> Rows:
    names = [f"x{i}" for i in range(X.shape[1])]
    return Rows(names, [], X, np.empty((len(X), 0), dtype=object))


def test_importance_is_that_of_scikit_learn(regressor: LoMETabRegressor) -> None:
    X, y = make_data()
    expected = permutation_importance(
        regressor,
        X,
        y,
        scoring="neg_root_mean_squared_error",
        n_repeats=5,
        random_state=0,
    )
    found = measure_importance(
        regressor._run, make_rows(X), y, regressor._run(X, make_rows(X).x_cat)
    )
    by_name = {each.column: each for each in found.columns}
    for i in range(4):
        each = by_name[f"x{i}"]
        assert each.mean == pytest.approx(expected.importances_mean[i], rel=1e-5)
        assert each.std == pytest.approx(expected.importances_std[i], rel=1e-4)
    order = [each.column for each in found.columns]
    assert order[:2] == ["x0", "x1"]


def test_effects_are_those_of_scikit_learn(regressor: LoMETabRegressor) -> None:
    pytest.importorskip("sklearn", "1.7", reason="it takes no grid of ours yet")
    X, _ = make_data()
    effects = measure_effects(regressor._run, make_rows(X), ["x0"], None)
    (effect,) = effects.columns
    expected = partial_dependence(
        regressor,
        X,
        [0],
        custom_values={0: np.array(effect.grid)},
        method="brute",
        kind="both",
    )
    assert effect.outputs[0].mean == pytest.approx(expected["average"][0], rel=1e-4)
    assert effect.outputs[0].ice[7] == pytest.approx(
        expected["individual"][0][7], rel=1e-4
    )


def test_groups_of_columns_can_be_asked_for(regressor: LoMETabRegressor) -> None:
    X, y = make_data()
    names = [each["column"] for each in importance_of(regressor, X, y)["columns"]]
    wanted = [sorted(names)[:2]]
    found = importance_of(regressor, X, y, groups=wanted)["groups"]
    assert [each["columns"] for each in found] == wanted


def importance_of(regressor: LoMETabRegressor, X: Any, y: Any, **options: Any) -> Any:
    return regressor.report(X, y, **options)["report"]["importance"]


@pytest.mark.slow
def test_a_notebook_shows_the_report(regressor: LoMETabRegressor) -> None:
    X, y = make_data()
    reports = regressor.report(X, y)
    check_statements(reports)
    assert json.loads(json.dumps(reports, allow_nan=False)) == reports
    text = reports._repr_html_()
    assert reports["report"]["summary"][0]["text"] in text
    assert text.count("<img ") >= 8 and "<script" not in text


def test_naive_guesses_are_kept_with_the_estimator(tmp_path: Any) -> None:
    X, y = make_data()
    labels = np.where(y > 0, "up", "down")
    model = LoMETabClassifier(**{**SETTINGS, "max_epochs": 2}).fit(X, labels)
    model.save(tmp_path)
    again = LoMETabClassifier.load(tmp_path)
    report = model.report(X, labels)["report"]
    assert again.report(X, labels)["report"]["naive"] == report["naive"]
    assert report["naive"][1]["column"] == "x0"
    del again.naive_  # as in a folder from before
    before = again.report(X, labels)["report"]
    assert before["importance"] is None and before["naive"] == []
    assert before["summary"]
