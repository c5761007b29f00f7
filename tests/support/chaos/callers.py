"""Callers of the service who mean it: they ask again when they are cut off, and hold
what they are told against what they were told before."""

import csv
import gzip
import json
import math
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from tests.support.chaos.field import CONFIG, Battlefield
from tests.support.servers import wait_until
from tests.support.services import TINY
from tests.support.tables import make_csv
from tests.support.workbooks import write_workbook

ROWS = [{"size": i / 3, "colour": "red", "weight": 5 - i} for i in range(9)]
STUCK_SECONDS = 180.0
MAX_OPEN_JOBS = 4
SWEEP: dict[str, Any] = {
    "kind": "sweep",
    "target": "y",
    "columns": {"label": "ignore"},
    "hyperparameters": {**TINY, "max_epochs": 2},
    "sweep": {"grid": {"rank": [1, 2], "lr": [0.001, 0.002]}},
}
AGAIN = (429, 503, 507)
IN_PROGRESS = 409


def find_difference(found: Any, expected: Any) -> str | None:
    """Where two answers differ by more than the last bits, which depend on how many
    rows share a run."""
    if isinstance(expected, float) and isinstance(found, float):
        is_near = math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-6)
        return None if is_near else f"{found} is not {expected}"
    if isinstance(expected, dict) and isinstance(found, dict):
        if found.keys() != expected.keys():
            return f"{sorted(found)} is not {sorted(expected)}"
        pairs = [(name, found[name], expected[name]) for name in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(found) != len(expected):
            return f"{len(found)} is not {len(expected)}"
        pairs = [
            (f"{i}", *pair) for i, pair in enumerate(zip(found, expected, strict=True))
        ]
    else:
        return None if found == expected else f"{found!r} is not {expected!r}"
    for name, *pair in pairs:
        if difference := find_difference(*pair):
            return f"{name}: {difference}"
    return None


class Tally:
    """What callers count, together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []
        self.right_at = time.monotonic()
        self.silence = 0.0

    def add(self, name: str, note: str | None = None) -> None:
        with self._lock:
            self.counts[name] += 1
            if note is not None and len(self.notes) < 50:
                self.notes.append(f"{name}: {note}")

    def hear(self) -> None:
        """A right prediction: how long there was none before it."""
        with self._lock:
            moment = time.monotonic()
            self.silence = max(self.silence, moment - self.right_at)
            self.right_at = moment


class Stopped(Exception):
    """There is no more to be asked."""


class Caller:
    """Asks any of the APIs, and again, perhaps another one, if it does not answer."""

    def __init__(self, field: Battlefield, tally: Tally, stop: threading.Event) -> None:
        self.tally, self.stop = tally, stop
        headers = {"Authorization": f"Bearer {field.stack.key}"}
        self._clients = [
            httpx.Client(base_url=address, headers=headers, timeout=30)
            for address in field.addresses
        ]

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer; asked again while there is none, or one that says: later."""
        give_up_at = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < give_up_at:
            answer = self._ask_once(method, path, **options)
            if answer is not None:
                return answer
            time.sleep(0.3)
        self.tally.add("stuck", f"{method} {path}")
        raise Stopped

    def _ask_once(
        self, method: str, path: str, **options: Any
    ) -> httpx.Response | None:
        try:
            client = random.choice(self._clients)
            answer = client.request(method, path, **options)
        except httpx.TransportError:
            self.tally.add("cut off")
            return None
        self.tally.add("requests")
        if answer.status_code >= 500 and answer.status_code not in AGAIN:
            self.tally.add("internal errors", f"{method} {path}: {answer.text[:300]}")
            return None
        is_in_progress = answer.status_code == IN_PROGRESS and (
            answer.json().get("code") == "request_in_progress"
        )
        if answer.status_code in AGAIN or is_in_progress:
            self.tally.add("unavailable")
            return None
        return answer

    def follow(self, path: str) -> None:
        """A stream of events to its end; a gap in their numbers is wrong."""
        last = 0
        headers = {"Accept": "text/event-stream"}
        try:
            client = random.choice(self._clients)
            with client.stream("GET", path, headers=headers) as answer:
                for line in answer.iter_lines():
                    if self.stop.is_set():
                        return
                    if line.startswith("id:"):
                        seq = int(line[3:])
                        if last and seq != last + 1:
                            self.tally.add("wrong", f"{path}: {seq} after {last}")
                        last = seq
            self.tally.add("streams")
        except httpx.TransportError:
            self.tally.add("cut off")

    def close(self) -> None:
        for client in self._clients:
            client.close()


class Callers:
    """All of them, each in a thread of its own, and what they know."""

    def __init__(self, field: Battlefield, seed: int) -> None:
        self.field = field
        self.tally = Tally()
        self.stopping = threading.Event()
        self.rng = random.Random(seed)
        self.jobs: dict[str, str] = {}
        """Of each Idempotency-Key, the job that it was told."""
        self.datasets: dict[str, int] = {}
        """Those that were acknowledged and not deleted, and their rows."""
        self.cancelled: set[str] = set()
        roles = (
            self.predict,
            self.predict,
            self.train,
            self.sweep,
            self.upload,
            self.follow,
            self.explain,
            self.infer,
        )
        self.threads = [
            threading.Thread(target=self._run, args=(role,), name=role.__name__)
            for role in roles
        ]

    def prepare(self) -> None:
        """A model, and its right answers, before anything goes wrong."""
        caller = Caller(self.field, self.tally, self.stopping)
        first = self._post_job(caller, CONFIG)

        def find_model() -> str | None:
            self.field.keep()
            job = caller.ask("GET", f"/jobs/{first}").json()
            assert job["status"] != "failed", job
            return job["model_id"] if job["status"] == "succeeded" else None

        self.model = wait_until(find_model, seconds=300, what="the first job ends")
        self.right = self._predict(caller)
        caller.close()
        self.tally.right_at = time.monotonic()

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.field.keep()
        for thread in self.threads:
            thread.join()

    def describe(self) -> str:
        return ", ".join(f"{n} {name}" for name, n in self.tally.counts.items())

    def _run(self, role: Callable[[Caller], float]) -> None:
        """Again and again, with the pauses that the role asks for."""
        caller = Caller(self.field, self.tally, self.stopping)
        while not self.stopping.is_set():
            try:
                pause = role(caller)
            except Stopped:
                pause = 1.0
            except Exception as error:
                self.tally.add("wrong", f"{role.__name__}: {error!r}")
                pause = 1.0
            self.stopping.wait(pause)
        caller.close()

    # What they do; each gives the pause before it does it again

    def _predict(self, caller: Caller) -> Any:
        path = f"/models/{self.model}/predict"
        return caller.ask("POST", path, json={"rows": ROWS}).json()["predictions"]

    def predict(self, caller: Caller) -> float:
        difference = find_difference(self._predict(caller), self.right)
        if difference is None:
            self.tally.hear()
        else:
            self.tally.add("wrong", f"a prediction: {difference}")
        self.tally.add("predictions")
        return 0.1

    def explain(self, caller: Caller) -> float:
        """What columns add comes to the answer."""
        body = {"rows": [self.rng.choice(ROWS)], "explain": True}
        answer = caller.ask("POST", f"/models/{self.model}/predict", json=body)
        (found,) = answer.json()["predictions"]
        why = found["explanation"]
        if abs(why["base"] + sum(why["values"].values()) - found["mean"]) > 1e-3:
            self.tally.add("wrong", "an explanation")
        self.tally.add("explanations")
        return 1.0

    def infer(self, caller: Caller) -> float:
        """The same by the Open Inference Protocol."""
        kinds = {"size": "FP64", "colour": "BYTES", "weight": "FP64"}
        inputs = [
            {
                "name": name,
                "datatype": kind,
                "shape": [len(ROWS)],
                "data": [row[name] for row in ROWS],
            }
            for name, kind in kinds.items()
        ]
        body = {"inputs": inputs, "outputs": [{"name": "mean"}]}
        answer = caller.ask("POST", f"/v2/models/{self.model}/infer", json=body)
        (output,) = answer.json()["outputs"]
        expected = [each["mean"] for each in self.right]
        if any(
            abs(a - b) > 1e-3 for a, b in zip(output["data"], expected, strict=True)
        ):
            self.tally.add("wrong", "a tensor")
        self.tally.add("tensors")
        return 0.5

    def _post_job(self, caller: Caller, config: dict[str, Any]) -> str:
        """The id, which is the same however often it is asked for."""
        key = str(uuid.uuid4())
        table = make_csv(600, seed=self.rng.randrange(10))
        ids = set()
        for _ in range(self.rng.choice([1, 1, 2])):
            answer = caller.ask(
                "POST",
                "/jobs",
                files={"file": ("t.csv", table)},
                data={"config": json.dumps(config)},
                headers={"Idempotency-Key": key},
            )
            assert answer.status_code == 202, answer.text
            ids.add(answer.json()["id"])
        if len(ids) > 1:
            self.tally.add("doubled", f"{ids} by one key")
        (self.jobs[key],) = ids
        return self.jobs[key]

    def train(self, caller: Caller) -> float:
        answer = caller.ask("GET", "/jobs", params={"status": "queued"})
        if len(answer.json()["data"]) >= MAX_OPEN_JOBS:
            return 2.0
        job_id = self._post_job(caller, CONFIG)
        self.tally.add("jobs")
        if self.rng.random() < 0.15:
            self._cancel(caller, job_id)
        return 2.0

    def _cancel(self, caller: Caller, job_id: str) -> None:
        self.stopping.wait(self.rng.uniform(0, 5))
        self.cancelled.add(job_id)  # perhaps: it may have ended before
        caller.ask("POST", f"/jobs/{job_id}/cancel")

    def sweep(self, caller: Caller) -> float:
        job_id = self._post_job(caller, SWEEP)
        self.tally.add("sweeps")
        if self.rng.random() < 0.5:
            self._cancel(caller, job_id)
        return 60.0

    def upload(self, caller: Caller) -> float:
        n_rows = self.rng.randrange(50, 3000)
        file = self._write(make_csv(n_rows, seed=self.rng.randrange(10**6)))
        answer = caller.ask("POST", "/datasets", files={"file": file})
        assert answer.status_code in (200, 201), answer.text
        id_ = answer.json()["id"]
        self.datasets[id_] = n_rows
        self.tally.add("uploads")
        if self.rng.random() < 0.5:
            chosen = self.rng.choice([*self.datasets])
            # Of a deletion that was cut off it is not known whether it was done.
            del self.datasets[chosen]
            answer = caller.ask("DELETE", f"/datasets/{chosen}")
            assert answer.status_code in (204, 404), answer.text
            self.tally.add("deletions")
        return 1.0

    def _write(self, table: str) -> tuple[str, bytes]:
        """The table as a file of any kind."""
        rows = [*csv.reader(table.splitlines())]
        kind = self.rng.choice(["csv", "json.gz", "xlsx"])
        if kind == "json.gz":
            records = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
            return "t.json.gz", gzip.compress(json.dumps(records).encode(), 1, mtime=0)
        if kind == "xlsx":
            return "t.xlsx", write_workbook(rows)
        return "t.csv", table.encode()

    def follow(self, caller: Caller) -> float:
        if self.jobs:
            job_id = self.rng.choice([*self.jobs.values()][-3:])
            caller.follow(f"/jobs/{job_id}/events")
        return 1.0

    # What is there at the end

    def judge(self) -> dict[str, Any]:
        caller = Caller(self.field, self.tally, self.stopping)
        for id_ in self.jobs.values():
            self._check_job(caller, id_)
        for id_, n_rows in self.datasets.items():
            answer = caller.ask("GET", f"/datasets/{id_}")
            if answer.status_code != 200:
                self.tally.add("lost", f"dataset {id_}")
            elif answer.json()["n_rows"] != n_rows:
                self.tally.add("wrong", f"dataset {id_}")
        caller.close()
        (n_jobs,) = self.field.stack.query(
            "SELECT count(*) FROM jobs WHERE parent_id IS NULL"
        )[0]
        counts = self.tally.counts
        # More jobs than keys: a request that was cut off was done, and done again.
        counts["doubled"] += n_jobs - len(self.jobs) + self.field.count_doubled()
        names = ("requests", "cut off", "unavailable")
        bad = ("lost", "doubled", "wrong", "stuck", "failed", "internal errors")
        return {
            **{name: counts[name] for name in (*names, *bad)},
            "done": {k: v for k, v in counts.items() if k not in (*names, *bad)},
            "longest silence": round(self.tally.silence, 1),
            "notes": self.tally.notes,
        }

    def _check_job(self, caller: Caller, id_: str) -> None:
        answer = caller.ask("GET", f"/jobs/{id_}")
        if answer.status_code != 200:
            self.tally.add("lost", f"job {id_}")
            return
        job = answer.json()
        may_be = {"succeeded", "cancelled"} if id_ in self.cancelled else {"succeeded"}
        if job["status"] not in may_be:
            self.tally.add("failed", f"{id_} is {job['status']}: {job['error']}")
