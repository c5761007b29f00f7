"""What a supervisor and its child process send to each other, one JSON line each.

To the child: the `Spec` of a job, then orders about it. Back: one of the frozen classes
of `Message`. Files go through the folder that both know, by the names below.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from lometab.config import BaselineName, Storage

Role = Literal["train", "cell", "trial", "repeat", "refit", "chunk", "assemble"]
"""A job of its own; a cell of a sweep; a trial of a search, one of its finalists with
another seed, and the training of its winner; some rows of a prediction, and all of its
chunks as one file."""
Order = Literal["stop", "leave"]
"""`stop`: keep the best epoch so far. `leave`: write a checkpoint and end."""

DATA = "table.parquet"
TRAIN_ROWS = "train.rows"
"""The rows that are trained on, if they are in a file."""
CHECKPOINT = "checkpoint"
ONNX = "model.onnx"
BASE = "base.onnx"
"""The model whose members are chosen among."""
REPORTS = "reports.json"
OUTCOME = "outcome.json"
ROWS = "rows.parquet"
"""What a chunk has to answer."""
ANSWERS = "answers"
"""What a chunk, or all of them, came to."""
FAULTS = "faults.json"
PARTS = "parts"
"""Answers of chunks, each by its number."""
WEIGHTS = "weights"
NETWORKS = "networks"

LEFT = 3
"""The exit code of a child after `leave`."""
MACHINE_FAULT = "machine_fault"
"""The code of a failure that is the machine's, not the job's; no job ends with it."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """All that a child process is told of a job."""

    job_id: str
    attempt: int
    role: Role
    is_catboost: bool = False
    """A cell that trains CatBoost with its defaults instead of a network."""
    hyperparameters: Mapping[str, Any]
    """lometab.config.TrainConfig."""
    schema: Mapping[str, Any]
    """lometab.table.schema.Schema."""
    split: Mapping[str, Any]
    """lometab.table.splits.Split."""
    max_rows: int | None = None
    """Rows of all parts at most; None: all that there are."""
    storage: Storage = "memory"
    """Where the rows are that are trained on."""
    calibrate_by: str | None = None
    """A column whose values are calibrated apart."""
    importance_groups: tuple[tuple[str, ...], ...] | None = None
    """Columns whose importance is measured as one; None: those found to go together."""
    members: Literal["all", "selected"] | int = "all"
    """Which of its members the model keeps."""
    base_sha256: str | None = None
    """The file of a model that only loses members: nothing is trained then."""
    baselines: tuple[BaselineName, ...] = ()
    n_seeds: int = 1
    keeps_rows: bool = True
    """Whether a few rows of the table may be kept with the model and in reports."""
    networks: tuple[int, ...] = ()
    """Trials of a search whose weights are there: nothing is trained, the model is made
    of their members."""
    weight_column: str | None = None
    class_weight: str | Mapping[str, float] | None = None
    """`balanced`, or a number for each class: lometab.weights.Weights."""
    dataset_sha256: str
    """Of the file as it was uploaded."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """How that file was read."""
    prediction: Mapping[str, Any] | None = None
    """Of a chunk: what is asked of its rows; of what assembles chunks, their format."""
    warnings: tuple[str, ...] = ()
    """What was decided about the job, for its report and its model."""
    device: Literal["cpu", "cuda"]
    threads: int
    checkpoint_seconds: float
    supervisor: int
    """The process id of the supervisor."""

    @property
    def makes_model(self) -> bool:
        """Whether it ends with a model and reports, or else with an outcome alone."""
        return self.role in ("train", "refit")

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Spec":
        state = json.loads(line)
        names = ("baselines", "networks", "warnings")
        return cls(**state | {name: tuple(state[name]) for name in names})


def is_order(line: str) -> bool:
    return line in get_args(Order)


# What the child sends


@dataclass(frozen=True)
class PhaseBegun:
    phase: str


@dataclass(frozen=True)
class EpochDone:
    progress: Mapping[str, Any]
    """lometab.train.Progress, with `eta_seconds` and `seed`."""


@dataclass(frozen=True)
class Examined:
    """Of what drives the model and where it fails, so much is looked at."""

    done: int
    total: int


@dataclass(frozen=True)
class RowsDone:
    """So many rows are answered, or their answers written."""

    n_rows: int


@dataclass(frozen=True)
class CheckpointWritten:
    folder: str
    """Its name in the child's folder."""
    epoch: int


@dataclass(frozen=True)
class Resumed:
    epoch: int


@dataclass(frozen=True)
class CheckpointUnusable:
    """It could not be resumed; training starts afresh."""

    detail: str


@dataclass(frozen=True)
class Failed:
    code: str
    """One of the codes that a failed job has, or `MACHINE_FAULT`."""
    detail: str


@dataclass(frozen=True)
class Done:
    """The run is over, and all that it leaves is in the folder."""


Message = (
    PhaseBegun
    | EpochDone
    | Examined
    | RowsDone
    | CheckpointWritten
    | Resumed
    | CheckpointUnusable
    | Failed
    | Done
)
_CLASSES: dict[str, type[Message]] = {each.__name__: each for each in get_args(Message)}


def to_line(message: Message) -> str:
    state = {"type": type(message).__name__, **asdict(message)}
    return json.dumps(state, allow_nan=False)


def from_line(line: str | bytes) -> Message:
    state = json.loads(line)
    return _CLASSES[state.pop("type")](**state)
