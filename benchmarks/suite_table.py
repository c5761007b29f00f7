"""The suite's table of test scores, and which claims it supports, in plain words.

Read once, at the end, by `suite.py --read-test`: nothing is decided by it.
"""

from statistics import mean

from contenders import CONTENDERS
from record import Runs, table
from suite import Paired, _cell, _gain, _mean, _relative_cost, _with_interval, interval
from suite_sets import TARGETS

RECIPE, BEFORE = "refined", "default"
SAME_RECIPE, BOOSTER = "tabm-refined", "catboost"
BEST = "networks-4-refined"
"""The preset `best`."""
BUDGET = "budget"
"""Ten minutes of the service's search, once on each set (`budget.py`)."""
Scores = dict[tuple[str, int], dict[str, float]]
"""By data set and seed."""


def collect(tests: Runs) -> dict[str, Scores]:
    """The test scores of each contender."""
    found: dict[str, Scores] = {}
    for key, result in tests:
        scores = found.setdefault(key["contender"], {})
        scores[key["dataset"], key["seed"]] = result["all"]
    return {name: found[name] for name in (*CONTENDERS, BUDGET) if name in found}


def pair(own: Scores, base: Scores) -> Paired:
    """Of each set, by how many percent better than the base, seed by seed."""
    paired: Paired = {}
    for place in sorted(own.keys() & base.keys()):
        gain = _gain(own[place], base[place], soft=False)
        paired.setdefault(place[0], []).append(gain)
    return paired


def rank(scores: dict[str, Scores]) -> dict[str, float]:
    """Mean rank over the sets and seeds that all contenders have; equal ones share."""
    places = set.intersection(*(set(each) for each in scores.values()))
    ranks: dict[str, list[float]] = {name: [] for name in scores}
    for place in places:
        merits = {name: _merit(each[place]) for name, each in scores.items()}
        for name, merit in merits.items():
            above = sum(other > merit for other in merits.values())
            same = sum(other == merit for other in merits.values())
            ranks[name].append(above + (same + 1) / 2)
    return {name: mean(each) for name, each in ranks.items() if each}


def _merit(scores: dict[str, float]) -> float:
    return -scores["rmse"] if "rmse" in scores else scores["accuracy"]


def by_set(scores: dict[str, Scores]) -> str:
    rows = []
    for name, own in scores.items():
        cells = []
        for dataset in TARGETS:
            runs = [own[place] for place in sorted(own) if place[0] == dataset]
            values = [each.get("rmse", each.get("accuracy", 0.0)) for each in runs]
            cells.append(_cell(values))
        rows.append([name, *cells])
    return table(["test", *TARGETS], rows)


def side_by_side(scores: dict[str, Scores]) -> str:
    ranks = rank({name: each for name, each in scores.items() if name != BUDGET})
    rows = []
    for name, own in scores.items():
        columns = [name, f"{ranks[name]:.2f}" if name in ranks else "-"]
        for base in (BEFORE, BOOSTER):
            gains = pair(own, scores[base]) if base in scores else {}
            is_other = gains and name != base
            columns += [
                _with_interval(gains) if is_other else "-",
                count_not_worse(gains) if is_other else "-",
            ]
        rows.append(columns)
    header = ["contender", "mean rank"]
    for base in (BEFORE, BOOSTER):
        header += [f"% better than {base}", "sets not worse"]
    return table(header, rows)


def count_not_worse(gains: Paired) -> str:
    n_sets = sum(mean(values) >= 0 for values in gains.values())
    n_runs = sum(len(values) for values in gains.values())
    return f"{n_sets} of {len(gains)} (n {n_runs})"


def count_sets(own: Scores, base: Scores) -> int:
    """On how many sets the mean over seeds is not worse than the base's."""

    def merit(scores: Scores, dataset: str) -> float:
        return mean(
            _merit(each) for (name, _), each in scores.items() if name == dataset
        )

    datasets = {name for name, _ in own}
    return sum(merit(own, each) >= merit(base, each) for each in datasets)


def claims(scores: dict[str, Scores], runs: Runs) -> str:
    """What was asked of the recipe, and whether the table shows it."""
    if not {RECIPE, BEFORE} <= scores.keys():
        return ""
    against = pair(scores[RECIPE], scores[BEFORE])
    low, _ = interval(against)
    ratio, _ = _relative_cost(runs, "full", RECIPE, BEFORE)
    lines = [
        ("the recipe is better than the former default", low > 0),
        (f"at most 1.5 times its time (here x {ratio:.2f})", ratio <= 1.5),
    ]
    if SAME_RECIPE in scores:
        gains = pair(scores[RECIPE], scores[SAME_RECIPE])
        n_sets = sum(mean(values) >= 0 for values in gains.values())
        words = f"not worse than TabM with the same recipe on 6 sets (here {n_sets})"
        lines.append((words, n_sets >= 6))
    if BOOSTER in scores:
        ranks = rank({name: scores[name] for name in (RECIPE, BOOSTER)})
        words = f"ranks before CatBoost (here {ranks[RECIPE]:.2f} of two)"
        lines.append((words, ranks[RECIPE] < ranks[BOOSTER]))
    for name, said in ((BEST, "`best`"), (BUDGET, "ten minutes")):
        if {BOOSTER, name} <= scores.keys():
            n_sets = count_sets(scores[name], scores[BOOSTER])
            words = f"{said}: not worse than CatBoost on 7 sets (here {n_sets})"
            lines.append((words, n_sets >= 7))
    text = f"The recipe against the former default: {_mean(against):+.2f} %.\n\n"
    return text + "".join(
        f"- {words}: {'shown' if holds else '**not shown**'}\n"
        for words, holds in lines
    )


def section(tests: Runs, runs: Runs) -> str:
    scores = collect(tests)
    return "\n".join(
        [
            "## The suite\n",
            "`make bench-suite`. Ten sets with fixed splits, full training rows, the "
            "same seeds for all; test scores, mean \u00b1 standard deviation over n "
            "seeds. RMSE and accuracy; *% better* is the mean over sets of paired "
            "differences with a 95 % interval by drawing sets and seeds. Everything "
            "was decided before, on rows that were left out of training.\n",
            by_set(scores),
            side_by_side(scores),
            claims(scores, runs),
        ]
    )
