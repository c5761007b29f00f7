"""All that the suite has to run, what decides first: for the background.

    OMP_NUM_THREADS=1 nice -n 19 python benchmarks/suite_queue.py

One process, one thread. A run that is stored is not made again, so that whoever stops
this loses one run, and the same command goes on.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import suite
import suite_paths
import torch
from contenders import DROPPED
from record import Runs
from suite_sets import StageName
from tables import DATA

RECIPE = "calm-feature"
Step = tuple[str, StageName, list[int], list[str]]
"""Which script, stage, seeds, and contenders or recipes."""

QUEUE: list[Step] = [
    # What decides: the recipe against the default on rows that neither has seen.
    ("suite", "large", [0], ["default", RECIPE]),
    ("paths", "small", [0], ["deep, sigma 1, by feature, lr 2e-3"]),
    ("suite", "large", [1], ["default", RECIPE]),
    ("suite", "large", [0], ["catboost", "tabm-calm"]),
    ("suite", "large", [2], ["default", RECIPE]),
    # The table: seed by seed, so that one that is stopped early has all the sets.
    *(
        ("suite", "full", [seed], ["catboost", RECIPE, "default", "tabm-calm"])
        for seed in range(5)
    ),
    ("suite", "large", [1, 2], ["catboost", "tabm-calm"]),
]


def left(step: Step) -> Iterator[dict[str, Any]]:
    script, stage, seeds, names = step
    names = [name for name in names if name not in DROPPED]
    if script == "paths":
        return suite_paths.plan(Runs("suite_paths"), stage, seeds, names)
    return suite.plan(Runs("suite"), stage, seeds, names)


def run_all(data: Path) -> None:
    for step in QUEUE:
        for wanted in left(step):
            if step[0] == "paths":
                suite_paths.make(Runs("suite_paths"), wanted, data)
            else:
                suite.make(Runs("suite"), wanted, data)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_all(DATA)
