"""The page about what diversity is good for, out of the stored runs of the study."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from record import table

Run = tuple[dict[str, Any], dict[str, Any]]
"""The key of a run, and what it came to."""
Take = Callable[[dict[str, Any]], float | None]
"""A number out of a run; None where the run has none."""
Interval = tuple[float, float, float]
N_DRAWS = 2000
MATTERS = 0.005
"""A difference of AUROC below it is called none."""


# Numbers out of runs


def take(name: str) -> Take:
    return lambda result: result.get(name)


def gain(first: str, second: str) -> Take:
    def find(result: dict[str, Any]) -> float | None:
        a, b = result.get(first), result.get(second)
        return None if a is None or b is None else float(a - b)

    return find


def shift_of(name: str) -> Take:
    return lambda result: result.get("shift", {}).get(name)


def novelty_gain(result: dict[str, Any]) -> float | None:
    """Of novelty over the better of the measures of doubt."""
    found = {**result.get("shift", {})}
    novelty = found.pop("novelty", None)
    return None if novelty is None or not found else novelty - max(found.values())


def narrower(result: dict[str, Any]) -> float | None:
    """Percent by which intervals are narrower."""
    width = result.get("width")
    return None if width is None else 100 * (1 - width)


def by_set(runs: Sequence[Run], find: Take) -> dict[str, list[float]]:
    """The numbers of the runs that have one, by data set."""
    found: dict[str, list[float]] = {}
    for key, result in runs:
        value = find(result)
        if value is not None:
            found.setdefault(key["dataset"], []).append(value)
    return dict(sorted(found.items()))


def over_sets(found: dict[str, list[float]]) -> Interval:
    """The mean of the sets' means; sets are drawn anew, and runs within each."""
    rng = np.random.default_rng(0)
    values = [np.array(each) for each in found.values()]
    drawn = [
        mean(
            float(values[i][rng.integers(len(values[i]), size=len(values[i]))].mean())
            for i in rng.integers(len(values), size=len(values))
        )
        for _ in range(N_DRAWS)
    ]
    lower, upper = np.quantile(drawn, [0.025, 0.975])
    return mean(float(each.mean()) for each in values), float(lower), float(upper)


def over_runs(values: Sequence[float]) -> Interval:
    """The mean; runs are drawn anew."""
    return over_sets({"": [*values]})


def show(interval: Interval, digits: int = 3) -> str:
    middle, lower, upper = (f"{each:+.{digits}f}" for each in interval)
    return f"{middle} [{lower}, {upper}]"


def show_all(runs: Sequence[Run], find: Take, digits: int = 3) -> str:
    found = by_set(runs, find)
    return show(over_sets(found), digits) if found else "-"


def average(runs: Sequence[Run], find: Take, digits: int = 3) -> str:
    found = by_set(runs, find)
    if not found:
        return "-"
    return f"{mean(mean(each) for each in found.values()):.{digits}f}"


# The page


def make_page(
    runs: Sequence[Run], n_planned: int, max_train: int, network: dict[str, Any]
) -> str:
    """
    Args:
        n_planned: how many runs the whole study has.
    """
    plain = [run for run in runs if not run[0]["shifted"]]
    shifted = [run for run in runs if run[0]["shifted"]]
    arms = [*dict.fromkeys(key["arm"] for key, _ in runs)]
    ours = [run for run in plain if is_ours(run[0]["arm"])]
    return "\n".join(
        [
            "# What controlled diversity is good for\n",
            "Written by `make bench-uncertainty` from its stored runs; do not edit.\n",
            answer_in_short(ours, shifted),
            describe(runs, n_planned, max_train, network),
            "## (a) Do members find errors that confidence does not?\n",
            ABOUT_ERRORS,
            errors_by_arm(plain, arms),
            "By data set, all five steps of LoMETab:\n",
            errors_by_set(ours),
            "## (b) Are intervals that follow the spread narrower?\n",
            ABOUT_WIDTHS,
            widths_by_arm(plain, arms),
            "By data set, all five steps of LoMETab:\n",
            widths_by_set(ours),
            "## (c) What finds shifted rows?\n",
            ABOUT_SHIFTS,
            shifts(shifted, arms),
            "## (d) What does twice the diversity change?\n",
            ABOUT_DOUBLING,
            doubled([run for run in runs if is_ours(run[0]["arm"])]),
        ]
    )


ABOUT_ERRORS = (
    "How well each measure puts wrong answers before right ones (AUROC, test rows). "
    "*Both* is a logistic regression on confidence and mutual information, "
    "cross-validated on the same rows. AURC is the mean error of what is kept as ever "
    "more doubtful rows are left out: less is better.\n"
)
ABOUT_WIDTHS = (
    "Intervals of 90 %, brought to the same coverage on the test rows: by how many "
    "percent those that follow the members' spread are narrower on average than "
    "constant ones, and what both cover in the tenth of rows with the largest spread.\n"
)
ABOUT_SHIFTS = (
    "Rows left out of training by one column (bike_sharing_hour: the latest 30 % of "
    "hours; california: the eastern 30 %; adult: more than 45 hours a week) against "
    "test rows of the other kind: AUROC of each measure, 0.5 is chance.\n"
)
ABOUT_DOUBLING = (
    "The change for each doubling of the measured diversity (pairwise KL for classes, "
    "ambiguity over the variance of the target for numbers), by a line through all "
    "steps and seeds of a set; brackets: runs drawn anew. Shifted sets stand apart.\n"
)


def is_ours(arm: str) -> bool:
    return arm.startswith("lometab")


def describe(
    runs: Sequence[Run], n_planned: int, max_train: int, network: dict[str, Any]
) -> str:
    arms = {key["arm"] for key, _ in runs}
    sets = {key["dataset"] for key, _ in runs}
    seeds = {key["seed"] for key, _ in runs}
    hours = sum(result["cpu_seconds"] for _, result in runs) / 3600
    n_left = n_planned - len(runs)
    left = f" ({n_left} more are planned)" if n_left > 0 else ""
    return (
        f"{len(runs)} runs{left}: {len(sets)} data sets and "
        f"{len({key['dataset'] for key, _ in runs if key['shifted']})} shifted splits, "
        f"{len(arms)} arms, {len(seeds)} seeds; {hours:.1f} hours of one core. At most "
        f"{max_train} training rows; K = {network['k']}, {network['n_blocks']} layers "
        f"of {network['d_block']}, edges of bins by {network['bin_edges']}, the "
        "default preset's recipe otherwise. The number "
        "behind `lometab` is sigma_init² √rank (the default has 2.8). Brackets are "
        "95 % intervals: sets are drawn anew, and runs within each, unless it says "
        "otherwise.\n"
    )


def answer_in_short(ours: Sequence[Run], shifted: Sequence[Run]) -> str:
    """A plain answer to each question, by where the intervals lie."""
    ours_shifted = [run for run in shifted if is_ours(run[0]["arm"])]
    parts = [
        _answer(by_set(ours, gain("auroc both", "auroc confidence")), _say_errors),
        _answer(by_set(ours, narrower), _say_widths),
        _answer(by_set(ours_shifted, novelty_gain), _say_shifts),
        *(
            _answer(_slopes(runs, title), partial(_say_change, title), "slopes")
            for runs, title in (
                (ours, RMSE),
                (ours, ACCURACY),
                (ours_shifted, SHIFTED),
            )
        ),
    ]
    said = "\n".join(f"- {part}" for part in parts if part)
    return f"**In short.**\n\n{said or 'Nothing was run yet.'}\n"


def _slopes(runs: Sequence[Run], title: str) -> dict[str, list[float]]:
    return {
        name: [slope]
        for name in sorted({key["dataset"] for key, _ in runs})
        if (slope := _slope_of(_results(runs, name), title)) is not None
    }


def _results(runs: Sequence[Run], name: str) -> list[dict[str, Any]]:
    return [result for key, result in runs if key["dataset"] == name]


def _answer(
    found: dict[str, list[float]], say: Callable[[Interval], str], what: str = "runs"
) -> str | None:
    if not found:
        return None
    n_values = sum(len(each) for each in found.values())
    return f"{say(over_sets(found))}; n = {len(found)} sets, {n_values} {what})."


def _say_errors(interval: Interval) -> str:
    middle, lower, _ = interval
    is_more = lower > 0 and middle > MATTERS
    verdict = "Yes" if is_more else "No, confidence is enough"
    return (
        "For classes, do members find errors that plain confidence does not? "
        f"**{verdict}** (AUROC of both together against confidence alone: "
        f"{show(interval)}"
    )


def _say_widths(interval: Interval) -> str:
    _, lower, upper = interval
    verdict = "Yes" if lower > 0 else "No, wider" if upper < 0 else "Not reliably"
    return (
        "For numbers, are intervals that follow the members' spread narrower at equal "
        f"coverage? **{verdict}** ({show(interval, 1)} percent"
    )


def _say_shifts(interval: Interval) -> str:
    _, lower, upper = interval
    verdict = (
        "novelty more than doubt"
        if lower > 0
        else "doubt more than novelty"
        if upper < 0
        else "neither reliably more than the other"
    )
    return (
        f"What finds rows of another kind? **{verdict.capitalize()}** (AUROC of "
        f"novelty against the better measure of doubt: {show(interval)}"
    )


def _say_change(title: str, interval: Interval) -> str:
    _, lower, upper = interval
    question, is_better = CHANGES[title]
    better, worse = (lower > 0, upper < 0)
    if not is_better:
        better, worse = worse, better
    verdict = (
        "It gets better"
        if better
        else "It gets worse"
        if worse
        else "Nothing for certain"
    )
    _, digits = MEASURED[title]
    return (
        f"{question} **{verdict}** ({title}: {show(interval, digits)} for each doubling"
    )


def _of(runs: Sequence[Run], arm: str) -> list[Run]:
    return [run for run in runs if run[0]["arm"] == arm]


def errors_by_arm(runs: Sequence[Run], arms: Sequence[str]) -> str:
    rows = []
    for arm in arms:
        own = [run for run in _of(runs, arm) if "accuracy" in run[1]]
        if own:
            rows.append(
                [
                    arm,
                    len(own),
                    average(own, take("accuracy")),
                    average(own, take("auroc confidence")),
                    *_error_gains(own),
                ]
            )
    return table(["arm", "n", "accuracy", "AUROC of confidence", *GAINS], rows)


GAINS = (
    "mutual information instead",
    "disagreement instead",
    "both together",
    "AURC of mutual information instead",
)


def _error_gains(runs: Sequence[Run]) -> list[str]:
    return [
        show_all(runs, gain("auroc mutual_information", "auroc confidence")),
        show_all(runs, gain("auroc disagreement", "auroc confidence")),
        show_all(runs, gain("auroc both", "auroc confidence")),
        show_all(runs, gain("aurc mutual_information", "aurc confidence"), 4),
    ]


def errors_by_set(runs: Sequence[Run]) -> str:
    rows = []
    for name in sorted({key["dataset"] for key, r in runs if "accuracy" in r}):
        own = [run for run in runs if run[0]["dataset"] == name]
        confidence = average(own, take("auroc confidence"))
        rows.append([name, len(own), confidence, *_error_gains(own)])
    return table(["data set", "n", "AUROC of confidence", *GAINS], rows)


WIDTHS = (
    "narrower by, percent",
    "hardest tenth covered, following",
    "hardest tenth covered, constant",
    "AUROC of the spread for large errors",
)


def _widths(runs: Sequence[Run]) -> list[str]:
    return [
        show_all(runs, narrower, 1),
        average(runs, take("worst decile scaled")),
        average(runs, take("worst decile constant")),
        average(runs, take("auroc spread")),
    ]


def widths_by_arm(runs: Sequence[Run], arms: Sequence[str]) -> str:
    rows = []
    for arm in arms:
        own = [run for run in _of(runs, arm) if "width" in run[1]]
        if own:
            rows.append([arm, len(own), *_widths(own)])
    return table(["arm", "n", *WIDTHS], rows)


def widths_by_set(runs: Sequence[Run]) -> str:
    rows = []
    for name in sorted({key["dataset"] for key, r in runs if "width" in r}):
        own = [run for run in runs if run[0]["dataset"] == name]
        rows.append([name, len(own), *_widths(own)])
    return table(["data set", "n", *WIDTHS], rows)


def shifts(runs: Sequence[Run], arms: Sequence[str]) -> str:
    names = ("novelty", "spread", "confidence", "mutual_information")
    rows = []
    for name in sorted({key["dataset"] for key, _ in runs}):
        for arm in arms:
            own = [run for run in _of(runs, arm) if run[0]["dataset"] == name]
            if own:
                cells = [average(own, shift_of(each)) for each in names]
                rows.append([name, arm, len(own), *cells])
    return table(["data set", "arm", "n", *names[:3], "mutual information"], rows)


RMSE, ACCURACY, REMOVED, SHIFTED = (
    "RMSE, percent of its mean",
    "accuracy, points",
    "share of error removed, points",
    "AUROC, shifted rows by spread or mutual information",
)
CHANGES = {
    RMSE: ("What does twice the diversity change for numbers?", False),
    ACCURACY: ("And for classes?", True),
    SHIFTED: ("And in finding rows of another kind?", True),
}
"""Questions, and whether more is better."""
MEASURED: dict[str, tuple[Take, int]] = {
    RMSE: (take("rmse"), 2),
    ACCURACY: (take("accuracy"), 2),
    REMOVED: (take("removed"), 2),
    "narrower by, points": (narrower, 2),
    "AUROC, mutual information for errors": (take("auroc mutual_information"), 3),
    "AUROC, both for errors": (take("auroc both"), 3),
    SHIFTED: (
        lambda result: (
            shift_of("spread")(result) or shift_of("mutual_information")(result)
        ),
        3,
    ),
}


def doubled(runs: Sequence[Run]) -> str:
    """Slopes over log2 of the measured diversity, by set, seeds and steps together."""
    rows = []
    for name, is_shifted in sorted({(k["dataset"], k["shifted"]) for k, _ in runs}):
        own = [
            result
            for key, result in runs
            if (key["dataset"], key["shifted"]) == (name, is_shifted)
            and result.get("diversity")
        ]
        cells = [_slope(own, title) for title in MEASURED]
        rows.append([f"{name}, shifted" if is_shifted else name, len(own), *cells])
    return table(["data set", "n", *MEASURED], rows)


def _slope(results: Sequence[dict[str, Any]], title: str) -> str:
    points = _points(results, title)
    if points is None:
        return "-"
    x, y = points
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(N_DRAWS):
        rows = rng.integers(len(x), size=len(x))
        if np.ptp(x[rows]) > 0:
            drawn.append(_fit(x[rows], y[rows]))
    lower, upper = np.quantile(drawn, [0.025, 0.975])
    _, digits = MEASURED[title]
    return show((_fit(x, y), float(lower), float(upper)), digits)


def _slope_of(results: Sequence[dict[str, Any]], title: str) -> float | None:
    points = _points(results, title)
    return None if points is None else _fit(*points)


def _points(
    results: Sequence[dict[str, Any]], title: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """log2 of the diversity, and what was measured; None for too few runs."""
    find, _ = MEASURED[title]
    pairs = [
        (result["diversity"], value)
        for result in results
        if result.get("diversity") and (value := find(result)) is not None
    ]
    if len(pairs) < 5:
        return None
    diversity, measured = np.array(pairs).T
    if title == RMSE:
        measured = 100 * measured / measured.mean()
    elif title in (ACCURACY, REMOVED):
        measured = 100 * measured
    return np.log2(diversity), measured


def _fit(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    centred = x - x.mean()
    return float((centred * y).sum() / (centred * centred).sum())
