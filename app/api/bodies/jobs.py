"""Bodies of jobs and their events."""

import datetime as dt
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.answering import Output
from app.api.bodies.common import Id
from app.jobs import MAX_SECONDS, EventRead, JobSettings, describe_seconds
from app.storage.enums import (
    ANSWERS,
    PARENTS,
    FailureCode,
    JobKind,
    JobPhase,
    JobRole,
    JobStatus,
)
from app.storage.tables import Job
from lometab.evaluation import Outcome
from lometab.table import ReadOptions


class JobCreate(JobSettings):
    """The same, on a file that comes with it."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "target": "quality",
                "columns": {"vintage": "ignore"},
                "preset": "fast",
                "hyperparameters": {"k": 16, "rank": 8, "sigma_init": 1.0},
            }
        },
    )

    read_options: ReadOptions = Field(
        default_factory=ReadOptions,
        description="How the file is to be read, where it should not be guessed.",
    )

    @field_validator("read_options", mode="before")
    @classmethod
    def take_arrays(cls, given: object) -> object:
        """JSON arrays for tuples: they were parsed before they come here."""
        if not isinstance(given, dict):
            return given
        return {
            name: tuple(each) if isinstance(each, list) else each
            for name, each in given.items()
        }


class JobCreateOnDataset(JobSettings):
    """The same, on a dataset that was uploaded before."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"dataset_id": "ds_0123456789ab", "target": "quality"}
        }
    )

    dataset_id: Id = Field(examples=["ds_0123456789ab"])


class EventPage(BaseModel):
    """A job's events, oldest first."""

    data: list[EventRead]
    next_after: int | None = Field(
        description="Send it as `after` for the next page; null on the last one."
    )


class JobError(BaseModel):
    """Why a job failed, as problem details."""

    type: str = "/docs/errors"
    title: str = "The job failed"
    detail: str
    code: FailureCode


class Progress(BaseModel):
    """How far training, or predicting, is."""

    epoch: int | None = Field(description="Null where nothing is trained.")
    max_epochs: int | None
    best_epoch: int | None
    best_score: float | None
    eta_seconds: float | None
    seed: int | None = Field(description="Which of several seeds is trained, from 0.")
    n_finished: int | None = Field(
        description="Of a sweep, tune or prediction job: runs or chunks ended."
    )
    n_runs: int | None = Field(
        description="Of a sweep, tune or prediction job: all its runs or chunks."
    )
    n_rows: int | None = Field(description="Of a prediction: rows of the table.")
    rows_done: int | None = Field(description="Of a prediction: rows answered.")
    n_faults: int | None = Field(description="Of a prediction: rows skipped.")
    examined: float | None = Field(
        description="While it is evaluated: the share of its columns whose importance "
        "and effects are measured."
    )


class EstimateRead(BaseModel):
    """What a job will take, as far as can be told before it runs."""

    n_parameters: int
    memory_bytes: int = Field(description="Peak of the training process on a CPU.")
    serving_bytes: int = Field(description="Memory of the loaded model.")
    n_rows: int | None = Field(
        default=None,
        description="Rows of all parts: fewer than the table's where "
        "`max_rows` is less, or where the target is missing.",
    )
    storage: Literal["memory", "file"] | None = Field(
        default=None,
        description="Where the training rows are, as `storage` in the config resolved.",
    )
    disk_bytes: int | None = Field(
        default=None,
        description="Of the file with the training rows, in the worker's "
        "temporary folder; 0 if they are in memory.",
    )
    flops_per_epoch: int
    steps_per_epoch: int | None = None
    seconds_per_epoch: float = Field(description="As `basis` says.")
    max_seconds: float | None = Field(
        default=None,
        description="If training goes on to `max_epochs`, with all seeds, cells or "
        "trials; it usually stops earlier.",
    )
    reserve_seconds: float | None = Field(
        default=None,
        description="Of a search on a budget of time: what is left of it to make the "
        "model, check it and report on it. It grows with the table.",
    )
    basis: Literal["assumed", "workers", "run"] | None = Field(
        default=None,
        description="What the seconds come from: a guess, what workers have measured "
        "in their last runs, or the epochs of this run itself.",
    )


class ResultRead(BaseModel):
    """What a prediction made."""

    output: Output
    n_rows: int = Field(description="As many as the table has, in its order.")
    n_faults: int = Field(description="Rows among them that have no answer.")
    size: int = Field(description="Of the file, in bytes.")
    sha256: str
    expires_at: dt.datetime | None = Field(
        description="How long it is kept; null: it is gone."
    )


def name_kinds(schema: dict[str, Any]) -> dict[str, str]:
    """The kind of each column as it is used, or why it is ignored."""
    kinds = dict.fromkeys(schema["numeric"], "numeric")
    kinds |= dict.fromkeys(schema["categorical"], "categorical")
    kinds |= dict.fromkeys(schema["datetime"], "datetime")
    return kinds | {n: f"ignored: {why}" for n, why in schema["ignored"].items()}


class JobRead(BaseModel):
    """A job as it is now."""

    id: str
    kind: JobKind
    role: JobRole = Field(
        description="What it is there for: by itself, as a parent, or as a part of one."
    )
    status: JobStatus
    phase: JobPhase | None
    progress: Progress
    attempt: int
    notice: str | None = Field(
        description="What keeps a queued job waiting, if it is not its turn alone."
    )
    queue_place: int | None = Field(
        description="Of a queued job, when it is asked for by its id: 1 is the next "
        "one that a worker takes."
    )
    estimated_start_at: dt.datetime | None = Field(
        description="The same: a guess, by how long the last jobs of the workspace "
        "took and how many workers are alive; null if neither is known."
    )
    stopped_early: bool = Field(
        description="It was stopped, or its time ran out, and kept its best epoch."
    )
    name: str | None
    tags: list[str]
    description: str | None
    parent_id: str | None = Field(description="The sweep or tune job it is a part of.")
    position: int | None = Field(
        description="In which order the parts of a job begin, from 0."
    )
    number: int | None = Field(
        description="The cell or the trial that it is, repeats, refits or was promoted "
        "from; counted from 0."
    )
    repeat: int | None = Field(
        description="Of a cell or a repeat: which of the seeds, from 0."
    )
    settings: dict[str, Any] | None = Field(
        description="What sets a cell apart, or was drawn for a trial; null before."
    )
    promoted_from: str | None = Field(
        description="The sweep or tune job whose cell or trial `number` it was made of."
    )
    made_of: dict[str, Any] | None = Field(
        description="Where nothing is trained: the `trials` of its parent, or the "
        "`model_id`, whose members it keeps."
    )
    outcome: Outcome | None = Field(description="What a cell or a trial came to.")
    result: ResultRead | None = Field(description="What a prediction made.")
    dataset_id: str
    model_id: str | None = Field(
        description="The model that it made; of a prediction, the one that answers."
    )
    config: dict[str, Any] = Field(
        description="What was asked for, with every preset and guess spelled out."
    )
    estimate: EstimateRead | None = Field(
        description="What training takes; null where nothing is trained."
    )
    columns: dict[str, str] = Field(
        description="The kind of each column as it is used, or why it is ignored."
    )
    warnings: list[str] = Field(
        description="What was decided without being told, and what looks wrong; also "
        "in the report and with the model."
    )
    error: JobError | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    links: dict[str, str]

    @classmethod
    def of(cls, job: Job, model_id: str | None) -> Self:
        is_done = job.status == JobStatus.SUCCEEDED
        model_id = model_id or job.config.get("model_id")
        is_trained = job.kind != JobKind.PREDICT and job.role not in ANSWERS
        return cls.model_validate(
            {
                **{name: getattr(job, name) for name in _SAME},
                "progress": {**dict.fromkeys(Progress.model_fields), **job.progress},
                "estimate": _update_estimate(job) if is_trained else None,
                "outcome": job.outcome if is_trained else None,
                "result": _read_result(job),
                "stopped_early": bool(job.is_stop_requested and is_done),
                "notice": None,
                "queue_place": None,
                "estimated_start_at": None,
                "model_id": model_id,
                "columns": name_kinds(job.schema),
                "warnings": [*(job.warnings or ()), *_warn_of_rest(job)],
                "links": _link(job, model_id),
            }
        )


_SAME = JobRead.model_fields.keys() - {
    "progress",
    "estimate",
    "outcome",
    "result",
    "stopped_early",
    "notice",
    "queue_place",
    "estimated_start_at",
    "model_id",
    "columns",
    "warnings",
    "links",
}
REPORTS = ("diversity", "calibration", "report")


def _update_estimate(job: Job) -> dict[str, Any]:
    """With the pace of the run itself, once it has one."""
    epoch, seconds = job.progress.get("epoch"), job.progress.get("seconds")
    if not epoch or not seconds or job.kind in PARENTS:
        return job.estimate
    measured = seconds / epoch
    n_epochs = job.progress["max_epochs"] * job.config.get("n_seeds", 1)
    limit = job.config.get("max_runtime_seconds") or measured * n_epochs
    return job.estimate | {
        "seconds_per_epoch": round(measured, 4),
        "max_seconds": round(min(limit, measured * n_epochs), 1),
        "basis": "run",
    }


def _read_result(job: Job) -> dict[str, Any] | None:
    if job.kind != JobKind.PREDICT or job.outcome is None:
        return None
    return {**job.outcome, "expires_at": job.expires_at}


def _warn_of_rest(job: Job) -> list[str]:
    """Of a run that turns out to be long."""
    eta = job.progress.get("eta_seconds")
    if job.status != JobStatus.RUNNING or not eta or eta <= MAX_SECONDS:
        return []
    return [f"by its pace so far, training takes {describe_seconds(eta)} more"]


def _link(job: Job, model_id: str | None) -> dict[str, str]:
    links = {"self": f"/jobs/{job.id}", "dataset": f"/datasets/{job.dataset_id}"}
    if job.kind == JobKind.PREDICT:
        links |= {"children": f"/jobs?parent_id={job.id}"}
        links |= {name: f"/jobs/{job.id}/{name}" for name in ("result", "faults")}
    elif job.kind in PARENTS:
        links |= {job.kind.value: f"/jobs/{job.id}/{job.kind}"}
        links |= {"children": f"/jobs?parent_id={job.id}"}
        links |= {"figures": f"/jobs/{job.id}/figures"}
    elif job.status == JobStatus.SUCCEEDED and not job.is_measured:
        names = (*REPORTS, "figures")
        links |= {name: f"/jobs/{job.id}/{name}" for name in names}
    if job.parent_id is not None:
        links |= {"parent": f"/jobs/{job.parent_id}"}
    if model_id is not None:
        links |= {"model": f"/models/{model_id}"}
    return links
