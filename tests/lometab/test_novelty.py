"""Rows unlike the training rows: their novelty, and its place in the file."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from lometab.export import to_onnx
from lometab.notes import NOVEL
from lometab.parity import check_onnx
from lometab.predictor import Predictor
from lometab.table import Novelty, Preprocessor
from tests.support.ensembles import ROW, TABLE, rows_of, train
from tests.support.networks import make_ensemble

Array = NDArray[Any]


def make_rows(n: int, seed: int) -> tuple[Array, Array]:
    """Two numbers that go together, one that does not, and a text."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n)
    second = first + 0.2 * rng.normal(size=n)
    x_num = np.stack([first, second, rng.exponential(size=n)], axis=1)
    texts = rng.choice(np.array(["a", "b", "rare"], object), n, p=[0.6, 0.38, 0.02])
    return x_num, texts[:, None]


def fit(n: int = 2000) -> Preprocessor:
    x_num, x_cat = make_rows(n, 0)
    return Preprocessor().fit(x_num, x_cat, np.zeros(n), task="regression")


def measure(fitted: Preprocessor, x_num: Array, x_cat: Array) -> Array:
    assert fitted.novelty_ is not None
    return fitted.novelty_.measure(x_num, *fitted.transform(x_num, x_cat))


def test_novelty_of_rows_like_the_training_rows_is_even() -> None:
    found = measure(fit(), *make_rows(5000, 1))
    shares = np.histogram(found[:, 0], bins=10, range=(0, 1))[0] / 5000
    assert shares == pytest.approx(np.full(10, 0.1), abs=0.025)
    assert np.mean(found[:, 0] >= 0.995) < 0.015
    assert found[:, 1].mean() < 0.001
    assert found[:, 2].max() == 0


@pytest.mark.parametrize("kind", ["beyond", "broken pair", "unseen", "rare"])
def test_shifted_rows_are_found(kind: str) -> None:
    usual = make_rows(1000, 1)
    x_num, x_cat = make_rows(1000, 2)
    if kind == "beyond":
        x_num[:, 2] += 20
    elif kind == "broken pair":  # each number by itself is usual
        x_num[:, 1] = -x_num[:, 1]
    elif kind == "unseen":
        x_cat[:] = "new"
    else:
        x_cat[:] = "rare"
    fitted = fit()
    before, after = measure(fitted, *usual), measure(fitted, x_num, x_cat)
    truth = np.repeat([0, 1], 1000)
    auroc = roc_auc_score(truth, np.concatenate([before[:, 0], after[:, 0]]))
    assert auroc > (0.75 if kind == "broken pair" else 0.9)
    if kind == "beyond":
        assert after[:, 1].tolist() == [pytest.approx(1 / 3)] * 1000
    assert after[:, 2].mean() == (1.0 if kind == "unseen" else 0.0)


def test_a_little_beyond_the_range_is_not_out_of_it() -> None:
    x_num, x_cat = make_rows(2000, 0)
    fitted = fit()
    row = x_num[:1].copy()
    width = np.ptp(x_num[:, 2])
    for beyond, expected in ((0.04, 0.0), (0.06, 1 / 3)):
        row[0, 2] = x_num[:, 2].max() + beyond * width
        assert measure(fitted, row, x_cat[:1])[0, 1] == pytest.approx(expected)
    row[0, 2] = np.nan  # missing is not out of range
    assert measure(fitted, row, x_cat[:1])[0, 1] == 0


def test_what_training_never_lacked_is_novel_if_it_is_missing() -> None:
    x_num, x_cat = make_rows(1000, 1)
    fitted = fit()
    x_num[:, 2] = np.nan
    assert measure(fitted, x_num, x_cat)[:, 0].mean() > 0.9
    x_num[:] = np.nan
    found = measure(fitted, x_num, x_cat)
    assert found[:, 0].min() >= NOVEL
    assert found[:, 1].max() == 0  # missing is not out of range


def test_what_is_often_missing_is_not_novel() -> None:
    x_num, x_cat = make_rows(2000, 0)
    x_num[np.random.default_rng(0).random(x_num.shape) < 0.5] = np.nan
    fitted = Preprocessor().fit(x_num, x_cat, np.zeros(2000), task="regression")
    x_num[:] = np.nan
    assert measure(fitted, x_num, x_cat)[:, 0].mean() < 0.5


@pytest.mark.parametrize("n_columns", [1, 200])
def test_a_number_far_beyond_the_range_is_enough(n_columns: int) -> None:
    rng = np.random.default_rng(0)
    x_num = rng.normal(size=(1000, n_columns))
    none = np.empty((1000, 0), dtype=object)
    fitted = Preprocessor().fit(x_num, none, np.zeros(1000), task="regression")
    for far in (99.0, -99.0):
        x_num[:, 0] = far
        assert measure(fitted, x_num, none)[:, 0].min() == 1.0


def test_later_moments_are_not_novel() -> None:
    """What is asked is always later than what was learned."""
    rng = np.random.default_rng(0)
    x_num = np.stack([1e9 + 1e7 * rng.random(1000), rng.normal(size=1000)], axis=1)
    none = np.empty((1000, 0), dtype=object)
    fitted = Preprocessor().fit(
        x_num, none, np.zeros(1000), task="regression", datetime=[0]
    )
    later = x_num + np.array([365.2425 * 86400, 0.0])
    assert measure(fitted, later, none)[:, 1].max() == 0
    assert measure(fitted, later, none)[:, 0].mean() == pytest.approx(0.5, abs=0.1)


def test_the_state_is_plain_data() -> None:
    fitted = fit()
    again = Preprocessor.from_dict(fitted.to_dict())
    rows = make_rows(50, 3)
    np.testing.assert_array_equal(measure(fitted, *rows), measure(again, *rows))
    old = fitted.to_dict()
    del old["novelty"]  # as states of before have it
    assert Preprocessor.from_dict(old).novelty_ is None


def test_a_state_that_counted_no_gaps_measures_as_it_did() -> None:
    old = fit().to_dict()
    del old["novelty"]["gaps"]
    x_num, x_cat = make_rows(1000, 1)
    x_num[:] = np.nan
    assert measure(Preprocessor.from_dict(old), x_num, x_cat)[:, 0].max() < NOVEL


def test_many_numbers_have_no_correlations() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(500, 300))
    found = Novelty.fit(
        scores,
        scores,
        np.empty((500, 0), np.int64),
        features=range(300),
        columns=range(300),
        ranges=[(-3.0, 3.0)] * 300,
        cardinalities=[],
    )
    assert found.whitening.shape == (300,)
    novelty = found.measure(scores, scores, np.empty((500, 0), np.int64))
    assert novelty[:, 0].mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("target", ["price", "sold", "grade"])
def test_the_file_measures_as_the_preprocessor_does(target: str) -> None:
    ensemble = train(target)
    predictor = Predictor(to_onnx(ensemble))
    strange = {**ROW, "size": 1e6, "colour": "mauve", "zone": None}
    rows = [*rows_of(TABLE, 100), strange, {**strange, "since": None}]
    rows += [dict.fromkeys(ROW), {**ROW, "size": -1e6}]
    x_num, x_cat, _ = predictor.encode(rows)
    found = predictor.run_all(x_num, x_cat).novelty
    assert found is not None
    expected = measure(ensemble.preprocessor, x_num, x_cat)
    assert np.abs(found - expected)[:, 0].max() <= 0.0101
    np.testing.assert_allclose(found[:, 1:], expected[:, 1:], atol=1e-6)
    assert found[100:, 0].tolist() == [1.0] * 4
    assert found[100, 1] == 1.0  # the size is the only number that is no moment
    answer = predictor.predict(rows)
    assert answer.novelty is not None and answer.unseen is not None
    np.testing.assert_array_equal(answer.novelty, found[:, 0])
    np.testing.assert_array_equal(answer.unseen, found[:, 2])


@pytest.mark.parametrize("kind", ["numbers", "gaps", "moments", "texts", "old"])
def test_the_file_measures_rows_of_any_kind(kind: str) -> None:
    rng = np.random.default_rng(0)
    x_num, x_cat = make_rows(400, 0)
    if kind == "gaps":
        x_num[rng.random(x_num.shape) < 0.2] = np.nan
    elif kind == "moments":
        x_num = 1e9 + 1e7 * rng.random((400, 2))
    x_num = x_num[:, : 0 if kind == "texts" else None]
    x_cat = x_cat[:, : 1 if kind in ("texts", "old") else 0]
    datetime = range(2) if kind == "moments" else ()
    ensemble = make_ensemble(x_num, x_cat, datetime=datetime)
    if kind == "old":
        state = ensemble.preprocessor.to_dict()
        del state["novelty"]["gaps"]
        ensemble = replace(ensemble, preprocessor=Preprocessor.from_dict(state))
    assert check_onnx(ensemble, to_onnx(ensemble), x_num, x_cat) < 1e-3


def test_a_file_without_novelty_answers_as_before() -> None:
    ensemble = train("price")
    ensemble.preprocessor.novelty_ = None
    content = to_onnx(ensemble)
    predictor = Predictor(content)
    assert not predictor.has_novelty
    answer = predictor.predict([ROW])
    assert answer.novelty is answer.unseen is answer.out_of_range is None
    x_num, x_cat, _ = predictor.encode(rows_of(TABLE, 50))
    assert check_onnx(ensemble, content, x_num, x_cat) < 1e-3
