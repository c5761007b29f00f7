"""Fifty mixed clients for five minutes: no error but 429 and 503, nothing that grows.

    python benchmarks/clients.py [--minutes 5] [--clients 50] [--cache MIB] [--write]

Postgres and Redis, two API processes, two workers, all real and with default settings,
or with a smaller cache of models, which these minutes fill: then no model grows.
Clients upload, train and wait for the end, poll, follow events and predict, each as
soon as it was answered. Counted is what is answered otherwise than it should be;
memory, descriptors and connections are watched. Writes a section of docs/scaling.md.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from processes import is_ready
from record import ROOT, Runs, table, write_section

from tests.support.chaos.field import Kept
from tests.support.chaos.watch import Watch
from tests.support.servers import free_port, wait_until
from tests.support.services import TINY, post_job
from tests.support.stacks import QUICK, Stacks
from tests.support.tables import make_csv

PAGE = ROOT / "docs" / "scaling.md"
ALLOWED = (429, 503)
ROW = {"size": 5.0, "colour": "red", "weight": 4.0}
MIX = ("train",) * 8 + ("upload",) * 6 + ("poll",) * 12 + ("follow",) * 8
"""What clients do, one after the other; those beyond predict."""
CACHE = "lometab_model_cache_bytes"
MAX_GROWTH = 1.1
"""What the last third may have more than the first and still be flat; plus one."""


class Site:
    """Two APIs and two workers, as `Watch` looks at them."""

    def __init__(self, folder: Path, stack: ExitStack, cache_mib: int | None) -> None:
        stacks = Stacks(folder)
        stack.callback(stacks.close)
        self.postgres = stacks.postgres
        made = stacks.make("production")
        for name in QUICK:
            del made.environment[name]
        made.environment["LOMETAB_TRAINING_THREADS"] = "1"
        if cache_mib is not None:
            made.environment["LOMETAB_MODEL_CACHE_BYTES"] = str(cache_mib * 2**20)
        log = stack.enter_context((folder / "log").open("wb"))
        self.key = made.key
        self.addresses: list[str] = []
        self.apis, self.workers = [], []
        self.metrics_port = free_port()
        for number in range(2):
            port = free_port()
            arguments = ["api", "--port", str(port)]
            environment = made.environment.copy()
            if number == 0:
                environment["LOMETAB_METRICS_PORT"] = str(self.metrics_port)
            self.apis.append(Kept(arguments, environment, log))
            self.workers.append(Kept(["worker"], made.environment, log))
            self.addresses.append(f"http://127.0.0.1:{port}")
        for process in (*self.apis, *self.workers):
            stack.callback(process.close)
        for address in self.addresses:
            wait_until(lambda a=address: is_ready(a), seconds=300, what="an API")

    def read_cache(self) -> float:
        """Bytes of the models that the first API keeps loaded, as it says."""
        answer = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60)
        lines = answer.raise_for_status().text.splitlines()
        found = [line for line in lines if line.startswith(CACHE)]
        return float(found[0].rpartition(" ")[2])

    def make_client(self, number: int) -> httpx.Client:
        return httpx.Client(
            base_url=self.addresses[number % 2],
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=120,
        )


class Load:
    """The clients, and what became of their requests."""

    def __init__(self, site: Site, n_clients: int) -> None:
        self.site = site
        self.lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self.ms: dict[str, list[float]] = {}
        self.job_ids: list[str] = []
        self.models: list[str] = []
        self.over = threading.Event()
        kinds = [MIX[i] if i < len(MIX) else "predict" for i in range(n_clients)]
        self.threads = [
            threading.Thread(target=self._run, args=(i, kind))
            for i, kind in enumerate(kinds)
        ]

    def prepare(self) -> None:
        """A first model, for those who predict."""
        with self.site.make_client(0) as client:
            self._train(client, random.Random(0))
        assert self.models, self.errors

    def _run(self, number: int, kind: str) -> None:
        rng = random.Random(number)
        do: Callable[..., None] = getattr(self, f"_{kind}")
        with self.site.make_client(number) as client:
            while not self.over.is_set():
                try:
                    do(client, rng)
                except (httpx.HTTPError, AssertionError, KeyError) as error:
                    with self.lock:
                        self.errors[
                            f"{kind}: {type(error).__name__}: {error}"[:200]
                        ] += 1
                time.sleep(0.05)

    def _ask(
        self, client: httpx.Client, what: str, method: str, path: str, **options: Any
    ) -> httpx.Response | None:
        """The answer; None if it was one of those that are allowed instead."""
        began = time.perf_counter()
        answer = client.request(method, path, **options)
        elapsed = 1000 * (time.perf_counter() - began)
        with self.lock:
            self.statuses[answer.status_code] += 1
            self.ms.setdefault(what, []).append(elapsed)
        if answer.status_code in ALLOWED:
            time.sleep(0.5)
            return None
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def _upload(self, client: httpx.Client, rng: random.Random) -> None:
        table_ = make_csv(300, seed=rng.randrange(10**6))
        files = {"file": ("t.csv", table_)}
        made = self._ask(client, "upload", "POST", "/datasets", files=files)
        if made is not None:
            self._ask(client, "delete", "DELETE", f"/datasets/{made.json()['id']}")

    def _train(self, client: httpx.Client, rng: random.Random) -> None:
        began = time.perf_counter()
        job = post_job(
            client,
            make_csv(200, seed=rng.randrange(10**6)),
            columns={"label": "ignore"},
            hyperparameters=TINY,
        )
        with self.lock:
            self.statuses[202] += 1
            self.job_ids.append(job["id"])
        while not self.over.is_set():
            found = self._ask(client, "job", "GET", f"/jobs/{job['id']}")
            status = found.json()["status"] if found is not None else None
            assert status not in ("failed", "cancelled"), found.text if found else ""
            if status == "succeeded" and found is not None:
                with self.lock:
                    self.models.append(found.json()["model_id"])
                    seconds = 1000 * (time.perf_counter() - began)
                    self.ms.setdefault("train", []).append(seconds)
                return
            time.sleep(0.5)

    def _poll(self, client: httpx.Client, rng: random.Random) -> None:
        for path in ("/jobs", "/models", "/queue", "/workers"):
            self._ask(client, "list", "GET", path)
        time.sleep(0.5)

    def _follow(self, client: httpx.Client, rng: random.Random) -> None:
        """A stream to the end of its job."""
        job_id = rng.choice(self.job_ids[-10:])
        headers = {"Accept": "text/event-stream"}
        path = f"/jobs/{job_id}/events"
        with client.stream("GET", path, headers=headers) as answer:
            with self.lock:
                self.statuses[answer.status_code] += 1
            if answer.status_code in ALLOWED:
                return
            last = ""
            for line in answer.iter_lines():
                last = line if line.startswith("event: ") else last
                if self.over.is_set():
                    return
        assert last == "event: succeeded", last

    def _predict(self, client: httpx.Client, rng: random.Random) -> None:
        path = f"/models/{rng.choice(self.models[-20:])}/predict"
        n_rows = rng.choice((1, 1, 1, 50))
        answer = self._ask(
            client, "predict", "POST", path, json={"rows": [ROW] * n_rows}
        )
        if answer is not None:
            assert len(answer.json()["predictions"]) == n_rows


def run(
    folder: Path, minutes: float, n_clients: int, cache_mib: int | None
) -> dict[str, Any]:
    with ExitStack() as stack:
        site = Site(folder, stack, cache_mib)
        load = Load(site, n_clients)
        load.prepare()
        watch = Watch(site, site.read_cache)  # type: ignore[arg-type]
        began = time.monotonic()
        for thread in load.threads:
            thread.start()
        while time.monotonic() - began < 60 * minutes:
            time.sleep(1)
            watch.look()
        load.over.set()
        for thread in load.threads:
            thread.join(180)
        elapsed = time.monotonic() - began
        restarts = sum(each.n_starts - 1 for each in (*site.apis, *site.workers))
        died = sum(not each.is_alive for each in (*site.apis, *site.workers))
    return {
        "clients": n_clients,
        "seconds": round(elapsed),
        "statuses": {str(code): n for code, n in sorted(load.statuses.items())},
        "errors": dict(load.errors),
        "jobs": len(load.models),
        "ms": {
            name: [len(times), *np.percentile(times, [50, 95]).round(0).tolist()]
            for name, times in sorted(load.ms.items())
        },
        "watched": watch.judge(),
        "processes that ended": restarts + died,
        "measured": f"{date.today():%Y-%m-%d}",
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def is_flat(line: list[Any]) -> bool:
    _, first, last, _ = line
    return bool(last <= MAX_GROWTH * first + 1)


def describe(key: dict[str, Any], result: dict[str, Any]) -> str:
    n = sum(result["statuses"].values())
    n_errors = sum(result["errors"].values())
    growing = [line[0] for line in result["watched"] if not is_flat(line)]
    errors = "\n".join(f"- {n} x `{text}`" for text, n in result["errors"].items())
    verdict = "met" if not n_errors else "missed"
    flat = "met" if not growing else f"missed by {', '.join(growing)}"
    shares = [[f"{code}", times] for code, times in result["statuses"].items()]
    times = [[name, *figures] for name, figures in result["ms"].items()]
    cache = key.get("cache_mib")
    title = "default settings" if cache is None else f"a cache of models of {cache} MiB"
    return f"""
### With {title}

{result["measured"]}: {result["clients"]} clients for
{result["seconds"]} s. {n}
requests were answered, {result["jobs"]} jobs trained. Errors but 429 and 503:
{n_errors} (bar: none): {verdict}. Processes that ended:
{result["processes that ended"]}. Memory, descriptors and connections flat: {flat}.

{table(["status", "answers"], shares)}
{table(["", "times", "p50, ms", "p95, ms"], times)}
{table(["first of two", "first third", "last third", "most"], result["watched"])}
Load {result["load"]} on {result["cores"]} cores, these processes included.
{errors}"""


def write(runs: Runs) -> None:
    text = f"""
`make bench-clients`, on Postgres and Redis, two API processes, two workers. *Flat*: the
last third at most {100 * (MAX_GROWTH - 1):.0f} % and one above the first, by medians,
after the first sixth. Each model that is asked for stays loaded until
`LOMETAB_MODEL_CACHE_BYTES` are, by default 1 GiB, which five minutes of small models do
not fill: memory grows with them, and what the service says they take is shown by
itself. With a cache that is filled it can be seen whether anything else grows.
"""
    write_section("clients", text + "".join(describe(*each) for each in runs), PAGE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--cache", type=int, metavar="MIB", help="of models")
    parser.add_argument("--write", action="store_true", help="only write the section")
    options = parser.parse_args()
    runs = Runs("clients")
    key = {"minutes": options.minutes, "clients": options.clients}
    if options.cache is not None:
        key["cache_mib"] = options.cache
    if not options.write:
        with tempfile.TemporaryDirectory(prefix="lometab-clients-") as folder:
            result = run(Path(folder), options.minutes, options.clients, options.cache)
        runs.put(key, result)
    write(runs)
    found = runs.find(key)
    return 1 if found is None or found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
