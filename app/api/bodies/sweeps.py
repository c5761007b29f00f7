"""Bodies of sweeps and tune jobs."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.jobs import ChoiceOrRange, Name, Tag
from app.storage.enums import JobStatus
from lometab.evaluation import Comparison, Metric, Outcome, Ranked, Spread


class Run(BaseModel):
    """One seed of a cell."""

    job_id: str
    seed: int
    status: JobStatus


class SweepRead(BaseModel):
    """A sweep as it is now: live while it runs."""

    job_id: str
    status: JobStatus
    n_runs: int
    counts: dict[JobStatus, int] = Field(description="Runs by status.")
    runs: list[list[Run]] = Field(description="Of each cell, in the order of `cells`.")
    comparison: Comparison
    definitions: dict[str, str]


class TrialRead(BaseModel):
    """A trial: the settings that were tried, and what came of them."""

    trial: int
    job_id: str
    status: JobStatus
    is_pruned: bool
    settings: dict[str, Any] | None = Field(
        description="Those that are varied; null before they are drawn."
    )
    outcome: Outcome | None


class FinalistRead(BaseModel):
    """One of the best trials, with every seed that it was trained with."""

    trial: int
    runs: list[Run] = Field(description="The trial itself, then its repeats.")
    score: Spread | None = Field(
        description="On validation, over the runs that are finished."
    )


class ParallelAxis(BaseModel):
    """An axis of a parallel-coordinates plot: a value for each finished trial."""

    name: str
    values: list[Any]


class TuneRead(BaseModel):
    """A search as it is now: live while it runs."""

    job_id: str
    status: JobStatus
    metric: Metric
    space: dict[str, ChoiceOrRange]
    trials: list[TrialRead]
    best: int | None = Field(
        description="The trial with the best validation score; as soon as the best "
        "ones are repeated, the finalist with the best mean."
    )
    best_settings: dict[str, Any] | None
    tied: list[int] = Field(
        description="Trials whose score on validation is behind the best single one by "
        "no more than a standard error, by drawing validation rows: nothing but luck "
        "may tell them apart."
    )
    finalists: list[FinalistRead] = Field(
        description="The trials that are repeated with other seeds; empty before."
    )
    importances: dict[str, float] = Field(
        description="How much each setting mattered for the score, in shares of 1, by "
        "PED-ANOVA on the trials that were seen to their end."
    )
    parallel_coordinates: list[ParallelAxis] = Field(
        description="The score last; `trials` of the values are those with an outcome."
    )
    refit_job_id: str | None
    model_id: str | None


class PromoteRequest(BaseModel):
    """Which cell or trial shall become a model."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"cell": 3}}
    )

    cell: int | None = Field(default=None, ge=0, description="Of a sweep.")
    trial: int | None = Field(default=None, ge=0, description="Of a tune job.")
    n_seeds: int = Field(default=1, ge=1, le=16, description="As in a train job.")
    name: Name | None = Field(
        default=None, description="The model becomes the next version of this name."
    )
    tags: list[Tag] = Field(default_factory=list, max_length=20)


class RanksRead(BaseModel):
    """Methods by their mean rank over data sets."""

    jobs: dict[str, str] = Field(description="The file of each sweep.")
    methods: list[Ranked]
