"""What ten minutes bring: the service searches on each set of the suite.

    python benchmarks/budget.py [--seconds 600] [--datasets ...]

Real Postgres and Redis, one API, two workers of one thread: a table is posted with
`time_budget_seconds` and nothing else that is chosen, as users do who bring a table and
no settings. The search sees train and validation rows. Every finished set is stored at
once; its test score goes to the suite's file, which `suite.py --read-test` alone shows.
"""

import argparse
import csv
import io
import json
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from processes import is_ready
from record import Runs
from suite import key
from suite_sets import COLUMNS, REGRESSION, TARGETS, read_set
from tables import DATA

from tests.support.chaos.field import Kept
from tests.support.servers import free_port, wait_until
from tests.support.stacks import QUICK, Stack, Stacks

CONTENDER, SECONDS = "budget", 600
SCORES = {"regression": ("rmse",), "binary": ("accuracy", "nll")}


class Site:
    """A service on a stack of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        stacks = Stacks(folder)
        stack.callback(stacks.close)
        made: Stack = stacks.make("production")
        for name in QUICK:
            del made.environment[name]
        made.environment["LOMETAB_TRAINING_THREADS"] = "1"  # a worker for each core
        port = free_port()
        log = stack.enter_context((folder / "log").open("wb"))
        self.processes = [
            Kept(["api", "--port", str(port)], made.environment, log),
            *(Kept(["worker"], made.environment, log) for _ in range(2)),
        ]
        for process in self.processes:
            stack.callback(process.close)
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_ready(address), seconds=120, what="the API answers")
        headers = {"Authorization": f"Bearer {made.key}"}
        client = httpx.Client(base_url=address, headers=headers, timeout=120)
        self.client = stack.enter_context(client)

    def search(self, name: str, data: Path, seconds: float) -> dict[str, Any]:
        """The job that has ended."""
        config = {
            "target": TARGETS[name],
            "task": "regression" if name in REGRESSION else "binary",
            "columns": COLUMNS.get(name, {}),
            "split": {"kind": "column", "column": "part"},
            "time_budget_seconds": seconds,
        }
        answer = self.client.post(
            "/jobs",
            files={"file": ("table.csv", _to_csv(read_set(name, data)))},
            data={"config": json.dumps(config)},
        )
        answer.raise_for_status()
        address = f"/jobs/{answer.json()['id']}"
        while (job := self.client.get(address).json())["finished_at"] is None:
            for process in self.processes:
                process.keep()
            time.sleep(2)
        assert job["status"] == "succeeded", job["error"]
        found: dict[str, Any] = job
        return found

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.get(path).raise_for_status().json()
        return answer


def _to_csv(table: Mapping[str, Any]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table)
    writer.writerows(zip(*(list(column) for column in table.values()), strict=True))
    return text.getvalue().encode()


def run(name: str, data: Path, seconds: float) -> tuple[dict[str, Any], Any]:
    """What came of a set, and its test scores."""
    with tempfile.TemporaryDirectory(prefix="lometab-budget-") as folder:
        with ExitStack() as stack:
            site = Site(Path(folder), stack)
            began = time.monotonic()
            job = site.search(name, data, seconds)
            spent = time.monotonic() - began
            model = site.get(f"/models/{job['model_id']}")
            report = site.get(f"/jobs/{model['job_id']}/report")
    wanted = SCORES["regression" if name in REGRESSION else "binary"]
    scores = {
        part: {each: report["scores"][part]["ensemble"][each] for each in wanted}
        for part in ("val", "test")
    }
    result = {
        "val": scores["val"],
        "seconds": round(spent, 1),
        "progress": job["progress"],
        "members": model["k"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    return result, scores["test"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--datasets", nargs="+", choices=TARGETS, default=[*TARGETS])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--trial", action="store_true", help="keep nothing")
    options = parser.parse_args()
    if options.seconds != SECONDS and not options.trial:
        parser.error(f"the suite's table is of {SECONDS} seconds: others need --trial")
    runs, tests = Runs("budget"), Runs("suite_test")
    for name in options.datasets:
        wanted = {"dataset": name, "seconds": options.seconds}
        if runs.find(wanted) is not None:
            continue
        result, tested = run(name, options.data, options.seconds)
        print(name, result, flush=True)
        if not options.trial:
            # Appended: others may be writing the same file.
            tests.get(key(name, CONTENDER, 0, "full"), partial(dict, all=tested))
            runs.get(wanted, partial(dict, result))


if __name__ == "__main__":
    main()
