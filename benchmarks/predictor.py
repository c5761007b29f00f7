"""What `Predictor` costs beyond the bare ONNX Runtime session, and what loading costs.

    python benchmarks/predictor.py

Model: K=16, rank 8, two blocks of 192, 8 numeric columns; then 10 text columns more.
10 000 rows go through the session on ready arrays, in one run and cut as the predictor
cuts them, and through `Predictor.predict` in each form that rows can have. All take
turns in one process, on one thread; a ratio is that of medians, against the faster of
the two bare ways. Loading is timed in processes of their own.
The exit status is 1 if a bound does not hold.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from record import former, table, write_section

from lometab.ensemble import train_ensemble
from lometab.export import to_onnx
from lometab.predictor import Predictor
from lometab.table import infer_schema

N = 10_000
REPEATS = 9
MAX_SECONDS_TO_LOAD = 0.5

LOAD = """
import sys, time
start = time.perf_counter()
from lometab.predictor import Predictor
Predictor(sys.argv[1])
print(time.perf_counter() - start)
"""


def make_table(n_text: int, n_rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {f"n{i}": rng.normal(size=n_rows) for i in range(8)}
    texts = np.array([f"level {i}" for i in range(10)], dtype=object)
    for i in range(n_text):
        table[f"c{i}"] = rng.choice(texts, n_rows)
    table["y"] = table["n0"] + rng.normal(size=n_rows)
    return table


def make_model(n_text: int) -> bytes:
    table = make_table(n_text, 31_000)
    schema = infer_schema(table, target="y")
    parts = {"train": np.arange(30_000), "val": np.arange(30_000, 31_000)}
    config = former(max_epochs=1, batch_size=4096, share_batches=True)
    return to_onnx(train_ensemble(table, schema, parts, config))


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(content: bytes, n_text: int) -> dict[str, float]:
    """Median seconds of the bare session and of `predict` on each form of rows."""
    predictor = Predictor(content)
    arrays = make_table(n_text, N)
    lists = {name: column.tolist() for name, column in arrays.items()}
    cells = zip(*lists.values(), strict=True)
    records = [dict(zip(lists, row, strict=True)) for row in cells]
    text = {name: [str(cell) for cell in column] for name, column in lists.items()}
    x_num, x_cat, _ = predictor.encode(arrays)
    inputs = {"numeric": x_num} | ({"categorical": x_cat} if n_text else {})
    session = predictor._session
    parts = [{k: x[i : i + 4096] for k, x in inputs.items()} for i in range(0, N, 4096)]
    functions: dict[str, Callable[[], object]] = {
        "bare, one run": lambda: session.run(None, inputs),
        "bare, cut": lambda: [session.run(None, part) for part in parts],
        "arrays": lambda: predictor.predict(arrays),
        "lists": lambda: predictor.predict(lists),
        "records": lambda: predictor.predict(records),
        "cells as text": lambda: predictor.predict(text),
    }
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(REPEATS):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return {name: median(each) for name, each in times.items()}


def seconds_to_load(content: bytes) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        command = [sys.executable, "-c", LOAD, str(path)]
        return median(
            float(subprocess.check_output(command, text=True)) for _ in range(REPEATS)
        )


def main() -> int:
    within = True
    rows = []
    for n_text, bound in ((0, 1.3), (10, 2.0)):
        content = make_model(n_text)
        times = compare(content, n_text)
        bare = min(times["bare, one run"], times["bare, cut"])
        for name, each in times.items():
            is_bare = name.startswith("bare")
            within &= is_bare or each <= bound * bare
            limit = "-" if is_bare else f"<= {bound}"
            cells = (n_text, name, f"{1e3 * each:.0f}", f"{each / bare:.2f}", limit)
            rows.append(cells)
            print("{} text columns, {}: {} ms, {} x ({})".format(*cells), flush=True)
    loading = seconds_to_load(content)
    within &= loading <= MAX_SECONDS_TO_LOAD
    text = (
        f"Importing `lometab.predictor` and loading a file of "
        f"{len(content) / 1e6:.2f} MB takes {loading:.2f} s "
        f"(at most {MAX_SECONDS_TO_LOAD})."
    )
    print(text)
    header = ("text columns", "way", "ms", "x bare session", "bound")
    write_section(
        "predictor",
        f"## The predictor beside the bare session\n\n`make bench-predictor`. "
        f"K=16, rank 8, two blocks of 192, 8 numeric columns and the text columns "
        f"named; {N} rows, one thread, medians of {REPEATS} turns in one process.\n\n"
        f"{table(header, rows)}\n{text}",
    )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
