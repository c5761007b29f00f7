"""How much longer one recipe takes than another: timed in turns.

    OMP_NUM_THREADS=1 python benchmarks/suite_times.py [--datasets ...]

CPU seconds of the suite's runs vary by half with the load of the machine, and its
contenders ran on different days. Here they take turns: two epochs of each on one set,
then again in the reverse order. How many epochs a recipe needs does not vary with the
load: that is taken from the suite's full runs. Ten sets take a few minutes on a quiet
machine; every finished turn is stored at once.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from contenders import CONTENDERS, Rows
from record import Runs, former
from suite import _find_commit
from suite_sets import TARGETS, load_rows
from tables import DATA

from lometab.train import Progress

TIMED = ("default", "refined", "tabm-refined")
NETWORKS_OF = {"networks-4-refined": ("refined", 4)}
"""Contenders that are another one so many times."""
TURNS = range(3)


def time_network(rows: Rows, contender: str) -> dict[str, float]:
    """CPU seconds of an epoch, the second one, and of all that precedes the first."""
    (settings,) = CONTENDERS[contender].networks
    config = former(**{**settings, "max_epochs": 2, "patience": None})
    marks = [time.process_time()]

    def on_epoch(_: Progress) -> None:
        marks.append(time.process_time())

    rows.prepared.fit(config, on_epoch=on_epoch)
    start, first, second = marks
    epoch = second - first
    return {"start": max(first - start - epoch, 0.0), "epoch": epoch}


def run(rows: Rows, turn: int) -> dict[str, Any]:
    names: Sequence[str] = TIMED if turn % 2 == 0 else TIMED[::-1]
    return {
        **{name: time_network(rows, name) for name in names},
        "commit": _find_commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def find_missing(times: Runs) -> list[str]:
    """Sets that have not been timed in all turns."""
    turns = {(key["dataset"], key["turn"]) for key, _ in times}
    return [n for n in TARGETS if any((n, turn) not in turns for turn in TURNS)]


def ratio(times: Runs, runs: Runs, name: str, base: str) -> float:
    """Time beside the base's: the geometric mean over sets and seeds of full runs."""
    epochs = {
        (k["contender"], k["dataset"], k["seed"]): r["epochs"]
        for k, r in runs
        if k["stage"] == "full" and "epochs" in r
    }
    logs = [
        np.log(
            _seconds(times, name, dataset, n)
            / _seconds(times, base, dataset, epochs[base, dataset, seed])
        )
        for (contender, dataset, seed), n in epochs.items()
        if contender == name and (base, dataset, seed) in epochs
    ]
    return float(np.exp(mean(logs)))


def _seconds(times: Runs, name: str, dataset: str, n_epochs: int) -> float:
    timed, n = NETWORKS_OF.get(name, (name, 1))
    turns = [r[timed] for k, r in times if k["dataset"] == dataset]
    start, epoch = (median(turn[part] for turn in turns) for part in ("start", "epoch"))
    return float(n * (start + n_epochs * epoch))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=TARGETS, default=[*TARGETS])
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    torch.set_num_threads(1)
    times = Runs("suite_times")
    for name in options.datasets:
        for turn in TURNS:
            rows = load_rows(name, "full", options.data)
            found = times.get(
                {"dataset": name, "turn": turn}, lambda r=rows, t=turn: run(r, t)
            )
            shown = [f"{n} {found[n]['epoch']:.2f}" for n in TIMED]
            print(name, turn, *shown, "CPU s an epoch", flush=True)


if __name__ == "__main__":
    main()
