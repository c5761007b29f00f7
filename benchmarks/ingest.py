"""How large files are taken in: memory of the API, its answers meanwhile, the rate.

    python benchmarks/ingest.py [--rows 6000000] [--parts service rate wide workbook]

A CSV of about a gigabyte and a bomb are posted to a real API process, whose memory is
watched while another client keeps asking whether it lives. The rate of reading,
keeping and profiling is measured beside DuckDB's own `read_csv` to Parquet; a table of
few rows and thousands of columns is posted, and a workbook is read beside the CSV with
the same cells.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import httpx
import numpy as np
import psutil
import pyarrow as pa
from processes import running_api
from record import Runs, table, write_section

from lometab.table import profile_table, read_file

MAX_MEMORY_MB = 400
MIN_RATE = 0.4
BLOCK_ROWS = 1_000_000
WIDE = (200, 3000)
MAX_WIDE_SECONDS = 3.0
PARTS = ("service", "rate", "wide", "workbook")


def write_csv(path: Path, n_rows: int) -> None:
    """Numbers, codes, a date, texts and flags: a million rows, again and again."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(14)] + ["city", "code", "day", "note", "flag", "y"]
    cities = ["Berlin", "Paris", "Rome", '"New York, NY"', "Oslo"]
    block = []
    n_block = min(n_rows, BLOCK_ROWS)
    for start in range(0, n_block, 10_000):
        x = rng.normal(size=(10_000, 14))
        city, code = rng.integers(0, 5, 10_000), rng.integers(0, 1000, 10_000)
        day, flag = rng.integers(1, 29, 10_000), rng.integers(0, 2, 10_000)
        for i in range(10_000):
            numbers = ",".join(f"{value:.6g}" for value in x[i])
            block.append(
                f"{numbers},{cities[city[i]]},{code[i]},2024-01-{day[i]:02d},"
                f"text {start + i},{bool(flag[i])},{2 * x[i, 0]:.5g}\n"
            )
    content = "".join(block).encode()
    with path.open("wb") as file:
        file.write(",".join(names).encode() + b"\n")
        for _ in range(n_rows // n_block):
            file.write(content)


def write_bomb(path: Path, gigabytes: int) -> None:
    """A few megabytes that unpack to as many gigabytes: the same frame again and
    again."""
    frame = pa.compress(b"1,2\n" * 2**28, codec="zstd", asbytes=True)
    path.write_bytes(pa.compress(b"a,b\n", codec="zstd", asbytes=True))
    with path.open("ab") as file:
        for _ in range(gigabytes):
            file.write(frame)


class Watch:
    """The peak memory of a process, and how long a small request takes meanwhile."""

    def __init__(self, address: str, process: psutil.Process) -> None:
        self.peak = 0
        self.waits: list[float] = []
        self._address, self._process = address, process
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._look),
            threading.Thread(target=self._ask),
        ]

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def _ask(self) -> None:
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while not self._is_over.wait(0.05):
                start = time.perf_counter()
                client.get("/healthz")
                self.waits.append(time.perf_counter() - start)


def post(address: str, path: Path) -> httpx.Response:
    """The file as multipart/form-data, without reading it into memory."""
    boundary = "a-boundary-that-no-file-has"
    head = (
        f"--{boundary}\r\nContent-Disposition: form-data; "
        f'name="file"; filename="{path.name}"\r\n\r\n'
    )

    def body() -> Iterator[bytes]:
        yield head.encode()
        with path.open("rb") as file:
            while block := file.read(2**20):
                yield block
        yield f"\r\n--{boundary}--\r\n".encode()

    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return httpx.post(f"{address}/datasets", content=body(), headers=kind, timeout=900)


def serve(n_rows: int, gigabytes: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_csv(folder / "big.csv", n_rows)
        write_bomb(folder / "bomb.zst", gigabytes)
        for case in ("big.csv", "bomb.zst"):
            path = folder / case
            own = folder / case.split(".")[0]
            own.mkdir()
            with (
                running_api(own, {"LOMETAB_DATA_DIR": str(own / "data")}) as (
                    address,
                    process,
                ),
                Watch(address, process) as watch,
            ):
                start = time.perf_counter()
                response = post(address, path)
                seconds = time.perf_counter() - start
            body = response.json()
            result[case] = {
                "megabytes": path.stat().st_size / 1e6,
                "status": response.status_code,
                "says": body.get("detail") or f"{body['n_rows']} rows kept",
                "is_whole": body.get("n_rows") == n_rows,
                "seconds": seconds,
                "peak_mb": watch.peak / 1e6,
                "wait_p95_ms": 1e3 * float(np.quantile(watch.waits, 0.95)),
                "wait_max_ms": 1e3 * max(watch.waits),
            }
            print(case, result[case])
    return result


def measure_rate(n_rows: int, n_runs: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {"duckdb": [], "read": [], "profile": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "file.csv"
        write_csv(source, n_rows)
        for _ in range(n_runs):
            start = time.perf_counter()
            with duckdb.connect() as database:
                database.execute(
                    f"COPY (FROM read_csv('{source}')) TO '{folder}/duckdb' "
                    "(FORMAT parquet, COMPRESSION zstd)"
                )
            times["duckdb"].append(time.perf_counter() - start)
            start = time.perf_counter()
            reading = read_file(source, folder / "ours")
            middle = time.perf_counter()
            profile_table(folder / "ours", reading)
            times["read"].append(middle - start)
            times["profile"].append(time.perf_counter() - middle)
            print({name: round(taken[-1], 2) for name, taken in times.items()})
        return {
            "megabytes": source.stat().st_size / 1e6,
            **{name: median(taken) for name, taken in times.items()},
            "size_ratio": (folder / "ours").stat().st_size / source.stat().st_size,
        }


def measure_wide(n_runs: int) -> dict[str, Any]:
    """The upload of few rows of very many columns, each time to a new service."""
    rng = np.random.default_rng(0)
    n_rows, n_columns = WIDE
    walls, cpus = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "wide.csv"
        lines = [",".join(f"x{i}" for i in range(n_columns))]
        lines += [
            ",".join(f"{v:.6g}" for v in row)
            for row in rng.normal(size=(n_rows, n_columns))
        ]
        path.write_text("\n".join(lines) + "\n")
        for i in range(n_runs):
            own = folder / str(i)
            own.mkdir()
            data = {"LOMETAB_DATA_DIR": str(own / "data")}
            with running_api(own, data) as (address, process):
                before = sum(process.cpu_times()[:2])
                start = time.perf_counter()
                response = post(address, path)
                walls.append(time.perf_counter() - start)
                cpus.append(sum(process.cpu_times()[:2]) - before)
            assert response.json()["n_columns"] == n_columns, response.text
            print({"wall": round(walls[-1], 2), "cpu": round(cpus[-1], 2)})
    return {
        "n_rows": n_rows,
        "n_columns": n_columns,
        "seconds": median(walls),
        "cpu_seconds": median(cpus),
    }


def measure_workbook(n_rows: int, n_runs: int) -> dict[str, Any]:
    """Read and kept, interleaved with the CSV of the same cells; processor time."""
    from openpyxl import Workbook

    rng = np.random.default_rng(0)
    rows = [
        [*map(float, x), f"level {i % 7}", i % 2 == 0]
        for i, x in enumerate(rng.normal(size=(n_rows, 8)).round(4))
    ]
    times: dict[str, list[float]] = {"csv": [], "xlsx": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        book = Workbook(write_only=True)
        sheet = book.create_sheet()
        head = [*(f"x{i}" for i in range(8)), "level", "flag"]
        for row in (head, *rows):
            sheet.append(row)
        book.save(folder / "file.xlsx")
        lines = [",".join(map(str, row)) for row in (head, *rows)]
        (folder / "file.csv").write_text("\n".join(lines) + "\n")
        for _ in range(n_runs):
            for kind, taken in times.items():
                start = time.process_time()
                reading = read_file(folder / f"file.{kind}", folder / "table")
                profile_table(folder / "table", reading)
                taken.append(time.process_time() - start)
            print({kind: round(taken[-1], 2) for kind, taken in times.items()})
        size = (folder / "file.xlsx").stat().st_size / 1e6
    return {
        "n_rows": n_rows,
        "n_columns": len(head),
        "megabytes": size,
        **{kind: median(taken) for kind, taken in times.items()},
    }


def describe_shapes(runs: Runs) -> Iterator[str]:
    wide = runs.find({"part": "wide"})
    if wide is not None:
        verdict = "met" if wide["seconds"] <= MAX_WIDE_SECONDS else "missed"
        yield (
            f"{wide['n_columns']} columns by {wide['n_rows']} rows are uploaded in "
            f"**{wide['seconds']:.2f} s** ({wide['cpu_seconds']:.2f} s of processor "
            f"time). Bar: at most {MAX_WIDE_SECONDS} s: {verdict}.\n"
        )
    book = runs.find({"part": "workbook"})
    if book is not None:
        rate = book["n_rows"] / book["xlsx"]
        yield (
            f"A workbook of {book['n_rows']} rows by {book['n_columns']} columns "
            f"({book['megabytes']:.1f} MB) is read, kept and profiled in "
            f"{book['xlsx']:.2f} s of processor time, {rate:,.0f} rows a second; the "
            f"same cells as CSV take {book['csv']:.2f} s.\n"
        )


def section(runs: Runs) -> str:
    text = [
        "## Files taken in\n",
        "`make bench-ingest`. The files are posted to one API process on the embedded "
        "default; its memory is read every 20 ms, and another client asks `/healthz` "
        "again and again. The bomb is zstd, the same frame many times.\n",
    ]
    service = runs.find({"part": "service"})
    if service is not None:
        rows = [
            [
                case,
                f"{r['megabytes']:.0f} MB",
                f"{r['status']}: {r['says']}",
                f"{r['seconds']:.1f}",
                f"**{r['peak_mb']:.0f} MB**",
                f"{r['wait_p95_ms']:.0f} / {r['wait_max_ms']:.0f} ms",
            ]
            for case, r in service.items()
        ]
        header = ["file", "size", "answer", "s", "peak memory", "/healthz p95 / max"]
        is_met = service["big.csv"]["peak_mb"] < MAX_MEMORY_MB
        is_met = is_met and service["big.csv"]["is_whole"]
        text.append(table(header, rows))
        text.append(
            f"Bar: under {MAX_MEMORY_MB} MB: {'met' if is_met else 'missed'}.\n"
        )
    rate = runs.find({"part": "rate"})
    if rate is not None:
        ours = rate["read"] + rate["profile"]
        ratio = rate["duckdb"] / ours
        row = [
            f"{rate['megabytes']:.0f} MB",
            f"{rate['duckdb']:.2f}",
            f"{rate['read']:.2f}",
            f"{rate['profile']:.2f}",
            f"**{ratio:.2f}**",
            f"{rate['size_ratio']:.2f}",
        ]
        header = ["CSV", "DuckDB to Parquet, s", "ours: read and keep, s"]
        header += ["ours: profile, s", "rate, DuckDB's = 1", "stored / sent"]
        text.append(table(header, [row]))
        verdict = "met" if ratio >= MIN_RATE else "missed"
        text.append(f"Medians, interleaved. Bar: at least {MIN_RATE}: {verdict}.\n")
    text += describe_shapes(runs)
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--gigabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    runs = Runs("ingest")
    measures = {
        "rate": lambda: measure_rate(BLOCK_ROWS, arguments.runs),
        "service": lambda: serve(arguments.rows, arguments.gigabytes),
        "wide": lambda: measure_wide(arguments.runs),
        "workbook": lambda: measure_workbook(20_000, arguments.runs),
    }
    for part in arguments.parts:
        runs.put({"part": part}, measures[part]())
    write_section("ingest", section(runs))


if __name__ == "__main__":
    main()
