"""The estimators: scikit-learn's rules, every kind of input, files, bad input."""

import doctest
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import datetime
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import lometab.estimator
from lometab import LoMETabClassifier, LoMETabRegressor
from lometab.config import PRESETS, TrainConfig
from lometab.ensemble import train_ensemble
from lometab.errors import ConfigError, DataError, LoMETabError, ModelFileError
from lometab.evaluation import metrics
from lometab.holdout import hold_out
from lometab.predictor import Predictor
from lometab.table import features, infer_schema

TINY: dict[str, Any] = {
    "k": 2,
    "rank": 1,
    "n_blocks": 1,
    "d_block": 16,
    "n_bins": 8,
    "d_embedding": 4,
    "dropout": 0.0,
    "lr": 0.02,
    "batch_size": 32,
    "max_epochs": 12,
    "share_batches": True,
    "random_state": 0,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def classifier(**options: Any) -> LoMETabClassifier:
    return LoMETabClassifier(**{**TINY, **options})


def regressor(**options: Any) -> LoMETabRegressor:
    return LoMETabRegressor(**{**TINY, **options})


def numbers(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three columns and a number that two of them make up."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, 3 * X[:, 0] + np.where(X[:, 1] > 0, 2.0, -2.0) + 50


def labels(n: int = 120, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    X, y = numbers(n)
    edges = np.quantile(y, np.arange(1, n_classes) / n_classes)
    return X, np.array(["low", "middle", "top"])[np.digitize(y, edges)]


def mixed(n: int = 90, seed: int = 0) -> dict[str, list[Any]]:
    """Columns of all kinds, as Python has them, with gaps."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    day = rng.integers(0, 700, size=n)
    return {
        "size": [None if i % 9 == 0 else float(v) for i, v in enumerate(size)],
        "colour": [[None, "red", "blue"][v] for v in rng.integers(0, 3, size=n)],
        "is_new": [bool(v) for v in rng.integers(0, 2, size=n)],
        "rooms": [int(v) for v in rng.integers(1, 6, size=n)],
        "sold_at": [datetime.fromtimestamp(86400 * int(d)) for d in day],
    }


KINDS = {
    "size": "numeric",
    "colour": "categorical",
    "is_new": "categorical",
    "rooms": "numeric",
    "sold_at": "datetime",
}


def kinds_of(estimator: Any) -> dict[str, str]:
    schema = estimator.ensemble_.schema
    kinds = dict.fromkeys(schema.numeric, "numeric")
    kinds |= dict.fromkeys(schema.categorical, "categorical")
    return kinds | dict.fromkeys(schema.datetime, "datetime")


# scikit-learn's own checks


def list_expected(estimator: Any) -> dict[str, str]:
    """Those that ask for what we do otherwise, and why."""
    return {
        "check_sample_weight_equivalence_on_dense_data": "rows are set aside by lot: "
        "a row that counts twice is not two rows",
        "check_dataframe_column_names_consistency": "columns may come in another order",
    }


CHECKS = [
    each
    for estimator in (classifier(), regressor())
    for each in estimator_checks_generator(
        estimator, expected_failed_checks=list_expected(estimator), mark="xfail"
    )
]


def name_check(value: Any) -> str:
    found = getattr(value, "func", type(value))  # a check is a partial function
    return str(found.__name__)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:classes with only one row")
@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=name_check)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_the_examples_in_the_docstrings() -> None:
    result = doctest.testmod(lometab.estimator)
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.processes
def test_the_package_gives_the_estimators_without_loading_torch_before() -> None:
    code = (
        "import sys, lometab; assert 'LoMETabClassifier' in dir(lometab);"
        "assert not {'torch', 'sklearn'} & {*sys.modules};"
        "lometab.LoMETabClassifier; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="LoMETabTransformer"):
        lometab.LoMETabTransformer  # noqa: B018


# Settings


@pytest.mark.parametrize("kind", [LoMETabClassifier, LoMETabRegressor])
def test_every_setting_is_a_parameter_that_defaults_to_the_preset(kind: Any) -> None:
    parameters = signature(kind).parameters
    for name in {field.name for field in fields(TrainConfig)} - {"seed"}:
        assert parameters[name].default is None
    assert kind(random_state=0)._config() == TrainConfig(seed=0)


def test_settings_go_over_the_preset() -> None:
    config = LoMETabClassifier(preset="fast", k=3, random_state=5)._config()
    assert (config.k, config.seed) == (3, 5)
    assert config.d_block == PRESETS["fast"]["d_block"]
    assert config.patience == PRESETS["fast"]["patience"]
    assert LoMETabClassifier(patience=math.inf)._config().patience is None


def test_random_state_decides_everything() -> None:
    X, y = numbers(60)
    one, same = (regressor(random_state=3).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    other = regressor(random_state=4).fit(X, y).predict(X)
    assert np.abs(one - other).max() > 1e-3


def test_without_a_random_state_numpys_own_decides() -> None:
    seeds = []
    for start in (0, 0, 1):
        np.random.seed(start)
        seeds.append(LoMETabRegressor()._config().seed)
    assert seeds[0] == seeds[1] != seeds[2]
    state = np.random.RandomState(0)
    assert LoMETabRegressor(random_state=state)._config().seed == seeds[0]


# Learning


def test_regression_learns_and_members_average_to_it() -> None:
    X, y = numbers()
    model = regressor(max_epochs=40).fit(X, y)
    assert model.score(X, y) > 0.9
    members = model.predict_members(X)
    assert members.shape == (120, 2)
    np.testing.assert_allclose(members.mean(axis=1), model.predict(X), rtol=1e-12)
    assert [p.epoch for p in model.history_] == [*range(1, len(model.history_) + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classification_learns_and_members_average_to_it(n_classes: int) -> None:
    X, y = labels(150, n_classes)
    model = classifier(max_epochs=40).fit(X, y)
    assert model.score(X, y) > 0.85
    assert [*model.classes_] == ["low", "middle", "top"][:n_classes]
    members, p = model.predict_members(X), model.predict_proba(X)
    assert members.shape == (150, 2, n_classes)
    np.testing.assert_allclose(members.mean(axis=1), p, rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


def test_it_is_the_service_s_way_to_a_model() -> None:
    columns = {name: np.array(v, dtype=object) for name, v in mixed().items()}
    X = np.stack([*columns.values()], axis=1)
    y = np.arange(90.0) % 7
    model = regressor(max_epochs=2).fit(X[:70], y[:70], X[70:], y[70:])
    table = {f"x{i}": cells for i, cells in enumerate(columns.values())}
    table["target"] = y
    schema = infer_schema(table, target="target", task="regression")
    parts: Any = {"train": np.arange(70), "val": np.arange(70, 90)}
    other = train_ensemble(table, schema, parts, model.ensemble_.config)
    assert model.ensemble_.schema == schema
    weights = other.fit.model.state_dict()
    for name, weight in model.ensemble_.fit.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def test_given_validation_rows_choose_the_epoch_and_are_not_learned_from() -> None:
    X, y = numbers(80)
    X_val, y_val = numbers(40, seed=1)
    model = regressor().fit(X, y, X_val, y_val)
    rmse = metrics.rmse(y_val, model.predict(X_val))
    assert model.ensemble_.fit.best_score == pytest.approx(rmse, rel=1e-5)
    assert model.ensemble_.preprocessor.y_mean_ == pytest.approx(y.mean())
    assert len(model.conformity_) == 40


def test_rows_set_aside_have_every_class() -> None:
    _, y = labels(100, 3)
    y[y == "top"] = "middle"
    y[[5, 50]] = "top"
    model = classifier()
    target = model._learn_target(y)
    parts = hold_out(target, 0.3, labels=model._labels, seed=0)
    assert len(parts["val"]) == 30
    rows = np.concatenate([parts["train"], parts["val"]])
    assert sorted(rows) == [*range(100)]
    assert {*target[parts["train"]]} == {*target[parts["val"]]} == {0, 1, 2}


def test_the_only_row_of_a_class_is_trained_on() -> None:
    _, y = labels(100)
    y[7] = "top"
    model = classifier(max_epochs=1)
    with pytest.warns(UserWarning, match=r"not validated: \['top'\]"):
        model.fit(numbers(100)[0], y)
    assert [*model.classes_] == ["low", "middle", "top"]
    target = model._learn_target(y)
    with pytest.warns(UserWarning, match="only one row"):
        parts = hold_out(target, 0.3, labels=model._labels, seed=0)
    assert 7 in parts["train"] and len(parts["val"]) == 30
    assert sorted(np.concatenate([*parts.values()])) == [*range(100)]


def test_rows_beside_a_row_do_not_change_its_answer() -> None:
    X, y = numbers(60)
    model = regressor(max_epochs=2).fit(X, y)
    alone = np.concatenate([model.predict(row[None]) for row in X])
    np.testing.assert_allclose(alone, model.predict(X), rtol=1e-12)


def test_many_rows_are_answered_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = labels()
    model = classifier(max_epochs=2).fit(X, y)
    whole = model.predict_proba(X)
    monkeypatch.setattr("lometab.estimator._MAX_ROWS", 7)
    np.testing.assert_allclose(model.predict_proba(X), whole, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "y",
    [
        np.array([True, False] * 20),
        np.array([-1.0, 1.0] * 20),
        np.array([10, 9] * 20),
        np.array(["none", "-"] * 20, dtype=object),  # as cells these mean missing
        np.array(["3", "3.0"] * 20),  # and these would be one
    ],
)
def test_labels_of_any_kind_come_back_as_they_were(y: np.ndarray) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[:, 0] += 8 * (y == y[0])
    model = classifier(max_epochs=30).fit(X, y, X, y)
    np.testing.assert_array_equal(model.predict(X), y)
    assert model.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(model.classes_, np.unique(y))


# Inputs


def test_arrays_of_objects_hold_anything() -> None:
    X = np.array([*map(list, zip(*mixed().values(), strict=True))], dtype=object)
    y = np.arange(90.0) % 7
    model = regressor(max_epochs=2).fit(X, y)
    kinds = {"x0": "numeric", "x1": "categorical", "x3": "numeric", "x4": "datetime"}
    assert kinds_of(model).items() >= kinds.items()
    assert np.isfinite(model.predict(X)).all()
    rows = X[:3].copy()
    rows[:, 1] = ["green", None, " red "]  # unseen, missing, and the same with blanks
    again = X[:3].copy()
    again[:, 1] = ["pink", "NA", "red"]
    np.testing.assert_array_equal(model.predict(rows), model.predict(again))


def test_lists_of_rows_will_do() -> None:
    X = [[0.5 * i, "ab"[i % 2], None if i % 5 else 1.0] for i in range(30)]
    model = regressor(max_epochs=2).fit(X, [*range(30)])
    assert model.ensemble_.schema.categorical == ("x1",)
    assert model.predict(X).shape == (30,)


def test_numbers_stay_numbers_whatever_they_look_like() -> None:
    X = np.arange(60)[:, None]  # in a CSV this would be a row number
    model = regressor(max_epochs=2).fit(X, np.sin(X[:, 0]))
    assert model.ensemble_.schema.numeric == ("x0",)


def test_kinds_can_be_told_by_name_and_by_position() -> None:
    X = np.random.default_rng(0).integers(0, 4, size=(60, 3)).astype(float)
    X[5, 0] = np.nan
    y = X[:, 1] + X[:, 2]
    model = regressor(columns={"x0": "categorical", 1: "ignore"}, max_epochs=2)
    model.fit(X, y)
    schema = model.ensemble_.schema
    assert (schema.numeric, schema.categorical) == (("x2",), ("x0",))
    assert schema.ignored.keys() == {"x1"}
    assert model.ensemble_.preprocessor.categories_ == [["", "0", "1", "2", "3"]]


def test_text_that_is_left_out_is_warned_of() -> None:
    X, y = numbers(80)
    notes = np.array([f"note {i} of many" for i in range(80)], dtype=object)
    both = np.column_stack([X.astype(object), notes])
    with pytest.warns(UserWarning, match=r"column 'x3' is ignored: it looks like free"):
        model = regressor(max_epochs=1).fit(both, y)
    assert model.ensemble_.schema.ignored.keys() == {"x3"}
    model = regressor(max_epochs=1, columns={"x3": "ignore"}).fit(both, y)
    assert model.n_features_in_ == 4


def pandas_frame(columns: dict[str, list[Any]]) -> Any:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns)
    frame["colour"] = frame["colour"].astype("category")
    return frame


def nullable_frame(columns: dict[str, list[Any]]) -> Any:
    return pandas_frame(columns).convert_dtypes()


def polars_frame(columns: dict[str, list[Any]]) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame(columns)


def arrow_table(columns: dict[str, list[Any]]) -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table(columns)


FRAMES = [pandas_frame, nullable_frame, polars_frame, arrow_table]


@pytest.mark.parametrize("make", FRAMES)
def test_frames_give_names_and_kinds(make: Any) -> None:
    frame = make(mixed())
    y = np.arange(90) % 2
    model = classifier(max_epochs=2).fit(frame, y)
    assert [*model.feature_names_in_] == [*KINDS]
    assert kinds_of(model) == KINDS
    levels = model.ensemble_.preprocessor.categories_
    assert levels == [["", "blue", "red"], ["false", "true"]]
    rows = np.array([*map(list, zip(*mixed().values(), strict=True))], dtype=object)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        from_rows = model.predict_proba(rows)
    np.testing.assert_allclose(model.predict_proba(frame), from_rows, rtol=1e-9)


@pytest.mark.parametrize("make", FRAMES)
def test_a_renamed_column_is_met_with_the_nearest_name(make: Any) -> None:
    columns = mixed()
    model = classifier(max_epochs=1).fit(make(columns), np.arange(90) % 2)
    columns["Rooms "] = columns.pop("rooms")
    with pytest.raises(DataError, match=r"'Rooms ' is unknown \(did you mean 'rooms'"):
        model.predict(make(columns))
    del columns["Rooms "]
    with pytest.raises(DataError, match=r"now missing:\n- rooms"):
        model.predict_proba(make(columns))


def test_a_target_keeps_its_name_and_its_gaps_are_told() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = labels()
    model = classifier(max_epochs=1).fit(X, pandas.Series(y, name="grade"))
    assert model.ensemble_.schema.target == "grade"
    y = pandas.Series(y, dtype="string")
    y[[7, 11]] = pandas.NA
    with pytest.raises(DataError, match=r"y is missing in 2 rows, .* row 8"):
        classifier().fit(X, y)


# scikit-learn's tools


def test_cross_validation_search_and_pipelines() -> None:
    X, y = labels(90, 3)
    scores = cross_val_score(classifier(max_epochs=20), X, y, cv=3)
    assert scores.mean() > 0.6
    search = GridSearchCV(
        regressor(max_epochs=2), {"k": [1, 3], "preset": ["fast"]}, cv=2
    )
    search.fit(*numbers(60))
    assert search.best_estimator_.predict_members(X).shape[1] in (1, 3)
    scaled = make_column_transformer((StandardScaler(), [0, 1]), remainder="drop")
    model = make_pipeline(scaled, classifier(max_epochs=2)).fit(X, y)
    assert model.predict_proba(X).shape == (90, 3)
    assert clone(classifier(columns={"x0": "ignore"})).columns == {"x0": "ignore"}


@pytest.mark.parametrize(
    ("n_jobs", "seconds_per_epoch", "expected"),
    [
        (None, None, 1),  # a small table
        (None, 0.6, 2),
        (None, 60.0, 3),
        (2, None, 2),
        (-1, None, 3),
        (-2, None, 2),
        (-9, None, 1),
    ],
)
def test_threads_are_as_many_as_help_or_as_are_asked_for(
    n_jobs: int | None,
    seconds_per_epoch: float | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)  # of the machine, not ours
    monkeypatch.setattr(lometab.estimator, "count_cpus", lambda: 3)
    if seconds_per_epoch is not None:
        monkeypatch.setattr(
            lometab.estimator, "guess_epoch", lambda *_: seconds_per_epoch
        )
    torch.set_num_threads(4)
    used: list[int] = []

    def on_epoch(_: Any) -> bool:
        used.append(torch.get_num_threads())
        return True

    regressor(n_jobs=n_jobs).fit(*numbers(), on_epoch=on_epoch)
    assert used == [expected]
    assert torch.get_num_threads() == 4  # as it was


def test_progress_is_shown_when_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    X, y = numbers(40)
    regressor(max_epochs=2).fit(X, y)
    assert capfd.readouterr() == ("", "")
    regressor(max_epochs=2, verbose=1).fit(X, y)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "2/2" in shown.err and "best" in shown.err


# Reports


def test_report_on_classes() -> None:
    X, y = labels(150, 3)
    model = classifier(max_epochs=5).fit(X, y)
    reports = model.report(X, y)
    assert json.loads(json.dumps(reports)) == reports
    assert reports.keys() == {"diversity", "calibration", "report"}
    kl = metrics.mean_over_pairs(metrics.pairwise_kl(model.predict_members(X)))
    assert reports["diversity"]["pairwise_kl"]["mean"] == pytest.approx(kl)
    assert len(reports["diversity"]["trajectory"]) == len(model.history_)
    scores = reports["report"]["scores"]["test"]
    assert scores["ensemble"]["accuracy"] == pytest.approx(model.score(X, y))
    assert len(scores["members"]["accuracy"]) == 2
    assert 0 <= reports["calibration"]["ece"] <= 1
    assert reports["report"]["training"]["epochs"] == len(model.history_)
    assert reports["report"]["n_parameters"] == model.ensemble_.fit.model.n_parameters
    assert reports["report"]["confusion"]["classes"] == ["low", "middle", "top"]
    assert reports["calibration"]["temperature"] == model.temperature_


def test_report_on_numbers() -> None:
    X, y = numbers()
    model = regressor(max_epochs=5).fit(X, y)
    reports = model.report(X, y)
    assert json.loads(json.dumps(reports)) == reports
    spread = model.predict_members(X).var(axis=1).mean()
    assert reports["diversity"]["ambiguity"]["mean"] == pytest.approx(spread)
    assert reports["report"]["scores"]["test"]["ensemble"]["r2"] == pytest.approx(
        model.score(X, y)
    )
    intervals = reports["calibration"]["conformal_intervals"]
    assert [each["coverage"] for each in intervals][:3] == [0.5, 0.8, 0.9]


# Files


@pytest.mark.slow
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_saved_estimator_answers_as_before(task: str, tmp_path: Path) -> None:
    X = np.array([*map(list, zip(*mixed().values(), strict=True))], dtype=object)
    if task == "regression":
        y: Any = np.arange(90.0) % 7
        model: Any = regressor(max_epochs=2, columns={3: "ignore"})
    else:
        y = np.array([3, 1, 2])[np.arange(90) % (2 if task == "binary" else 3)]
        state = np.random.RandomState(0)
        model = classifier(max_epochs=2, patience=math.inf, random_state=state)
    model.fit(X, y).save(tmp_path / "model")
    files = {file.name for file in (tmp_path / "model").iterdir()}
    assert files == {"model.safetensors", "estimator.json"}
    before = torch.get_rng_state()
    loaded = type(model).load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(loaded.predict_members(X), model.predict_members(X))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.report(X, y) == model.report(X, y)
    assert loaded.ensemble_.schema == model.ensemble_.schema
    assert loaded.columns == model.columns
    loaded.fit(X, y)  # and it can be trained anew


def test_several_networks_are_one_ensemble(tmp_path: Path) -> None:
    X, y = numbers()
    model = regressor(max_epochs=2, n_seeds=3, random_state=5).fit(X, y)
    k = model.ensemble_.fit.k
    assert model.predict_members(X).shape == (len(X), 3 * k)
    assert [fit.model.config.seed for fit in model.ensemble_.fits] == [5, 6, 7]
    # The split is that of the first seed, so it alone can be trained by itself here.
    alone = regressor(max_epochs=2, random_state=5).fit(X, y)
    np.testing.assert_array_equal(
        model.predict_members(X)[:, :k], alone.predict_members(X)
    )
    assert not np.allclose(
        model.predict_members(X)[:, k : 2 * k], alone.predict_members(X)
    )
    model.save(tmp_path / "model")
    loaded = LoMETabRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_members(X), model.predict_members(X))
    assert loaded.report(X, y) == model.report(X, y)
    assert len(loaded.ensemble_.others) == 2
    model.export_onnx(tmp_path / "model.onnx")
    answers = Predictor(tmp_path / "model.onnx").predict(
        {f"x{i}": X[:, i].tolist() for i in range(3)}
    )
    np.testing.assert_allclose(answers.members, model.predict_members(X), rtol=1e-4)


def test_no_network_begins_after_a_stop() -> None:
    model = regressor(max_epochs=3, n_seeds=3).fit(*numbers(), on_epoch=lambda _: True)
    assert len(model.ensemble_.fits) == 1

    n_epochs = itertools.count(1)
    model = regressor(max_epochs=3, n_seeds=3)
    model.fit(*numbers(), on_epoch=lambda _: next(n_epochs) == 4)
    assert len(model.ensemble_.fits) == 1  # the second was cut off


def test_several_networks_are_trained_again_on_all_rows() -> None:
    model = regressor(max_epochs=3, n_seeds=2, refit=True).fit(*numbers())
    once = regressor(max_epochs=3, n_seeds=2).fit(*numbers())
    assert [len(fit.history) for fit in model.ensemble_.fits] == [
        fit.best_epoch for fit in once.ensemble_.fits
    ]


def test_the_preset_best_has_several_networks() -> None:
    X, y = numbers()
    small = {"k": 2, "d_block": 8, "n_bins": 4, "d_embedding": 2, "max_epochs": 1}
    best = LoMETabRegressor(preset="best", random_state=0, **small).fit(X, y)
    assert len(best.ensemble_.fits) == 4
    two = LoMETabRegressor(preset="best", n_seeds=2, random_state=0, **small).fit(X, y)
    assert len(two.ensemble_.fits) == 2


@pytest.mark.parametrize("n_seeds", [0, 17, 1.5])
def test_a_number_of_networks_that_cannot_be(n_seeds: Any) -> None:
    with pytest.raises(ConfigError, match="n_seeds must be a whole number"):
        regressor(n_seeds=n_seeds).fit(*numbers())


def test_names_are_saved(tmp_path: Path) -> None:
    model = classifier(max_epochs=1).fit(pandas_frame(mixed()), np.arange(90) % 2)
    model.save(tmp_path)
    loaded = LoMETabClassifier.load(tmp_path)
    assert [*loaded.feature_names_in_] == [*model.feature_names_in_]
    with pytest.raises(DataError, match="feature names should match"):
        loaded.predict(pandas_frame(mixed())[["colour", "size"]])


def test_what_is_no_saved_estimator_is_refused(tmp_path: Path) -> None:
    X, y = numbers(30)
    regressor(max_epochs=1).fit(X, y).save(tmp_path)
    with pytest.raises(ModelFileError, match="it holds a LoMETabRegressor"):
        LoMETabClassifier.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not this")
    with pytest.raises(ModelFileError, match="no LoMETabRegressor that can be loaded"):
        LoMETabRegressor.load(tmp_path)
    (tmp_path / "estimator.json").write_text("{}")
    with pytest.raises(ModelFileError):
        LoMETabRegressor.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        LoMETabRegressor.load(tmp_path / "nowhere")


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_the_exported_file_answers_as_the_estimator(kind: str, tmp_path: Path) -> None:
    columns = {name: np.array(v, dtype=object) for name, v in mixed().items()}
    X = np.stack([*columns.values()], axis=1)
    if kind == "classes":
        y: Any = np.array(["b", "a", "c"])[np.arange(90) % 3]
        model: Any = classifier(max_epochs=2).fit(X, y)
    else:
        model = regressor(max_epochs=2).fit(X, np.arange(90.0) % 7)
    model.export_onnx(tmp_path / "model.onnx")
    predictor = Predictor(tmp_path / "model.onnx")
    rows = [{f"x{i}": cell for i, cell in enumerate(row)} for row in X]
    answers = predictor.predict(rows, coverage=0.8)
    np.testing.assert_allclose(answers.members, model.predict_members(X), atol=1e-4)
    if kind == "classes":
        assert answers.label == [*model.predict(X)]
        assert answers.set is not None
        tempered = metrics.temper(model.predict_proba(X), model.temperature_)
        calibrated = predictor.predict(rows, calibrated=True).mean
        np.testing.assert_allclose(calibrated, tempered, atol=1e-4)
    else:
        assert answers.interval is not None
        answers = predictor.predict(rows, coverage=0.8, conformal="constant")
        assert answers.interval is not None
        width = answers.interval[:, 1] - answers.interval[:, 0]
        quantile = metrics.conformal_quantile(model.conformity_, 0.2)
        np.testing.assert_allclose(width, 2 * quantile, rtol=1e-5)


# Bad input: errors of ours, ValueErrors too, each a sentence to act on


def with_cell(X: np.ndarray, value: object) -> np.ndarray:
    X = X.astype(object) if isinstance(value, str) else X.copy()
    X[4, 1] = value
    return X


def with_label(y: np.ndarray, value: object) -> np.ndarray:
    y = y.astype(object)
    y[4] = value
    return y


X, GRADES = labels()
Y = numbers()[1]

BAD_FITS: dict[str, tuple[Any, str]] = {
    "one class": (
        lambda: classifier().fit(X, np.full(120, "a")),
        "y has only one class, 'a'; .*two or more classes",
    ),
    "one number": (
        lambda: regressor().fit(X, np.full(120, 2.5)),
        r"the target is 2\.5 in every training row; there is nothing to learn",
    ),
    "huge numbers": (
        lambda: regressor().fit(X, 1e300 * Y),
        "the target goes from .* to .*e.301, which floating point cannot",
    ),
    "class with one row": (
        lambda: classifier().fit(X, with_label(np.full(120, "many"), "rare")),
        "the class 'rare' has only one row.*add rows of it",
    ),
    "class only in validation": (
        lambda: classifier().fit(X, GRADES, X, with_label(GRADES, "new")),
        r"y_val holds 'new', which is none of the classes \['low', 'middle'\]",
    ),
    "no column that varies": (
        lambda: regressor().fit(np.ones((120, 2)), Y),
        "no column is left to learn from: every one is the same",
    ),
    "all columns ignored": (
        lambda: regressor(columns={0: "ignore", 1: "ignore", 2: "ignore"}).fit(X, Y),
        "no column is left to learn from besides the target",
    ),
    "few rows": (
        lambda: regressor().fit(X[:3], Y[:3]),
        "at least 4 rows are needed to train and to validate, .*n_samples=3",
    ),
    "few rows for the classes": (
        lambda: classifier().fit(X[:4], np.array([*"aabb"])),
        "at least 5 rows are needed",
    ),
    "few rows beside given validation": (
        lambda: regressor().fit(X[:2], Y[:2], X, Y),
        "at least 3 rows are needed to train",
    ),
    "an infinite number": (
        lambda: regressor().fit(with_cell(X, np.inf), Y),
        "column 'x1' holds an infinite number in row 5; replace it",
    ),
    "an infinite target": (
        lambda: regressor().fit(X, np.where(Y > Y.mean(), np.inf, Y)),
        "y contains infinity",
    ),
    "a missing target": (
        lambda: classifier().fit(X, with_label(GRADES, None)),
        "y is missing in 1 rows, the first of them row 5; fill or remove",
    ),
    "a text as a number": (
        lambda: regressor().fit(X, with_label(Y, "n/a")),
        "could not convert string to float: 'n/a'",
    ),
    "continuous classes": (lambda: classifier().fit(X, Y), "Unknown label type"),
    "mixed labels": (
        lambda: classifier().fit(X, with_label(GRADES, 3)),
        r"labels in y must be all of one kind, however: \['int', 'str'\]",
    ),
    "rows that do not match": (
        lambda: regressor().fit(X, Y[:-1]),
        "X and y must have as many rows, however: X has 120 and y 119",
    ),
    "half a validation part": (
        lambda: regressor().fit(X, Y, X_val=X),
        "X_val and y_val must be given together",
    ),
    "an unknown column": (
        lambda: regressor(columns={"x11": "numeric"}).fit(X, Y),
        "no column 'x11' .did you mean 'x1'",
    ),
    "too few columns": (
        lambda: regressor(max_epochs=1).fit(X, Y).predict(X[:, :2]),
        "X has 2 features, but LoMETabRegressor is expecting 3",
    ),
    "a text in a column of numbers": (
        lambda: regressor(max_epochs=1).fit(X, Y).predict(with_cell(X, "many")),
        "column 'x1' must hold a number in every row, however row 5 holds 'many'",
    ),
    "one dimension": (lambda: regressor().fit(X[:, 0], Y), "Reshape your data"),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_bad_data_is_told_what_to_do(case: str) -> None:
    act, sentence = BAD_FITS[case]
    with pytest.raises(DataError, match=sentence) as caught:
        act()
    assert isinstance(caught.value, LoMETabError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0}, "k must be at least 1 and at most 256, however: 0"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"preset": "huge"}, "preset must be one of"),
        ({"validation_fraction": 1.0}, "validation_fraction must be between 0 and 1"),
        ({"validation_fraction": None}, "validation_fraction must be between"),
        ({"columns": {"x0": "number"}}, "columns must give one of .*'number'"),
        ({"device": "tpu"}, "device must be auto, cpu or cuda, however: device='tpu'"),
    ],
)
def test_bad_settings_are_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        regressor(**options).fit(X, Y)


def test_a_gpu_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="needs a GPU, and torch finds none"):
        regressor(device="cuda").fit(X, Y)


def test_nothing_works_before_fit(tmp_path: Path) -> None:
    for act in (
        lambda: classifier().predict(X),
        lambda: classifier().report(X, GRADES),
        lambda: regressor().save(tmp_path),
        lambda: regressor().export_onnx(tmp_path / "model.onnx"),
    ):
        with pytest.raises(NotFittedError):
            act()


def test_reports_refuse_labels_that_are_no_classes() -> None:
    model = classifier(max_epochs=1).fit(X, GRADES)
    with pytest.raises(DataError, match="y holds 'other', which is none of"):
        model.report(X, with_label(GRADES, "other"))
    with pytest.raises(DataError, match="X and y must have as many rows"):
        model.report(X[:5], GRADES)


def test_the_example_rows_of_an_export_are_like_training_rows() -> None:
    from lometab.parity import example_rows

    model = regressor(max_epochs=1).fit(X, Y)
    x_num, x_cat = example_rows(model.ensemble_)
    seen, _ = features({f"x{i}": X[:, i] for i in range(3)}, model.ensemble_.schema)
    assert x_num.shape == (1000, 3) and x_cat.shape == (1000, 0)
    assert (np.abs(x_num) <= np.abs(seen).max(axis=0) * 1.01).all()


# The service's decisions


def make_frame(n_rows: int = 120) -> Any:
    rng = np.random.default_rng(0)
    size = rng.normal(size=n_rows)
    return pd.DataFrame(
        {
            "row": np.arange(n_rows),
            "customer_id": rng.permutation(10**6)[:n_rows],
            "same": 3,
            "never": [None] * n_rows,
            "size": size,
            "again": size,
            "colour": rng.choice(["red", "blue"], n_rows),
            "ok": rng.random(n_rows) < 0.5,
            "day": pd.date_range("2024-01-01", periods=n_rows).strftime("%d.%m.%Y"),
            "price": [f"{x:,.2f} €" for x in 1000 * np.abs(size) + 1],
            "remark": [f"text {i} of {x:.3f}" for i, x in enumerate(size)],
        }
    )


def test_a_frame_is_read_as_a_file_is() -> None:
    frame = make_frame()
    y = frame["size"].to_numpy() + 1
    with pytest.warns(UserWarning) as told:
        model = regressor(max_epochs=1).fit(frame, y)
    (warning,) = told  # once
    schema = model.ensemble_.schema
    assert schema.numeric == ("size", "day", "price")
    assert schema.categorical == ("colour", "ok")
    assert schema.datetime == ("day",)
    assert schema.formats == {"day": "d/m/y", "price": "1,234.5 €"}
    ignored = {"row", "customer_id", "same", "never", "again", "remark"}
    assert schema.ignored.keys() == ignored
    for name in ignored:
        assert f"column {name!r} is ignored" in str(warning.message)
        assert any(repr(name) in each for each in model.warnings_)
    assert model.report(frame, y)["report"]["warnings"] == model.warnings_


def test_columns_overrule_the_decisions() -> None:
    frame = make_frame()[["row", "size", "same"]]
    columns = {"row": "numeric", "same": "ignore"}
    model = regressor(max_epochs=1, columns=columns).fit(frame, frame["size"])
    assert model.ensemble_.schema.numeric == ("row", "size")
    assert model.warnings_ == []


def test_an_array_of_numbers_is_used_whole() -> None:
    X = np.stack([np.arange(60.0), np.random.default_rng(0).normal(size=60)], axis=1)
    model = regressor(max_epochs=1).fit(X, X[:, 1])
    assert model.ensemble_.schema.numeric == ("x0", "x1")


def test_rare_categories_are_told_and_can_be_kept() -> None:
    names = [f"n{i % 450}" for i in range(900)]
    frame = pd.DataFrame({"name": names, "x": np.sin(np.arange(900))})
    with pytest.warns(UserWarning, match="450 categories are each in fewer than 3"):
        model = regressor(max_epochs=1).fit(frame, frame["x"])
    assert model.ensemble_.preprocessor.cardinalities_ == [1]
    exact = regressor(max_epochs=1, min_frequency=1).fit(frame, frame["x"])
    assert exact.ensemble_.preprocessor.cardinalities_[0] > 300
