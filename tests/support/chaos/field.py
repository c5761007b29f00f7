"""Real processes on real servers, kept alive while faults are injected."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import psutil
import redis as redis_client

from tests.support.servers import end_with_us, free_port, wait_until
from tests.support.services import TINY
from tests.support.stacks import Stack, Stacks
from tests.support.tables import make_csv

HYPERPARAMETERS = {**TINY, "max_epochs": 25, "patience": None}
CONFIG: dict[str, Any] = {
    "target": "y",
    "columns": {"label": "ignore"},
    "hyperparameters": HYPERPARAMETERS,
}
SHORT = {
    "LOMETAB_LEASE_SECONDS": "4",
    "LOMETAB_REAPER_SECONDS": "1",
    "LOMETAB_CHECKPOINT_SECONDS": "1",
    "LOMETAB_MAX_ATTEMPTS": "1000",
}


class Kept:
    """A process that is started again when it has ended, as a process manager would.

    It is ours alone to start: it ends with the thread that started it.
    """

    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], log: IO[bytes]
    ) -> None:
        self._arguments = arguments
        self._environment = {**environment, "LOMETAB_EXIT_WITH_PARENT": "true"}
        self._log = log
        self.n_starts = 0
        self._start()

    def _start(self) -> None:
        self.n_starts += 1
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", *self._arguments],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=end_with_us(signal.SIGKILL),
        )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def keep(self) -> None:
        if not self.is_alive:
            self._close_input()
            self._start()

    def kill(self) -> None:
        """It and all of its processes, at once."""
        if self.is_alive:
            os.killpg(self.process.pid, signal.SIGKILL)

    def signal(self, number: int) -> None:
        if self.is_alive:
            self.process.send_signal(number)

    def freeze(self, seconds: float) -> None:
        self.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.signal(signal.SIGCONT)

    def list_children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children()
        except psutil.NoSuchProcess:
            return []

    def close(self) -> None:
        if self.is_alive:
            self.process.kill()
        self.process.wait()
        self._close_input()

    def _close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


class Battlefield:
    """Workers and APIs on Postgres and Redis, and what can befall them."""

    def __init__(
        self,
        folder: Path,
        *,
        n_workers: int = 2,
        n_apis: int = 0,
        is_measured: bool = False,
        seed: int = 0,
    ) -> None:
        self.is_measured = is_measured
        self.rng = random.Random(seed)
        self.stacks = Stacks(folder)
        self.postgres, self.redis = self.stacks.postgres, self.stacks.redis
        self.stack: Stack = self.stacks.make("production")
        scratch = folder / "scratch"
        scratch.mkdir()
        self.stack.environment |= {**SHORT, "TMPDIR": str(scratch)}
        self.log_path = folder / "processes.log"
        self.log = self.log_path.open("ab")
        self.ports = [free_port() for _ in range(n_apis)]
        self.workers = [self._make("worker") for _ in range(n_workers)]
        self.apis = [self._make("api", "--port", str(port)) for port in self.ports]
        self.faults: Counter[str] = Counter()

    def _make(self, *arguments: str) -> Kept:
        return Kept([*arguments], self.stack.environment, self.log)

    @property
    def addresses(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def keep(self) -> None:
        for process in (*self.workers, *self.apis):
            process.keep()

    def post(self, n_jobs: int) -> None:
        """Jobs as the API makes them, without an API that could be in the way."""
        code = f"""
import json, sys
from fastapi.testclient import TestClient
from app.main import app
client = TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 1))
client.headers["Authorization"] = "Bearer {self.stack.key}"
table, config = sys.argv[1:]
for _ in range({n_jobs}):
    answer = client.post(
        "/jobs", files={{"file": ("t.csv", table)}}, data={{"config": config}}
    )
    assert answer.status_code == 202, answer.text
"""
        subprocess.run(
            [
                *(sys.executable, "-W", "ignore", "-c", code),
                *(make_csv(600), json.dumps(CONFIG)),
            ],
            env={**os.environ, **self.stack.environment},
            check=True,
        )

    # Faults. A field that is measured spares its first worker and API what would end
    # them, so that there are processes which live as long as it does.

    def kill_worker(self) -> None:
        self._choose_worker().kill()

    def terminate_worker(self) -> None:
        self._choose_worker().signal(signal.SIGTERM)

    def _choose_worker(self) -> Kept:
        return self.rng.choice(self.workers[1:] if self.is_measured else self.workers)

    def kill_child(self) -> None:
        for child in self.rng.choice(self.workers).list_children():
            child.kill()

    def freeze_worker(self) -> None:
        self.rng.choice(self.workers).freeze(6)  # longer than the lease

    def kill_api(self) -> None:
        self.apis[-1].kill()

    def terminate_api(self) -> None:
        self.apis[-1].signal(signal.SIGTERM)

    def freeze_api(self) -> None:
        self.apis[-1].freeze(5)

    def wipe_redis(self) -> None:
        with redis_client.Redis(port=self.redis.port) as client:
            client.flushall()

    def stop_redis(self, seconds: float) -> None:
        self.redis.stop()
        time.sleep(seconds)
        self.redis.start()

    def fail_redis_over(self, seconds: float = 3.0) -> None:
        """What was the primary is none any more, and then is again."""
        with redis_client.Redis(port=self.redis.port) as client:
            client.replicaof("127.0.0.1", "1")
            time.sleep(seconds)
            client.replicaof("NO", "ONE")

    def restart_postgres(self) -> None:
        self.postgres.stop()
        time.sleep(1)
        self.postgres.start()

    def end_connections(self) -> None:
        """All that there are to Postgres, whatever they do at the moment."""
        with self.postgres.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def inject(self, name: str, fault: Callable[[], None]) -> None:
        self.faults[name] += 1
        fault()

    # What became of the jobs

    def count(self) -> Counter[str]:
        rows = self.stack.query("SELECT status, count(*) FROM jobs GROUP BY status")
        return Counter({status: count for status, count in rows})

    def finish(self, seconds: float) -> None:
        """Wait, without further faults, until all jobs have ended."""

        def all_ended() -> bool:
            self.keep()
            (n_open,) = self.stack.query(
                "SELECT count(*) FROM jobs WHERE finished_at IS NULL"
            )[0]
            return bool(n_open == 0)

        wait_until(all_ended, seconds=seconds, what="all jobs end")

    def count_doubled(self) -> int:
        rows = self.stack.query(
            "SELECT job_id FROM events WHERE type IN ('succeeded', 'failed') "
            "GROUP BY job_id HAVING count(*) > 1"
        )
        return len(rows)

    def find_recovery(self) -> float:
        """The longest time from the loss of a job's worker to its next one, seconds."""
        (found,) = self.stack.query(
            "SELECT max(extract(epoch FROM next_at - created_at)) FROM (SELECT type, "
            "created_at, lead(created_at) OVER (PARTITION BY job_id ORDER BY seq) "
            "AS next_at FROM events) AS steps WHERE type IN ('lost', 'released')"
        )[0]
        return round(float(found or 0), 1)

    def close(self) -> None:
        for process in (*self.workers, *self.apis):
            process.close()
        self.log.close()
        self.stacks.close()
