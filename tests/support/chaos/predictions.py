"""Prediction jobs under the faults of training: every row once, in order."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import redis as redis_client

from tests.support.chaos.field import SHORT, Kept
from tests.support.servers import free_port, wait_until
from tests.support.services import TINY
from tests.support.stacks import Stack, Stacks
from tests.support.tables import make_csv

ENDED = ("succeeded", "failed", "cancelled")


@dataclass
class Field:
    """An API and two workers that are started again when they end."""

    stacks: Stacks
    stack: Stack
    api: Kept
    workers: list[Kept]
    client: httpx.Client

    def keep(self) -> None:
        for process in (self.api, *self.workers):
            process.keep()

    def read(self, path: str) -> Any:
        """Asked again while a server is away."""

        def ask() -> Any:
            self.keep()
            try:
                answer = self.client.get(path)
            except httpx.TransportError:
                return None
            return answer.json() if answer.status_code == 200 else None

        return wait_until(ask, seconds=120, what=f"GET {path}")

    def wait_for_end(self, job_id: str, seconds: float = 600) -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            job: dict[str, Any] = self.read(f"/jobs/{job_id}")
            return job if job["status"] in ENDED else None

        ended: dict[str, Any] = wait_until(find, seconds=seconds, what="the end")
        return ended

    def wait_for_chunks(self, job_id: str, n: int) -> None:
        def have_ended() -> bool:
            job = self.read(f"/jobs/{job_id}")
            return bool(job["progress"]["n_finished"] >= n)

        wait_until(have_ended, seconds=300, what=f"{n} chunks")


@contextmanager
def open_field(stacks: Stacks, *, chunk_rows: int = 2000) -> Iterator[Field]:
    stack = stacks.make("production")
    scratch = stack.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    stack.environment |= {
        **SHORT,
        "TMPDIR": str(scratch),
        "LOMETAB_PREDICTION_CHUNK_ROWS": str(chunk_rows),
    }
    port = free_port()
    with (stack.folder / "field.log").open("ab") as log:
        api = Kept(["api", "--port", str(port)], stack.environment, log)
        workers = [Kept(["worker"], stack.environment, log) for _ in range(2)]
        client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {stack.key}"},
            timeout=60,
        )
        field = Field(stacks, stack, api, workers, client)
        try:
            field.read("/healthz")
            yield field
        finally:
            client.close()
            for process in (api, *workers):
                process.close()


def make_table(n_rows: int) -> str:
    """Each row with its number as its id."""
    lines = make_csv(n_rows, seed=1).splitlines()
    rows = [f"{i},{line.rsplit(',', 2)[0]}" for i, line in enumerate(lines[1:])]
    return "\n".join(["id,size,colour,weight", *rows]) + "\n"


def train(field: Field) -> str:
    """The id of a small model."""
    config = {
        "target": "y",
        "columns": {"label": "ignore"},
        "hyperparameters": TINY,
    }
    answer = field.client.post(
        "/jobs",
        files={"file": ("t.csv", make_csv(300))},
        data={"config": json.dumps(config)},
    )
    assert answer.status_code == 202, answer.text
    ended = field.wait_for_end(answer.json()["id"])
    assert ended["status"] == "succeeded", ended
    return str(ended["model_id"])


def start(field: Field, model_id: str, table: str) -> str:
    answer = field.client.post(
        f"/models/{model_id}/predictions",
        files={"file": ("t.csv", table)},
        data={"config": json.dumps({"include": ["mean"]})},
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def check(field: Field, model_id: str, job_id: str, table: str) -> None:
    """Every row once, in order, with the answer that predict gives."""
    ended = field.wait_for_end(job_id)
    assert ended["status"] == "succeeded", ended["error"]
    answer = field.client.get(f"/jobs/{job_id}/result")
    assert answer.status_code == 200, answer.text
    rows = [*csv.DictReader(io.StringIO(answer.text))]
    n_rows = table.count("\n") - 1
    assert [int(row["id"]) for row in rows] == [*range(n_rows)]
    sample = table.splitlines(keepends=True)
    some = [1, n_rows // 2, n_rows]
    headers = {"Content-Type": "text/csv"}
    asked = field.client.post(
        f"/models/{model_id}/predict?include=mean",
        content="".join([sample[0], *(sample[i] for i in some)]),
        headers=headers,
    ).json()
    for i, expected in zip(some, asked["predictions"], strict=True):
        assert abs(float(rows[i - 1]["mean"]) - expected["mean"]) < 1e-3, i


Fault = Callable[[Field], None]


def kill(field: Field) -> None:
    """kill -9 of a worker and its child."""
    field.workers[0].kill()


def wipe_broker(field: Field) -> None:
    """And of a worker, so that somebody has to be told anew."""
    url = field.stack.environment["LOMETAB_BROKER_URL"]
    with redis_client.Redis.from_url(url) as client:
        client.flushdb()
    field.workers[1].kill()


def restart_postgres(field: Field) -> None:
    field.stacks.postgres.stop()
    time.sleep(1)
    field.stacks.postgres.start()


def freeze(field: Field) -> None:
    """SIGSTOP for longer than the lease: what it holds then is not its own any more."""
    field.workers[0].freeze(6)


def play(stacks: Stacks, fault: Fault, *, n_rows: int = 60_000) -> Stack:
    """The fault when some chunks are done, and again when it assembles or nearly."""
    with open_field(stacks, chunk_rows=n_rows // 30) as field:
        model_id = train(field)
        table = make_table(n_rows)
        job_id = start(field, model_id, table)
        field.wait_for_chunks(job_id, 4)
        fault(field)
        field.wait_for_chunks(job_id, 29)
        fault(field)
        check(field, model_id, job_id, table)
        return field.stack


SCENARIOS: dict[str, Callable[[Stacks], Stack]] = {
    "prediction: a worker is killed": lambda stacks: play(stacks, kill),
    "prediction: the broker is wiped": lambda stacks: play(stacks, wipe_broker),
    "prediction: Postgres is restarted": lambda stacks: play(stacks, restart_postgres),
    "prediction: a worker is frozen past its lease": lambda stacks: play(
        stacks, freeze
    ),
}
