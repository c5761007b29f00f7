"""What explanations cost: `make bench-explain`.

Evaluating a model of adult with and without what drives it and where it fails, one
after the other in one process; and one explained row of the small model of
`benchmarks/serving.py`, over HTTP, from a service of its own.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from record import ROOT, Runs, table, write_section
from serving import Stage, make_ensemble, make_table, one_row

from lometab.config import from_preset
from lometab.ensemble import train_ensemble
from lometab.evaluation import Run, make_reports
from lometab.explain import Rows, examine, fit_naive, pack_background
from lometab.export import to_onnx
from lometab.predictor import Predictor
from lometab.table import (
    ParquetTable,
    Split,
    features,
    infer_schema,
    read_file,
    split_rows,
    target,
)

ADULT = ROOT.parent / "shared" / "data" / "adult.csv.gz"
N_REPEATS = 5
N_ASKED = 100
JSON = {"Content-Type": "application/json"}
MAX_RATIO, MAX_MILLISECONDS = 1.3, 50.0


def measure_evaluation() -> dict[str, Any]:
    """Seconds of evaluating adult without and with findings, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        read_file(ADULT, path)
        columns = ParquetTable(path)
        schema = infer_schema(columns, target="income")
        parts = split_rows(columns, schema, Split())
        config = from_preset("default", max_epochs=1)
        ensemble = train_ensemble(columns, schema, parts, config)
        x_num, x_cat = features(columns, schema)
        y = target(columns, schema)
    predictor = Predictor(to_onnx(ensemble))
    rows = Rows(schema.numeric, schema.categorical, x_num, x_cat, schema.datetime)

    def evaluate(has_findings: bool) -> float:
        started_at = time.perf_counter()
        run = Run.of_file(predictor, x_num, x_cat, y, parts, config=config)
        if has_findings:
            known = rows.take(parts["train"])
            naive = fit_naive(known, y[parts["train"]], schema.task, predictor.classes)
            run = examine(run, predictor.run, rows.take(parts["test"]), naive)
        make_reports(run)
        return time.perf_counter() - started_at

    evaluate(True)  # imports
    found = [(evaluate(False), evaluate(True)) for _ in range(N_REPEATS)]
    return {"without": [a for a, _ in found], "with": [b for _, b in found]}


def measure_row() -> dict[str, Any]:
    """Milliseconds of one row without and with an explanation."""
    ensemble = make_ensemble("small")
    columns = make_table(0, 3000)
    x_num = np.stack([columns[name] for name in ensemble.schema.numeric], axis=1)
    rows = Rows(ensemble.schema.numeric, [], x_num, np.empty((3000, 0), dtype=object))
    content = to_onnx(ensemble, metadata={"background": pack_background(rows)})
    row = one_row("small")
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        with stage.serve() as server:
            stage.publish(server.port, {"small": content})
            address = f"http://127.0.0.1:{server.port}{stage.path('small')}"
            headers = {"Authorization": f"Bearer {stage.key}"}
            with httpx.Client(headers=headers, timeout=60) as client:
                return {
                    name: time_all(
                        lambda body=body: client.post(
                            address, content=body, headers=JSON
                        )
                    )
                    for name, body in {
                        "plain": json.dumps({"rows": [row]}),
                        "explained": json.dumps({"rows": [row], "explain": True}),
                    }.items()
                }


def time_all(ask: Callable[[], httpx.Response]) -> list[float]:
    ask().raise_for_status()
    found = []
    for _ in range(N_ASKED):
        started_at = time.perf_counter()
        ask().raise_for_status()
        found.append(1e3 * (time.perf_counter() - started_at))
    return found


def main() -> None:
    torch.set_num_threads(1)
    runs = Runs("explain")
    evaluation, row = measure_evaluation(), measure_row()
    runs.put({"part": "evaluation", "table": "adult"}, evaluation)
    runs.put({"part": "row", "model": "small"}, row)
    without, with_ = (statistics.median(evaluation[n]) for n in ("without", "with"))
    ratios = [
        b / a for a, b in zip(evaluation["without"], evaluation["with"], strict=True)
    ]
    plain, explained = (statistics.median(row[n]) for n in ("plain", "explained"))
    lines = [
        ("evaluating adult, without findings", f"{without:.2f} s", ""),
        ("the same with findings", f"{with_:.2f} s", ""),
        ("ratio, median of pairs", f"{statistics.median(ratios):.2f}", MAX_RATIO),
        ("one row of *small*, p50", f"{plain:.2f} ms", ""),
        ("the same explained, p50", f"{explained:.1f} ms", f"{MAX_MILLISECONDS:g} ms"),
    ]
    text = "## Explanations\n\n`make bench-explain`. Default preset on adult, one "
    text += "thread; one row over HTTP from one client.\n\n"
    write_section("explain", text + table(("", "measured", "at most"), lines))
    print(table(("", "measured", "at most"), lines))


if __name__ == "__main__":
    main()
