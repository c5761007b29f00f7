"""Training rows in memory against training rows in a file: `make bench-large_tables`.

    python benchmarks/large_tables.py [--parts equality cost large] [--folder FOLDER]

- equality: california, both ways, with the same seeds. The buffer is so small that an
  epoch takes many of them; once more with the table sorted by its target, which is what
  shuffling by blocks is worst at.
- cost: whole jobs of a worker's child process on a table that fits both ways. Seconds
  of processors of each phase, and the peak of the process's memory.
- large: the same on 10 million rows of 50 numbers, from a file alone; one epoch of a
  small network. It needs about 6 GB in the folder.

A run is stored when it ends, and the section in docs/results.md is made of all of them.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from record import ROOT, Runs, table, write_section

from lometab.config import TRAINING_ENVIRONMENT

RUNS = Runs("large_tables")
PARTS = ("equality", "cost", "large")
N_SEEDS = 5
SMALL_BUFFER = 2**16
"""Bytes, in place of 64 MiB: of california about a seventh."""
MAX_EPOCHS = 30
IMPORTED_BYTES = 400 * 10**6
"""What a job's estimate adds for a process before it has any data."""
SHAPES = {
    "cost": {"rows": 1_000_000, "columns": 50},
    "large": {"rows": 10_000_000, "columns": 50},
}
NETWORK = {
    **{"k": 4, "rank": 2, "n_blocks": 1, "d_block": 32, "n_bins": 8, "d_embedding": 4},
    **{"batch_size": 4096, "share_batches": True, "max_epochs": 1, "patience": None},
}


# The same results


def measure_equality(way: str, seed: int, folder: Path) -> dict[str, Any]:
    """The test score of one run."""
    import numpy as np
    import torch
    from tables import load

    from lometab.config import from_preset
    from lometab.ensemble import Ensemble, measure, prepare, prepare_file
    from lometab.table import ParquetTable

    torch.set_num_threads(1)
    data = load("california")
    order = np.arange(len(data.y))
    if way == "file, sorted by the target":
        order = np.argsort(data.y, kind="stable")
    path = folder / "table.parquet"
    _write_columns(path, {name: np.array(c)[order] for name, c in data.table.items()})
    stored = ParquetTable(path)
    parts = {
        name: np.flatnonzero(np.isin(order, rows)) for name, rows in data.parts.items()
    }
    names = ("train", "val", "test")
    if way == "memory":
        prepared = prepare(stored, data.schema, parts, names)
    else:
        prepared = prepare_file(
            stored,
            data.schema,
            parts,
            names[1:],
            folder / "rows",
            buffer_bytes=SMALL_BUFFER,
        )
    config = from_preset("fast", seed=seed, max_epochs=MAX_EPOCHS)
    fit = prepared.fit(config)
    ensemble = Ensemble(data.schema, prepared.preprocessor, config, fit)
    outcome = measure(prepared, ensemble)
    return {"rmse": outcome.test.score, "epochs": outcome.epochs}


def _write_columns(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa

    from lometab.table import write_table

    keys = [f"c{i}" for i in range(len(columns))]
    batch = pa.record_batch([pa.array(c) for c in columns.values()], names=keys)
    write_table(path, [*columns], [batch])


# What it costs


def write_large(path: Path, n_rows: int, n_columns: int) -> None:
    """Numbers in 32 bits, and a target that some of them tell."""
    import numpy as np
    import pyarrow as pa

    from lometab.table import write_table

    rng = np.random.default_rng(0)
    keys = [f"c{i}" for i in range(n_columns + 1)]

    def batches() -> Iterator[Any]:
        size = 50_000
        for start in range(0, n_rows, size):
            x = rng.normal(size=(min(size, n_rows - start), n_columns))
            x = x.astype(np.float32)
            y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
            y += 0.1 * rng.normal(size=len(x)).astype(np.float32)
            yield pa.record_batch([*map(pa.array, x.T.copy()), pa.array(y)], names=keys)

    names = [*(f"n{i}" for i in range(n_columns)), "y"]
    write_table(path, names, batches(), compression="none")


def run_job(shape: dict[str, int], storage: str, folder: Path) -> dict[str, Any]:
    """One job in a process of its own, as a worker's child runs it."""
    path = folder / "table.parquet"
    if not path.exists():
        write_large(path, shape["rows"], shape["columns"])
    child = [sys.executable, __file__, "--child", storage]
    started_at = time.perf_counter()
    environment = {**os.environ, **TRAINING_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        child, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    found["seconds"] = round(time.perf_counter() - started_at, 1)
    found["table_bytes"] = 4 * shape["rows"] * (shape["columns"] + 1)
    found["parquet_bytes"] = path.stat().st_size
    return found


def run_child(storage: Any, folder: Path) -> dict[str, Any]:
    """Train, export and evaluate; the CPU seconds of each phase, and the peak."""
    from lometab.config import TrainConfig
    from lometab.cost import cost_of
    from lometab.table import ParquetTable, Split, infer_schema
    from worker.messages import TRAIN_ROWS, EpochDone, Message, PhaseBegun, Spec
    from worker.train import run

    rows = ParquetTable(folder / "table.parquet")
    kinds: Any = {name: "numeric" for name in rows if name != "y"}
    some = rows.sample(20_000)
    schema = infer_schema(some, target="y", task="regression", columns=kinds)
    config = TrainConfig(**NETWORK)
    marks = [("preparing", _cpu_seconds())]
    epochs: list[Any] = []

    def send(message: Message) -> None:
        if isinstance(message, PhaseBegun):
            marks.append((message.phase, _cpu_seconds()))
        if isinstance(message, EpochDone):
            epochs.append(message.progress)

    spec = Spec(
        job_id="job_0",
        attempt=1,
        role="train",
        hyperparameters=asdict(config),
        schema=schema.to_dict(),
        split=asdict(Split()),
        storage=storage,
        dataset_sha256="0" * 64,
        device="cpu",
        threads=1,
        checkpoint_seconds=1e9,
        supervisor=os.getpid(),
    )
    run(spec, folder, send, set())
    marks.append(("", _cpu_seconds()))
    expected = cost_of(
        schema,
        rows.n_rows,
        config,
        is_file=True,
        has_checkpoints=True,
        storage=storage,
    )
    file = folder / TRAIN_ROWS
    found = {
        "cpu_seconds": {
            phase: round(after - before, 1)
            for (phase, before), (_, after) in pairwise(marks)
        },
        "peak_bytes": _peak(),
        "estimated_bytes": expected.job_bytes,
        "disk_bytes": file.stat().st_size if file.exists() else 0,
        "val_score": epochs[-1]["val_score"],
        "n_train": rows.n_rows * 16 // 25,
    }
    file.unlink(missing_ok=True)
    return found


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


# The section


def write() -> None:
    equal = {(key["way"], key["seed"]): r for key, r in RUNS if "way" in key}
    jobs = [(key, r) for key, r in RUNS if "storage" in key]
    text = ["## Tables larger than memory\n"]
    if equal:
        text.append(_write_equality(equal))
    if jobs:
        text.append(_write_costs(jobs))
    write_section("large_tables", "\n".join(text))


def _write_equality(found: dict[tuple[str, int], dict[str, Any]]) -> str:
    ways = [*dict.fromkeys(way for way, _ in found)]
    rows = []
    for way in ways:
        scores = [r["rmse"] for (w, _), r in found.items() if w == way]
        seeds = [s for w, s in found if w == way and ("memory", s) in found]
        off = [found[way, s]["rmse"] - found["memory", s]["rmse"] for s in seeds]
        difference = "-"
        if way != "memory" and len(off) > 1:
            error = statistics.stdev(off) / len(off) ** 0.5
            difference = f"{statistics.mean(off):+.4f} ± {error:.4f} (n = {len(off)})"
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        mean = statistics.mean(scores)
        rows.append([way, len(scores), f"{mean:.4f}", f"{spread:.4f}", difference])
    return (
        "Test RMSE on california (given split, preset `fast`, at most "
        f"{MAX_EPOCHS} epochs), training rows in memory "
        "or read from a file by blocks. The buffer of the file is "
        f"{SMALL_BUFFER >> 10} KiB here, so that an epoch takes several of them. "
        "Differences are of equal seeds, mean ± standard error.\n\n"
        + table(
            ["training rows", "seeds", "RMSE", "std over seeds", "minus memory"], rows
        )
    )


def _write_costs(jobs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    rows = []
    for key, found in jobs:
        cpu, millions = found["cpu_seconds"], found["n_train"] / 1e6
        rows.append(
            [
                f"{key['rows'] / 1e6:g} M x {key['columns']}",
                key["storage"],
                f"{cpu['preparing']:.0f}",
                f"{cpu['training']:.0f} ({cpu['training'] / millions:.1f})",
                f"{cpu['exporting'] + cpu['evaluating']:.0f}",
                f"{found['peak_bytes'] / 1e9:.2f}",
                f"{(found['estimated_bytes'] + IMPORTED_BYTES) / 1e9:.2f}",
                f"{found['table_bytes'] / 1e9:.2f}",
                f"{found['disk_bytes'] / 1e9:.2f}",
            ]
        )
    names = ["table", "training rows in", "preparing"]
    names += ["one epoch (per million rows)", "export and reports", "peak GB"]
    names += ["estimated GB", "table in float32, GB", "file GB"]
    return (
        "Whole jobs of a worker's child process with a small network (K 4, one layer "
        "of 32, batches of 4096, one epoch). Times are seconds of processors, by one "
        "thread, on a machine that had other work too: a difference of less than a "
        "factor of two is noise. The peak is that of the process's resident memory.\n\n"
        + table(names, rows)
        + f"\nIn memory the last of them would take {_estimate_in_memory():.1f} GB by "
        "the estimate.\n"
    )


def _estimate_in_memory() -> float:
    from lometab.config import TrainConfig
    from lometab.cost import Widths, cost_of

    shape, config = SHAPES["large"], TrainConfig(**NETWORK)
    widths = Widths(n_numeric=shape["columns"])
    cost = cost_of(widths, shape["rows"], config, is_file=True, has_checkpoints=True)
    return (cost.job_bytes + IMPORTED_BYTES) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--folder", type=Path, help="for large tables")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_child(options.child, Path.cwd())))
        return
    if "equality" in options.parts:
        for seed in range(N_SEEDS):
            for way in ("memory", "file", "file, sorted by the target"):
                with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                    found = RUNS.get(
                        {"way": way, "seed": seed},
                        lambda: measure_equality(way, seed, Path(folder)),  # noqa: B023
                    )
                print(way, seed, found, flush=True)
    for part, ways in (("cost", ("memory", "file")), ("large", ("file",))):
        if part not in options.parts:
            continue
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for storage in ways:
                key = {"storage": storage, **SHAPES[part]}
                found = RUNS.get(
                    key,
                    lambda: run_job(SHAPES[part], storage, Path(folder)),  # noqa: B023
                )
                print(key, found, flush=True)
    write()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
