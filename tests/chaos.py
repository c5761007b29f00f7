"""Jobs under fire: workers and training processes killed, Redis wiped and stopped,
Postgres restarted. `make chaos` runs the long form and prints what was lost: nothing.

    python -m tests.chaos --jobs 20 --seconds 120
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import redis as redis_client
from rich.console import Console
from rich.table import Table

from tests.conftest import make_csv
from tests.servers import Postgres, Redis, wait_until
from tests.stacks import Stack, Stacks
from tests.test_end_to_end import TINY

HYPERPARAMETERS = {**TINY, "max_epochs": 25, "patience": None}


class Battlefield:
    """Two workers on real servers, kept alive while faults are injected."""

    def __init__(self, folder: Path, *, n_workers: int = 2, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.postgres, self.redis = Postgres(), Redis()
        self.stacks = Stacks(self.postgres, self.redis, folder)
        self.stacks.migrate_templates()
        self.stack: Stack = self.stacks.make("production")
        self.stack.environment |= {
            "LOMETAB_LEASE_SECONDS": "4",
            "LOMETAB_PATROL_SECONDS": "1",
            "LOMETAB_CHECKPOINT_SECONDS": "1",
            "LOMETAB_MAX_ATTEMPTS": "1000",
            "LOMETAB_EXIT_WITH_PARENT": "true",
        }
        self.log = (folder / "workers.log").open("ab")
        self.workers = [self._start_worker() for _ in range(n_workers)]
        self.faults: Counter[str] = Counter()

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "app.cli", "worker"],
            env=self.stack.environment,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def keep_workers(self) -> None:
        """Start again what was killed, as a process manager would."""
        for i, worker in enumerate(self.workers):
            if worker.poll() is not None:
                assert worker.stdin is not None
                worker.stdin.close()
                self.workers[i] = self._start_worker()

    def post(self, n_jobs: int) -> None:
        """Jobs as the API makes them, without an API that could be in the way."""
        code = f"""
import json, sys
from fastapi.testclient import TestClient
from app.main import app
client = TestClient(app, "http://127.0.0.1")
client.headers["Authorization"] = "Bearer {self.stack.key}"
table, config = sys.argv[1:]
for _ in range({n_jobs}):
    answer = client.post(
        "/jobs", files={{"file": ("t.csv", table)}}, data={{"config": config}}
    )
    assert answer.status_code == 202, answer.text
"""
        config = {
            "target": "y",
            "columns": {"label": "ignore"},
            "hyperparameters": HYPERPARAMETERS,
        }
        subprocess.run(
            [
                *(sys.executable, "-W", "ignore", "-c", code),
                *(make_csv(600), json.dumps(config)),
            ],
            env={**os.environ, **self.stack.environment},
            check=True,
        )

    # Faults

    def kill_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)

    def terminate_worker(self) -> None:
        self.rng.choice(self.workers).terminate()

    def kill_child(self) -> None:
        worker = self.rng.choice(self.workers)
        if worker.poll() is not None:
            return
        for child in psutil.Process(worker.pid).children():
            child.kill()

    def freeze_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        if worker.poll() is None:
            worker.send_signal(signal.SIGSTOP)
            time.sleep(6)  # longer than the lease
            worker.send_signal(signal.SIGCONT)

    def wipe_redis(self) -> None:
        with redis_client.Redis(port=self.redis.port) as client:
            client.flushall()

    def stop_redis(self, seconds: float) -> None:
        self.redis.stop()
        time.sleep(seconds)
        self.redis.start()

    def restart_postgres(self) -> None:
        self.postgres.stop()
        time.sleep(1)
        self.postgres.start()

    def inject(self, name: str, fault: Callable[[], None]) -> None:
        self.faults[name] += 1
        fault()

    # What became of the jobs

    def count(self) -> Counter[str]:
        rows = self.stack.query("SELECT status, count(*) FROM jobs GROUP BY status")
        return Counter({status: count for status, count in rows})

    def finish(self, n_jobs: int, seconds: float) -> None:
        """Wait, without further faults, until all jobs have ended."""

        def all_ended() -> bool:
            self.keep_workers()
            done = self.count()
            return done["succeeded"] + done["failed"] == n_jobs

        wait_until(all_ended, seconds=seconds, what=f"all jobs end: {self.count()}")

    def judge(self, n_jobs: int) -> dict[str, Any]:
        statuses = self.count()
        doubled = self.stack.query(
            "SELECT job_id FROM events WHERE type = 'succeeded' "
            "GROUP BY job_id HAVING count(*) > 1"
        )
        (n_models,) = self.stack.query("SELECT count(DISTINCT job_id) FROM models")[0]
        (gaps,) = self.stack.query(
            "SELECT count(*) FROM jobs WHERE event_seq <> "
            "(SELECT count(*) FROM events WHERE events.job_id = jobs.id)"
        )[0]
        (attempts,) = self.stack.query("SELECT sum(attempt) FROM jobs")[0]
        (recovery,) = self.stack.query(
            "SELECT max(extract(epoch FROM next_at - created_at)) FROM (SELECT type, "
            "created_at, lead(created_at) OVER (PARTITION BY job_id ORDER BY seq) "
            "AS next_at FROM events) AS steps WHERE type IN ('lost', 'released')"
        )[0]
        return {
            "jobs": n_jobs,
            "succeeded": statuses["succeeded"],
            "lost": n_jobs - sum(statuses.values()),
            "failed": statuses["failed"],
            "doubled": len(doubled),
            "models": n_models,
            "stuck": n_jobs - statuses["succeeded"] - statuses["failed"],
            "gaps in events": gaps,
            "attempts": attempts,
            "longest wait for a new worker, s": round(float(recovery or 0), 1),
        }

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            assert worker.stdin is not None
            worker.stdin.close()
        self.log.close()
        self.postgres.remove()
        self.redis.remove()


def run(
    field: Battlefield, *, n_jobs: int, seconds: float, pause: float
) -> dict[str, Any]:
    """Faults at random for some time, each kind at least once, then peace."""
    field.post(n_jobs)
    faults: list[tuple[str, Callable[[], None]]] = [
        ("worker killed", field.kill_worker),
        ("training process killed", field.kill_child),
        ("worker told to stop", field.terminate_worker),
        ("worker frozen past its lease", field.freeze_worker),
        ("Redis wiped", field.wipe_redis),
        ("Postgres restarted", field.restart_postgres),
        (
            f"Redis stopped for {min(20, seconds / 4):.0f} s",
            lambda: field.stop_redis(min(20, seconds / 4)),
        ),
    ]
    deadline = time.monotonic() + seconds
    todo = [*faults]
    while time.monotonic() < deadline or todo:
        time.sleep(pause * field.rng.uniform(0.5, 1.5))
        field.keep_workers()
        # The cheap faults more often, once each kind has had its turn.
        name, fault = todo.pop(0) if todo else field.rng.choice(faults[:5])
        field.inject(name, fault)
        if field.count()["succeeded"] == n_jobs and not todo:
            break
    field.finish(n_jobs, seconds=30 + 20 * n_jobs)
    return field.judge(n_jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--pause", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="lometab-chaos-") as folder:
        field = Battlefield(Path(folder), seed=options.seed)
        try:
            with console.status("Injecting faults ..."):
                verdict = run(
                    field,
                    n_jobs=options.jobs,
                    seconds=options.seconds,
                    pause=options.pause,
                )
        finally:
            field.close()
    table = Table("fault", "times", title="Faults injected")
    for name, count in field.faults.items():
        table.add_row(name, str(count))
    console.print(table)
    table = Table("", "", title="What became of the jobs", show_header=False)
    for name, value in verdict.items():
        table.add_row(name, str(value))
    console.print(table)
    is_fine = verdict["succeeded"] == verdict["models"] == options.jobs
    return 0 if is_fine and not verdict["doubled"] else 1


if __name__ == "__main__":
    sys.exit(main())
