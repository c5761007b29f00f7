"""Drift: its measure, its bound, false alarms and detection on streams."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from lometab import drift

NUMERIC = ["x0", "x1", "x2", "x3"]
CATEGORICAL = ["c0"]


def draw(n: int, rng: np.random.Generator, shift: float = 0.0) -> tuple[Any, Any]:
    x_num = rng.normal(size=(n, 4))
    x_num[:, 0] += shift
    x_num[rng.random(n) < 0.1, 1] = np.nan
    x_num[:, 2] = np.round(np.exp(x_num[:, 2]))  # few values
    x_cat = rng.choice(np.array([*"abcdef"], object), size=(n, 1))
    return x_num, x_cat


def count(reference: dict[str, Any], x_num: NDArray[Any], x_cat: NDArray[Any]) -> Any:
    found = {}
    for i, name in enumerate(NUMERIC):
        edges = np.array(reference["columns"][name]["edges"])
        found[name] = drift.count_numbers(x_num[:, i], edges).tolist()
    levels = reference["columns"]["c0"]["levels"]
    texts = [np.sum(x_cat[:, 0] == level) for level in levels]
    found["c0"] = [*map(int, texts), len(x_cat) - int(sum(texts))]
    return found


def drifted(reference: dict[str, Any], rows: tuple[Any, Any]) -> list[str]:
    counts = count(reference, *rows)
    return [
        name
        for name, each in counts.items()
        if drift.judge_column(reference["columns"][name], each, 5)["is_drifted"]
    ]


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    rows = draw(4000, np.random.default_rng(0))
    return drift.make_reference(NUMERIC, CATEGORICAL, *rows)


@pytest.mark.parametrize("degrees", [1, 3, 10, 20])
@pytest.mark.parametrize("probability", [0.99, 0.998, 0.9999])
def test_quantiles_of_chi2(degrees: int, probability: float) -> None:
    expected = chi2.ppf(probability, degrees)
    allowed = 0.15 if degrees < 3 else 0.05
    found = drift.chi2_quantile(probability, degrees)
    assert found == pytest.approx(expected, rel=allowed)


def test_the_reference_counts_every_training_row(reference: dict[str, Any]) -> None:
    assert reference["n_rows"] == 4000
    for name, each in reference["columns"].items():
        assert sum(each["counts"]) + each.get("n_chosen_by", 0) == 4000, name
    tenths = reference["columns"]["x0"]["counts"]
    assert tenths == [*[400] * 10, 0]  # and none is missing
    assert reference["columns"]["x1"]["counts"][-1] == pytest.approx(400, abs=80)
    assert len(reference["columns"]["x2"]["edges"]) < 9
    assert sorted(reference["columns"]["c0"]["levels"]) == [*"abcdef"]


def test_psi() -> None:
    assert drift.psi([100, 100], [50, 50]) == pytest.approx(0, abs=1e-3)
    p, q = np.array([0.5, 0.5]), np.array([0.8, 0.2])
    expected = ((q - p) * np.log(q / p)).sum()
    assert drift.psi([50_000, 50_000], [80_000, 20_000]) == pytest.approx(
        expected, rel=1e-3
    )
    assert np.isfinite(drift.psi([10, 0], [0, 10]))


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [50, 200, 1000])
def test_false_alarms_are_as_rare_as_they_say(
    reference: dict[str, Any], n_rows: int
) -> None:
    """Of 1000 windows at most 10 are expected to alarm, whatever their size."""
    rng = np.random.default_rng(1)
    n_alarms = sum(bool(drifted(reference, draw(n_rows, rng))) for _ in range(1000))
    assert n_alarms <= 22  # 10 and three standard deviations, and PSI's own roughness


@pytest.mark.parametrize(("shift", "n_rows"), [(1.0, 100), (0.5, 300), (0.4, 2000)])
def test_shifts_are_found_within_so_many_rows(
    reference: dict[str, Any], shift: float, n_rows: int
) -> None:
    rng = np.random.default_rng(2)
    found = [drifted(reference, draw(n_rows, rng, shift)) for _ in range(50)]
    assert sum("x0" in each for each in found) >= 45


def test_small_shifts_are_no_alarm_however_sure(reference: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    assert drifted(reference, draw(100_000, rng, 0.05)) == []


# Columns of many rare levels


def draw_rare(n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Ten columns of forty levels, most of them rare."""
    shares = 1 / np.arange(1, 41) ** 1.5
    levels = np.array([f"l{i}" for i in range(40)], object)
    return rng.choice(levels, p=shares / shares.sum(), size=(n, 10))


def count_rare(reference: dict[str, Any], x_cat: NDArray[Any]) -> list[list[int]]:
    counts = []
    for i, each in enumerate(reference["columns"].values()):
        texts = [int(np.sum(x_cat[:, i] == level)) for level in each["levels"]]
        counts.append([*texts, len(x_cat) - sum(texts)])
    return counts


def is_alarm(reference: dict[str, Any], x_cat: NDArray[Any]) -> bool:
    columns = reference["columns"].values()
    counts = count_rare(reference, x_cat)
    return any(
        drift.judge_column(own, each, len(counts))["is_drifted"]
        for own, each in zip(columns, counts, strict=True)
    )


def refer_rare(n: int, rng: np.random.Generator) -> dict[str, Any]:
    names = [f"c{i}" for i in range(10)]
    return drift.make_reference([], names, np.empty((n, 0)), draw_rare(n, rng))


@pytest.mark.parametrize("n_rows", [50, 200, 1000])
def test_rare_levels_are_no_alarm(n_rows: int) -> None:
    """Nor those that are in none of few training rows."""
    rng = np.random.default_rng(4)
    found = (is_alarm(refer_rare(200, rng), draw_rare(n_rows, rng)) for _ in range(100))
    assert sum(found) <= 4


def test_levels_of_models_of_before_are_no_alarm() -> None:
    """They chose levels by the rows that they counted, and did not say so."""
    rng = np.random.default_rng(5)
    n_alarms = 0
    for _ in range(100):
        x_cat = draw_rare(200, rng)
        columns = {}
        for i in range(10):
            levels, counts = np.unique(x_cat[:, i].astype(str), return_counts=True)
            order = np.argsort(-counts)[:20]
            rest = int(200 - counts[order].sum())
            columns[f"c{i}"] = {
                "levels": [*levels[order]],
                "counts": [*counts[order].tolist(), rest],
            }
        n_alarms += is_alarm({"columns": columns}, draw_rare(1000, rng))
    assert n_alarms <= 4


def test_levels_of_models_of_before_can_drift() -> None:
    """Where all of them were kept, none was chosen by chance."""
    for counts, live in (([500, 500, 0], [950, 50, 0]), ([260, 250, 0], [0, 0, 500])):
        levels = {"levels": ["a", "b"], "counts": counts}
        assert drift.judge_column(levels, live, 1)["is_drifted"], (counts, live)
        same = drift.judge_column(levels, counts, 1)
        assert not same["is_drifted"]


def test_a_new_level_is_soon_an_alarm(reference: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    x_num, x_cat = draw(60, rng)
    x_cat[::5] = "new"
    assert drifted(reference, (x_num, x_cat)) == ["c0"]


def test_of_moments_only_missing_ones_are_counted() -> None:
    x_num = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]])
    empty = np.empty((3, 0), object)
    reference = drift.make_reference(["x", "t"], [], x_num, empty, moments=["t"])
    assert reference["columns"]["t"] == {"edges": [], "counts": [2, 1]}
    assert len(reference["columns"]["x"]["edges"]) > 0


# Looks at counts that grow


def test_looks_share_the_rate() -> None:
    rates = [drift.rate_of_look(number) for number in range(1, 60)]
    assert rates == sorted(rates, reverse=True)
    assert 0.9 * drift.FALSE_ALARM_RATE < sum(rates) < drift.FALSE_ALARM_RATE
    assert not drift.is_look_due(drift.FIRST_LOOK - 1, 0)
    assert drift.is_look_due(drift.FIRST_LOOK, 0)
    assert not drift.is_look_due(199, 100) and drift.is_look_due(200, 100)


@pytest.mark.slow
def test_a_day_that_grows_is_as_rarely_a_false_alarm(reference: dict[str, Any]) -> None:
    rng = np.random.default_rng(7)
    assert sum(_alarms_once(reference, rng) for _ in range(300)) <= 9


def _alarms_once(reference: dict[str, Any], rng: np.random.Generator) -> bool:
    """A day of 1000 rows, which could be looked at after every five."""
    x_num, x_cat = draw(1000, rng)
    n_looked_at = number = 0
    for n in range(5, 1001, 5):
        if drift.is_look_due(n, n_looked_at):
            n_looked_at, number = n, number + 1
            counts = count(reference, x_num[:n], x_cat[:n])
            rate = drift.rate_of_look(number)
            if any(
                drift.judge_column(own, counts[name], 5, rate)["is_drifted"]
                for name, own in reference["columns"].items()
            ):
                return True
    return False
