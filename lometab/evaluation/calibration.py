"""The report on how far probabilities, intervals and sets can be trusted."""

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import metrics
from lometab.evaluation.calibrator import MIN_GROUP, FloatArray, Method
from lometab.evaluation.conformal import Conformal
from lometab.evaluation.report import (
    Bin,
    CalibratedOn,
    Calibration,
    ClassCalibration,
    ConformalSets,
    GroupCoverage,
    IntervalChoice,
    Intervals,
    RegressionCalibration,
    Reliability,
    TemperatureFit,
    define,
)
from lometab.evaluation.run import Run

COVERAGES = (0.5, 0.8, 0.9, 0.95)


def report_calibration(run: Run) -> Calibration:
    """The report `calibration`, of the part `test`."""
    if run.task == "regression":
        return _of_numbers(run)
    return _of_classes(run)


def _conformal(run: Run) -> Conformal:
    """Intervals and sets as the model's file makes them."""
    by = run.calibrator.by
    is_by_class = by is not None and run.task != "regression" and run.is_by_class
    return Conformal(
        {
            "task": run.task,
            "target": by if is_by_class else None,
            "classes": [*range(run.answers["test"][0].shape[-1])],
            **run.calibrator.to_metadata(),
        }
    )


def _methods(run: Run) -> list[Method]:
    """Those that the model can answer by, its own first."""
    calibrator = run.calibrator
    own = calibrator.method or ("constant" if run.task == "regression" else "lac")
    found: list[Method] = [own]
    if calibrator.adapted is not None:
        found += [m for m in (calibrator.plain, calibrator.following) if m != own]
    return found


def _calibrated_on(run: Run) -> CalibratedOn:
    return CalibratedOn(part=run.calibrator.part, n_rows=len(run.calibrator.conformity))


def _warnings(run: Run, conformal: Conformal) -> list[str]:
    return [*conformal.warnings(0.9), *run.warn_of_calibration()]


# Classes


def _of_classes(run: Run) -> ClassCalibration:
    temperature = run.calibrator.temperature
    y, (mean, _) = run.targets["test"], run.answers["test"]
    before = _reliability(y, mean)
    calibrated = fit = None
    if temperature is not None:
        calibrated = _reliability(y, metrics.temper(mean, temperature))
        part = run.calibrator.part
        if part in run.answers:
            fit = _temperature_fit(run, part, temperature)
    conformal = _conformal(run)
    own, *others = _methods(run)
    return ClassCalibration(
        **run.head(),
        definitions=define(
            "ece",
            "brier",
            "nll",
            "temperature",
            "conformal_sets",
            "standard_error",
            "calibrated_on",
            "groups",
        ),
        ece=before.ece,
        n_bins=len(before.bins),
        bins=before.bins,
        brier=before.brier,
        nll=before.nll,
        temperature=temperature,
        temperature_fit=fit,
        calibrated=calibrated,
        conformal_sets=[_sets(run, conformal, own, c) for c in COVERAGES],
        other_sets=[_sets(run, conformal, m, c) for m in others for c in COVERAGES],
        calibrated_on=_calibrated_on(run),
        groups=_class_groups(run, conformal),
        warnings=_warnings(run, conformal),
    )


def _sets(
    run: Run, conformal: Conformal, method: Method, coverage: float
) -> ConformalSets:
    y, (mean, _) = run.targets["test"], run.answers["test"]
    choice = conformal.choose(coverage, method, run.groups.get("test"))
    chosen = conformal.sets(mean, choice)
    return ConformalSets(
        coverage=coverage,
        measured=metrics.set_coverage(y, chosen),
        standard_error=_standard_error(
            coverage, len(run.calibrator.conformity), len(y)
        ),
        mean_size=metrics.set_size(chosen),
        method=cast(Any, method),
        empty_share=metrics.empty_share(chosen),
        by_class=metrics.coverage_by_class(y, chosen),
    )


def _class_groups(run: Run, conformal: Conformal) -> list[GroupCoverage]:
    groups = run.groups.get("test")
    if groups is None:
        return []
    y, (mean, _) = run.targets["test"], run.answers["test"]
    chosen = conformal.sets(mean, conformal.choose(0.9, None, groups))
    inside = chosen[np.arange(len(y)), y]
    return _by_group(run, groups, inside, chosen.sum(axis=1))


def _by_group(
    run: Run, groups: NDArray[Any], inside: NDArray[Any], sizes: NDArray[Any]
) -> list[GroupCoverage]:
    found = []
    counts = run.calibrator.count_groups()
    for group in np.unique(groups):
        rows = groups == group
        name = str(group)
        n_calibration = counts.get(name, 0)
        if run.is_by_class and run.classes is not None:
            name = str(run.classes[int(group)])
        found.append(
            GroupCoverage(
                group=name,
                n_rows=int(rows.sum()),
                measured=float(inside[rows].mean()),
                mean_size=float(sizes[rows].mean()),
                n_calibration=n_calibration,
                is_apart=n_calibration >= MIN_GROUP,
            )
        )
    return found


def _reliability(y: NDArray[Any], mean: NDArray[Any]) -> Reliability:
    return Reliability(
        ece=metrics.ece(y, mean),
        bins=[Bin(**each) for each in metrics.reliability_bins(y, mean)],
        brier=metrics.brier(y, mean),
        nll=metrics.nll(y, mean),
    )


def _temperature_fit(run: Run, part: Any, temperature: float) -> TemperatureFit:
    y, (mean, _) = run.targets[part], run.answers[part]
    tempered = metrics.temper(mean, temperature)
    return TemperatureFit(
        split=part,
        n_rows=len(y),
        nll_before=metrics.nll(y, mean),
        nll_after=metrics.nll(y, tempered),
        ece_before=metrics.ece(y, mean),
        ece_after=metrics.ece(y, tempered),
    )


# Numbers


def _of_numbers(run: Run) -> RegressionCalibration:
    _, members = run.answers["test"]
    conformal = _conformal(run)
    own, *others = _methods(run)
    answered = [_conformal_intervals(run, conformal, own, c) for c in COVERAGES]
    spread = []
    for coverage in COVERAGES:
        between = metrics.member_interval(members, round(1 - coverage, 10))
        if between is not None:
            spread.append(_intervals(run, coverage, between, "members", math.inf))
    return RegressionCalibration(
        **run.head(),
        definitions=define(
            "conformal_intervals",
            "member_intervals",
            "sharpness",
            "standard_error",
            "interval_choice",
            "calibrated_on",
            "groups",
        ),
        sharpness=answered[COVERAGES.index(0.9)].mean_width,
        conformal_intervals=answered,
        member_intervals=spread,
        other_intervals=[
            _conformal_intervals(run, conformal, m, c)
            for m in others
            for c in COVERAGES
        ],
        interval_choice=_choice(run, own),
        calibrated_on=_calibrated_on(run),
        groups=_number_groups(run, conformal),
        warnings=_warnings(run, conformal),
    )


def _ends(
    run: Run, conformal: Conformal, method: Method | None, coverage: float
) -> tuple[FloatArray, FloatArray]:
    mean, members = run.answers["test"]
    choice = conformal.choose(coverage, method, run.groups.get("test"))
    spread = metrics.member_std(members)
    lower, upper = conformal.interval(mean.astype(np.float64), spread, choice).T
    return lower, upper


def _conformal_intervals(
    run: Run, conformal: Conformal, method: Method, coverage: float
) -> Intervals:
    ends = _ends(run, conformal, method, coverage)
    n_rows = len(run.calibrator.conformity)
    return _intervals(run, coverage, ends, method, n_rows)


def _number_groups(run: Run, conformal: Conformal) -> list[GroupCoverage]:
    groups, y = run.groups.get("test"), run.targets["test"]
    if groups is None:
        return []
    lower, upper = _ends(run, conformal, None, 0.9)
    return _by_group(run, groups, (lower <= y) & (y <= upper), upper - lower)


def _choice(run: Run, method: Method) -> IntervalChoice:
    """Which intervals are answered, and what the test rows say of that."""
    ratio, offset = run.calibrator.relative_width, run.calibrator.offset
    on_test = None
    if offset is not None:
        y, (mean, members) = run.targets["test"], run.answers["test"]
        spread = metrics.member_std(members)
        assert spread is not None
        scaled = metrics.scaled_scores(y, mean, spread, offset)
        width = np.quantile(scaled, 0.9) * float((spread + offset).mean())
        constant = np.quantile(metrics.conformal_scores(y, mean), 0.9)
        on_test = float(width / constant) if constant > 0 else None
    return IntervalChoice(
        method=cast(Any, method),
        relative_width_val=ratio,
        relative_width_test=on_test,
        sentence=_tell_choice(method, ratio, on_test),
    )


def _tell_choice(method: Method, ratio: float | None, on_test: float | None) -> str:
    if ratio is None:
        return "the members do not differ, so all intervals have one width"
    change = 100 * (ratio - 1)
    tested = ""
    if on_test is not None:
        tested = f" (test: {100 * (on_test - 1):+.1f} %)"
    if method == "scaled":
        return (
            f"intervals follow the members' spread: at equal coverage they are "
            f"{-change:.1f} % narrower than intervals of one width on the rows that "
            f"chose{tested}"
        )
    return (
        "intervals have one width: those that follow the members' spread would be "
        f"{change:+.1f} % wide relative to them at equal coverage on the rows that "
        f"chose{tested}"
    )


def _intervals(
    run: Run,
    coverage: float,
    interval: tuple[FloatArray, FloatArray],
    method: str,
    n_rows: float,
) -> Intervals:
    y, scale = run.targets["test"], math.sqrt(run.train_variance)
    width = metrics.interval_width(*interval)
    return Intervals(
        coverage=coverage,
        measured=metrics.interval_coverage(y, *interval),
        standard_error=_standard_error(coverage, n_rows, len(y)),
        mean_width=width,
        relative_width=width / scale if scale > 0 else None,
        method=cast(Any, method),
    )


def _standard_error(coverage: float, n_rows: float, n_test: int) -> float:
    return math.sqrt(coverage * (1 - coverage) * (1 / n_rows + 1 / n_test))
