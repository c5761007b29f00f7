"""Request and response bodies. Bodies out have no defaults: every field is there."""

import datetime as dt
from dataclasses import fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lometab.config import PRESETS, Preset, Task, TrainConfig
from lometab.data import ColumnKind
from lometab.splits import Split

Cell = str | int | float | bool | None


class JobCreate(BaseModel):
    """What to train, on which columns, and how."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "target": "quality",
                "columns": {"vintage": "ignore"},
                "preset": "fast",
                "hyperparameters": {"k": 16, "rank": 8, "sigma_init": 1.0},
            }
        },
    )

    kind: Literal["train"] = "train"
    target: str = Field(description="The column to predict.")
    task: Literal["auto", "regression", "binary", "multiclass"] = Field(
        default="auto", description="auto: decided from the values of the target."
    )
    columns: dict[str, ColumnKind] = Field(
        default_factory=dict, description="Kinds that override the inferred ones."
    )
    device: Literal["auto", "cpu", "gpu"] = Field(
        default="auto", description="auto: a GPU worker if one lives, else a CPU one."
    )
    split: Split = Field(default_factory=Split)
    preset: Preset = Field(
        default="default", description="Settings where `hyperparameters` is silent."
    )
    hyperparameters: TrainConfig = Field(default_factory=TrainConfig)

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, body: Any) -> Any:
        """Put the preset's settings where the caller has not chosen."""
        if not isinstance(body, dict):
            return body
        given = body.get("hyperparameters", {})
        settings = PRESETS.get(body.get("preset", "default"))
        if settings is None or not isinstance(given, dict):
            return body
        return {**body, "hyperparameters": {**settings, **given}}

    @classmethod
    def setting_names(cls) -> list[str]:
        """Every name that a config may hold, at any depth."""
        nested = [f.name for part in (Split, TrainConfig) for f in fields(part)]
        return [*cls.model_fields, *nested]


class JobError(BaseModel):
    """Why a job failed."""

    code: str
    message: str


class Progress(BaseModel):
    """How far training is."""

    epoch: int
    max_epochs: int
    best_epoch: int | None
    best_score: float | None
    eta_seconds: float | None


class JobRead(BaseModel):
    """A job as it is now."""

    id: str
    kind: str
    status: Literal["queued", "running", "succeeded", "failed"]
    phase: Literal["preparing", "training", "evaluating", "exporting"] | None
    progress: Progress
    attempt: int
    dataset_id: str
    model_id: str | None
    config: dict[str, Any] = Field(
        description="What was asked for, with every preset and guess spelled out."
    )
    columns: dict[str, str] = Field(
        description="The kind of each column as it is used, or why it is ignored."
    )
    error: JobError | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    links: dict[str, str]


class ModelRead(BaseModel):
    """A trained model: what it takes and what it answers."""

    id: str
    job_id: str
    task: Task
    target: str
    classes: list[str | int | bool] | None
    k: int
    numeric: list[str]
    categorical: list[str]
    datetime: list[str]
    onnx_sha256: str
    created_at: dt.datetime
    links: dict[str, str]


class PredictRequest(BaseModel):
    """Rows to answer, each an object from column name to cell."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"rows": [{"alcohol": 9.4, "pH": 3.51}]}},
    )

    rows: list[dict[str, Cell]] = Field(min_length=1)
    missing_columns: Literal["error", "fill"] = Field(
        default="error",
        description="fill: a column absent from every row is taken as missing.",
    )


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    code: str
