"""What estimators answer beyond scikit-learn: as the exported file does."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lometab import LoMETabClassifier, LoMETabRegressor, Predictor
from lometab.errors import ConfigError, DataError
from lometab.losses import member_loss
from lometab.train import Progress

TINY: dict[str, Any] = {
    "preset": "fast",
    "k": 3,
    "rank": 2,
    "n_blocks": 1,
    "d_block": 16,
    "n_bins": 6,
    "d_embedding": 4,
    "max_epochs": 6,
    "batch_size": 32,
    "random_state": 0,
}
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(240, 3)), columns=list("abc"))
Y = X["a"] * 2 + RNG.normal(size=240) * 0.3
LABELS = np.where(X["a"] + RNG.normal(size=240) * 0.3 > 0.7, "yes", "no")


@pytest.fixture(scope="module")
def regressor() -> LoMETabRegressor:
    return LoMETabRegressor(**TINY).fit(X, Y)


@pytest.fixture(scope="module")
def classifier() -> LoMETabClassifier:
    return LoMETabClassifier(**TINY).fit(X, LABELS)


def test_numbers_come_with_intervals_and_members(
    regressor: LoMETabRegressor, tmp_path: Path
) -> None:
    mean, std, members = regressor.predict(X, return_std=True, return_members=True)
    assert members.shape == (240, 3)
    assert np.allclose(mean, regressor.predict(X))
    assert np.allclose(std, members.std(axis=1))
    narrow, wide = (regressor.predict_interval(X, c) for c in (0.5, 0.9))
    assert narrow.shape == (240, 2)
    assert (wide[:, 1] - wide[:, 0]).mean() > (narrow[:, 1] - narrow[:, 0]).mean()
    inside = (wide[:, 0] <= Y) & (wide[:, 1] >= Y)
    assert inside.mean() > 0.8
    regressor.export_onnx(tmp_path / "m.onnx")
    by_file = Predictor(tmp_path / "m.onnx").predict(X, coverage=0.5)
    assert np.allclose(by_file.interval, narrow, atol=1e-4)
    assert np.allclose(by_file.std, regressor.uncertainty(X)["member_std"], atol=1e-5)
    with pytest.raises(ConfigError):
        regressor.predict_interval(X, 0.955)


def test_uncertainty_tells_trust_and_novelty(
    regressor: LoMETabRegressor, classifier: LoMETabClassifier
) -> None:
    far = X.assign(a=99.0)
    for model in (regressor, classifier):
        usual, strange = model.uncertainty(X), model.uncertainty(far)
        assert usual["trust"].shape == usual["novelty"].shape == (240,)
        assert 0 <= usual["trust"].min() < usual["trust"].max() <= 1
        assert usual["novelty"].mean() == pytest.approx(0.5, abs=0.1)
        assert strange["novelty"].min() == 1


def test_classes_come_with_sets(classifier: LoMETabClassifier) -> None:
    sets = classifier.predict_set(X, 0.95)
    assert (
        np.mean([label in each for label, each in zip(LABELS, sets, strict=True)]) > 0.9
    )
    assert {*np.concatenate(sets)} <= {"yes", "no"}
    found = classifier.uncertainty(X)
    told = {"entropy", "mutual_information", "disagreement"}
    assert {*found} == {*told, "trust", "novelty"}
    plain, calibrated = (
        classifier.predict_proba(X, calibrated=each) for each in (False, True)
    )
    assert calibrated.shape == plain.shape
    assert (plain.argmax(1) == calibrated.argmax(1)).mean() > 0.99
    assert np.allclose(calibrated.sum(axis=1), 1, atol=1e-5)


def test_the_file_is_made_anew_after_another_fit() -> None:
    model = LoMETabRegressor(**TINY).fit(X, Y)
    before = model.predict_interval(X[:5])
    after = model.fit(X, Y + 100).predict_interval(X[:5])
    assert (after[:, 0] > before[:, 0] + 50).all()


def test_columns_may_come_in_another_order_and_others_beside(
    regressor: LoMETabRegressor,
) -> None:
    expected = regressor.predict(X)
    assert np.array_equal(regressor.predict(X[["c", "a", "b"]]), expected)
    with pytest.warns(UserWarning, match=r"not used: \['extra'\]"):
        more = regressor.predict(X.assign(extra=1)[["extra", "b", "a", "c"]])
    assert np.array_equal(more, expected)
    with pytest.raises(DataError, match="c"):
        regressor.predict(X[["a", "b"]])


# Weights


@pytest.mark.slow
def test_rows_without_weight_are_not_learned_from() -> None:
    """Half of the rows say the contrary, and count nothing."""
    X2, y2 = pd.concat([X, X]), np.concatenate([Y, -10 * Y])
    weight = np.repeat([1.0, 0.0], len(X))
    settings = {**TINY, "max_epochs": 20}
    weighted = LoMETabRegressor(**settings).fit(X2, y2, sample_weight=weight)
    plain = LoMETabRegressor(**settings).fit(X2, y2)
    errors = [np.abs(model.predict(X) - Y).mean() for model in (weighted, plain)]
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.slow
def test_classes_can_count_more() -> None:
    settings = {**TINY, "max_epochs": 40, "lr": 0.02, "patience": 40}
    rare = RNG.random(240) < 0.1
    y = np.where(rare, "rare", "usual")
    plain = LoMETabClassifier(**settings).fit(X, y).predict_proba(X)[:, 0].mean()
    balanced = LoMETabClassifier(**settings, class_weight="balanced").fit(X, y)
    assert balanced.predict_proba(X)[:, 0].mean() > plain + 0.1
    by_hand = LoMETabClassifier(**settings, class_weight={"rare": 9.0}).fit(X, y)
    assert by_hand.predict_proba(X)[:, 0].mean() > plain + 0.1


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
@pytest.mark.parametrize("is_shared", [True, False])
def test_whole_weights_are_as_many_rows(task: Any, is_shared: bool) -> None:
    """The loss of a row that counts twice is that of two such rows."""
    torch.manual_seed(0)
    d_out = 3 if task == "multiclass" else 1
    outputs = torch.randn(4, 2, d_out)
    y = torch.randn(4) if task == "regression" else torch.tensor([0, 1, 1, 0])
    y = y if is_shared else y[:, None].expand(4, 2)
    counts = torch.tensor([1.0, 2.0, 1.0, 0.0])
    weight = counts if is_shared else counts[:, None].expand(4, 2)
    rows = [0, 1, 1, 2]
    expected = member_loss(outputs[rows], y[rows], task)
    found = member_loss(outputs, y, task, weight)
    assert torch.allclose(found, expected)


@pytest.mark.parametrize(
    "weight", [np.ones(3), -np.ones(240), np.zeros(240), np.full(240, np.nan)]
)
def test_weights_that_cannot_be_are_refused(weight: Any) -> None:
    with pytest.raises(DataError):
        LoMETabRegressor(**TINY).fit(X, Y, sample_weight=weight)


@pytest.mark.parametrize("weight", ["fair", {"maybe": 1.0}, {"yes": -1.0}, 3])
def test_class_weights_that_cannot_be_are_refused(weight: Any) -> None:
    with pytest.raises(ConfigError, match=r"yes|class_weight"):
        LoMETabClassifier(**TINY, class_weight=weight).fit(X, LABELS)


# Training


def test_epochs_are_told_and_can_end_it() -> None:
    seen: list[int] = []

    def on_epoch(progress: Progress) -> bool:
        seen.append(progress.epoch)
        return len(seen) == 3

    model = LoMETabRegressor(**{**TINY, "max_epochs": 50}).fit(X, Y, on_epoch=on_epoch)
    assert seen == [1, 2, 3] and model.ensemble_.fit.stopped_early


def test_a_refit_learns_from_all_rows_and_keeps_its_intervals() -> None:
    first = LoMETabRegressor(**TINY).fit(X, Y)
    again = LoMETabRegressor(**TINY, refit=True).fit(X, Y)
    assert np.array_equal(first.conformity_, again.conformity_)
    assert not np.allclose(first.predict(X), again.predict(X))
    assert len(again.history_) <= first.ensemble_.fit.best_epoch


def test_threads_are_set_for_training_alone() -> None:
    before, seen = torch.get_num_threads(), []
    LoMETabRegressor(**TINY, n_jobs=1).fit(
        X, Y, on_epoch=lambda _: seen.append(torch.get_num_threads())
    )
    assert {*seen} == {1} and torch.get_num_threads() == before
