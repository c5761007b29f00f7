"""Bodies of models."""

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.jobs import Name, Tag
from lometab.config import Task


class InputColumn(BaseModel):
    """A column that a model takes."""

    name: str
    kind: Literal["numeric", "categorical", "datetime"]
    range: tuple[float, float] | None = Field(
        description="Least and largest number in training; of moments in seconds."
    )
    categories: list[str] | None = Field(
        description="The categories seen in training; an empty text is missing."
    )
    n_rare: int | None = Field(
        default=None,
        description="How many more there were, in too few rows: these share an input.",
    )


class ModelRead(BaseModel):
    """A trained model: what it takes and what it answers."""

    id: str
    job_id: str
    task: Task
    target: str
    classes: list[str | int | bool] | None
    k: int
    columns: list[InputColumn]
    warnings: list[str] = Field(
        description="Those of its job: what was decided, and what looks wrong."
    )
    name: str | None
    version: int | None
    aliases: list[str]
    tags: list[str] = Field(description="At first those of its job.")
    description: str | None
    metrics: dict[str, float | None] = Field(
        description="Scores of the ensemble on the test part."
    )
    lineage: dict[str, Any] = Field(
        description="Dataset, split, seed, settings and library versions."
    )
    onnx_sha256: str
    created_at: dt.datetime
    links: dict[str, str]


class ModelSummary(BaseModel):
    """A model in a list."""

    id: str
    job_id: str
    task: Task | None = Field(
        description="As `target` and `k`: null of a model that was made before a list "
        "could tell."
    )
    target: str | None
    k: int | None
    name: str | None
    version: int | None
    aliases: list[str]
    tags: list[str]
    description: str | None
    metrics: dict[str, float | None]
    onnx_sha256: str
    created_at: dt.datetime
    links: dict[str, str]


class AliasWrite(BaseModel):
    """Which model an alias shall point at."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"version": 1}}
    )

    version: int = Field(ge=1, description="A version of the name in the path.")


class PruneRequest(BaseModel):
    """Which members to keep."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"members": "selected"}}
    )

    members: Literal["selected"] | Annotated[int, Field(ge=1, le=4096)] = Field(
        default="selected",
        description="Those that are chosen one by one on the validation rows until no "
        "other helps, or so many of these.",
    )
    name: Name | None = Field(
        default=None,
        description="The model becomes the next version of this name; null: of that "
        "of the model itself, if it has one.",
    )
    tags: list[Tag] = Field(default_factory=list, max_length=20)
