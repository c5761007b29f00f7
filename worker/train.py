"""`python -m worker.train JOB ATTEMPT`: the process that imports torch and trains.

It knows no database. Its spec comes as one line of JSON on standard input, which stays
open while the supervisor lives; what it makes goes into the working directory; what it
has to say goes line by line to standard output:

    {"phase": "training"}
    {"progress": {"epoch": 3, ...}}
    {"checkpoint": {"folder": "checkpoint-3", "epoch": 3}}
    {"error": {"code": "diverged", "detail": "..."}}

The supervisor may say `stop` (keep the best epoch so far) or `leave` (write a
checkpoint at the end of the epoch and end).
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worker.lifeline import die_with_parent, watch_stdin

DATA = "table.parquet"
ONNX = "model.onnx"
REPORTS = "reports.json"
CHECKPOINT = "checkpoint"
LEFT = 3
"""The exit code after `leave`."""


def main() -> int:
    spec = json.loads(sys.stdin.buffer.readline())
    die_with_parent(spec["supervisor"])
    orders: set[str] = set()
    watch_stdin(on_close=lambda: os._exit(1), on_line=orders.add)
    # Our lines go to the pipe; whatever a library prints goes to standard error.
    pipe = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        pipe.write(json.dumps(message) + "\n")

    from lometab.errors import TrainingCancelled

    try:
        run(spec, Path.cwd(), say, orders)
    except TrainingCancelled:
        return LEFT
    except BaseException as error:  # whatever it is, the supervisor is told
        traceback.print_exc()
        say(error={"code": failure_code(error), "detail": _message(error)})
        return 1
    return 0


def run(
    spec: dict[str, Any], folder: Path, say: Callable[..., None], orders: set[str]
) -> None:
    """Train, export, evaluate; leave the model and its reports in the folder.

    Args:
        orders: what the supervisor has said so far; it grows in another thread.
    """
    clock = Clock()
    import torch

    from lometab.config import TrainConfig
    from lometab.data import Schema, features, target
    from lometab.ensemble import train_ensemble
    from lometab.errors import TrainingCancelled
    from lometab.evaluation import evaluate
    from lometab.export import export
    from lometab.predictor import Predictor
    from lometab.splits import Split, split_rows
    from lometab.tables import ParquetTable
    from lometab.train import Checkpoint, Progress

    torch.set_num_threads(spec["threads"])
    config = TrainConfig(**spec["config"]["hyperparameters"])
    schema = Schema.from_dict(spec["schema"])
    table = ParquetTable(folder / DATA)
    parts = split_rows(table, schema, Split(**spec["config"]["split"]))

    def on_epoch(progress: Progress) -> bool:
        end = config.max_epochs
        if config.patience is not None:
            end = min(end, progress.best_epoch + config.patience)
        pace = progress.seconds / progress.epoch
        eta = max(0.0, (end - progress.epoch) * pace)
        say(progress={**asdict(progress), "eta_seconds": round(eta, 1)})
        return "stop" in orders

    def on_checkpoint(checkpoint: Checkpoint) -> None:
        name = f"{CHECKPOINT}-{checkpoint.epoch}"
        checkpoint.save(folder / name)
        say(checkpoint={"folder": name, "epoch": checkpoint.epoch})
        if "leave" in orders:
            raise TrainingCancelled

    resume = None
    if (folder / CHECKPOINT).exists():
        resume = Checkpoint.load(folder / CHECKPOINT)
        say(resumed={"epoch": resume.epoch})
    say(phase="training")
    clock.start("training")
    ensemble = train_ensemble(
        table,
        schema,
        parts,
        config,
        device=spec["device"],
        on_epoch=on_epoch,
        on_checkpoint=on_checkpoint,
        checkpoint_seconds=spec["checkpoint_seconds"],
        is_checkpoint_wanted=lambda: "leave" in orders,
        resume=resume,
    )

    say(phase="exporting")
    clock.start("exporting")
    x_num, x_cat = features(table, schema)
    y = target(table, schema)
    metadata = {"dataset_sha256": spec["dataset_sha256"]}
    content = export(ensemble, x_num, x_cat, y, parts, metadata=metadata)
    (folder / ONNX).write_bytes(content)

    say(phase="evaluating")
    clock.start("evaluating")
    reports = evaluate(
        Predictor(content),
        x_num,
        x_cat,
        y,
        parts,
        config=config,
        history=[asdict(progress) for progress in ensemble.fit.history],
    )
    if spec["config"].get("baselines"):
        from lometab.baselines import compare

        say(phase="comparing")
        clock.start("comparing")
        compared = compare(
            ensemble,
            spec["config"]["baselines"],
            table,
            parts,
            device=spec["device"],
            on_epoch=lambda _: "stop" in orders,
        )
        reports["report"]["baselines"] = [asdict(each) for each in compared]
    reports["report"] |= {
        "n_parameters": ensemble.fit.model.n_parameters,
        "training": {
            "best_epoch": ensemble.fit.best_epoch,
            "best_score": ensemble.fit.best_score,
            "epochs": len(ensemble.fit.history),
            "seconds": ensemble.fit.seconds,
            "stopped_early": ensemble.fit.stopped_early,
        },
        "timings": clock.stop(),
        "seeds": {"split": spec["config"]["split"]["seed"], "training": config.seed},
    }
    text = json.dumps(reports, allow_nan=False)
    (folder / REPORTS).write_text(text, encoding="utf-8")


class Clock:
    """Seconds of each phase, from `preparing` on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase, self._began = "preparing", time.perf_counter()

    def start(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[self._phase] = round(now - self._began, 3)
        self._phase, self._began = phase, now

    def stop(self) -> dict[str, float]:
        self.start("")
        return self.seconds


def failure_code(error: BaseException) -> str:
    from lometab.errors import DataError, ExportMismatch, TrainingDiverged

    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "out_of_memory"
    if type(error).__name__ == "OutOfMemoryError":  # torch's, on a GPU
        return "out_of_memory"
    codes = {
        DataError: "bad_data",
        TrainingDiverged: "diverged",
        ExportMismatch: "export_mismatch",
    }
    return next((c for kind, c in codes.items() if isinstance(error, kind)), "internal")


def _message(error: BaseException) -> str:
    from lometab.errors import LoMETabError

    if isinstance(error, LoMETabError):
        return str(error)
    return f"{type(error).__name__}: {str(error)[:500]}"


if __name__ == "__main__":
    sys.exit(main())
