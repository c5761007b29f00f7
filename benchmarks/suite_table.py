"""The suite's table of test scores, and which claims it supports, in plain words.

Read once, at the end, by `suite.py --read-test`: nothing is decided by it. It is not
read before all of its runs are there. What is claimed, who takes part in the ranks and
what "not worse" means was written down before:

- Not worse on a set: the mean score over seeds is at least the other's, with nothing
  allowed for noise. Sets that were lost by less than a standard error of the paired
  differences are named as such, and count as lost.
- Ranks are by RMSE and accuracy, of the former default, the default, TabM with its
  recipe, `best` and CatBoost. `calm-*` differ from these in edges of bins alone, the
  weaker CatBoost in the number of rounds: near-twins would fill ranks.
- CatBoost is the one of its two contenders that is better on the validation rows.
"""

import sys
from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np
import suite_times
from record import Runs, table
from suite import (
    Paired,
    _cell,
    _gain,
    _mean,
    _relative_cost,
    _with_interval,
    by_set,
    improvements,
    interval,
    summary,
)
from suite_sets import REGRESSION, TARGETS

RECIPE, BEFORE = "refined", "default"
SAME_RECIPE, BOOSTERS = "tabm-refined", ("catboost", "catboost-10000")
BEST = "networks-4-refined"
"""The preset `best`."""
BUDGET, BUDGET_SECONDS, BUDGET_WORKERS = "budget", 600, 2
"""Ten minutes of the service's search, once on each set (`budget.py`)."""
TABLE = (RECIPE, BEFORE, SAME_RECIPE, BEST, *BOOSTERS, "calm-feature", "tabm-calm")
SEEDS = range(5)
PARTS = (
    *(RECIPE, BEFORE, SAME_RECIPE, *BOOSTERS),
    *("mlp-calm", "additive-calm", "deep-ensemble-calm", "tabm-package"),
)
"""Contenders of the stage `small`: what the method is made of, and others."""
Scores = dict[tuple[str, int], dict[str, float]]
"""By data set and seed."""


# Is the table whole?


def read() -> str:
    """The section, if nothing is missing: no score is looked at before."""
    stored = [Runs(name) for name in ("suite_test", "suite", "budget", "suite_times")]
    missing = find_missing(*stored)
    if missing:
        lines = "".join(f"  {line}\n" for line in missing)
        sys.exit(
            "Test scores are read once, when the table is whole, so none was looked "
            f"at. There is still missing:\n{lines}"
        )
    return section(*stored)


def find_missing(tests: Runs, runs: Runs, searches: Runs, times: Runs) -> list[str]:
    """What the table needs and is not stored, one line for each contender."""
    tested = _places(key for key, _ in tests)
    costed = _places(key for key, result in runs if "cpu_seconds" in result)
    lines = []
    for what, found in (("test scores", tested), ("costs", costed)):
        for name in TABLE:
            lines += _lack(f"{what} of {name}", found.get(name, set()), SEEDS)
    lines += _lack(f"test scores of {BUDGET}", tested.get(BUDGET, set()), range(1))
    budgets = [(key["dataset"], key["seconds"]) for key, _ in searches]
    unsearched = [name for name in TARGETS if (name, BUDGET_SECONDS) not in budgets]
    if unsearched:
        lines.append(f"searches of {BUDGET_SECONDS} seconds: {', '.join(unsearched)}")
    untimed = suite_times.find_missing(times)
    if untimed:
        lines.append(f"times in turns (suite_times.py): {', '.join(untimed)}")
    return lines


def _places(keys: Iterable[dict[str, Any]]) -> dict[str, set[tuple[str, int]]]:
    """The sets and seeds of each contender's full runs."""
    found: dict[str, set[tuple[str, int]]] = {}
    for key in keys:
        if key["stage"] == "full":
            place = key["dataset"], key["seed"]
            found.setdefault(key["contender"], set()).add(place)
    return found


def _lack(what: str, found: set[tuple[str, int]], seeds: Sequence[int]) -> list[str]:
    gaps = []
    for dataset in TARGETS:
        gone = [str(seed) for seed in seeds if (dataset, seed) not in found]
        if gone:
            gaps.append(f"{dataset} (seed {', '.join(gone)})")
    return [f"{what}: {'; '.join(gaps)}"] if gaps else []


# Scores


def collect(tests: Runs) -> dict[str, Scores]:
    """The test scores of each contender of the table."""
    found: dict[str, Scores] = {name: {} for name in (*TABLE, BUDGET)}
    for key, result in tests:
        if key["contender"] in found and key["seed"] in SEEDS:
            found[key["contender"]][key["dataset"], key["seed"]] = result["all"]
    return found


def choose_booster(runs: Runs) -> str:
    """The stronger CatBoost by its validation scores."""
    return BOOSTERS[compare_boosters(runs) > 0]


def compare_boosters(runs: Runs) -> float:
    """By how many percent more rounds are better on validation."""
    fewer, more = BOOSTERS
    gains = improvements(runs, "full", more, "val", soft=False, base=fewer)
    return _mean(gains)


def pair(own: Scores, base: Scores, *, soft: bool = False) -> Paired:
    """Of each set, by how many percent better than the base, seed by seed."""
    paired: Paired = {}
    for place in sorted(own.keys() & base.keys()):
        gain = _gain(own[place], base[place], soft=soft)
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


def rank_contenders(scores: dict[str, Scores], booster: str) -> dict[str, float]:
    ranked = (BEFORE, RECIPE, SAME_RECIPE, BEST, booster)
    return rank({name: scores[name] for name in ranked})


def _merit(scores: dict[str, float]) -> float:
    return -scores["rmse"] if "rmse" in scores else scores["accuracy"]


def leads(own: Scores, base: Scores) -> dict[str, float]:
    """Of each set, the mean score over seeds less that of the base."""

    def merit(scores: Scores, dataset: str) -> float:
        return mean(
            _merit(each) for place, each in scores.items() if place[0] == dataset
        )

    datasets = {name for name, _ in own} & {name for name, _ in base}
    return {n: merit(own, n) - merit(base, n) for n in TARGETS if n in datasets}


def find_close(own: Scores, base: Scores) -> set[str]:
    """Sets lost by less than a standard error of the paired differences."""
    close = set()
    for dataset, lead in leads(own, base).items():
        gaps = [
            _merit(own[place]) - _merit(base[place])
            for place in own.keys() & base.keys()
            if place[0] == dataset
        ]
        if lead < 0 and len(gaps) > 1 and -lead < stdev(gaps) / len(gaps) ** 0.5:
            close.add(dataset)
    return close


# The tables


def show_scores(scores: dict[str, Scores]) -> str:
    """RMSE and accuracy of all sets, then the likelihood of classes."""
    names = [f"{d} {'↓' if d in REGRESSION else '↑'}" for d in TARGETS]
    classes = [dataset for dataset in TARGETS if dataset not in REGRESSION]
    hard = [
        [name, *(_show_cell(own, d, "rmse", "accuracy") for d in TARGETS)]
        for name, own in scores.items()
    ]
    soft = [
        [name, *(_show_cell(own, dataset, "nll") for dataset in classes)]
        for name, own in scores.items()
    ]
    return (
        f"{table(['RMSE, accuracy', *names], hard)}\n"
        f"{table(['NLL', *(f'{dataset} ↓' for dataset in classes)], soft)}"
    )


def _show_cell(own: Scores, dataset: str, *kinds: str) -> str:
    runs = [own[place] for place in sorted(own) if place[0] == dataset]
    return _cell([each[kind] for each in runs for kind in kinds if kind in each])


def side_by_side(
    scores: dict[str, Scores], runs: Runs, searches: Runs, booster: str
) -> str:
    ranks = rank_contenders(scores, booster)
    rows = []
    for name, own in scores.items():
        row = [name, f"{ranks[name]:.2f}" if name in ranks else "-"]
        for base in (BEFORE, booster):
            row += ["-", "-", "-"] if name == base else _against(own, scores[base])
        rows.append([*row, show_cost(name, runs, searches)])
    header = ["contender", "mean rank"]
    for base in (BEFORE, booster):
        header += [
            f"RMSE, accuracy: % better than {base}",
            f"RMSE, NLL: % better than {base}",
            f"sets not worse than {base}",
        ]
    return table([*header, "CPU time"], rows)


def _against(own: Scores, base: Scores) -> list[str]:
    gains = leads(own, base)
    n_runs = len(own.keys() & base.keys())
    return [
        _with_interval(pair(own, base)),
        _with_interval(pair(own, base, soft=True)),
        f"{sum(lead >= 0 for lead in gains.values())} of {len(gains)} (n {n_runs})",
    ]


def show_cost(name: str, runs: Runs, searches: Runs) -> str:
    """CPU seconds beside the former default's: the geometric mean of pairs."""
    if name != BUDGET:
        return f"x {_relative_cost(runs, 'full', name, BEFORE)[0]:.2f}"
    seconds: dict[str, list[float]] = {}
    for key, result in runs:
        if key["stage"] == "full" and key["contender"] == BEFORE:
            seconds.setdefault(key["dataset"], []).append(result["cpu_seconds"])
    logs = [
        np.log(BUDGET_WORKERS * result["seconds"] / mean(seconds[key["dataset"]]))
        for key, result in searches
        if key["seconds"] == BUDGET_SECONDS
    ]
    return f"at most x {np.exp(mean(logs)):.1f}"


def parts(runs: Runs) -> str:
    """A table without test scores: what has no runs of the full sets."""
    return "\n".join(
        [
            "## Side by side, on parts of the sets\n",
            "`python benchmarks/suite.py --write`. An MLP, additive masks, a deep "
            "ensemble and the authors' `tabm` package are run at the stage `small` "
            "only (5000 training rows at most, 8 members; the package too), and so no "
            "test scores: these are scores of decision rows, which no run saw. The "
            "others are there for comparison. `-calm` is the recipe of the default "
            "but for the start of the masks and the edges of bins. Mean ± standard "
            "deviation over n seeds.\n",
            by_set(runs, "small", PARTS),
            summary(runs, "small", RECIPE, PARTS),
        ]
    )


# The claims


Claim = tuple[str, bool]
"""What is claimed, with what was found; and whether that shows it."""


def claims(
    scores: dict[str, Scores], runs: Runs, times: Runs, booster: str
) -> list[Claim]:
    """What was asked of the recipe, and whether the table shows it."""
    found: list[Claim] = []
    for soft, by in ((False, "RMSE and accuracy"), (True, "RMSE and NLL")):
        gains = pair(scores[RECIPE], scores[BEFORE], soft=soft)
        words = f"The default is better than the former one by {by}"
        holds = _mean(gains) > 0 and interval(gains)[0] > 0
        found.append((f"{words}: {_with_interval(gains)} %", holds))
    ratio = suite_times.ratio(times, runs, RECIPE, BEFORE)
    measured, _ = _relative_cost(runs, "full", RECIPE, BEFORE)
    words = (
        f"It takes at most 1.5 times as long: x {ratio:.2f} (epochs of the full runs, "
        "timed in turns); the CPU seconds of the runs themselves, which vary with the "
        f"load, say x {measured:.2f}; in turns, TabM with its recipe takes x "
        f"{suite_times.ratio(times, runs, SAME_RECIPE, BEFORE):.2f}, `best` x "
        f"{suite_times.ratio(times, runs, BEST, BEFORE):.2f}"
    )
    found.append((words, ratio <= 1.5))
    found.append(_count("The default", RECIPE, SAME_RECIPE, 6, scores))
    ranks = rank_contenders(scores, booster)
    alone = rank({name: scores[name] for name in (RECIPE, booster)})
    ahead = {n: lead > 0 for n, lead in leads(scores[RECIPE], scores[booster]).items()}
    words = (
        f"The default's mean rank, {ranks[RECIPE]:.2f}, is before CatBoost's, "
        f"{ranks[booster]:.2f}, among {', '.join(ranks)}, and of these two alone "
        f"({alone[RECIPE]:.2f}); ahead on "
        f"{_list(n for n in ahead if ahead[n])}; not ahead on "
        f"{_list(n for n in ahead if not ahead[n])}; "
        f"{_with_interval(pair(scores[RECIPE], scores[booster]))} %"
    )
    is_before = all(each[RECIPE] < each[booster] for each in (ranks, alone))
    found.append((words, is_before))
    found.append(_count("`best`", BEST, booster, 7, scores))
    found.append(_count("A search of ten minutes", BUDGET, booster, 7, scores))
    return found


def _count(
    said: str, name: str, base: str, n_sets: int, scores: dict[str, Scores]
) -> Claim:
    """Not worse than the base on so many sets."""
    own, other = scores[name], scores[base]
    found = leads(own, other)
    close = find_close(own, other)
    n_held = sum(lead >= 0 for lead in found.values())
    worse = [
        f"{dataset}{' (within one standard error)' if dataset in close else ''}"
        for dataset, lead in found.items()
        if lead < 0
    ]
    words = (
        f"{said} is not worse than {base} on at least {n_sets} of {len(TARGETS)} sets: "
        f"on {n_held}; worse on {_list(worse)}; {_with_interval(pair(own, other))} %"
    )
    return words, n_held >= n_sets


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def section(tests: Runs, runs: Runs, searches: Runs, times: Runs) -> str:
    scores = collect(tests)
    booster = choose_booster(runs)
    claimed = claims(scores, runs, times, booster)
    said = "".join(
        f"- {words}: {'shown' if holds else '**not shown**'}\n"
        for words, holds in claimed
    )
    return "\n".join(
        [
            "## The suite\n",
            "`python benchmarks/suite.py --read-test`. Ten sets with fixed splits, all "
            "training rows, the same seeds for all; test scores, mean ± standard "
            "deviation over n seeds. *% better* is the mean over sets of paired "
            "differences with a 95 % interval by drawing sets and seeds (expanded "
            "percentiles, as ten sets are few). Everything was decided before, on rows "
            "that were left out of training.\n",
            f"`default` is the former default, `{RECIPE}` the present one, `{BEST}` "
            f"the preset `best`, `{SAME_RECIPE}` TabM with the recipe of the default, "
            "`budget` a search of ten minutes by two workers, with one run a set (it "
            "is compared with the mean over seeds, or with seed 0 where runs are "
            "paired). "
            "An MLP, additive masks, a deep ensemble and the `tabm` package were run "
            "on parts of the sets only: see *Side by side, on parts of the sets*.\n",
            show_scores(scores),
            f"Ranks are those among {', '.join(rank_contenders(scores, booster))}: the "
            "others are near-twins of one of these (other edges of bins; CatBoost with "
            "another number of rounds), which would fill ranks, or have one seed. "
            f"CatBoost is `{booster}`, the better one on validation rows: 10 000 "
            f"rounds in place of 2000 make {compare_boosters(runs):+.2f} % there. CPU "
            "time is that of the runs beside `default`, and varies with the load of "
            "the machine.\n",
            side_by_side(scores, runs, searches, booster),
            "*Not worse* on a set: the mean over seeds is at least the other's, with "
            "nothing allowed for noise.\n",
            said,
        ]
    )
