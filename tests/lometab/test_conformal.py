"""Conformal intervals and sets: their definitions, MAPIE's numbers, their coverage."""

import warnings
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from lometab.errors import ConfigError
from lometab.evaluation import Calibrator, Conformal, Rows, metrics
from lometab.evaluation.conformal import count_needed

Array = NDArray[Any]

with warnings.catch_warnings():  # what MAPIE imports warns of its own age
    warnings.simplefilter("ignore")
    from mapie.classification import SplitConformalClassifier
    from mapie.regression import SplitConformalRegressor


class Told(BaseEstimator):  # type: ignore[misc]
    """Answers with what its rows hold: MAPIE then calibrates our answers."""

    def fit(self, X: Array, y: Array) -> "Told":
        self.fitted_ = True
        return self


class ToldNumbers(RegressorMixin, Told):  # type: ignore[misc]
    def predict(self, X: Array) -> Array:
        return X[:, 0]


class ToldClasses(ClassifierMixin, Told):  # type: ignore[misc]
    def __init__(self, n_classes: int = 4) -> None:
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)
        self.fitted_ = True

    def predict_proba(self, X: Array) -> Array:
        return X

    def predict(self, X: Array) -> Array:
        return X.argmax(axis=1)


def make_numbers(n: int, seed: int, follow: float = 1.0) -> tuple[Array, Array, Array]:
    """Targets with noise of each row's own size, which the members' spread follows."""
    rng = np.random.default_rng(seed)
    noise = np.exp(rng.normal(size=n))
    mean = rng.normal(size=n)
    y = mean + noise * rng.normal(size=n)
    spread = noise**follow / 5
    members = mean[:, None] + spread[:, None] * rng.normal(size=(n, 8))
    return y, members.mean(axis=1), members


def make_classes(n: int, seed: int, n_classes: int = 4) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n, n_classes))
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    members = p[:, None] ** rng.uniform(1.5, 2.5, size=(n, 5, 1))  # too sure
    members /= members.sum(axis=2, keepdims=True)
    return y, members.mean(axis=1), members


def conformal_of(calibrator: Calibrator, task: str, n_classes: int = 4) -> Conformal:
    classes = None if task == "regression" else [*range(n_classes)]
    about = {"task": task, "target": "y", "classes": classes}
    return Conformal({**about, **calibrator.to_metadata()})


def test_the_rows_that_a_coverage_needs() -> None:
    for n_rows in (1, 9, 19, 60):
        calibrator = Calibrator.fit(*make_numbers(n_rows, 0))
        conformal = conformal_of(calibrator, "regression")
        for percent in range(1, 100):
            coverage = percent / 100
            quantile = conformal.choose(coverage, "constant").quantile
            is_short = n_rows < count_needed(coverage)
            assert (quantile == inf) == is_short == bool(conformal.warnings(coverage))
    assert [count_needed(c) for c in (0.5, 0.9, 0.95, 0.99)] == [1, 9, 19, 99]


def test_groups_with_too_few_rows_are_named() -> None:
    groups = np.repeat(["a", "b", "c"], [120, 30, 25])
    y, mean, members = make_classes(175, 0)
    calibrator = Calibrator.fit(y, mean, members, groups=groups, by="zone")
    conformal = conformal_of(calibrator, "multiclass")
    assert conformal.warnings(0.9) == []
    (warning,) = conformal.warnings(0.99)
    assert "where 'zone' is one of these: b, c; there, sets have every" in warning


def test_classes_with_too_few_rows_are_named() -> None:
    y, mean, members = make_classes(400, 0, 3)
    few = np.flatnonzero((y != 1) | (np.cumsum(y == 1) <= 25))
    y, mean, members = y[few], mean[few], members[few]
    calibrator = Calibrator.fit(y, mean, members, groups=y.astype(str), by="y")
    about = {"task": "multiclass", "target": "y", "classes": ["bad", "fair", "good"]}
    (warning,) = Conformal({**about, **calibrator.to_metadata()}).warnings(0.98)
    assert "'y' is one of these: fair" in warning


# MAPIE's numbers


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_constant_intervals_are_those_of_mapie(coverage: float) -> None:
    y, mean, members = make_numbers(237, 0)
    _, new, new_members = make_numbers(50, 1)
    theirs = SplitConformalRegressor(
        ToldNumbers().fit(None, None), confidence_level=coverage, prefit=True
    ).conformalize(mean[:, None], y)
    _, expected = theirs.predict_interval(new[:, None])
    ours = conformal_of(Calibrator.fit(y, mean, members), "regression")
    found = ours.interval(
        new, metrics.member_std(new_members), ours.choose(coverage, "constant")
    )
    np.testing.assert_allclose(found, expected[:, :, 0], rtol=1e-12)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_smallest_sets_are_those_of_mapie(coverage: float) -> None:
    y, mean, members = make_classes(237, 0)
    _, new, _ = make_classes(50, 1)
    theirs = SplitConformalClassifier(
        ToldClasses(), confidence_level=coverage, prefit=True, conformity_score="lac"
    ).conformalize(mean, y)
    _, expected = theirs.predict_set(new)
    ours = conformal_of(Calibrator.fit(y, mean, members), "multiclass")
    found = ours.sets(new, ours.choose(coverage, "lac"))
    np.testing.assert_array_equal(found, expected[:, :, 0])


def test_adaptive_sets_are_those_of_mapie_at_its_quantile() -> None:
    """MAPIE's scores lie at random between the probability before the true class and
    with it; at its own quantile, and with the class that crosses it, sets are ours."""
    y, mean, _ = make_classes(237, 0)
    _, new, _ = make_classes(50, 1)
    theirs = SplitConformalClassifier(
        ToldClasses(), confidence_level=0.8, prefit=True, conformity_score="aps"
    ).conformalize(mean, y)
    _, expected = theirs.predict_set(
        new, conformity_score_params={"include_last_label": True}
    )
    before = metrics.adaptive_scores(y, mean)
    scores = theirs._mapie_classifier.conformity_scores_[:, 0]
    assert (before <= scores + 1e-9).all()
    assert (scores <= before + mean[np.arange(len(y)), y] + 1e-9).all()
    quantile = metrics.conformal_quantile(scores, 0.2)
    sets = metrics.probability_before(new) < quantile
    np.testing.assert_array_equal(sets, expected[:, :, 0])


# Definitions


def test_probability_before() -> None:
    mean = [[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]
    expected = [[0.8, 0.0, 0.5], [0.0, 0.8, 0.4]]
    np.testing.assert_allclose(metrics.probability_before(mean), expected)


def test_no_adaptive_set_is_empty() -> None:
    y, mean, members = make_classes(500, 0)
    y = mean.argmax(axis=1)  # always right: the quantile is 0
    ours = conformal_of(Calibrator.fit(y, mean, members), "multiclass")
    assert ours.method == "aps"
    for coverage in (0.01, 0.5, 0.99):
        sets = ours.sets(mean, ours.choose(coverage))
        assert (sets.sum(axis=1) == 1).all()
        np.testing.assert_array_equal(sets.argmax(axis=1), y)
    least = ours.sets(mean, ours.choose(0.01, "lac"))
    assert metrics.empty_share(least) > 0.5


def test_one_row_is_answered_as_many_are() -> None:
    y, mean, members = make_classes(300, 0)
    ours = conformal_of(Calibrator.fit(y, mean, members), "multiclass")
    for method in ("aps", "lac"):
        choice = ours.choose(0.8, method)
        together = ours.list_sets(mean, choice)
        alone = [ours.list_sets(row[None], choice)[0] for row in mean]
        assert together == alone
    y, mean, members = make_numbers(300, 0)
    ours = conformal_of(Calibrator.fit(y, mean, members), "regression")
    spread = metrics.member_std(members)
    for method in ("constant", "scaled"):
        choice = ours.choose(0.8, method)
        together = ours.interval(mean, spread, choice)
        alone = [
            ours.interval(mean[i : i + 1], spread[i : i + 1], choice)[0]
            for i in range(300)
        ]
        np.testing.assert_allclose(together, alone)


def test_scaled_scores_and_their_offset() -> None:
    y, mean, members = make_numbers(2000, 0)
    spread = metrics.member_std(members)
    offset, ratio = metrics.fit_offset(y, mean, spread)
    assert offset is not None and ratio < 0.9
    scores = metrics.scaled_scores(y, mean, spread, offset)
    np.testing.assert_allclose(scores * (spread + offset), abs(y - mean))
    assert metrics.fit_offset(y, mean, np.zeros(2000)) == (None, inf)
    assert metrics.fit_offset(mean, mean, spread) == (None, inf)


@pytest.mark.parametrize(("follow", "method"), [(1.0, "scaled"), (-1.0, "constant")])
def test_the_narrower_intervals_are_chosen(follow: float, method: str) -> None:
    """Where the spread says nothing true of the noise, the width is one."""
    calibrator = Calibrator.fit(*make_numbers(2000, 0, follow))
    assert calibrator.method == method


def test_a_part_of_its_own_has_the_quantiles_and_val_the_choice() -> None:
    val, own = make_numbers(900, 0), make_numbers(400, 1)
    calibrator = Calibrator.fit(*own, chooser=Rows(*val))
    assert calibrator.part == "calibration"
    assert len(calibrator.conformity) == 400
    offset, ratio = metrics.fit_offset(val[0], val[1], metrics.member_std(val[2]))
    assert (calibrator.offset, calibrator.relative_width) == (offset, ratio)
    about = calibrator.to_metadata()["conformal"]
    assert (about["part"], about["n_rows"]) == ("calibration", 400)


def test_one_member_has_intervals_of_one_width() -> None:
    y, mean, _ = make_numbers(200, 0)
    calibrator = Calibrator.fit(y, mean, mean[:, None])
    assert (calibrator.method, calibrator.adapted) == ("constant", None)
    ours = conformal_of(calibrator, "regression")
    with pytest.raises(ConfigError, match="answers by 'constant' and not by 'scaled'"):
        ours.choose(0.9, "scaled")


def test_a_file_of_before_answers_as_before() -> None:
    """It knows the plain quantiles only."""
    old = {"conformity": [i / 100 for i in range(1, 100)]}
    numbers = Conformal({"task": "regression", "target": "y", **old})
    ends = numbers.interval(np.array([1.0, 2.0]), None, numbers.choose(0.3))
    np.testing.assert_allclose(ends, [[0.7, 1.3], [1.7, 2.3]])
    classes = Conformal({"task": "binary", "target": "y", "classes": ["a", "b"], **old})
    assert classes.method == "lac"
    assert classes.list_sets(np.array([[0.9, 0.1]]), classes.choose(0.2)) == [[0]]


# Coverage


def check_covered(
    inside: list[float], coverage: float, n_cal: int, n_test: int
) -> None:
    """The mean over splits is within three standard errors, or above by ties."""
    error = sqrt(coverage * (1 - coverage) * (1 / n_cal + 1 / n_test) / len(inside))
    assert np.mean(inside) >= coverage - 3 * error
    assert np.mean(inside) <= coverage + 3 * error + 1 / n_cal


@pytest.mark.parametrize("method", ["constant", "scaled"])
def test_intervals_cover(method: Any) -> None:
    inside = []
    for seed in range(40):
        ours = conformal_of(
            Calibrator.fit(
                *make_numbers(200, 3 * seed),
                chooser=Rows(*make_numbers(150, 3 * seed + 1)),
            ),
            "regression",
        )
        y, mean, members = make_numbers(500, 3 * seed + 2)
        ends = ours.interval(
            mean, metrics.member_std(members), ours.choose(0.9, method)
        )
        inside.append(metrics.interval_coverage(y, *ends.T))
    check_covered(inside, 0.9, 200, 500)


@pytest.mark.parametrize("method", ["aps", "lac"])
def test_sets_cover(method: Any) -> None:
    inside = []
    for seed in range(40):
        ours = conformal_of(Calibrator.fit(*make_classes(200, 2 * seed)), "multiclass")
        y, mean, _ = make_classes(500, 2 * seed + 1)
        sets = ours.sets(mean, ours.choose(0.8, method))
        inside.append(metrics.set_coverage(y, sets))
    check_covered(inside, 0.8, 200, 500)


def make_grouped(n: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Rows of the group b are four times as noisy as others; c is rare."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(np.array(["a", "b", "c"], object), size=n, p=[0.7, 0.29, 0.01])
    mean = rng.normal(size=n)
    y = mean + np.where(groups == "b", 4.0, 1.0) * rng.normal(size=n)
    return y, mean, mean[:, None] + rng.normal(size=(n, 3)), groups


def test_each_group_is_covered_if_asked() -> None:
    y, mean, members, groups = make_grouped(3000, 0)
    calibrator = Calibrator.fit(y, mean, members, groups=groups, by="zone")
    ours = conformal_of(calibrator, "regression")
    together = conformal_of(Calibrator.fit(y, mean, members), "regression")
    y, mean, members, groups = make_grouped(20_000, 1)
    groups[:5] = "never seen"
    found = {}
    for name, each in (("apart", ours), ("together", together)):
        ends = each.interval(mean, None, each.choose(0.9, "constant", groups))
        inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
        found[name] = {g: float(inside[groups == g].mean()) for g in "ab"}
    assert found["apart"] == pytest.approx({"a": 0.9, "b": 0.9}, abs=0.025)
    assert found["together"]["b"] < 0.8 < 0.95 < found["together"]["a"]


def test_each_class_is_covered_if_asked() -> None:
    """Rows of a rare class are often answered wrongly; by class they are covered."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[Array, Array, Array]:
        y = (rng.random(n) < 0.15).astype(np.intp)
        logit = 1.2 * rng.normal(size=n) + y - 2.0
        p = 1 / (1 + np.exp(-logit))
        mean = np.stack([1 - p, p], axis=1)
        return y, mean, mean[:, None].repeat(2, axis=1)

    y, mean, members = draw(4000)
    groups = y.astype(str)
    apart = Calibrator.fit(y, mean, members, groups=groups, by="y")
    ours = conformal_of(apart, "binary", 2)
    plain = conformal_of(Calibrator.fit(y, mean, members), "binary", 2)
    y, mean, _ = draw(20_000)
    found = metrics.coverage_by_class(y, ours.sets(mean, ours.choose(0.9, "lac")))
    assert found == pytest.approx([0.9, 0.9], abs=0.03)
    without = metrics.coverage_by_class(y, plain.sets(mean, plain.choose(0.9, "lac")))
    assert without[1] is not None and without[1] < 0.7


def test_small_groups_are_together() -> None:
    y, mean, members, groups = make_grouped(600, 0)
    about = Calibrator.fit(y, mean, members, groups=groups, by="zone").to_metadata()
    found = about["conformal"]["groups"]
    assert {*found["apart"]} == {"a", "b"}
    assert found["rest"]["n_rows"] == 600  # c alone has too few, so all rows stand in
    assert about["conformal"]["by"] == "zone"
