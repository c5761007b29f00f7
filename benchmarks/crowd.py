"""Workers that do all but train, many in one process: for benchmarks/scaling.py.

    python benchmarks/crowd.py workers=50 pace=10 first=0

Each has an engine of its own with a worker's pool, and a worker's three threads: one
that claims, beats, reports, asks what is requested and finishes; one that is the
reaper; one that looks for messages to webhooks. All of it is what a real worker calls.
With `pace=0` a job takes as long as the database does; else so many seconds. It waits
for a line that says how long to work, and tells at the end, as JSON, how long each call
took.
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from record import ROOT

sys.path.append(str(ROOT))

from app import jobs
from app.settings import get_settings
from app.storage import db
from app.storage.tables import Blob, Job
from worker import courier, identity, reaper, record

REPORT_SECONDS = 1.0
SCORES = {"scores": {"test": {"ensemble": {"rmse": 0.6, "mae": 0.5, "r2": 0.4}}}}
_local = threading.local()


class Times:
    """Milliseconds of each kind of call, and what went wrong."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen: dict[str, list[float]] = {}
        self.errors: Counter[str] = Counter()

    @contextmanager
    def measure(self, name: str) -> Any:
        started_at = time.perf_counter()
        try:
            yield
        except record.DATABASE_AWAY as error:
            with self.lock:
                cause = str(getattr(error, "orig", error)).strip().splitlines()
                self.errors[f"{name}: {cause[-1][:80] if cause else ''}"] += 1
            return
        elapsed = 1000 * (time.perf_counter() - started_at)
        with self.lock:
            self.seen.setdefault(name, []).append(elapsed)


class Worker:
    """One of them."""

    def __init__(self, number: int, times: Times, ends_at: float, pace: float) -> None:
        self.id = f"crowd-{number}"
        self.times, self.ends_at, self.pace = times, ends_at, pace
        self.settings = get_settings()
        self.engine = db.make_process_engine()
        self.rng = random.Random(number)

    def start(self) -> list[threading.Thread]:
        targets: list[Callable[[], None]] = [self.work]
        if self.pace:
            targets += [self.reap, self.look_for_messages]
        threads = [threading.Thread(target=self._run, args=(each,)) for each in targets]
        for thread in threads:
            thread.start()
        return threads

    def _run(self, target: Callable[[], None]) -> None:
        _local.engine = self.engine
        target()

    def wait(self, seconds: float) -> bool:
        """Whether there is time left after so long."""
        time.sleep(max(0.0, min(seconds, self.ends_at - time.time())))
        return time.time() < self.ends_at

    def reap(self) -> None:
        period = self.settings.reaper_seconds
        self.wait(self.rng.uniform(0, period))
        while self.wait(0):
            with self.times.measure("reaper"):
                reaper.run(self.settings, self.id)
            self.wait(period)

    def look_for_messages(self) -> None:
        period = self.settings.webhook_poll_seconds
        self.wait(self.rng.uniform(0, period))
        while self.wait(0):
            with self.times.measure("webhooks"):
                courier.run(self.settings)
            self.wait(period)

    def work(self) -> None:
        self.wait(self.rng.uniform(0, self.pace))
        while self.wait(0):
            job = None
            with self.times.measure("claim"):
                job = record.claim(self.settings, self.id, None)
            if job is None:
                self.wait(0.2)
            else:
                self.see_through(record.Record(job))

    def see_through(self, held: record.Record) -> None:
        self.beat(held)
        for epoch in range(1, 2 + int(self.pace / REPORT_SECONDS)):
            self.wait(min(self.pace, REPORT_SECONDS) if self.pace else 0)
            self.report(held, epoch)
        with self.times.measure("finish"):
            finish(held.job)

    def beat(self, held: record.Record) -> None:
        with self.times.measure("beat"):
            held.renew_lease(self.settings.lease_seconds)

    def report(self, held: record.Record, epoch: int) -> None:
        progress = {"epoch": epoch, "max_epochs": 100, "seconds": 0.5 * epoch}
        with self.times.measure("report"):
            held.write_progress("training", progress, [("epoch", progress)])
        if self.pace:
            with self.times.measure("status"):
                held.read_status()


def finish(job: Job) -> None:
    """As `Record.finish`, but for the file: there is one, and all models have it."""
    with db.transaction() as session:
        sha256 = session.scalar(
            sa.select(Blob.sha256).where(Blob.workspace_id == job.workspace_id).limit(1)
        )
        assert sha256 is not None
        jobs.finish(
            session,
            job,
            onnx_sha256=sha256,
            reports={"report": SCORES},
            progress={"epoch": 2},
        )


def main() -> None:
    options = dict(each.split("=") for each in sys.argv[1:])
    n_workers, first = int(options["workers"]), int(options["first"])
    db.get_engine = lambda: _local.engine  # type: ignore[assignment]
    db.keep_one_connection()
    identity.busy.set()
    times = Times()
    pace = float(options["pace"])
    print("ready", flush=True)
    ends_at = time.time() + float(sys.stdin.readline())
    crowd = [Worker(first + i, times, ends_at, pace) for i in range(n_workers)]
    for thread in [thread for each in crowd for thread in each.start()]:
        thread.join()
    print(json.dumps({"ms": times.seen, "errors": times.errors}))


if __name__ == "__main__":
    main()
