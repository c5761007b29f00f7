"""The page about what diversity is good for, out of the stored runs of the study."""

from collections.abc import Sequence
from typing import Any

from record import table
from uncertainty_figures import (
    Interval,
    Measure,
    Run,
    Slope,
    added,
    average,
    average_of,
    by_set,
    count,
    find_slope,
    gain,
    join,
    members_doubt,
    minus,
    narrower,
    nats,
    of_set,
    over_rows,
    over_sets,
    over_slopes,
    shift_of,
    show,
    show_all,
    signals,
    take,
    times,
)

MATTERS = 0.005
"""A difference of AUROC below it is called none."""
FINDS_WELL = 0.7
"""An AUROC below it is called weak."""
COVERAGE = 0.9


def make_page(
    runs: Sequence[Run], n_planned: int, max_train: int, network: dict[str, Any]
) -> str:
    """
    Args:
        n_planned: how many runs the whole study has.
    """
    if not runs:
        return "# What controlled diversity is good for\n\nNothing was run yet.\n"
    plain = [run for run in runs if not run[0]["shifted"]]
    shifted = [run for run in runs if run[0]["shifted"]]
    arms = [*dict.fromkeys(key["arm"] for key, _ in runs)]
    ours, ours_shifted = (
        [run for run in part if run[0]["arm"].startswith("lometab")]
        for part in (plain, shifted)
    )
    return "\n".join(
        [
            "# What controlled diversity is good for\n",
            answer(ours, ours_shifted),
            *(
                f"{say}\n"
                for say in (
                    say_errors(ours),
                    say_widths(ours),
                    say_shifts(ours_shifted),
                    say_doubling(ours, ours_shifted),
                )
                if say
            ),
            describe(runs, n_planned, max_train, network),
            "## (a) Do members find errors that confidence does not?\n",
            ABOUT_ERRORS,
            errors_by_arm(plain, arms),
            "By data set, all steps of LoMETab:\n",
            errors_by_set(ours),
            "## (b) Are intervals that follow the spread narrower?\n",
            ABOUT_WIDTHS,
            widths_by_arm(plain, arms),
            "By data set, all steps of LoMETab:\n",
            widths_by_set(ours),
            "## (c) What finds shifted rows?\n",
            ABOUT_SHIFTS,
            shifts(shifted, arms),
            "## (d) What does twice the diversity change?\n",
            ABOUT_DOUBLING,
            "For classes:\n",
            doubled(ours, ours_shifted, OF_CLASSES),
            "For numbers:\n",
            doubled(ours, ours_shifted, OF_NUMBERS),
            about_california(ours, max_train, network),
        ]
    )


ABOUT_ERRORS = (
    "How well each measure puts wrong answers before right ones, on test rows. "
    "Confidence alone and both together are judged alike: a logistic regression on "
    "confidence and its square, without and with mutual information, in the same four "
    "times five folds, stratified and shuffled; AUROC and AURC are means of the folds, "
    "and the log-likelihood of being wrong or right is of held-out rows, in nats per "
    "1000 rows. A signal that says nothing comes out at 0, or a little below where "
    "rows are few, as on titanic. *Instead* compares the bare measures, nothing "
    "fitted. AURC is the mean error of what is kept as ever more doubtful rows are "
    "left out: less is better. By data set, brackets are of runs drawn anew on the "
    "same test rows, and for the log-likelihood of these rows too.\n"
)
ABOUT_WIDTHS = (
    "Intervals of 90 %, brought to the same coverage on the test rows: by how many "
    "percent those that follow the members' spread are narrower on average than "
    "constant ones; and in the worst decile, the tenth of rows with the largest "
    "spread, how wide they are in units of the constant width, and what share both "
    "cover.\n"
)
ABOUT_SHIFTS = (
    "Rows left out of training by one column (bike_sharing_hour: the latest 30 % of "
    "hours; california: the eastern 30 %; adult: more than 45 hours a week) against "
    "test rows of the other kind: AUROC of each measure, 0.5 is chance. Brackets: test "
    "rows and runs. Novelty looks at rows and not at members, so it is the same for "
    "all arms.\n"
)
ABOUT_DOUBLING = (
    "The change for each doubling of the measured diversity (pairwise KL for classes, "
    "ambiguity over the variance of the target for numbers), by a line through all "
    "steps and seeds of a set; brackets: runs drawn anew, and sets where all are taken "
    "together. AURC falls with the error itself, too. *Gained by both* is as in (a), "
    "log-likelihood in nats per 1000 rows. Shifted sets stand apart.\n"
)


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
        "Written by `make bench-uncertainty` from its stored runs; do not edit. "
        f"{len(runs)} runs{left}: {len(sets)} data sets and "
        f"{len({key['dataset'] for key, _ in runs if key['shifted']})} shifted splits, "
        f"{len(arms)} arms, {len(seeds)} seeds; {hours:.1f} hours of one core. At most "
        f"{max_train} training rows; K = {network['k']}, {network['n_blocks']} layers "
        f"of {network['d_block']}, edges of bins by {network['bin_edges']}, the "
        "default preset's recipe otherwise. The number "
        "behind `lometab` is sigma_init² √rank (the default has 2.8). Brackets are "
        "95 % intervals: sets are drawn anew, and runs within each, unless it says "
        "otherwise. Sets are few, so intervals over them are rather too narrow.\n"
    )


# The answers


def answer(ours: Sequence[Run], shifted: Sequence[Run]) -> str:
    """In bold what members tell beyond the mean; then shifted rows and doubling."""
    told = [_errors_in_short(ours), _widths_in_short(ours)]
    more = [*_shifts_in_short(shifted), *_doubling_in_short(ours)]
    first = " ".join(f"{say}." for say in told if say is not None)
    second = f" {_upper('; '.join(more))}." if more else ""
    return (
        "Does it help to know how far members differ? "
        f"**{first or 'Nothing was run yet.'}**{second}\n"
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def judge_errors(interval: Interval) -> str:
    """`yes`, `hardly`, `no`, or `open` where a gain that matters cannot be excluded."""
    middle, lower, upper = interval
    if lower > 0:
        return "yes" if middle > MATTERS else "hardly"
    return "no" if upper < MATTERS else "open"


def judge(interval: Interval, is_better: bool = True) -> str:
    """`better`, `worse` or `open`."""
    _, lower, upper = interval
    if lower <= 0 <= upper:
        return "open"
    return "better" if (lower > 0) == is_better else "worse"


def _errors_in_short(ours: Sequence[Run]) -> str | None:
    found = by_set(ours, added("auroc"))
    if not found:
        return None
    return {
        "yes": "For classes yes: members find errors that plain confidence does not",
        "hardly": "For classes hardly: members add little to plain confidence",
        "no": "For classes no: plain confidence is enough to find errors",
        "open": "For classes it is open whether members find errors that plain "
        "confidence does not",
    }[judge_errors(over_sets(found))]


def _widths_in_short(ours: Sequence[Run]) -> str | None:
    found = by_set(ours, narrower)
    if not found:
        return None
    interval = over_sets(found)
    n_sure = sum(over_sets({name: runs})[1] > 0 for name, runs in found.items())
    return {
        "better": "For numbers yes: intervals that follow the members' spread are "
        f"{interval[0]:.0f} % narrower at equal coverage",
        "worse": "For numbers no: intervals that follow the members' spread are wider",
        "open": "For numbers not reliably: intervals that follow the members' spread "
        f"are surely narrower on {n_sure} of {len(found)} sets",
    }[judge(interval)]


def _shifts_in_short(shifted: Sequence[Run]) -> list[str]:
    said = []
    for words, measure in SIGNS:
        found = _auroc_by_set(shifted, measure)
        if found:
            n = sum(lower > 0.5 for _, lower, _ in found.values())
            middles = sorted(middle for middle, _, _ in found.values())
            said.append(
                f"{words} in {n} of {len(found)} splits (AUROC {middles[0]:.2f} to "
                f"{middles[-1]:.2f})"
            )
    return [f"shifted rows are found by {join(said)}"] if said else []


def _doubling_in_short(ours: Sequence[Run]) -> list[str]:
    said = []
    for measure, unit in ((RMSE, " %"), (ACCURACY, " points")):
        slopes = find_slopes(ours, measure)
        if slopes:
            interval = over_slopes([*slopes.values()])
            name = measure.title.split(",")[0]
            doubt = " (not certain)" if judge(interval) == "open" else ""
            said.append(f"{name} by {interval[0]:+.{measure.digits}f}{unit}{doubt}")
    return [f"each doubling of diversity changes {join(said)}"] if said else []


def say_errors(ours: Sequence[Run]) -> str | None:
    found = by_set(ours, added("auroc"))
    if not found:
        return None
    interval = over_sets(found)
    verdict = {
        "yes": "Yes",
        "hardly": "Hardly: the gain is certain and too small to matter",
        "no": "No, confidence is enough",
        "open": "Not shown: neither a gain that matters nor its absence",
    }[judge_errors(interval)]
    by_rows = {name: _nats_of(of_set(ours, name)) for name in found}
    gaining = [
        f"{name} ({show(each, 1)})" for name, each in by_rows.items() if each[1] > 0
    ]
    sets = (
        f"Taken by itself it grows in {join(gaining)}"
        if gaining
        else "It grows in no set taken by itself"
    )
    return (
        "**(a) For classes, do members find errors that plain confidence does not? "
        f"{verdict}.** Confidence alone has an AUROC of "
        f"{average(ours, signals('alone', 'auroc'))}; mutual information beside it "
        f"changes that by {show(interval)}, and the AURC by "
        f"{show_all(ours, added('aurc'), 4)} ({count(found)}). The held-out "
        f"log-likelihood changes by {show_all(ours, nats('gain'), 1)} nats per 1000 "
        f"rows. {sets}."
    )


def say_widths(ours: Sequence[Run]) -> str | None:
    found = by_set(ours, narrower)
    if not found:
        return None
    interval = over_sets(found)
    verdict = {"better": "Yes", "worse": "No, wider", "open": "Not reliably"}
    own = {name: over_sets({name: values}) for name, values in found.items()}
    narrow = [f"{name} ({show(each, 1)})" for name, each in own.items() if each[1] > 0]
    others = [f"{name} ({show(e, 1)})" for name, e in own.items() if e[1] <= 0]
    sets = f" By set: narrower in {join(narrow)}" if narrow else " By set: none"
    sets += f"; not in {join(others)}." if others else "."
    scaled, constant, width = (
        average_of(ours, take(f"worst decile {name}")) or 0.0
        for name in ("scaled", "constant", "width")
    )
    more = show_all(ours, times(100, WORST_GAIN), 1)
    short = " Both are short of the 90 %." if max(scaled, constant) < COVERAGE else ""
    return (
        "**(b) For numbers, are intervals that follow the members' spread narrower at "
        f"equal coverage? {verdict[judge(interval)]}**, by {show(interval, 1)} % "
        f"({count(found)}). **In the worst decile**, the tenth of rows with the "
        f"largest spread, they are {width:.2f} times as wide as constant ones and "
        f"cover {scaled:.1%} of the rows, constant ones {constant:.1%}: {more} points."
        f"{short}{sets}"
    )


WORST_GAIN = minus(take("worst decile scaled"), take("worst decile constant"))
SIGNS = (
    ("members' doubt", members_doubt),
    ("novelty", lambda place=0: shift_of("novelty", place)),
)
"""What may find shifted rows: spread or mutual information, and novelty."""


def _auroc_by_set(shifted: Sequence[Run], measure: Any) -> dict[str, Interval]:
    values, errors = by_set(shifted, measure(0)), by_set(shifted, measure(1))
    found = {name: over_rows(values[name], errors[name]) for name in values}
    return {n: (m, max(0.0, lower), min(1.0, u)) for n, (m, lower, u) in found.items()}


def say_shifts(shifted: Sequence[Run]) -> str | None:
    said = []
    found = {words: _auroc_by_set(shifted, measure) for words, measure in SIGNS}
    for words, own in found.items():
        if own:
            cells = [
                f"{name} {show(each, 3, '')}{_weak(each)}" for name, each in own.items()
            ]
            said.append(f"{_upper(words)}: {join(cells)}.")
    if not said:
        return None
    verdicts = [
        f"{words} in {sum(each[1] > 0.5 for each in own.values())} of {len(own)} splits"
        for words, own in found.items()
        if own
    ]
    is_found = any(each[1] > 0.5 for own in found.values() for each in own.values())
    verdict = f"Yes, {join(verdicts)}" if is_found else "No, neither"
    return (
        "**(c) Do novelty and members' doubt find shifted rows? "
        f"{verdict}** (AUROC of shifted rows against test rows, 0.5 is chance). "
        f"{' '.join(said)} {_say_columns(shifted)}".rstrip()
    )


def _weak(interval: Interval) -> str:
    middle, lower, _ = interval
    if lower <= 0.5:
        return " (not found)"
    return " (weakly)" if middle < FINDS_WELL else ""


def _say_columns(shifted: Sequence[Run]) -> str:
    """Where the shift is in a column that novelty sees, and where it is not."""
    columns = {
        key["dataset"]: (result["shifted column"], result["is a feature"])
        for key, result in shifted
    }
    seen, unseen = (
        [f"{name} (`{c}`)" for name, (c, is_) in sorted(columns.items()) if is_ is kind]
        for kind in (True, False)
    )
    said = []
    if seen:
        said.append(
            f"In {join(seen)} the shifted column is itself a feature, whose values lie "
            "outside those of training, so novelty has it easy there."
        )
    if unseen:
        said.append(
            f"In {join(unseen)} it is none of the features, and novelty sees the shift "
            "only by what else changed."
        )
    return " ".join(said)


def say_doubling(ours: Sequence[Run], shifted: Sequence[Run]) -> str | None:
    said = []
    verdicts: dict[str, list[str]] = {"better": [], "worse": [], "open": []}
    for topic, measures in TOPICS.items():
        parts = []
        for measure in measures:
            slopes = find_slopes(shifted if measure in SHIFTED else ours, measure)
            if slopes:
                verdict, words = _say_slopes(slopes, measure)
                parts.append(words)
                verdicts[verdict].append(measure.title.split(",")[0])
        if parts:
            said.append(f"- {topic}: {'; '.join(parts)}.")
    if not said:
        return None
    return "\n".join(
        [
            "**(d) What does each doubling of the diversity change? "
            f"{_upper('; '.join(f'{k}: {join(v)}' for k, v in verdicts.items() if v))}"
            ".** *Open*: the interval has both signs. All sets together, and in how "
            "many it is certain by themselves:\n",
            *said,
        ]
    )


def _say_slopes(slopes: dict[str, Slope], measure: Measure) -> tuple[str, str]:
    """The verdict, and the words with their figures."""
    interval = over_slopes([*slopes.values()])
    verdict = judge(interval, measure.is_better)
    own = [judge(each.interval, measure.is_better) for each in slopes.values()]
    return verdict, (
        f"{measure.title}, {show(interval, measure.digits)}: **{verdict}** (better in "
        f"{own.count('better')}, worse in {own.count('worse')} of {len(own)} sets)"
    )


# The tables


def _of(runs: Sequence[Run], arm: str) -> list[Run]:
    return [run for run in runs if run[0]["arm"] == arm]


def errors_by_arm(runs: Sequence[Run], arms: Sequence[str]) -> str:
    rows = []
    for arm in arms:
        own = [run for run in _of(runs, arm) if "accuracy" in run[1]]
        if own:
            nats_ = show_all(own, nats("gain"), 1)
            rows.append([arm, len(own), *_errors(own, nats_)])
    return table(["arm", "n", *ERRORS], rows)


ERRORS = (
    "accuracy",
    "AUROC of confidence, nothing fitted",
    "AUROC of confidence",
    "change by both, AUROC",
    "change by both, AURC",
    "change by both, log-likelihood",
    "mutual information instead, AUROC",
    "mutual information instead, AURC",
    "disagreement instead, AUROC",
)


def _errors(runs: Sequence[Run], nats_: str) -> list[str]:
    return [
        average(runs, take("accuracy")),
        average(runs, take("auroc confidence")),
        average(runs, signals("alone", "auroc")),
        show_all(runs, added("auroc")),
        show_all(runs, added("aurc"), 4),
        nats_,
        show_all(runs, gain("auroc mutual_information", "auroc confidence")),
        show_all(runs, gain("aurc mutual_information", "aurc confidence"), 4),
        show_all(runs, gain("auroc disagreement", "auroc confidence")),
    ]


def errors_by_set(runs: Sequence[Run]) -> str:
    rows = []
    for name in sorted({key["dataset"] for key, r in runs if "accuracy" in r}):
        own = of_set(runs, name)
        has_any = by_set(own, nats("gain"))
        nats_ = show(_nats_of(own), 1) if has_any else "-"
        rows.append([name, len(own), *_errors(own, nats_)])
    return table(["data set", "n", *ERRORS], rows)


def _nats_of(runs: Sequence[Run]) -> Interval:
    """The gain of log-likelihood on one set, by rows and runs."""
    values, errors = (by_set(runs, nats(name)) for name in ("gain", "gain_error"))
    return over_rows(*(next(iter(each.values())) for each in (values, errors)))


WIDTHS = (
    "narrower by, percent",
    "worst decile, width",
    "worst decile covered, following",
    "worst decile covered, constant",
    "difference, points",
    "AUROC of the spread for large errors",
)


def _widths(runs: Sequence[Run]) -> list[str]:
    return [
        show_all(runs, narrower, 1),
        average(runs, take("worst decile width"), 2),
        average(runs, take("worst decile scaled")),
        average(runs, take("worst decile constant")),
        show_all(runs, times(100, WORST_GAIN), 1),
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
        own = of_set(runs, name)
        rows.append([name, len(own), *_widths(own)])
    return table(["data set", "n", *WIDTHS], rows)


def shifts(runs: Sequence[Run], arms: Sequence[str]) -> str:
    names = ("novelty", "spread", "confidence", "mutual_information")
    rows = []
    for name in sorted({key["dataset"] for key, _ in runs}):
        for arm in arms:
            own = of_set(_of(runs, arm), name)
            if own:
                cells = [_show_shift(own, each) for each in names]
                rows.append([name, arm, len(own), *cells])
    return table(["data set", "arm", "n", *names[:3], "mutual information"], rows)


def _show_shift(runs: Sequence[Run], name: str) -> str:
    found = _auroc_by_set(runs, lambda place: shift_of(name, place))
    return show(next(iter(found.values())), 3, "") if found else "-"


# What doubling changes


RMSE = Measure("RMSE, percent of its mean", take("rmse"), 2, False, of_mean=True)
ACCURACY = Measure("accuracy, points", times(100, take("accuracy")), 2, True)
REMOVED = Measure(
    "share of error removed, points", times(100, take("removed")), 2, True
)
CONFIDENCE = Measure("AUROC of confidence", signals("alone", "auroc"), 4, True)
INFORMATION = Measure(
    "AUROC of mutual information", take("auroc mutual_information"), 4, True
)
BOTH = Measure("AUROC gained by both", added("auroc"), 4, True)
NATS = Measure("log-likelihood gained by both", nats("gain"), 2, True)
AURC = Measure(
    "AURC of confidence, points", times(100, signals("alone", "aurc")), 3, False
)
AURC_INFORMATION = Measure(
    "AURC of mutual information, points",
    times(100, take("aurc mutual_information")),
    3,
    False,
)
SPREAD = Measure("AUROC of the spread for large errors", take("auroc spread"), 4, True)
AURC_SPREAD = Measure(
    "AURC of the spread, percent of the mean error",
    times(100, take("aurc spread")),
    2,
    False,
)
NARROWER = Measure("how much narrower, points", narrower, 2, True)
WORST = Measure(
    "worst decile covered, points", times(100, take("worst decile scaled")), 2, True
)
SHIFTED_CLASSES = Measure(
    "AUROC of mutual information for shifted rows",
    shift_of("mutual_information"),
    3,
    True,
)
SHIFTED_NUMBERS = Measure(
    "AUROC of the spread for shifted rows", shift_of("spread"), 3, True
)
SHIFTED = (SHIFTED_CLASSES, SHIFTED_NUMBERS)
_FINDING = (CONFIDENCE, AURC, BOTH, NATS, INFORMATION, AURC_INFORMATION)
OF_CLASSES = (ACCURACY, REMOVED, *_FINDING, SHIFTED_CLASSES)
OF_NUMBERS = (RMSE, REMOVED, SPREAD, AURC_SPREAD, NARROWER, WORST, SHIFTED_NUMBERS)
TOPICS = {
    "The error itself": (RMSE, ACCURACY),
    "Finding errors, classes": _FINDING,
    "Finding errors, numbers": (SPREAD, AURC_SPREAD),
    "Widths of intervals": (NARROWER, WORST),
    "Finding shifted rows": SHIFTED,
}


def find_slopes(runs: Sequence[Run], measure: Measure) -> dict[str, Slope]:
    """By set."""
    names = sorted({key["dataset"] for key, _ in runs})
    found = {
        name: find_slope([result for _, result in of_set(runs, name)], measure)
        for name in names
    }
    return {name: slope for name, slope in found.items() if slope is not None}


def doubled(
    ours: Sequence[Run], shifted: Sequence[Run], measures: Sequence[Measure]
) -> str:
    """Slopes by set, and over all sets that have one."""
    rows = []
    own = measures[0].find
    for part, words in ((ours, ""), (shifted, ", shifted")):
        runs = [run for run in part if own(run[1]) is not None]
        slopes = [find_slopes(runs, measure) for measure in measures]
        names = sorted({key["dataset"] for key, _ in runs})
        for name in names:
            cells = [
                show(found[name].interval, measure.digits) if name in found else "-"
                for found, measure in zip(slopes, measures, strict=True)
            ]
            rows.append([f"{name}{words}", len(of_set(runs, name)), *cells])
        if len(names) > 1:
            cells = [
                show(over_slopes([*found.values()]), measure.digits) if found else "-"
                for found, measure in zip(slopes, measures, strict=True)
            ]
            rows.append([f"**all{words}**", len(runs), *cells])
    return table(["data set", "n", *(each.title for each in measures)], rows)


def about_california(
    ours: Sequence[Run], max_train: int, network: dict[str, Any]
) -> str:
    """Why another page has the error grow where this one has it fall."""
    slope = find_slopes(ours, RMSE).get("california")
    if slope is None:
        return ""
    way = "falls" if slope.value < 0 else "grows"
    steps = sorted(float(key["arm"].split()[-1]) for key, _ in ours)
    return (
        f"On california the RMSE {way} by {abs(slope.value):.2f} % with each doubling "
        "here. In [the grid of rank and sigma_init](results.md"
        "#normalised-ambiguity-on-california-test-part), from which "
        "[the paper's claims](why/paper.md) quote, it grows from sigma_init 0.1 to 3. "
        "Both were measured; the recipe, the network and the range differ. Here: the "
        f"default preset's recipe (dropout {network['dropout']:g}, `mask_init` "
        f"{network['mask_init']}, averaged weights), K = {network['k']}, "
        f"{network['n_blocks']} layers of {network['d_block']}, at most {max_train} "
        f"training rows, sigma_init² √rank from {steps[0]:g} to {steps[-1]:g}. There: "
        "the former default's recipe (dropout 0.1, `mask_init` column, no averaged "
        "weights), K = 32, 2 layers of 64, all training rows, one seed, sigma_init² "
        "√rank from 0.01 to 36; most of the growth lies at sigma_init 3, which is 9 "
        "and more. Which of these makes the difference was not tried.\n"
    )
