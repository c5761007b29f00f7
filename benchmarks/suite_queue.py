"""All that the suite has to run, what its claims need first: for the background.

    OMP_NUM_THREADS=1 python benchmarks/suite_queue.py

One thread a process, which gives way to everything else on the machine; several
processes share the queue, each run is locked by the one that makes it. A run that is
stored is not made again, so that whoever stops this loses one run, and the same command
goes on.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import diversity
import suite
import torch
from contenders import CONTENDERS, DROPPED
from record import ROOT, Runs
from suite_sets import StageName
from tables import DATA

RECIPE, BEST = "refined", "networks-4-refined"
BESIDE = [
    *("catboost", "catboost-10000", "default", RECIPE, "tabm-refined"),
    *("mlp-calm", "additive-calm", "deep-ensemble-calm", "tabm-package"),
]
CANDIDATES = [
    *(name for name in CONTENDERS if name.startswith("refined-")),
    *("mixed-4", "mixed-start"),
    "networks-4-refined",
    "calm-feature-nodecay",
    "calm-feature-he",
    "calm-feature-lr2e-3",
    "calm-feature-share",
]
Step = tuple[str, StageName, list[int], list[str]]
"""`suite` with stage, seeds and contenders, or `paper` with seeds and data sets."""

QUEUE: list[Step] = [
    # The table, and what its claims need first: seed by seed, so that a queue that is
    # stopped early has all the sets.
    *(("suite", "full", [seed], ["catboost-10000"]) for seed in range(5)),
    *(
        (
            "suite",
            "full",
            [seed],
            ["catboost", "calm-feature", RECIPE, "default", "tabm-calm"],
        )
        for seed in range(5)
    ),
    *(("suite", "full", [seed], ["tabm-refined"]) for seed in range(5)),
    *(("suite", "full", [seed], [BEST]) for seed in range(5)),
    # What decided the default: the recipe against the former one.
    ("suite", "large", [0, 1], ["default", "calm-feature", RECIPE]),
    ("suite", "large", [0], ["catboost", "catboost-10000"]),
    ("suite", "large", [0], ["tabm-calm", "tabm-refined"]),
    # Is it worth it to train the same four times, as one ensemble?
    ("suite", "large", [0], [BEST]),
    # Candidates that need hardly any time to be judged.
    ("suite", "small", [0], ["calm-feature", RECIPE, *CANDIDATES]),
    # Side by side with what the method is made of, on parts of the sets.
    *(("suite", "small", [seed], BESIDE) for seed in range(5)),
    # The grids on the paper's own networks.
    *(("paper", "full", [seed], [*diversity.PAPER_NETWORKS]) for seed in range(3)),
]


def left(step: Step) -> Iterator[dict[str, Any]]:
    script, stage, seeds, names = step
    if script == "paper":
        return diversity.plan_paper(Runs("diversity"), seeds, names)
    names = [name for name in names if name not in DROPPED]
    return suite.plan(Runs("suite"), stage, seeds, names)


def run_all(data: Path) -> None:
    for step in QUEUE:
        while run_next(step, data):
            pass


def run_next(step: Step, data: Path) -> bool:
    """Make the first run that nobody else is making; False where there is none."""
    for wanted in left(step):
        with lock(step[0], wanted) as is_ours:
            if not is_ours or wanted not in left(step):
                continue
            if step[0] == "paper":
                diversity.make_paper(Runs("diversity"), wanted)
            else:
                suite.make(Runs("suite"), wanted, data)
            return True
    return False


@contextmanager
def lock(script: str, wanted: dict[str, Any]) -> Iterator[bool]:
    """Whether the run is this process's to make; a process that ends lets go."""
    folder = ROOT / "build" / "suite"
    folder.mkdir(parents=True, exist_ok=True)
    name = " ".join([script, *map(str, wanted.values())]).replace("/", "-")
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def give_way() -> None:
    """To processes of other sessions too: Linux may weigh each session as one."""
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


if __name__ == "__main__":
    give_way()
    torch.set_num_threads(1)
    run_all(DATA)
