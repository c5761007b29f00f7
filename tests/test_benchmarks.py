"""Benchmarks are run seldom: what they import is there all the same, and what their
conclusions rest on is tested on rows whose answer is known."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.processes
def test_every_script_can_be_loaded() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    command = [sys.executable, "-c", f"import {', '.join(names)}"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A benchmark's module, by its name, which no other test comes upon."""
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


def _draw(seed: int, *, weight: float) -> tuple[Any, Any, Any]:
    """Which of 1500 rows are wrong by a first signal, and by a second if it weighs."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 1500))
    p = 1 / (1 + np.exp(2 - 1.5 * first - weight * second))
    return rng.random(1500) < p, first, second


def test_a_useless_second_signal_adds_nothing(load: Any) -> None:
    compare = load("second_signal").compare
    found = [compare(*_draw(seed, weight=0)) for seed in range(4)]
    gains = [each["both"]["auroc"] - each["alone"]["auroc"] for each in found]
    assert abs(np.mean(gains)) < 0.002
    assert max(each["gain"] - 3 * each["gain_error"] for each in found) < 0


def test_a_copy_of_the_first_signal_adds_nothing(load: Any) -> None:
    """As one that knows only the first, on a scale of its own and with noise."""
    wrong, first, noise = _draw(0, weight=0)
    copy = np.exp(first / 2) + 0.2 * noise
    found = load("second_signal").compare(wrong, first, copy)
    assert found["both"]["auroc"] - found["alone"]["auroc"] < 0.002
    assert found["gain"] < 3 * found["gain_error"]


def test_a_useful_second_signal_adds(load: Any) -> None:
    found = load("second_signal").compare(*_draw(0, weight=1))
    assert found["both"]["auroc"] - found["alone"]["auroc"] > 0.03
    assert found["both"]["aurc"] < found["alone"]["aurc"]
    assert found["gain"] > 3 * found["gain_error"] > 0


def test_the_first_signal_alone_is_worth_what_it_is_unfitted(load: Any) -> None:
    wrong, first, second = _draw(0, weight=0)
    found = load("second_signal").compare(wrong, first, second)
    roc_auc = importlib.import_module("lometab.evaluation.metrics.scores").roc_auc
    assert found["alone"]["auroc"] == pytest.approx(roc_auc(wrong, first), abs=0.003)


def test_too_few_wrong_rows_are_not_compared(load: Any) -> None:
    wrong = np.arange(1500) < 9
    assert load("second_signal").compare(wrong, np.ones(1500), np.ones(1500)) is None


def test_the_error_of_an_auroc_is_that_of_rows_drawn_again(load: Any) -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=300), rng.normal(0.5, 1, size=200).round(1)
    auroc_of = load("uncertainty").auroc_of
    value, error = auroc_of(before, after)
    drawn = [
        auroc_of(rng.choice(before, len(before)), rng.choice(after, len(after)))[0]
        for _ in range(300)
    ]
    scores = importlib.import_module("lometab.evaluation.metrics.scores")
    is_after = np.repeat([False, True], [len(before), len(after)])
    both = np.concatenate([before, after])
    assert value == pytest.approx(scores.roc_auc(is_after, both))
    assert error == pytest.approx(np.std(drawn), rel=0.2)


# The page of the study


def _runs(gain: float) -> list[Any]:
    """Two sets of classes, two of numbers and a shifted one of each, five seeds."""
    rng = np.random.default_rng(0)
    runs = []
    for name, is_number in (
        ("titanic", False),
        ("adult", False),
        ("wine", True),
        ("california", True),
    ):
        for is_shifted in (False, True)[: 1 + (name in ("adult", "california"))]:
            for step in (0.1, 1.0, 9.0):
                for seed in range(5):
                    key = {"dataset": name, "arm": f"lometab {step:g}", "seed": seed}
                    noise = float(rng.normal(0, 0.001))
                    made = _number(noise) if is_number else _class(gain + noise)
                    made |= {"cpu_seconds": 1.0, "removed": 0.1, "diversity": step}
                    if is_shifted:
                        doubt = "spread" if is_number else "mutual_information"
                        shift = {"novelty": [0.99, 0.01], doubt: [0.65, 0.01]}
                        made |= {"shift": shift, "is a feature": True}
                        made["shifted column"] = "x"
                    runs.append((key | {"shifted": is_shifted}, made))
    return runs


def _class(gain: float) -> dict[str, Any]:
    alone = {"auroc": 0.8, "aurc": 0.05}
    return {
        "accuracy": 0.9,
        **{f"auroc {name}": 0.8 for name in ("confidence", "mutual_information")},
        **{f"aurc {name}": 0.05 for name in ("confidence", "mutual_information")},
        "auroc disagreement": 0.7,
        "signals": {
            "alone": alone,
            "both": {"auroc": 0.8 + gain, "aurc": 0.05},
            "gain": gain,
            "gain_error": 0.001,
        },
    }


def _number(noise: float) -> dict[str, Any]:
    return {
        "rmse": 0.5 + noise,
        "auroc spread": 0.7,
        "aurc spread": 0.8,
        "width": 0.93 + noise,
        "worst decile width": 1.5,
        "worst decile scaled": 0.82,
        "worst decile constant": 0.69,
    }


@pytest.mark.parametrize(
    ("gain", "said"),
    [(0.02, "classes yes"), (0.003, "classes hardly"), (-0.01, "classes no")],
)
def test_the_page_begins_with_one_answer_and_then_answers_all(
    load: Any, gain: float, said: str
) -> None:
    network = load("uncertainty").NETWORK
    page = load("uncertainty_page").make_page(_runs(gain), 585, 5000, network)
    title, answer, *rest = page.split("\n\n")
    assert title.startswith("# ")
    assert f"**For {said}" in answer
    assert "For numbers yes" in answer and "7 % narrower" in answer
    assert [each[:5] for each in rest[:4]] == ["**(a)", "**(b)", "**(c)", "**(d)"]
    assert "**In the worst decile**" in rest[1] and "82.0%" in rest[1]
    assert "novelty has it easy" in rest[2] and "0.650" in rest[2]
    assert "(weakly)" in rest[2]
    in_words = "\n".join(rest[3:6])
    for words in ("AUROC of confidence", "AURC of confidence", "how much narrower"):
        assert words in in_words
    assert page.count("| **all** |") == 2
    assert page.count("| adult, shifted |") == 1
    assert "(why/paper.md)" in page
