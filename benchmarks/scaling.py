"""How many workers and streams one Postgres carries; writes docs/scaling.md.

    python benchmarks/scaling.py [--parts workers,streams] [--label now] [--write]

Real servers, a real API and many workers that do all but train (benchmarks/crowd.py).
Runs are stored under a label, so that a change can be held against what was before it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil
import redis as redis_client
import sqlalchemy as sa
from lists import copy_rows
from processes import running_api
from record import ROOT, Runs
from scaling_page import write
from streams import follow_many

from app.access import SCOPES, create_key
from app.storage.db import make_engine, migrate
from app.storage.tables import Blob, Event, Job
from tests.support.poolers import PgBouncer
from tests.support.servers import Postgres, Redis
from tests.support.services import TINY

N_JOBS = 20_000
WORKSPACES = ("default", "b", "c", "d")
N_PROCESSES = 4
PACE = 10.0
CROWDS = (50, 200)
SECONDS = 30.0
N_STREAMS = 1000


class Site:
    """Postgres, Redis, and a database with many queued jobs as a template."""

    def __init__(self, stack: ExitStack) -> None:
        self.postgres = Postgres(max_connections=2000)
        stack.callback(self.postgres.remove)
        self.redis = Redis()
        stack.callback(self.redis.remove)
        self.key = ""
        self._fill()
        self.n_copies = 0

    def _fill(self) -> None:
        self._execute("CREATE DATABASE filled")
        engine = make_engine(self.postgres.url("filled"))
        migrate(engine)
        with sa.orm.Session(engine) as session, session.begin():
            _, self.key = create_key(
                session, workspace_id="default", name="scaling", scopes=SCOPES
            )
        with self.api(self.settings("filled")) as (client, _):
            config = {"target": "quality", "hyperparameters": TINY}
            client.post(
                "/jobs",
                files={"file": (ROOT / "examples" / "wine_quality.csv").read_bytes()},
                data={"config": json.dumps(config)},
            ).raise_for_status()
        with engine.begin() as connection:
            fill(connection)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as each:
            each.exec_driver_sql("ANALYZE")
        engine.dispose()

    def _execute(self, statement: str) -> None:
        with self.postgres.connect() as connection:
            connection.execute(statement)

    def make_database(self) -> str:
        self.n_copies += 1
        name = f"run_{self.n_copies}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE filled")
        with redis_client.Redis(port=self.redis.port) as client:
            client.flushall()
        return name

    def settings(self, database: str, **more: str) -> dict[str, str]:
        return {
            "LOMETAB_DATABASE_URL": self.postgres.url(database),
            "LOMETAB_BROKER_URL": self.redis.url(),
            "LOMETAB_LOG_LEVEL": "warning",
            **more,
        }

    @contextmanager
    def api(
        self, settings: dict[str, str], processes: int = 1
    ) -> Iterator[tuple[httpx.Client, psutil.Process]]:
        with (
            tempfile.TemporaryDirectory() as folder,
            running_api(Path(folder), settings, processes) as (address, process),
            httpx.Client(
                base_url=address,
                headers={"Authorization": f"Bearer {self.key}"},
                timeout=60,
            ) as client,
        ):
            yield client, process

    def count_messages(self) -> int:
        with redis_client.Redis(port=self.redis.port) as client:
            return int(client.llen("cpu"))


def fill(connection: sa.Connection) -> None:
    """Copies of the one job that was posted, in some workspaces."""
    others = ", ".join(f"'{each}'" for each in WORKSPACES[1:])
    copy_rows(connection, Blob, f"unnest(ARRAY[{others}]) AS i", workspace_id="i")
    workspaces = ", ".join(f"'{each}'" for each in WORKSPACES)
    copy_rows(
        connection,
        Job,
        f"generate_series(1, {N_JOBS}) AS i",
        id="'job_' || i",
        workspace_id=f"(ARRAY[{workspaces}])[1 + i % {len(WORKSPACES)}]",
        created_at="first.created_at + i * interval '0.01 second'",
    )
    connection.exec_driver_sql(
        f"INSERT INTO {Event.__tablename__} (job_id, seq, workspace_id, type, data, "
        "created_at) SELECT id, 1, workspace_id, 'queued', '{\"queue\": \"cpu\"}', "
        "created_at FROM jobs ON CONFLICT DO NOTHING"
    )


class Sampler:
    """Looks at the machine while something is measured."""

    def __init__(self, site: Site, api: psutil.Process, database: str) -> None:
        self.site, self.api, self.database = site, api, database
        self.connections: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def start(self) -> None:
        self._began = time.monotonic()
        self._postgres, self._api = self._read()
        self._machine = psutil.cpu_times()
        self._thread.start()

    def _read(self) -> tuple[float, float]:
        return (
            cpu_seconds(psutil.Process(self.site.postgres.process.pid)),
            cpu_seconds(self.api),
        )

    def _look(self) -> None:
        with self.site.postgres.connect() as connection:
            while not self._over.wait(0.5):
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = %s",
                    [self.database],
                ).fetchone()
                self.connections.append(row[0] if row else 0)

    def stop(self) -> dict[str, Any]:
        self._over.set()
        self._thread.join()
        seconds = time.monotonic() - self._began
        postgres, api = self._read()
        now, before = psutil.cpu_times(), self._machine
        idle = (now.idle + now.iowait) - (before.idle + before.iowait)
        return {
            "connections": max(self.connections, default=0),
            "usual_connections": median(self.connections or [0]),
            "seconds": round(seconds, 1),
            "postgres_cores": round((postgres - self._postgres) / seconds, 3),
            "api_cores": round((api - self._api) / seconds, 3),
            "idle_cores": round(idle / seconds, 2),
        }


def cpu_seconds(process: psutil.Process) -> float:
    """Of it, of its children that have ended, and of those that live."""
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += sum(times[:4])
    return total


def start_crowd(
    settings: dict[str, str], n_workers: int, pace: float
) -> list[subprocess.Popen[str]]:
    """Processes that wait for a line which says how long they work."""
    environment = {"PATH": os.environ["PATH"], **settings}
    n_processes = min(N_PROCESSES, n_workers)
    shares = [len(each) for each in np.array_split(range(n_workers), n_processes)]
    crowd = [
        subprocess.Popen(
            [
                *(sys.executable, ROOT / "benchmarks" / "crowd.py"),
                *(f"workers={share}", f"first={1000 * i}", f"pace={pace}"),
            ],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i, share in enumerate(shares)
    ]
    for process in crowd:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return crowd


def measure_lists(client: httpx.Client, seconds: float) -> dict[str, float]:
    """`GET /jobs`, five times a second."""
    times, ends_at = [], time.monotonic() + seconds
    while time.monotonic() < ends_at:
        started_at = time.perf_counter()
        client.get("/jobs").raise_for_status()
        times.append(1000 * (time.perf_counter() - started_at))
        time.sleep(0.2)
    return summarise(times)


def summarise(times: list[float]) -> dict[str, float]:
    if not times:
        return {"n": 0}
    p50, p95 = np.percentile(times, [50, 95])
    return {"n": len(times), "p50": round(p50, 1), "p95": round(p95, 1)}


def measure_workers(
    site: Site, n_workers: int, pace: float, *, pooled: bool = False
) -> dict[str, Any]:
    """So many workers for a while."""
    database = site.make_database()
    settings = site.settings(database)
    with ExitStack() as stack:
        if pooled:
            pooler = stack.enter_context(PgBouncer(site.postgres, database))
            settings |= pooler.settings
        client, api = stack.enter_context(site.api(settings))
        crowd = start_crowd(settings, n_workers, pace)
        sampler = Sampler(site, api, database)
        sampler.start()
        for process in crowd:
            print(SECONDS, file=process.stdin, flush=True)
        lists = measure_lists(client, SECONDS)
        told = [json.loads(process.communicate()[0]) for process in crowd]
        sampled = sampler.stop()
    names = sorted({name for each in told for name in each["ms"]})
    calls = {
        name: summarise([ms for each in told for ms in each["ms"].get(name, [])])
        for name in names
    }
    errors: dict[str, int] = {}
    for each in told:
        for name, n in each["errors"].items():
            errors[name] = errors.get(name, 0) + n
    return {
        "calls": calls,
        "claims_per_second": round(calls["claim"]["n"] / sampled["seconds"], 1),
        "lists": lists,
        "errors": errors,
        "messages": site.count_messages(),
        **sampled,
        **conditions(),
    }


def conditions() -> dict[str, Any]:
    return {
        "measured": f"{date.today():%Y-%m-%d}",
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def measure_streams(site: Site, events_per_second: float) -> dict[str, Any]:
    """A thousand streams over four API processes; so many events a second in all."""
    database = site.make_database()
    settings = site.settings(database)
    ids = [f"job_{4 * i}" for i in range(1, N_STREAMS + 1)]  # of one workspace
    with site.api(settings, processes=4) as (client, api):
        sampler = Sampler(site, api, database)
        result = follow_many(
            str(client.base_url),
            site.key,
            ids,
            url=site.postgres.url(database),
            rate=events_per_second,
            seconds=30.0,
            on_open=sampler.start,
        )
        return {**result, **sampler.stop(), **conditions()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="flat,paced,pooled,streams")
    parser.add_argument("--crowds", default=",".join(map(str, CROWDS)))
    parser.add_argument("--label", default="now")
    parser.add_argument("--write", action="store_true", help="only write the page")
    options = parser.parse_args()
    runs = Runs("scaling")
    if not options.write:
        with ExitStack() as stack:
            crowds = [int(each) for each in options.crowds.split(",")]
            parts = options.parts.split(",")
            measure_all(Site(stack), runs, parts, crowds, options.label)
    write(Runs("scaling"))


def measure_all(
    site: Site, runs: Runs, parts: list[str], crowds: list[int], label: str
) -> None:
    def keep(result: dict[str, Any], **key: Any) -> None:
        runs.put({"label": label, **key}, result)
        print(json.dumps({**key, **result}), flush=True)

    for n in crowds:
        if "flat" in parts:
            keep(measure_workers(site, n, 0.0), part="flat", workers=n)
        if "paced" in parts:
            keep(measure_workers(site, n, PACE), part="paced", workers=n)
    if "pooled" in parts:
        result = measure_workers(site, crowds[-1], PACE, pooled=True)
        keep(result, part="pooled", workers=crowds[-1])
    if "streams" in parts:
        for rate in (0.0, 200.0, 1000.0):
            keep(measure_streams(site, rate), part="streams", rate=rate)


if __name__ == "__main__":
    main()
