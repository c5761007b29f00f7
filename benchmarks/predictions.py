"""A prediction job on two workers, of which one is killed half-way.

    python benchmarks/predictions.py [--rows 10000000] [--output parquet] [--trial]

On real Postgres and Redis. Measured: rows a second of the job, against twice the rate
of the bare ONNX Runtime session on one core; the memory of the API, of each worker and
of its child; and that the result has every row once, in order. The bare session's rate
differs from minute to minute, so every run is kept and shown; `--trial` keeps nothing.
"""

import argparse
import hashlib
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from record import ROOT, Runs, table, write_section

from lometab.predictor import Predictor

sys.path.append(str(ROOT))

from tests.support.chaos.field import Kept
from tests.support.servers import free_port, wait_until
from tests.support.stacks import Stack, Stacks

N_NUMERIC, N_TEXT = 16, 4
MODEL = {"k": 16, "rank": 8, "n_blocks": 2, "d_block": 192, "max_epochs": 1}
GROUP_ROWS = 100_000
MIN_SHARE = 0.8
LOOK_SECONDS = 2.0
"""Between looks at the processes, which take time that the workers could have."""
CITIES = np.array(["Berlin", "Paris", "Rome", "Oslo", "Lima"])


def make_columns(n_rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    numbers = {f"n{i}": rng.normal(size=n_rows).round(4) for i in range(N_NUMERIC)}
    texts = {f"t{i}": CITIES[rng.integers(0, 5, n_rows)] for i in range(N_TEXT)}
    return numbers | texts


def write_rows(path: Path, n_rows: int) -> None:
    """Each with its number as its id; a block of rows, again and again."""
    block = make_columns(GROUP_ROWS, 0)
    writer = None
    for start in range(0, n_rows, GROUP_ROWS):
        stop = min(start + GROUP_ROWS, n_rows)
        columns = {name: column[: stop - start] for name, column in block.items()}
        rows = pa.table({"id": np.arange(start, stop), **columns})
        writer = writer or pq.ParquetWriter(path, rows.schema, compression="zstd")
        writer.write_table(rows)
    assert writer is not None
    writer.close()


class Service:
    """An API and two workers, and the most memory that each has taken."""

    def __init__(self, stack: Stack, log: Any) -> None:
        port = free_port()
        self.api = Kept(["api", "--port", str(port)], stack.environment, log)
        self.workers = [Kept(["worker"], stack.environment, log) for _ in range(2)]
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {stack.key}"},
            timeout=3600,
        )
        self.peaks: dict[str, int] = {}
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self._note("API", self.api.process.pid)
            for worker in self.workers:
                self._note("worker", worker.process.pid)
                for child in worker.list_children():
                    self._note("child", child.pid)

    def _note(self, name: str, pid: int) -> None:
        """The kernel keeps the most that a process has taken since it began."""
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:  # it has ended
            return
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if found is not None:
            self.peaks[name] = max(self.peaks.get(name, 0), int(found[1]) * 1024)

    def is_ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def read_job(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.client.get(f"/jobs/{job_id}").json()
        return job

    def wait_for_end(self, job_id: str) -> dict[str, Any]:
        while (job := self.read_job(job_id))["finished_at"] is None:
            for worker in self.workers:
                worker.keep()
            time.sleep(0.5)
        assert job["status"] == "succeeded", job
        return job

    def close(self) -> None:
        self._is_over.set()
        self._watch.join()
        self.client.close()
        for process in (self.api, *self.workers):
            process.close()


@contextmanager
def open_service(folder: Path) -> Iterator[Service]:
    stacks = Stacks(folder)
    try:
        stack = stacks.make("production")
        scratch = folder / "scratch"
        scratch.mkdir()
        stack.environment |= {
            "LOMETAB_TRAINING_THREADS": "1",  # a worker for each core
            "LOMETAB_LEASE_SECONDS": "60",
            "LOMETAB_REAPER_SECONDS": "15",
            "LOMETAB_MAX_UPLOAD_BYTES": str(2**34),
            "LOMETAB_MAX_TABLE_BYTES": str(2**34),
            "TMPDIR": str(scratch),
        }
        with (folder / "log").open("ab") as log:
            service = Service(stack, log)
            try:
                wait_until(service.is_ready, seconds=120, what="the API answers")
                yield service
            finally:
                service.close()
    finally:
        stacks.close()


def train(service: Service) -> str:
    columns = make_columns(3000, 1)
    y = columns["n0"] + np.random.default_rng(1).normal(size=3000)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({**columns, "y": y}), sink)
    answer = service.client.post(
        "/jobs",
        files={"file": ("t.parquet", sink.getvalue().to_pybytes())},
        data={"config": json.dumps({"target": "y", "hyperparameters": MODEL})},
    )
    answer.raise_for_status()
    return str(service.wait_for_end(answer.json()["id"])["model_id"])


def measure_session(content: bytes, seconds: float = 10.0) -> float:
    """Rows a second of the session alone, on one core, with rows that are encoded."""
    predictor = Predictor(content, threads=1)
    encoded = predictor.encode(make_columns(8192, 2))
    predictor.run_all(encoded.x_num, encoded.x_cat)
    n_rows, started_at = 0, time.perf_counter()
    while (spent := time.perf_counter() - started_at) < seconds:
        predictor.run_all(encoded.x_num, encoded.x_cat)
        n_rows += 8192
    return n_rows / spent


def check_rows(service: Service, job: dict[str, Any], path: Path) -> bool:
    """Every row once, in order; what came is what the service says it is."""
    digest = hashlib.sha256()
    with (
        service.client.stream("GET", f"/jobs/{job['id']}/result") as answer,
        path.open("wb") as file,
    ):
        answer.raise_for_status()
        for piece in answer.iter_bytes():
            digest.update(piece)
            file.write(piece)
    assert digest.hexdigest() == job["result"]["sha256"]
    n_rows = 0
    with pq.ParquetFile(path) as result:
        for batch in result.iter_batches(2**16, columns=["id", "mean"]):
            expected = np.arange(n_rows, n_rows + batch.num_rows)
            if not np.array_equal(batch.column(0).to_numpy(), expected):
                return False
            if batch.column(1).null_count:
                return False
            n_rows += batch.num_rows
    return n_rows == job["progress"]["n_rows"]


def run(n_rows: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lometab-predictions-") as name:
        folder = Path(name)
        source = folder / "rows.parquet"
        write_rows(source, n_rows)
        with open_service(folder) as service:
            model_id = train(service)
            file = service.client.get(f"/models/{model_id}/onnx").content
            bare = measure_session(file)
            service.peaks.clear()
            return {"bare_rate": bare, **predict(service, model_id, source, folder)}


def predict(
    service: Service, model_id: str, source: Path, folder: Path
) -> dict[str, Any]:
    asked_at = time.perf_counter()
    with source.open("rb") as file:
        answer = service.client.post(
            f"/models/{model_id}/predictions",
            files={"file": (source.name, file)},
            data={"config": json.dumps({"output": "parquet", "exclude": ["members"]})},
        )
    answer.raise_for_status()
    taken_in = time.perf_counter() - asked_at
    job_id, n_rows = answer.json()["id"], answer.json()["progress"]["n_rows"]
    while service.read_job(job_id)["progress"]["rows_done"] < n_rows / 2:
        time.sleep(0.5)
    service.workers[0].kill()
    job = service.wait_for_end(job_id)
    peaks = {name: round(size / 2**20) for name, size in service.peaks.items()}
    children = service.client.get(f"/jobs?parent_id={job_id}&limit=1").json()["data"]
    return {
        "upload_seconds": taken_in,
        "seconds": _seconds_between(job["started_at"], job["finished_at"]),
        "assemble_seconds": _seconds_between(
            children[0]["created_at"], job["finished_at"]
        ),
        "result_bytes": job["result"]["size"],
        "peak_mib": peaks,
        "is_whole": check_rows(service, job, folder / "result.parquet"),
    }


def _seconds_between(first: str, second: str) -> float:
    moments = [datetime.fromisoformat(each) for each in (first, second)]
    return (moments[1] - moments[0]).total_seconds()


def find_share(n_rows: int, found: dict[str, Any]) -> float:
    """Of twice the bare session's rate."""
    return float(n_rows / found["seconds"] / (2 * found["bare_rate"]))


def describe(number: int, n_rows: int, found: dict[str, Any]) -> list[object]:
    rate, share = n_rows / found["seconds"], find_share(n_rows, found)
    peaks = found["peak_mib"]
    return [
        number,
        f"{n_rows:,}",
        f"{found['bare_rate']:,.0f}",
        f"{rate:,.0f}",
        f"{share:.0%}",
        f"{found['assemble_seconds']:.0f} of {found['seconds']:.0f}",
        f"{peaks['API']} / {peaks['worker']} / {peaks['child']}",
        "yes" if found["is_whole"] else "NO",
    ]


HEADER = (
    "run",
    "rows",
    "bare session, rows/s",
    "job, rows/s",
    "of twice the bare one",
    "assembling, s",
    "most memory of API / worker / child, MiB",
    "every row once, in order",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--trial", action="store_true", help="keep nothing")
    options = parser.parse_args()
    if options.trial:
        print(table(HEADER, [describe(0, options.rows, run(options.rows))]))
        return
    runs = Runs("predictions")
    key = {"rows": options.rows, "model": MODEL, "run": len([*runs]) + 1}
    runs.get(key, lambda: run(options.rows))
    write_results(runs)


def write_results(runs: Runs) -> None:
    lines = [describe(key["run"], key["rows"], found) for key, found in runs]
    shares = sorted(find_share(key["rows"], found) for key, found in runs)
    n_met = sum(share >= MIN_SHARE for share in shares)
    write_section(
        "predictions",
        f"## Prediction jobs\n\n{N_NUMERIC + N_TEXT} columns to Parquet, two workers "
        "of one thread on Postgres and Redis, one of them killed (-9) half-way and "
        f"started again. Aimed at: {MIN_SHARE:.0%} of twice the bare session. All runs "
        "in their order, of the code of their time; during the first, other work went "
        "on.\n\n"
        + table(HEADER, lines)
        + f"\n\nMedian {median(shares):.0%}, from {shares[0]:.0%} to "
        f"{shares[-1]:.0%}; {n_met} of {len(shares)} runs reach what was aimed at.",
    )


if __name__ == "__main__":
    main()
