"""Faults, one after the other and at random, and what is lost by them: nothing.

python -m tests.support.chaos [--jobs 20] [--seconds 120] [--only WORD]
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support.chaos.examination import examine
from tests.support.chaos.field import Battlefield
from tests.support.chaos.random_faults import run
from tests.support.chaos.scenarios import SCENARIOS, Scenario
from tests.support.chaos.volumes import NoVolume
from tests.support.stacks import Stacks

console = Console()


def play(name: str, scenario: Scenario) -> str:
    """What became of it: `well`, why it was left out, or that it failed."""
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lometab-chaos-") as folder:
        stacks = Stacks(Path(folder))
        try:
            examine(scenario(stacks))
            outcome = "well"
        except NoVolume as error:
            outcome = f"left out: {error}"
        except Exception:
            console.print(traceback.format_exc(), markup=False, highlight=False)
            outcome = "FAILED"
        finally:
            stacks.close()
    console.print(f"{name}: {outcome}, {time.monotonic() - started_at:.0f} s")
    return outcome


def play_at_random(n_jobs: int, seconds: float, pause: float, seed: int) -> bool:
    """Whether all jobs were done once."""
    with tempfile.TemporaryDirectory(prefix="lometab-chaos-") as folder:
        field = Battlefield(Path(folder), seed=seed)
        try:
            verdict = run(field, n_jobs=n_jobs, seconds=seconds, pause=pause)
            examine(field.stack)
        finally:
            field.close()
    show("Faults at random", dict(field.faults))
    show("What became of the jobs", verdict)
    is_fine = verdict["succeeded"] == verdict["models"] == n_jobs
    return bool(is_fine and not verdict["doubled"])


def show(title: str, rows: dict[str, object]) -> None:
    table = Table("", "", title=title, show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--pause", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="scenarios with this word in their names")
    options = parser.parse_args()
    chosen = {
        name: scenario
        for name, scenario in SCENARIOS.items()
        if options.only is None or options.only in name
    }
    outcomes = {name: play(name, scenario) for name, scenario in chosen.items()}
    show("Scenarios, each with `lometab doctor --deep` after it", {**outcomes})
    is_fine = "FAILED" not in outcomes.values()
    if options.only is None:
        given = (options.jobs, options.seconds, options.pause, options.seed)
        is_fine &= play_at_random(*given)
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
