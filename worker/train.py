"""`python -m worker.train JOB ATTEMPT`: the process that imports torch and trains.

It knows no database. Its `Spec` comes as one line on standard input, which stays open
while the supervisor lives, and orders about the job after it; what it makes goes into
the working directory; its messages go line by line to standard output. After a cell of
a sweep the process waits for the spec of the next one, on the same table, schema and
split. All of it is in `worker.messages`.
"""

import gc
import json
import os
import queue
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.faults import describe, is_machine_fault
from worker.lifeline import die_with_parent, follow_supervisor
from worker.messages import (
    CHECKPOINT,
    LEFT,
    MACHINE_FAULT,
    NETWORKS,
    ONNX,
    OUTCOME,
    WEIGHTS,
    CheckpointUnusable,
    CheckpointWritten,
    Done,
    EpochDone,
    Failed,
    Message,
    PhaseBegun,
    Resumed,
    Spec,
    is_order,
    to_line,
)
from worker.reports import write_reports
from worker.rows import JobRows, Taken
from worker.steps import Clock

if TYPE_CHECKING:  # it loads torch, which is for the process itself alone
    from lometab.config import TrainConfig
    from lometab.ensemble import Ensemble, Prepared
    from lometab.evaluation import Pruning
    from lometab.table import PartName
    from lometab.train import Checkpoint, Fit, Progress

ALL_PARTS: "tuple[PartName, ...]" = ("train", "val", "test")
Send = Callable[[Message], None]


def main() -> int:
    inbox: queue.SimpleQueue[tuple[Spec, set[str]]] = queue.SimpleQueue()
    orders: set[str] = set()

    def take(line: str) -> None:
        """A spec begins a job; the orders after it are about that job."""
        nonlocal orders
        if is_order(line):
            orders.add(line)
        else:
            orders = set()
            inbox.put((Spec.from_json(line), orders))

    follow_supervisor(take)
    from lometab.table import leave_out_pandas

    leave_out_pandas()
    # Our lines go to the pipe; whatever a library prints goes to standard error.
    pipe = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def send(message: Message) -> None:
        pipe.write(to_line(message) + "\n")

    return work(inbox, Path.cwd(), send)


def work(
    inbox: "queue.SimpleQueue[tuple[Spec, set[str]]]", folder: Path, send: Send
) -> int:
    """Train what comes in; the exit code."""
    spec, orders = inbox.get()
    die_with_parent(spec.supervisor)
    from lometab.errors import TrainingCancelled

    try:
        if spec.prediction is not None:
            from worker.predict import Prediction

            prediction = Prediction(folder)
            while True:
                prediction.run(spec, send, orders)
                send(Done())
                spec, orders = inbox.get()
        if spec.base_sha256 is not None:
            from worker.prune import run as prune

            prune(spec, folder, send)
            return 0
        _load_torch()
        if spec.makes_model:
            run(spec, folder, send, orders)
            send(Done())  # on a busy machine it takes long until a process is gone
            return 0
        cells = Cells(spec, folder)
        cells.run(spec, send, orders)
        while True:
            send(Done())
            spec, orders = inbox.get()
            cells.run(spec, send, orders)
    except TrainingCancelled:
        return LEFT
    except BaseException as error:  # whatever it is, the supervisor is told
        send(Failed(failure_code(error), _message(error)))
        with suppress(OSError):  # the disk may be full
            traceback.print_exc()
        return 1


def _load_torch() -> None:
    """Nothing of it is garbage, so nothing looks for garbage in it meanwhile."""
    gc.disable()
    import lometab.ensemble  # noqa: F401

    gc.freeze()
    gc.enable()


def run(spec: Spec, folder: Path, send: Send, orders: set[str]) -> None:
    """Train, export, evaluate; leave the model and its reports in the folder.

    Args:
        orders: what the supervisor has sent so far; it grows in another thread.
    """
    clock = Clock()
    import torch

    from lometab.baselines import check_installed, compare
    from lometab.ensemble import measure
    from lometab.evaluation import SeedOutcome

    def begin(phase: str) -> None:
        send(PhaseBegun(phase))
        clock.start(phase)

    torch.set_num_threads(spec.threads)
    check_installed(spec.baselines)
    opened = JobRows.open(spec, folder)
    is_compared = spec.n_seeds > 1 or bool(spec.baselines)
    prepared = opened.prepare(ALL_PARTS if is_compared else ALL_PARTS[:2], folder)

    begin("training")
    ensemble, runs = _train(spec, folder, send, orders, prepared)
    if len(runs) < spec.n_seeds:
        said = (
            f"stopped when {len(runs)} of {spec.n_seeds} networks were trained: the "
            "model has the members of these"
        )
        spec = replace(spec, warnings=(*spec.warnings, said))
    configs = [each.config for each in runs]
    outcomes = [measure(prepared, each) for each in runs] if is_compared else []
    compared = []
    if spec.baselines:
        begin("comparing")
        compared = compare(
            outcomes,
            configs,
            spec.baselines,
            prepared,
            opened.table,
            opened.parts,
            threads=spec.threads,
            device=spec.device,
            is_stopped=lambda: "stop" in orders,
        )
    del prepared

    begin("exporting")
    taken = Taken.of(opened)
    content, pruning = _export(spec, opened, taken, ensemble)
    (folder / ONNX).write_bytes(content)

    begin("evaluating")
    write_reports(
        spec,
        folder,
        send,
        opened,
        taken,
        clock,
        history=ensemble.fit.history,
        n_parameters=ensemble.n_parameters,
        training=ensemble.training,
        by_seed=[
            SeedOutcome(seed=each.seed, outcome=outcome)
            for each, outcome in zip(configs, outcomes, strict=False)  # if compared
        ],
        baselines=compared,
        pruning=pruning,
    )


def _train(
    spec: Spec, folder: Path, send: Send, orders: set[str], prepared: "Prepared"
) -> "tuple[Ensemble, list[Ensemble]]":
    """The ensemble, and what it is joined of: a network for each seed."""
    from lometab.config import stored_config, with_seeds
    from lometab.ensemble import Ensemble
    from lometab.selection import combine

    if spec.networks:
        ensemble = combine(prepared, list(_load_networks(spec, folder, prepared)))
        return ensemble, [ensemble]
    configs = with_seeds(stored_config(spec.hyperparameters), spec.n_seeds)
    fits = Training(spec, folder, send, orders).fit_all(prepared, configs)
    runs = [
        Ensemble(prepared.schema, prepared.preprocessor, each, fit)
        for each, fit in zip(configs, fits, strict=False)  # a stop leaves some out
    ]
    return replace(runs[0], others=tuple(fits[1:])), runs


def _export(
    spec: Spec, opened: JobRows, taken: Taken, ensemble: "Ensemble"
) -> "tuple[bytes, Pruning | None]":
    """The file, and what was left out of it."""
    from lometab.drift import make_reference
    from lometab.explain import pack_background
    from lometab.export import calibrate_on, export

    schema, train = opened.schema, opened.parts["train"]
    known = taken.rows.take(train)
    background = pack_background(known) if spec.keeps_rows else None
    calibrate = calibrate_on(
        *taken("val"), own=taken.find("calibration"), by=spec.calibrate_by
    )
    reference = make_reference(
        schema.numeric,
        schema.categorical,
        known.x_num,
        known.x_cat,
        moments=schema.datetime,
    )
    some = taken.rows.take(train[:1000])
    content = export(
        ensemble,
        some.x_num,
        some.x_cat,
        calibrate=calibrate,
        metadata={
            **_make_metadata(spec, background),
            "rows": opened.count(),
            "reference": reference,
        },
    )
    if spec.members == "all":
        return content, None
    from worker.prune import keep_members

    return keep_members(content, spec.members, taken, calibrate)


def _load_networks(spec: Spec, folder: Path, prepared: "Prepared") -> "Iterator[Fit]":
    """What the trials of a search trained."""
    from lometab.train import Checkpoint

    places = {n: folder / NETWORKS / str(n) for n in spec.networks}
    if not any(place.exists() for place in places.values()):
        raise RuntimeError("the weights of all trials are gone; retry the search")
    for number, place in places.items():
        for path in sorted(place.iterdir()) if place.exists() else ():
            checkpoint = Checkpoint.load(path)
            fit = prepared.fit(checkpoint.config, resume=checkpoint)
            yield replace(fit, trial=number)


def _make_metadata(spec: Spec, background: dict[str, Any] | None) -> dict[str, Any]:
    """What the file tells of its data: the hash, what was decided about it, how a CSV
    is to be read, some rows."""
    from lometab.table import Dialect

    metadata: dict[str, Any] = {
        "dataset_sha256": spec.dataset_sha256,
        "warnings": spec.warnings,
    }
    if spec.reading.get("format") == "csv":
        metadata["reading"] = Dialect.from_dict(spec.reading).to_dict()
    if background is not None:
        metadata["background"] = background
    return metadata


class Cells:
    """Cell after cell of a sweep, on a table that is read and prepared once."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        import torch

        torch.set_num_threads(spec.threads)
        self.folder = folder
        opened = JobRows.open(spec, folder)
        self.table, self.parts = opened.table, opened.parts
        self.prepared = opened.prepare(ALL_PARTS, folder)

    def run(self, spec: Spec, send: Send, orders: set[str]) -> None:
        """Train and measure; leave the outcome and the weights in the folder."""
        from lometab.baselines import check_installed, train_catboost
        from lometab.config import stored_config
        from lometab.ensemble import Ensemble, answer_parts, measure
        from lometab.evaluation import DRAWS, draw_scores

        config = stored_config(spec.hyperparameters)
        prepared = self.prepared
        send(PhaseBegun("training"))
        check_installed(spec.baselines)  # of the winner of a search
        if spec.is_catboost:
            check_installed(["catboost"])
            outcome, answer = train_catboost(
                prepared.schema,
                self.table,
                self.parts,
                config.seed,
                spec.threads,
                is_stopped=lambda: "stop" in orders,
            )
        else:
            training = Training(spec, self.folder, send, orders)
            (fit,) = training.fit_all(prepared, [config])
            send(PhaseBegun("evaluating"))
            ensemble = Ensemble(prepared.schema, prepared.preprocessor, config, fit)
            answers = answer_parts(prepared, ensemble)
            outcome = measure(prepared, ensemble, answers)
            answer = answers["val"][0]
            training.save(self.folder / WEIGHTS)
        draws = draw_scores(prepared.targets["val"], answer)
        text = json.dumps({**asdict(outcome), DRAWS: draws}, allow_nan=False)
        (self.folder / OUTCOME).write_text(text, encoding="utf-8")


class Training:
    """Fits one after the other, each with its seed, with checkpoints of all of them."""

    def __init__(self, spec: Spec, folder: Path, send: Send, orders: set[str]) -> None:
        self.spec, self.folder, self.send, self.orders = spec, folder, send, orders
        self.checkpoints: dict[str, Checkpoint] = {}
        """Of the seeds that have begun; those of the ones that ended are final."""
        self.n_epochs = 0
        """Done in this attempt."""

    def fit_all(
        self, prepared: "Prepared", configs: "Sequence[TrainConfig]"
    ) -> "list[Fit]":
        fits: list[Fit] = []
        for i, config in enumerate(configs):
            if fits and "stop" in self.orders:
                break
            fit = self._fit_or_start_afresh(prepared, configs, i)
            if fits and fit.stopped_early:
                break  # a member that has hardly been trained is none
            self.checkpoints[_name(config)] = fit.to_checkpoint(config)
            fits.append(fit)
        return fits

    def _fit_or_start_afresh(
        self, prepared: "Prepared", configs: "Sequence[TrainConfig]", i: int
    ) -> "Fit":
        """Go on from the seed's checkpoint; if that cannot be, from nothing."""
        from lometab.errors import TrainingCancelled

        folder = self.folder / CHECKPOINT / _name(configs[i])
        n_before = self.n_epochs
        if folder.exists():
            try:
                return self._fit(prepared, configs, i, self._load(folder))
            except TrainingCancelled:
                raise
            except Exception as error:
                if failure_code(error) != "internal" or self.n_epochs > n_before:
                    raise
                traceback.print_exc()
                shutil.rmtree(folder)
                self.send(CheckpointUnusable(_message(error)))
        return self._fit(prepared, configs, i, None)

    def _load(self, folder: Path) -> "Checkpoint":
        from lometab.train import Checkpoint

        checkpoint = Checkpoint.load(folder)
        self.send(Resumed(checkpoint.epoch))
        return checkpoint

    def _fit(
        self,
        prepared: "Prepared",
        configs: "Sequence[TrainConfig]",
        i: int,
        resume: "Checkpoint | None",
    ) -> "Fit":
        config, n_after = configs[i], len(configs) - 1 - i
        seed = i if len(configs) > 1 else None

        def on_epoch(progress: "Progress") -> bool:
            self.n_epochs += 1
            rest = _guess_rest(progress, config)
            eta = rest + n_after * (progress.seconds + rest)
            about = {"eta_seconds": round(eta, 1), "seed": seed}
            self.send(EpochDone({**asdict(progress), **about}))
            return "stop" in self.orders

        def on_checkpoint(checkpoint: "Checkpoint") -> None:
            self.checkpoints[_name(config)] = checkpoint
            self._hand_out()

        return prepared.fit(
            config,
            device=self.spec.device,
            on_epoch=on_epoch,
            on_checkpoint=on_checkpoint,
            checkpoint_seconds=self.spec.checkpoint_seconds,
            is_checkpoint_wanted=lambda: "leave" in self.orders,
            is_stop_wanted=lambda: "stop" in self.orders,
            resume=resume,
        )

    def save(self, folder: Path) -> None:
        for name, checkpoint in self.checkpoints.items():
            checkpoint.save(folder / name)

    def _hand_out(self) -> None:
        from lometab.errors import TrainingCancelled

        epoch = sum(checkpoint.epoch for checkpoint in self.checkpoints.values())
        name = f"{CHECKPOINT}-{epoch}"
        self.save(self.folder / name)
        self.send(CheckpointWritten(name, epoch))
        if "leave" in self.orders:
            raise TrainingCancelled


def _name(config: "TrainConfig") -> str:
    return f"seed-{config.seed}"


def _guess_rest(progress: "Progress", config: "TrainConfig") -> float:
    """Seconds to the end of a fit, if no better epoch comes."""
    end = config.max_epochs
    if config.patience is not None:
        end = min(end, progress.best_epoch + config.patience)
    return max(0.0, (end - progress.epoch) * progress.seconds / progress.epoch)


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
    if is_machine_fault(error):
        return MACHINE_FAULT
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
    return describe(error)


if __name__ == "__main__":
    code = main()
    gc.freeze()  # the exit need not look through all that torch has loaded
    sys.exit(code)
