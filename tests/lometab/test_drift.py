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
    for each in reference["columns"].values():
        assert sum(each["counts"]) == 4000
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
