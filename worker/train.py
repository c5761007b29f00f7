"""`python -m worker.train JOB ATTEMPT`: the process that imports torch and trains.

It knows no database. Its spec comes as one line of JSON on standard input, which stays
open while the supervisor lives; what it makes goes into the working directory; what it
has to say goes line by line to standard output:

    {"phase": "training"}
    {"progress": {"epoch": 3, ...}}
    {"checkpoint": {"folder": "checkpoint-3", "epoch": 3}}
    {"error": {"code": "diverged", "detail": "..."}}
    {"done": true}

The supervisor may say `stop` (keep the best epoch so far) or `leave` (write a
checkpoint at the end of the epoch and end). After a cell of a sweep the process waits
for the spec of the next one, on the same table, schema and split.
"""

import json
import os
import queue
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.lifeline import die_with_parent, watch_stdin

if TYPE_CHECKING:  # it loads torch, which is for the process itself alone
    from lometab.config import TrainConfig
    from lometab.ensemble import Prepared
    from lometab.splits import PartName
    from lometab.train import Checkpoint, Fit, Progress

DATA = "table.parquet"
ONNX = "model.onnx"
REPORTS = "reports.json"
CHECKPOINT = "checkpoint"
OUTCOME = "outcome.json"
WEIGHTS = "weights"
ALL_PARTS: "tuple[PartName, ...]" = ("train", "val", "test")
LEFT = 3
"""The exit code after `leave`."""


def main() -> int:
    inbox: queue.SimpleQueue[tuple[dict[str, Any], set[str]]] = queue.SimpleQueue()
    orders: set[str] = set()

    def hear(line: str) -> None:
        """A spec begins a job; what is said after it is about that job."""
        nonlocal orders
        if line.startswith("{"):
            orders = set()
            inbox.put((json.loads(line), orders))
        else:
            orders.add(line)

    watch_stdin(on_close=lambda: os._exit(1), on_line=hear)
    # Our lines go to the pipe; whatever a library prints goes to standard error.
    pipe = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        pipe.write(json.dumps(message, allow_nan=False) + "\n")

    spec, wishes = inbox.get()
    die_with_parent(spec["supervisor"])
    from lometab.errors import TrainingCancelled

    try:
        if not spec["config"].get("is_cell"):
            run(spec, Path.cwd(), say, wishes)
            return 0
        bench = Bench(spec, Path.cwd())
        bench.run(spec, say, wishes)
        while True:
            say(done=True)
            spec, wishes = inbox.get()
            bench.run(spec, say, wishes)
    except TrainingCancelled:
        return LEFT
    except BaseException as error:  # whatever it is, the supervisor is told
        traceback.print_exc()
        say(error={"code": failure_code(error), "detail": _message(error)})
        return 1


def run(
    spec: dict[str, Any], folder: Path, say: Callable[..., None], orders: set[str]
) -> None:
    """Train, export, evaluate; leave the model and its reports in the folder.

    Args:
        orders: what the supervisor has said so far; it grows in another thread.
    """
    clock = Clock()
    import torch

    from lometab.baselines import check_installed, compare
    from lometab.config import TrainConfig
    from lometab.data import Schema, features, target
    from lometab.ensemble import Ensemble, prepare
    from lometab.evaluation import evaluate
    from lometab.export import export
    from lometab.outcome import measure
    from lometab.predictor import Predictor
    from lometab.splits import Split, split_rows
    from lometab.tables import ParquetTable

    torch.set_num_threads(spec["threads"])
    config = TrainConfig(**spec["config"]["hyperparameters"])
    schema = Schema.from_dict(spec["schema"])
    table = ParquetTable(folder / DATA)
    parts = split_rows(table, schema, Split(**spec["config"]["split"]))
    baselines = spec["config"].get("baselines", [])
    check_installed(baselines)
    n_seeds = spec["config"].get("n_seeds", 1)
    is_compared = n_seeds > 1 or bool(baselines)
    prepared = prepare(
        table, schema, parts, ALL_PARTS if is_compared else ALL_PARTS[:2]
    )

    say(phase="training")
    clock.start("training")
    configs = [replace(config, seed=config.seed + i) for i in range(n_seeds)]
    first, *others = Training(spec, folder, say, orders).fit_all(prepared, configs)
    del configs[1 + len(others) :]  # seeds that a stop left out
    ensemble = Ensemble(schema, prepared.preprocessor, config, first, tuple(others))
    outcomes = []
    if is_compared:
        for fit in ensemble.fits:
            alone = Ensemble(schema, prepared.preprocessor, config, fit)
            outcomes.append(measure(prepared, alone))
    if not baselines:
        del prepared

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
    del x_num, x_cat, y
    if baselines:
        say(phase="comparing")
        clock.start("comparing")
        compared = compare(
            outcomes,
            configs,
            baselines,
            prepared,
            table,
            parts,
            threads=spec["threads"],
            device=spec["device"],
            is_stopped=lambda: "stop" in orders,
        )
        reports["report"]["baselines"] = [asdict(each) for each in compared]
    reports["report"] |= {
        "n_parameters": ensemble.n_parameters,
        "by_seed": [
            {"seed": each.seed, "outcome": asdict(outcome)}
            for each, outcome in zip(configs, outcomes, strict=False)  # if compared
        ],
        "training": {
            "best_epoch": ensemble.fit.best_epoch,
            "best_score": ensemble.fit.best_score,
            "epochs": len(ensemble.fit.history),
            "seconds": sum(fit.seconds for fit in ensemble.fits),
            "stopped_early": any(fit.stopped_early for fit in ensemble.fits),
        },
        "timings": clock.stop(),
        "seeds": {"split": spec["config"]["split"]["seed"], "training": config.seed},
    }
    text = json.dumps(reports, allow_nan=False)
    (folder / REPORTS).write_text(text, encoding="utf-8")


class Bench:
    """A table that is read and prepared once, for cell after cell of a sweep."""

    def __init__(self, spec: dict[str, Any], folder: Path) -> None:
        import torch

        from lometab.data import Schema
        from lometab.ensemble import prepare
        from lometab.splits import Split, split_rows
        from lometab.tables import ParquetTable

        torch.set_num_threads(spec["threads"])
        self.folder = folder
        schema = Schema.from_dict(spec["schema"])
        self.table = ParquetTable(folder / DATA)
        self.parts = split_rows(self.table, schema, Split(**spec["config"]["split"]))
        self.prepared = prepare(self.table, schema, self.parts, ALL_PARTS)

    def run(
        self, spec: dict[str, Any], say: Callable[..., None], orders: set[str]
    ) -> None:
        """Train and measure; leave the outcome and the weights in the folder."""
        from lometab.baselines import check_installed, train_catboost
        from lometab.config import TrainConfig
        from lometab.ensemble import Ensemble
        from lometab.outcome import measure
        from lometab.space import CATBOOST

        config = TrainConfig(**spec["config"]["hyperparameters"])
        prepared = self.prepared
        say(phase="training")
        check_installed(spec["config"]["baselines"])  # of the winner of a search
        if spec["config"].get("cell") == CATBOOST:
            check_installed(["catboost"])
            outcome = train_catboost(
                prepared.schema,
                self.table,
                self.parts,
                config.seed,
                spec["threads"],
                is_stopped=lambda: "stop" in orders,
            )
        else:
            training = Training(spec, self.folder, say, orders)
            (fit,) = training.fit_all(prepared, [config])
            say(phase="evaluating")
            ensemble = Ensemble(prepared.schema, prepared.preprocessor, config, fit)
            outcome = measure(prepared, ensemble)
            training.save(self.folder / WEIGHTS)
        text = json.dumps(asdict(outcome), allow_nan=False)
        (self.folder / OUTCOME).write_text(text, encoding="utf-8")


class Training:
    """Fits one after the other, each with its seed, with checkpoints of all of them."""

    def __init__(
        self,
        spec: dict[str, Any],
        folder: Path,
        say: Callable[..., None],
        orders: set[str],
    ) -> None:
        self.spec, self.folder, self.say, self.orders = spec, folder, say, orders
        self.checkpoints: dict[str, Checkpoint] = {}
        """Of the seeds that have begun; those of the ones that ended are final."""

    def fit_all(
        self, prepared: "Prepared", configs: "Sequence[TrainConfig]"
    ) -> "list[Fit]":
        from lometab.train import Checkpoint

        fits: list[Fit] = []
        for i, config in enumerate(configs):
            if fits and "stop" in self.orders:
                break  # a member that has hardly been trained is none
            name = f"seed-{config.seed}"
            resume = None
            if (self.folder / CHECKPOINT / name).exists():
                resume = Checkpoint.load(self.folder / CHECKPOINT / name)
                self.say(resumed={"epoch": resume.epoch})

            def on_epoch(
                progress: "Progress", i: int = i, config: "TrainConfig" = config
            ) -> bool:
                seed = i if len(configs) > 1 else None
                eta = _guess_rest(progress, config) + (len(configs) - 1 - i) * (
                    progress.seconds + _guess_rest(progress, config)
                )
                about = {"eta_seconds": round(eta, 1), "seed": seed}
                self.say(progress={**asdict(progress), **about})
                return "stop" in self.orders

            def on_checkpoint(checkpoint: "Checkpoint", name: str = name) -> None:
                self.checkpoints[name] = checkpoint
                self._hand_out()

            fit = prepared.fit(
                config,
                device=self.spec["device"],
                on_epoch=on_epoch,
                on_checkpoint=on_checkpoint,
                checkpoint_seconds=self.spec["checkpoint_seconds"],
                is_checkpoint_wanted=lambda: "leave" in self.orders,
                resume=resume,
            )
            self.checkpoints[name] = fit.to_checkpoint(config)
            fits.append(fit)
        return fits

    def save(self, folder: Path) -> None:
        for name, checkpoint in self.checkpoints.items():
            checkpoint.save(folder / name)

    def _hand_out(self) -> None:
        from lometab.errors import TrainingCancelled

        epoch = sum(checkpoint.epoch for checkpoint in self.checkpoints.values())
        name = f"{CHECKPOINT}-{epoch}"
        self.save(self.folder / name)
        self.say(checkpoint={"folder": name, "epoch": epoch})
        if "leave" in self.orders:
            raise TrainingCancelled


def _guess_rest(progress: "Progress", config: "TrainConfig") -> float:
    """Seconds to the end of a fit, if no better epoch comes."""
    end = config.max_epochs
    if config.patience is not None:
        end = min(end, progress.best_epoch + config.patience)
    return max(0.0, (end - progress.epoch) * progress.seconds / progress.epoch)


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
    from lometab.errors import (
        DataError,
        ExportMismatch,
        MissingPackage,
        TrainingDiverged,
    )

    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "out_of_memory"
    if type(error).__name__ == "OutOfMemoryError":  # torch's, on a GPU
        return "out_of_memory"
    codes = {
        DataError: "bad_data",
        TrainingDiverged: "diverged",
        ExportMismatch: "export_mismatch",
        MissingPackage: "missing_package",
    }
    return next((c for kind, c in codes.items() if isinstance(error, kind)), "internal")


def _message(error: BaseException) -> str:
    from lometab.errors import LoMETabError

    if isinstance(error, LoMETabError):
        return str(error)
    return f"{type(error).__name__}: {str(error)[:500]}"


if __name__ == "__main__":
    sys.exit(main())
