"""How `lometab.cost` compares with measured memory, shape by shape.

    python benchmarks/estimate.py [SHAPE ...]

Each shape is trained for two epochs in a process of its own, which then exports the
model and makes the reports, as a job does; another process loads the file and answers
as many rows as it runs at a time. A shape that comes in a file is read and written as
Parquet by a process before these, as the API does. Measured is the peak above the level
after the imports, on Linux. The exit status is 1 if an estimate of training is below
0.7 of the peak, or above 1.3 of one of more than 500 MB. Without names all shapes are
measured, and the section in docs/results.md is written.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAX_ERROR = 0.3
SMALL_BYTES = 500 * 10**6
"""A peak up to this may be less than the estimate by any factor."""

# Numeric columns, levels of each categorical column and how long their texts are,
# classes (0: regression), the way the table comes (arrays or a file), and settings.
SHAPES: dict[str, dict[str, Any]] = {
    "wide layers": {
        "rows": 2_000,
        "numeric": 20,
        "config": {"k": 32, "rank": 16, "d_block": 1024, "n_blocks": 3},
    },
    "many rows": {
        "rows": 500_000,
        "numeric": 20,
        "config": {"k": 8, "d_block": 32, "batch_size": 4096, "share_batches": True},
    },
    "large batches": {
        "rows": 10_000,
        "numeric": 30,
        "config": {"k": 32, "rank": 4, "d_block": 64, "batch_size": 2048},
    },
    "many levels": {
        "rows": 5_000,
        "numeric": 2,
        "levels": [500] * 6,
        "classes": 2,
        "config": {"k": 32, "rank": 4, "d_block": 256},
    },
    "many members": {
        "rows": 300_000,
        "numeric": 5,
        "config": {
            "k": 64,
            "rank": 1,
            "n_blocks": 1,
            "d_block": 8,
            "n_bins": 4,
            "d_embedding": 4,
            "batch_size": 4096,
        },
    },
    "many classes": {
        "rows": 60_000,
        "numeric": 10,
        "classes": 100,
        "config": {"k": 16, "d_block": 64, "batch_size": 1024, "share_batches": True},
    },
    "file": {
        "rows": 150_000,
        "numeric": 20,
        "levels": [5, 5, 5],
        "is_file": True,
        "config": {"k": 8, "d_block": 32, "batch_size": 4096, "share_batches": True},
    },
    "file, many rows": {
        "rows": 1_000_000,
        "numeric": 20,
        "levels": [5, 5, 5],
        "is_file": True,
        "config": {"k": 8, "d_block": 32, "batch_size": 4096, "share_batches": True},
    },
    "file, many columns": {
        "rows": 100_000,
        "numeric": 200,
        "is_file": True,
        "config": {"k": 8, "d_block": 32, "batch_size": 1024, "share_batches": True},
    },
    "file, small network": {
        "rows": 400_000,
        "numeric": 80,
        "is_file": True,
        "config": {
            "k": 4,
            "d_block": 16,
            "n_bins": 8,
            "d_embedding": 4,
            "batch_size": 4096,
            "share_batches": True,
        },
    },
    "file, long texts": {
        "rows": 100_000,
        "numeric": 5,
        "levels": [40] * 30,
        "length": 200,
        "classes": 3,
        "is_file": True,
        "config": {"k": 8, "d_block": 32, "batch_size": 1024, "share_batches": True},
    },
    "deep ensemble": {
        "rows": 2_000,
        "numeric": 20,
        "config": {"variant": "deep-ensemble", "k": 16, "d_block": 1024, "n_blocks": 3},
    },
    "TabM": {
        "rows": 2_000,
        "numeric": 20,
        "config": {"variant": "tabm", "k": 32, "d_block": 1024, "n_blocks": 3},
    },
}


def main(names: list[str]) -> int:
    from record import table, write_section

    rows, is_good = [], True
    for name in names or SHAPES:
        expected = predict(SHAPES[name])
        measured = run(SHAPES[name])
        cells = []
        for key in ("training_bytes", "job_bytes", "serving_bytes"):
            ratio = expected[key] / measured[key]
            cells.append(f"{expected[key] / 1e6:.0f} / {measured[key] / 1e6:.0f} MB")
            cells.append(f"{ratio:.2f}")
            if key == "training_bytes":
                is_large = measured[key] > SMALL_BYTES
                is_good &= ratio >= 1 - MAX_ERROR
                is_good &= ratio <= 1 + MAX_ERROR or not is_large
        counts = f"{expected['n_parameters']:,} / {measured['n_parameters']:,}"
        rows.append([name, describe(SHAPES[name]), counts, *cells])
        print(*rows[-1], sep=" | ", flush=True)
    header = ["shape", "rows, columns, settings", "parameters"]
    for what in ("training", "job", "serving"):
        header += [f"{what}: estimated / measured", "ratio"]
    if not names:
        write_section(
            "estimate",
            "## Estimates of memory\n\n"
            "Estimates from schema, rows, cardinalities and config alone, beside the "
            "peaks of processes above their level after imports: training, the whole "
            "job with export and reports, and serving as many rows as are run at a "
            "time. Files were written as Parquet before, and are read column by "
            f"column. CPU, one thread, two epochs.\n\n{table(header, rows)}",
        )
    return 0 if is_good else 1


def describe(shape: dict[str, Any]) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in shape["config"].items())
    n_columns = shape["numeric"] + len(shape.get("levels", []))
    return f"{shape['rows']:,} by {n_columns}; {settings}"


def predict(shape: dict[str, Any]) -> dict[str, int]:
    """What the estimate says, from what is known before anything is fitted."""
    from dataclasses import asdict

    from lometab.config import TrainConfig
    from lometab.cost import cost_of
    from lometab.table import Schema

    n_classes = shape.get("classes", 0)
    levels = shape.get("levels", [])
    schema = Schema(
        target="y",
        task={0: "regression", 2: "binary"}.get(n_classes, "multiclass"),
        classes=tuple(range(n_classes)) or None,
        numeric=tuple(f"n{i}" for i in range(shape["numeric"])),
        categorical=tuple(f"c{i}" for i in range(len(levels))),
    )
    return asdict(
        cost_of(
            schema,
            shape["rows"],
            TrainConfig(**shape["config"]),
            cardinalities=levels,
            is_file=shape.get("is_file", False),
        )
    )


def run(shape: dict[str, Any]) -> dict[str, int]:
    """Measure training, the job and serving in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        if shape.get("is_file"):
            call("write", json.dumps(shape), folder)
        trained = call("train", json.dumps(shape), folder)
        return trained | call("serve", folder)


def call(*arguments: str) -> dict[str, int]:
    from lometab.config import TRAINING_ENVIRONMENT

    environment = dict(os.environ)
    if arguments[0] == "train":
        environment |= TRAINING_ENVIRONMENT
    done = subprocess.run(
        [sys.executable, __file__, "--child", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, int] = json.loads(done.stdout)
    return result


# In the process before, whose memory is not counted


def write(shape: dict[str, Any], folder: Path) -> dict[str, int]:
    """The table as the API keeps it, and the schema that it gives to a job."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv

    from lometab.table import ParquetTable, read_file

    columns = make_table(shape)
    for name, column in columns.items():
        if column.dtype == np.float64:
            columns[name] = column.round(6)
    pa.csv.write_csv(pa.table(columns), folder / "data.csv")
    read_file(folder / "data.csv", folder / "table.parquet")
    (folder / "data.csv").unlink()
    schema = make_schema(shape, ParquetTable(folder / "table.parquet"))
    (folder / "schema.json").write_text(json.dumps(schema.to_dict()))
    return {}


def make_schema(shape: dict[str, Any], rows: Any) -> Any:
    from lometab.table import infer_schema

    task = {0: "regression", 2: "binary"}.get(shape.get("classes", 0), "multiclass")
    kinds = {n: "numeric" if n[0] == "n" else "categorical" for n in rows if n != "y"}
    return infer_schema(rows, target="y", task=task, columns=kinds)


# In the processes that are measured


def train(shape: dict[str, Any], folder: Path) -> dict[str, int]:
    import torch

    from lometab.config import TrainConfig
    from lometab.ensemble import train_ensemble
    from lometab.evaluation import Run, make_reports
    from lometab.export import calibrate_on, export
    from lometab.predictor import Predictor
    from lometab.table import ParquetTable, Schema, Split, features, split_rows, target

    torch.set_num_threads(1)
    level = resident()
    if shape.get("is_file"):
        rows: Any = ParquetTable(folder / "table.parquet")
        schema = Schema.from_dict(json.loads((folder / "schema.json").read_text()))
    else:
        rows = make_table(shape)
        schema = make_schema(shape, rows)
    parts = split_rows(rows, schema, Split())
    config = TrainConfig(max_epochs=2, patience=None, **shape["config"])
    ensemble = train_ensemble(rows, schema, parts, config)
    training = peak() - level
    x_num, x_cat = features(rows, schema)
    y = target(rows, schema)
    checked, val = parts["train"][:1000], parts["val"]
    content = export(
        ensemble,
        x_num[checked],
        x_cat[checked],
        calibrate=calibrate_on(x_num[val], x_cat[val], y[val]),
    )
    (folder / "model.onnx").write_bytes(content)
    make_reports(Run.of_file(Predictor(content), x_num, x_cat, y, parts, config=config))
    return {
        "n_parameters": ensemble.fit.model.n_parameters,
        "training_bytes": training,
        "job_bytes": peak() - level,
    }


def serve(folder: Path) -> dict[str, int]:
    import numpy as np

    from lometab.predictor import MAX_ROWS, Predictor

    level = resident()
    predictor = Predictor(folder / "model.onnx")
    predictor.run(
        np.zeros((MAX_ROWS, len(predictor.numeric))),
        np.full((MAX_ROWS, len(predictor.categorical)), "0", dtype=object),
    )
    return {"serving_bytes": peak() - level}


def make_table(shape: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    n_rows, n_classes = shape["rows"], shape.get("classes", 0)
    columns: dict[str, Any] = {
        f"n{i}": rng.normal(size=n_rows) for i in range(shape["numeric"])
    }
    for i, n_levels in enumerate(shape.get("levels", [])):
        texts = [str(level).zfill(shape.get("length", 1)) for level in range(n_levels)]
        levels = np.array(texts, dtype=object)
        columns[f"c{i}"] = levels[rng.integers(n_levels, size=n_rows)]
    if n_classes:
        columns["y"] = rng.integers(n_classes, size=n_rows)
    else:
        columns["y"] = rng.normal(size=n_rows)
    return columns


def resident() -> int:
    return _status("VmRSS")


def peak() -> int:
    # Not getrusage's, which begins with what the parent had.
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(name))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, *shape, folder = sys.argv[2:]
        child = {"write": write, "train": train, "serve": serve}[what]
        print(json.dumps(child(*map(json.loads, shape), Path(folder))))
    else:
        sys.exit(main(sys.argv[1:]))
