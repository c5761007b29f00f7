"""Half an hour of mixed load with faults at random, on Postgres and Redis.

    python benchmarks/soak.py [--minutes 30] [--seed 0]

Two APIs, two workers, both servers real. Callers predict, ask for explanations and by
tensors, upload files of three kinds, delete, train, sweep, cancel and follow events,
and ask again when they are cut off; meanwhile processes are killed, stopped and frozen,
and servers restarted. One API and one worker are spared what would end them: their
memory and descriptors are watched. At the end there is peace, and what was acknowledged
is held against what is there. Counted is what is lost, doubled, wrong or stuck, not how
fast it is: other work on the machine does no harm.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from record import Runs, table, write_section

from tests.support.chaos.callers import Callers
from tests.support.chaos.examination import run_doctor
from tests.support.chaos.field import Battlefield
from tests.support.chaos.watch import MOST_GROWTH, MOST_MORE, Watch, find_grown

PEACE_SECONDS = 600.0


def list_faults(field: Battlefield) -> list[tuple[str, Callable[[], None]]]:
    return [
        ("worker killed", field.kill_worker),
        ("worker told to stop", field.terminate_worker),
        ("training process killed", field.kill_child),
        ("worker frozen past its lease", field.freeze_worker),
        ("API killed", field.kill_api),
        ("API told to stop", field.terminate_api),
        ("API frozen for 5 s", field.freeze_api),
        ("connections to Postgres ended", field.end_connections),
        ("Postgres restarted", field.restart_postgres),
        ("Redis wiped", field.wipe_redis),
        ("Redis failed over", field.fail_redis_over),
        ("Redis stopped for 5 s", lambda: field.stop_redis(5)),
    ]


def run(folder: Path, minutes: float, seed: int) -> dict[str, Any]:
    field = Battlefield(folder, n_apis=2, is_measured=True, seed=seed)
    try:
        callers = Callers(field, seed)
        callers.prepare()
        watch = Watch(field)
        seconds = fight(field, callers, watch, 60 * minutes)
        callers.stop()
        n_stuck = wait_for_peace(field)
        report = callers.judge()
        report["stuck"] += n_stuck
        code, printed = run_doctor(field.stack)
        report |= {
            "minutes": round(seconds / 60, 1),
            "faults": dict(field.faults),
            "longest wait for a new worker": field.find_recovery(),
            "doctor": "all is well" if code == 0 else printed,
            "watched": watch.judge(),
        }
        return report
    finally:
        field.close()


def fight(field: Battlefield, callers: Callers, watch: Watch, seconds: float) -> float:
    """Load and faults; how long it was. Ctrl-C ends it early, in order."""
    faults = list_faults(field)
    started_at = time.monotonic()
    next_fault = 15.0
    callers.start()
    try:
        while (elapsed := time.monotonic() - started_at) < seconds:
            time.sleep(1)
            field.keep()
            watch.look()
            if elapsed > next_fault:
                next_fault = elapsed + field.rng.uniform(5, 15)
                name, fault = field.rng.choice(faults)
                print(f"{elapsed:6.0f} s  {name}  {callers.describe()}", flush=True)
                field.inject(name, fault)
    except KeyboardInterrupt:
        pass
    return time.monotonic() - started_at


def wait_for_peace(field: Battlefield) -> int:
    """How many jobs do not end, with nothing in their way."""
    try:
        field.finish(seconds=PEACE_SECONDS)
        return 0
    except TimeoutError:
        (n_open,) = field.stack.query(
            "SELECT count(*) FROM jobs WHERE finished_at IS NULL"
        )[0]
        return int(n_open)


def write(result: dict[str, Any], day: str) -> None:
    faults = result["faults"]
    counts = ("jobs", "sweeps", "uploads", "deletions", "streams", "predictions")
    counts += ("explanations", "tensors")
    bad = ("lost", "doubled", "wrong", "stuck", "failed", "internal errors")
    load = [
        ["requests answered", result["requests"]],
        ["requests cut off", result["cut off"]],
        ["answered 503, and asked again", result["unavailable"]],
        *[[name, result["done"].get(name, 0)] for name in counts],
    ]
    grown = find_grown(result["watched"])
    text = f"""
## Half an hour of faults

`benchmarks/soak.py` of {day}: {result["minutes"]} minutes of mixed load on Postgres and
Redis with two APIs and two workers, {sum(faults.values())} faults at random. A request
that was cut off is one whose answer did not come; it was asked again.

{table(["fault", "times"], sorted(faults.items()))}
{table(["load", "times"], load)}
{table(["what went wrong", "times"], [[name, result[name]] for name in bad])}
The longest time without a right prediction was {result["longest silence"]} s. A job
whose worker was lost waited for its next one, the other jobs in the queue before it
included, at most {result["longest wait for a new worker"]} s.
`lometab doctor --deep` at the end: {result["doctor"]}.

The processes that were never ended, over the time after the first sixth; the first and
the last third of it by their medians. Flat is what grew by no more than
{100 * (MOST_GROWTH - 1):.0f} %, and of descriptors, threads and connections {MOST_MORE}
more. Not flat: {", ".join(grown) or "none"}.

{table(["", "first third", "last third", "most"], result["watched"])}
"""
    write_section("soak", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="only write the section")
    options = parser.parse_args()
    runs, key = Runs("soak"), {"minutes": options.minutes}
    if not options.write:
        with tempfile.TemporaryDirectory(prefix="lometab-soak-") as folder:
            result = run(Path(folder), options.minutes, options.seed)
        runs.put(key, {**result, "day": f"{date.today():%Y-%m-%d}"})
    result = runs.find(key) or {}
    write(result, result["day"])
    n_bad = sum(result[name] for name in ("lost", "doubled", "wrong", "stuck"))
    is_well = result["doctor"] == "all is well" and not find_grown(result["watched"])
    return 0 if is_well and not n_bad else 1


if __name__ == "__main__":
    sys.exit(main())
