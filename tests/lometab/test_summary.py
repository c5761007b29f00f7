"""The words of a report, held against its numbers."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from lometab.evaluation import make_reports, metrics
from tests.support.reports import sample
from tests.support.statements import check_statements
from tests.support.summaries import make_examined


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_each_statement_has_its_numbers(task: str) -> None:
    reports = make_reports(make_examined(task)).to_json()
    for kind in ("report", "diversity", "calibration"):
        assert next(iter(reports[kind])) == "summary"
        assert reports[kind]["summary"] == reports["report"]["summary"]
    abouts = check_statements(reports)
    assert abouts[:4] == ["quality", "naive", "drivers", "trust"]
    assert abouts[-1] == "next" and 3 <= len(abouts) <= 6
    drivers = reports["report"]["summary"][2]["text"]
    assert drivers.startswith("It goes most by 'first'")


def test_a_report_without_findings_has_a_summary() -> None:
    assert 3 <= len(check_statements(sample("binary"))) <= 6
    assert 3 <= len(check_statements(sample("regression", k=1))) <= 6


def test_a_model_that_is_no_better_than_a_guess_is_warned_of() -> None:
    reports = make_reports(make_examined("regression", strength=0.0)).to_json()
    check_statements(reports)
    texts = {each["about"]: each["text"] for each in reports["report"]["summary"]}
    assert "no better than that" in texts["naive"]
    assert "do not use this one" in texts["warning"]


def test_the_worst_warning_comes_first() -> None:
    """Few test rows weigh more than a slice."""
    reports = make_reports(make_examined("binary", n=60)).to_json()
    texts = {each["about"]: each["text"] for each in reports["report"]["summary"]}
    assert "only 60 test rows" in texts["warning"]


def test_what_was_noticed_before_is_told_again() -> None:
    run = replace(make_examined("regression"), warnings=["a column was left out"])
    reports = make_reports(run).to_json()
    check_statements(reports)
    texts = {each["about"]: each["text"] for each in reports["report"]["summary"]}
    assert texts["warning"].endswith("this was noticed: a column was left out.")


def test_a_wrong_number_is_caught() -> None:
    """The check of statements can fail."""
    reports = copy.deepcopy(make_reports(make_examined("binary")).to_json())
    reports["report"]["scores"]["test"]["ensemble"]["accuracy"] = 0.123
    with pytest.raises(AssertionError):
        check_statements(reports)


def test_scores_that_people_know() -> None:
    from sklearn import metrics as known

    rng = np.random.default_rng(0)
    for n_classes in (2, 4):
        mean = rng.dirichlet(np.ones(n_classes), size=200)
        y = rng.integers(n_classes, size=200)
        guess = mean.argmax(axis=1)
        average = "binary" if n_classes == 2 else "macro"
        expected = known.f1_score(y, guess, average=average)
        assert metrics.f1(y, mean) == pytest.approx(expected)
        expected = known.balanced_accuracy_score(y, guess)
        assert metrics.balanced_accuracy(y, mean) == pytest.approx(expected)
    expected = known.roc_auc_score(y, mean, multi_class="ovr")
    assert metrics.macro_auroc(y, mean) == pytest.approx(expected)
    y = np.r_[np.ones(10, dtype=int), np.zeros(90, dtype=int)]
    sure = np.stack([1 - y, y], axis=1).astype(float)
    assert metrics.lift(y, sure) == pytest.approx(10)
    assert metrics.lift(y, np.full((100, 2), 0.5)) == pytest.approx(1)
    assert metrics.lift(np.zeros(100, dtype=int), sure) is None
