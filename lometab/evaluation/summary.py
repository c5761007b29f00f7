"""The first sentences of a report: plain words, made from the numbers of the reports.

Each sentence names the fields that its numbers stand in.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from lometab.evaluation.conformal import count_needed
from lometab.evaluation.findings import Sentence
from lometab.evaluation.report import (
    Calibration,
    ClassCalibration,
    Diversity,
    RegressionCalibration,
    RunReport,
)

FEW_ROWS = 100
WELL_CALIBRATED, BADLY_CALIBRATED = 0.03, 0.06
"""In ECE."""
OVERFITTED = 0.1
"""By how much more of the train rows are right, or of their variance explained."""
ONE_COLUMN = 0.8
"""Share of one column in all importance that looks like a leak."""


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def number(value: float) -> str:
    """With three digits that count, and no exponent where it can be avoided."""
    if value != 0 and 1e-3 <= abs(value) < 1e6:
        digits = f"{value:.3g}"
        return f"{float(digits):.0f}" if "e" in digits else digits
    return f"{value:.3g}"


def summarise(
    report: RunReport, diversity: Diversity, calibration: Calibration
) -> list[Sentence]:
    """Three to six sentences: how good, against what, by what, how far to be trusted,
    the worst of what speaks against it, and what to do next."""
    warning = max(
        _find_warnings(report, diversity, calibration),
        key=lambda each: each.weight,
        default=None,
    )
    sentences = [_quality(report), _naive(report), _drivers(report)]
    sentences.append(_trust(report, calibration))
    if warning is not None:
        sentences.append(
            Sentence(about="warning", text=warning.text, fields=warning.fields)
        )
    sentences.append(_next_step(warning))
    return [each for each in sentences if each is not None]


def _is_regression(report: RunReport) -> bool:
    return report.task == "regression"


def _quality(report: RunReport) -> Sentence:
    scores, at = report.scores["test"], "report.scores.test"
    known = scores.ensemble
    fields = [f"{at}.n_rows"]
    if _is_regression(report):
        text = (
            f"On {scores.n_rows} test rows its answers are off by "
            f"{number(known['mae'] or 0.0)} on average"
        )
        fields.append(f"{at}.ensemble.mae")
        if known["r2"] is not None:
            text += f", and it explains {percent(known['r2'])} of the variance (R²)"
            fields.append(f"{at}.ensemble.r2")
        return Sentence(about="quality", text=text + ".", fields=fields)
    text = (
        f"On {scores.n_rows} test rows it names the right class in "
        f"{percent(known['accuracy'] or 0.0)}"
    )
    fields.append(f"{at}.ensemble.accuracy")
    names = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC", "f1": "F1"}
    more = [
        f"{words} {number(value)}"
        for name, words in names.items()
        if (value := known.get(name)) is not None
    ]
    fields += [f"{at}.ensemble.{name}" for name in names if known.get(name) is not None]
    return Sentence(about="quality", text=f"{text} ({', '.join(more)}).", fields=fields)


def _error_name(report: RunReport) -> str:
    """What guesses are compared by. Of rare classes the accuracy tells nothing: never
    to name them is right nearly always."""
    return "mae" if _is_regression(report) else "nll"


def find_gain(report: RunReport) -> tuple[float, int] | None:
    """By which share the model has less error than the best naive guess, and which of
    them that is; None if none was made, or it makes no error."""
    name = _error_name(report)
    own = report.scores["test"].ensemble[name]
    errors = [guess.scores[name] for guess in report.naive]
    found = [(each, i) for i, each in enumerate(errors) if each is not None]
    if not found or own is None:
        return None
    least, i = min(found)
    return (1 - own / least, i) if least > 0 else None


def _naive(report: RunReport) -> Sentence | None:
    found = find_gain(report)
    if found is None:
        return None
    gain, i = found
    guess, name = report.naive[i], _error_name(report)
    what = {
        "mean": "Always answering the mean",
        "most frequent class": "Guessing by the classes' shares alone",
    }.get(guess.name, f"A rule on the column {guess.column!r} alone")
    error = number(guess.scores[name] or 0.0)
    own = number(report.scores["test"].ensemble[name] or 0.0)
    fields = [f"report.naive.{i}.scores.{name}", f"report.scores.test.ensemble.{name}"]
    if _is_regression(report):
        text = f"{what} is off by {error}: the model has {own}"
    else:
        right = percent(guess.scores["accuracy"] or 0.0)
        text = f"{what} is right in {right} with a log loss of {error}: the model's is"
        text += f" {own}"
        fields.append(f"report.naive.{i}.scores.accuracy")
    verdict = f"{percent(gain)} less" if gain > 0 else "no better than that"
    return Sentence(about="naive", text=f"{text}, {verdict}.", fields=fields)


def _drivers(report: RunReport) -> Sentence | None:
    if report.importance is None:
        return None
    used = [
        (i, each)
        for i, each in enumerate(report.importance.columns)
        if each.mean > max(each.std, 0.0)
    ][:3]
    if not used:
        return Sentence(
            about="drivers",
            text="No single column changes its answers by more than chance.",
            fields=["report.importance.columns"],
        )
    names = [repr(each.column) for _, each in used]
    listed = (
        names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"
    )
    text = f"It goes most by {listed}"
    agreement = report.importance.agreement
    fields = [f"report.importance.columns.{i}.column" for i, _ in used]
    if agreement is not None:
        what = "agree" if agreement > 0.7 else "do not agree"
        text += f"; its members {what} on what matters ({number(agreement)} of 1)"
        fields.append("report.importance.agreement")
    return Sentence(about="drivers", text=text + ".", fields=fields)


def _trust(report: RunReport, calibration: Calibration) -> Sentence:
    if isinstance(calibration, ClassCalibration):
        text = f"Its confidence is off by {percent(calibration.ece)} on average (ECE)"
        fields = ["calibration.ece"]
        if calibration.ece < WELL_CALIBRATED:
            text += ", which is little"
        elif calibration.calibrated is not None:
            text += f", {percent(calibration.calibrated.ece)} with `calibrated`"
            fields.append("calibration.calibrated.ece")
    else:
        text, fields = _tell_intervals(calibration)
    parts = report.decomposition
    if parts.ambiguity is not None and parts.member_error > 0:
        gain = 1 - parts.ensemble_error / parts.member_error
        what = "squared error" if _is_regression(report) else "Brier score"
        text += (
            f"; averaging its {report.k} members takes {percent(gain)} off their {what}"
        )
        fields += [
            "report.k",
            "report.decomposition.ensemble_error",
            "report.decomposition.member_error",
        ]
    return Sentence(about="trust", text=text + ".", fields=fields)


def _tell_intervals(calibration: RegressionCalibration) -> tuple[str, list[str]]:
    """What its intervals of 90 % come to, and the fields that say so."""
    at, each = next(
        (i, each)
        for i, each in enumerate(calibration.conformal_intervals)
        if each.coverage == 0.9
    )
    on = calibration.calibrated_on
    if on is not None and not math.isfinite(each.mean_width or 0.0):
        text = (
            f"Its intervals of 90 % have no ends: {on.n_rows} calibration rows are too "
            f"few, and {count_needed(0.9)} are needed"
        )
        return text, ["calibration.calibrated_on.n_rows"]
    text = f"Its intervals of 90 % hold {percent(each.measured)} of the true values"
    fields = [f"calibration.conformal_intervals.{at}.measured"]
    if each.mean_width is not None:
        text += f" and are {number(each.mean_width)} wide"
        fields.append(f"calibration.conformal_intervals.{at}.mean_width")
    return text, fields


class Doubt(NamedTuple):
    """Something that speaks against the model, and what to do about it."""

    weight: int
    text: str
    fields: list[str]
    next_step: str


def _find_warnings(
    report: RunReport, diversity: Diversity, calibration: Calibration
) -> Iterator[Doubt]:
    gain = find_gain(report)
    if gain is not None and gain[0] <= 0:
        yield Doubt(
            100,
            "A guess without a model does as well: do not use this one.",
            ["report.naive"],
            "look whether the columns can tell the target at all, then train longer or "
            "with another preset",
        )
    n_rows = report.scores["test"].n_rows
    if n_rows < FEW_ROWS:
        yield Doubt(
            80,
            f"There are only {n_rows} test rows: all of these numbers are rough.",
            ["report.scores.test.n_rows"],
            "give more rows, or a larger share of them to the test part",
        )
    yield from _find_leak(report)
    yield from _find_overfit(report)
    if isinstance(calibration, ClassCalibration) and calibration.ece > BADLY_CALIBRATED:
        yield Doubt(
            50,
            f"{percent(calibration.ece)} is too much to rely on single probabilities.",
            ["calibration.ece"],
            "ask with `calibrated` for probabilities that can be trusted more",
        )
    yield from _find_uncovered(calibration)
    yield from _find_slice(report)
    if report.warnings:
        yield Doubt(
            30,
            f"When it was made, this was noticed: {report.warnings[0].rstrip('.')}.",
            ["report.warnings.0"],
            "go through the `warnings` of the report",
        )
    if diversity.regime == "collapsed" and report.k > 1:
        yield Doubt(
            20,
            "Its members are nearly the same: their spread tells little of errors.",
            ["diversity.regime"],
            diversity.advice,
        )


def _find_uncovered(calibration: Calibration) -> Iterator[Doubt]:
    if isinstance(calibration, ClassCalibration):
        return
    for i, each in enumerate(calibration.conformal_intervals):
        is_short = each.measured < each.coverage - 4 * each.standard_error
        if each.coverage == 0.9 and is_short:
            yield Doubt(
                50,
                f"Its intervals of 90 % hold only {percent(each.measured)} of the true "
                "values: the test rows are unlike those it was calibrated on.",
                [f"calibration.conformal_intervals.{i}.measured"],
                "look at how the rows were split, and whether the table changes over "
                "time",
            )


def _find_leak(report: RunReport) -> Iterator[Doubt]:
    if report.importance is None or len(report.importance.columns) < 3:
        return
    parts = [max(0.0, each.mean) for each in report.importance.columns]
    if sum(parts) > 0 and parts[0] / sum(parts) > ONE_COLUMN:
        name = report.importance.columns[0].column
        yield Doubt(
            70,
            f"Nearly all comes from the column {name!r}: look whether it is known "
            "before the target is.",
            ["report.importance.columns.0.column", "report.importance.columns.0.mean"],
            f"if {name!r} is not known in time, train without it",
        )


def _find_overfit(report: RunReport) -> Iterator[Doubt]:
    if "train" not in report.scores:
        return
    metric = "r2" if _is_regression(report) else "accuracy"
    train, test = (report.scores[p].ensemble[metric] for p in ("train", "test"))
    if train is None or test is None or train - test <= OVERFITTED:
        return
    what = "variance explained" if _is_regression(report) else "right"
    yield Doubt(
        60,
        f"It knows its training rows too well: {percent(train)} {what} there, "
        f"{percent(test)} on test rows.",
        [f"report.scores.{part}.ensemble.{metric}" for part in ("train", "test")],
        "more rows, more dropout or weight decay, or a smaller network",
    )


def _find_slice(report: RunReport) -> Iterator[Doubt]:
    if report.slices is None or not report.slices.worst:
        return
    worst = report.slices.worst[0]
    if not worst.is_worse:
        return
    if _is_regression(report):
        text = (
            f"is off by {number(worst.loss)} instead of {number(report.slices.overall)}"
        )
    else:
        text = f"is wrong in {percent(worst.loss)} instead of " + percent(
            report.slices.overall
        )
    where = worst.rows.removeprefix("= ")
    yield Doubt(
        40,
        f"Where {worst.column!r} is {where} ({worst.n_rows} rows), it {text}.",
        [
            "report.slices.worst.0.column",
            "report.slices.worst.0.n_rows",
            "report.slices.worst.0.loss",
            "report.slices.overall",
        ],
        f"look at the rows where {worst.column!r} is {where}, and give more of them",
    )


def _next_step(warning: Doubt | None) -> Sentence:
    if warning is not None:
        return Sentence(
            about="next", text=f"Next: {warning.next_step}.", fields=warning.fields
        )
    return Sentence(
        about="next",
        text="Next: ask it about rows of your own, and start a tune job if it should "
        "become better.",
        fields=["diversity.regime"],
    )
