"""What a search on a budget makes of its trials: members, or whole networks.

    python benchmarks/choice.py [--seeds 0] [--datasets ...] [--report | --write]

On each set of the suite the default and its neighbours are trained, as the first eight
trials of a search are. Each rule chooses on validation, and is judged on *decision
rows*, which no trial has seen. Answers of trials are kept in `build/choice`, so that
rules can be added without training; what the rules came to is stored at once.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch
from contenders import REFINED, Answers, _config, _train_own
from numpy.typing import NDArray
from record import ROOT, Runs, table, write_section
from suite import Paired, _gain, _loss, _scores, interval
from suite_sets import STAGES, TARGETS, load_rows
from tables import DATA

from lometab.evaluation import choose_members, choose_networks, order_members
from lometab.selection import MAX_MEMBERS, find_least
from lometab.space import NEIGHBOURS
from lometab.table import target

STAGE = "small"
TRIALS: list[dict[str, Any]] = [REFINED, *({**REFINED, **n} for n in NEIGHBOURS)]
KEPT = ROOT / "build" / "choice"
FIRST = "the given settings alone"
FEW = "on fewer validation rows"
N_ROWS = (50, 100, 200, 400, 800, 1500)
LEASTS = (1, 4, 8, 16, 32)
N_DRAWS = 6  # of so many rows


class Trials(NamedTuple):
    """What the networks of a search answer to the validation rows."""

    y: NDArray[Any]
    members: NDArray[np.float64]
    """Of all networks, side by side."""
    sizes: list[int]

    @property
    def starts(self) -> list[int]:
        return np.cumsum([0, *self.sizes]).tolist()

    def list_members(self, networks: Sequence[int]) -> list[int]:
        starts = self.starts
        return [m for n in networks for m in range(starts[n], starts[n + 1])]

    def order(self) -> list[int]:
        """The networks, the one with the least loss first."""
        return sorted(range(len(self.sizes)), key=lambda n: self.loss([n]))

    def loss(self, networks: Sequence[int]) -> float:
        members = self.members[:, self.list_members(networks)]
        return float(_loss(self.y, members.mean(1)))

    def best_beginning(self) -> list[int]:
        order = self.order()
        losses = [self.loss(order[:n]) for n in range(1, len(order) + 1)]
        return order[: int(np.argmin(losses)) + 1]


def _members(**limits: int) -> Callable[[Trials], list[int]]:
    return lambda trials: choose_members(trials.y, trials.members, **limits)


def _networks(**limits: int) -> Callable[[Trials], list[int]]:
    return lambda trials: trials.list_members(choose_networks(*trials, **limits))


def _best(n: int) -> Callable[[Trials], list[int]]:
    return lambda trials: trials.list_members(trials.order()[:n])


RULES: dict[str, Callable[[Trials], list[int]]] = {
    FIRST: lambda trials: trials.list_members([0]),
    "the best network": _best(1),
    "members, as a search chooses": lambda t: choose_members(
        t.y, t.members, most=MAX_MEMBERS, least=find_least(len(t.y))
    ),
    "members, 1 to 32": _members(most=32),
    "members, 8 to 32": _members(most=32, least=8),
    "members, 16 to 32": _members(most=32, least=16),
    "members, 32": _members(most=32, least=32),
    "networks, 1 to 8": _networks(),
    "networks, 1 to 4": _networks(most=4),
    "networks, 2 to 8": _networks(least=2),
    "networks, 4 to 8": _networks(least=4),
    "networks, 4": _networks(most=4, least=4),
    "the best n, n by validation": lambda t: t.list_members(t.best_beginning()),
    "the best 2": _best(2),
    "the best 4": _best(4),
    "all 8": _best(8),
}


def run(name: str, seed: int, data: Path) -> dict[str, Any]:
    """What each rule came to."""
    rows = load_rows(name, STAGE, data)
    trained = [_answer(name, seed, i, data) for i in range(len(TRIALS))]
    y = target(rows.table, rows.prepared.schema)
    answers = {
        part: np.concatenate([each[part] for each in trained], axis=1)
        for part in ("val", "decision")
    }
    sizes = [each["val"].shape[1] for each in trained]
    trials = Trials(y[rows.parts["val"]], answers["val"], sizes)
    found = {}
    for rule, choose in RULES.items():
        members = choose(trials)
        networks = np.searchsorted(trials.starts, members, side="right")
        found[rule] = {
            "members": len(members),
            "networks": len({*networks.tolist()}),
            **{
                part: _scores(y[rows.parts[part]], each[:, members].mean(1))
                for part, each in answers.items()
            },
        }
    gain = partial(_gain_on, y[rows.parts["decision"]], answers["decision"], sizes[0])
    found[FEW] = {
        str(n): choose_on_few(trials, n, gain) for n in N_ROWS if n <= len(trials.y)
    }
    return found


def choose_on_few(
    trials: Trials, n: int, gain: Callable[[list[int]], float]
) -> dict[str, float]:
    """What so many validation rows choose, by how many members there are at least: how
    much better it is than the first network, in percent."""
    rng, gains = np.random.default_rng(0), np.zeros(len(LEASTS))
    for _ in range(N_DRAWS):
        some = rng.permutation(len(trials.y))[:n]
        order, losses = order_members(
            trials.y[some], trials.members[some], most=max(LEASTS)
        )
        for i, least in enumerate(LEASTS):
            best = least + int(np.argmin(losses[least - 1 :]))
            gains[i] += gain(order[:best]) / N_DRAWS
    return dict(zip(map(str, LEASTS), gains.round(3).tolist(), strict=True))


def _gain_on(
    y: NDArray[Any], answers: NDArray[np.float64], n_first: int, members: list[int]
) -> float:
    first = _loss(y, answers[:, :n_first].mean(1))
    return float(100 * (first - _loss(y, answers[:, members].mean(1))) / first)


def _answer(name: str, seed: int, i: int, data: Path) -> Answers:
    path = KEPT / f"{name}-{seed}-{i}.npz"
    if not path.exists():
        config = _config(TRIALS[i], seed * len(TRIALS) + i, STAGES[STAGE].k)
        answers = _train_own(load_rows(name, STAGE, data), config).answers
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **answers)
    with np.load(path) as kept:
        return {**kept}


def report(runs: Runs) -> str:
    """Each rule against the given settings alone, the best first."""
    rows = []
    for rule in RULES:
        hard, soft = (_pair(runs, rule, "decision", soft=s) for s in (False, True))
        on_val = _pair(runs, rule, "val", soft=True)
        if rule == FIRST or not soft:
            continue
        found = [result[rule] for _, result in runs if rule in result]
        row = [
            rule,
            f"{len(soft)} sets, {len(found)} runs",
            _show(hard),
            _show(soft),
            f"{sum(mean(values) > 0 for values in soft.values())} of {len(soft)}",
            f"{_mean(on_val):+.2f}",
            f"{mean(each['networks'] for each in found):.1f}",
            f"{mean(each['members'] for each in found):.1f}",
        ]
        rows.append((_mean(soft), row))
    header = [
        f"against {FIRST}",
        "n",
        "RMSE, accuracy: % better",
        "RMSE, NLL: % better",
        "sets better",
        "on validation",
        "networks",
        "members",
    ]
    return table(header, [row for _, row in sorted(rows, key=lambda pair: -pair[0])])


def report_few(runs: Runs) -> str:
    """How many members there should be at least, by the rows that choose them."""
    rows = []
    for n in map(str, N_ROWS):
        found = [result[FEW][n] for _, result in runs if n in result[FEW]]
        if found:
            means = [mean(each[str(least)] for each in found) for least in LEASTS]
            rows.append([n, len(found), *(f"{each:+.2f}" for each in means)])
    names = [f"{least} at least" for least in LEASTS]
    return table(["validation rows", "runs", *names], rows)


def _pair(runs: Runs, rule: str, part: str, *, soft: bool) -> Paired:
    paired: Paired = {}
    for key, result in runs:
        if rule in result:
            gain = _gain(result[rule][part], result[FIRST][part], soft=soft)
            paired.setdefault(key["dataset"], []).append(gain)
    return paired


def _mean(paired: Paired) -> float:
    return mean(mean(values) for values in paired.values())


def _show(paired: Paired) -> str:
    low, high = interval(paired)
    return f"{_mean(paired):+.2f} [{low:+.2f}, {high:+.2f}]"


HEADING = """## What a search makes of its trials

`python benchmarks/choice.py --write`. On sets of the suite's stage `small` the default
preset with 8 members and its seven neighbours are trained, each with a seed of its own,
as the first trials of a search on a budget are. *Members* and *networks* are chosen
greedily on the validation rows, so many at least and at most, by the loss of their
mean; *the best n* are whole networks in the order of their own loss. All are judged on
decision rows. *% better* is the mean over sets with a 95 % interval by drawing sets and
seeds. The more *members*, the more a prediction costs. What a search does was decided
by these runs, so its own row is too good by a little.

"""


FEW_HEADING = """The same trials, where members are chosen by fewer validation rows, by
how many there are at least (32 at most): RMSE or NLL on decision rows, % better than
the given settings alone, the mean over sets that have so many validation rows and over
draws of them.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--datasets", nargs="+", choices=TARGETS, default=[*TARGETS])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    runs = Runs("choice")
    if options.report:
        return print(report(runs), report_few(runs), sep="\n")
    if options.write:
        text = HEADING + report(runs) + "\n" + FEW_HEADING + report_few(runs)
        return write_section("choice", text)
    torch.set_num_threads(1)
    for seed in options.seeds:
        for name in options.datasets:
            key = {"stage": STAGE, "dataset": name, "seed": seed}
            runs.get(key, lambda n=name, s=seed: run(n, s, options.data))  # type: ignore[misc]
            print(name, seed, flush=True)
    return None


if __name__ == "__main__":
    main()
