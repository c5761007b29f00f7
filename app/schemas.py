"""Request and response bodies. Bodies out have no defaults: every field is there."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, Generic, Literal, NotRequired, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    field_validator,
    model_validator,
)
from pydantic import Tag as Form
from typing_extensions import TypedDict  # pydantic takes typing's from 3.12 on

from app.models import Event
from lometab.comparison import Comparison, Ranked, Spread
from lometab.config import PRESETS, BaselineName, Preset, Task, TrainConfig
from lometab.data import ColumnKind, Looks
from lometab.outcome import Metric, Outcome
from lometab.reading import ReadOptions
from lometab.space import (
    CATBOOST,
    PAPER_GRID,
    PAPER_SPACE,
    Choice,
    Distribution,
    Range,
    check_space,
    count_cells,
    expand_grid,
    is_cell_of,
)
from lometab.splits import Split

Cell = str | int | float | bool | None
Label = str | int | bool
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Id = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_]+$")]
# Without control characters: the database takes no NUL.
Tag = Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
JobStatus = Literal[
    "queued", "running", "stopping", "cancelling", "succeeded", "failed", "cancelled"
]
PredictField = Literal[
    "mean",
    "label",
    "members",
    "std",
    "entropy",
    "mutual_information",
    "disagreement",
    "interval",
    "set",
]
Item = TypeVar("Item")

MAX_CELLS = 5000
"""Jobs that one sweep may consist of, seeds included."""


class Page(BaseModel, Generic[Item]):
    """A page of a list, newest first."""

    data: list[Item]
    next_cursor: str | None = Field(
        description="Send it as `cursor` for the next page; null on the last one."
    )


class Category(BaseModel):
    """A text and how often it comes."""

    value: str
    count: int


class Column(BaseModel):
    """A column, and what it would be used as if it is not the target."""

    name: str
    kind: ColumnKind
    looks_like: Looks
    reason: str | None = Field(description="Why it would be ignored, if it would.")
    format: str | None = Field(
        description="How its numbers or dates are written, if not plainly."
    )
    note: str | None = Field(description="What you may want to know or change.")
    n_missing: int
    missing_share: float
    n_distinct: int = Field(description="About, if there are very many.")
    example: str | None
    range: tuple[float, float] | None
    quantiles: dict[str, float] | None = Field(
        description="Of about twenty thousand rows if there are more."
    )
    top: list[Category] | None = Field(description="The most frequent values.")

    @field_validator("top", mode="before")
    @classmethod
    def name_pairs(cls, pairs: Any) -> Any:
        return pairs and [{"value": value, "count": count} for value, count in pairs]


class GuessRead(BaseModel):
    """Something about a file, and how sure it is."""

    value: str | bool
    confidence: float = Field(ge=0, le=1, description="1: told, or beyond doubt.")


class ReadingRead(BaseModel):
    """What a file turned out to be; each of the guesses can be told instead."""

    format: Literal["csv", "parquet", "arrow"]
    compression: Literal["gzip", "zstd"] | None
    encoding: GuessRead | None
    delimiter: GuessRead | None
    quote: GuessRead | None
    header: GuessRead | None


class Suggestion(BaseModel):
    """A column that may be the target."""

    target: str
    task: Task
    why: str


class DatasetSummary(BaseModel):
    """An uploaded table."""

    id: str
    filename: str
    sha256: str = Field(description="Of the file as it was sent.")
    size: int
    n_rows: int
    n_columns: int
    created_at: dt.datetime
    links: dict[str, str]


class DatasetRead(DatasetSummary):
    """An uploaded table: how it was read, and what is in it."""

    read_options: ReadOptions
    reading: ReadingRead
    columns: list[Column]
    head: list[list[str | None]] = Field(description="The first rows.")
    warnings: list[str]
    suggestions: list[Suggestion]


def _check_grid_value(value: object) -> object:
    if not isinstance(value, str | bool | int | float | None):
        raise ValueError("a value must be a text, a number, true, false or null")
    return value


GridValue = Annotated[
    str | bool | int | float | None,
    PlainValidator(
        _check_grid_value, json_schema_input_type=str | bool | int | float | None
    ),
]
GridValues = Annotated[list[GridValue], Field(min_length=1, max_length=1000)]
GridSpace = Annotated[dict[str, GridValues], Field(max_length=20)]
GridSpaces = Annotated[list[GridSpace], Field(min_length=1, max_length=20)]


def _find_form(value: object) -> str:
    """Which of `app.errors.FORMS` a value has, for its faults to be those of this."""
    is_choice = isinstance(value, Choice) or (
        isinstance(value, dict) and "values" in value
    )
    return "form: choice" if is_choice else "form: range"


Grids = Annotated[
    Annotated[GridSpace, Form("form: grid")]
    | Annotated[GridSpaces, Form("form: grids")],
    Discriminator(
        lambda value: "form: grids" if isinstance(value, list) else "form: grid"
    ),
]
ChoiceOrRange = Annotated[
    Annotated[Choice, Form("form: choice")] | Annotated[Range, Form("form: range")],
    Discriminator(_find_form),
]


class SweepSettings(BaseModel):
    """Which cells a sweep has."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "grid": {"rank": [1, 4, 16], "sigma_init": [0.1, 1.0]},
                "seeds": 2,
            }
        },
    )

    grid: Grids = Field(
        default_factory=lambda: {**PAPER_GRID},
        description="Hyperparameters and their values, crossed; or several grids. "
        "The default is the paper's, over rank and sigma_init.",
    )
    seeds: int = Field(
        default=1, ge=1, le=100, description="Runs of each cell, each with its seed."
    )
    max_cells: int | None = Field(
        default=None,
        ge=1,
        description="If the grid has more, so many cells of it, spread at random.",
    )
    reference: dict[str, str | bool | int | float | None] | None = Field(
        default=None,
        description="The settings of the cell that `delta_percent` is relative to.",
    )

    @property
    def grids(self) -> list[dict[str, list[Any]]]:
        return self.grid if isinstance(self.grid, list) else [self.grid]


class TuneSettings(BaseModel):
    """What is searched, and for how long."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "n_trials": 30,
                "space": {"d_block": {"low": 64, "high": 256, "step": 16}},
            }
        },
    )

    n_trials: int = Field(default=50, ge=1, le=1000)
    space: dict[str, ChoiceOrRange | None] = Field(
        default_factory=dict,
        max_length=20,
        description="Where to depart from the paper's space: `values`, or `low` and "
        "`high`; null: not varied, but as in `hyperparameters`.",
    )
    seeds: int = Field(
        default=3,
        ge=1,
        le=16,
        description="With so many the winner is trained again, as one model.",
    )
    finalists: int = Field(
        default=3,
        ge=1,
        le=10,
        description="So many of the best trials are repeated with the other seeds, and "
        "the best mean wins; 1: the best single run does.",
    )

    @property
    def full_space(self) -> dict[str, Distribution]:
        merged: dict[str, Distribution | None] = {**PAPER_SPACE, **self.space}
        return {name: each for name, each in merged.items() if each is not None}


class JobSettings(BaseModel):
    """What to train, on which columns, and how."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["train", "sweep", "tune"] = Field(
        default="train",
        description="train: one model. sweep: many settings side by side. tune: a "
        "search for the best ones, and a model with them.",
    )
    sweep: SweepSettings | None = Field(
        default=None, description="The cells of a sweep; null: the paper's grid."
    )
    tune: TuneSettings | None = Field(
        default=None, description="The search; null: the paper's space, 50 trials."
    )
    n_seeds: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Train so many times, each with its seed, and serve all members "
        "as one model of n_seeds x k.",
    )
    target: str = Field(description="The column to predict.")
    task: Literal["auto", "regression", "binary", "multiclass"] = Field(
        default="auto", description="auto: decided from the values of the target."
    )
    columns: dict[str, ColumnKind] = Field(
        default_factory=dict, description="Kinds that override the inferred ones."
    )
    drop_missing_target: bool = Field(
        default=False, description="Leave out rows in which the target is missing."
    )
    device: Literal["auto", "cpu", "gpu"] = Field(
        default="auto", description="auto: a GPU worker if one lives, else a CPU one."
    )
    split: Split = Field(default_factory=Split)
    preset: Preset = Field(
        default="default", description="Settings where `hyperparameters` is silent."
    )
    hyperparameters: TrainConfig = Field(default_factory=TrainConfig)
    baselines: list[BaselineName] = Field(
        default_factory=list,
        max_length=5,
        description="Trained after the model on the same split with the same seed and "
        "settings, and reported beside it; catboost needs its package on the "
        "worker. Of a sweep they are further cells, of a tune job they are trained "
        "beside the winner.",
    )
    max_runtime_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = Field(
        default=None,
        description="Then training stops and the best epoch so far is kept. A sweep "
        "begins no further cell, a tune job refits its winner.",
    )
    name: Name | None = Field(
        default=None, description="The model becomes the next version of this name."
    )
    tags: list[Tag] = Field(default_factory=list, max_length=20)

    @field_validator("baselines")
    @classmethod
    def name_each_once(cls, names: list[BaselineName]) -> list[BaselineName]:
        return [*dict.fromkeys(names)]

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, body: Any) -> Any:
        """Put the preset's settings where the caller has not chosen."""
        if not isinstance(body, dict):
            return body
        given = body.get("hyperparameters", {})
        preset = body.get("preset", "default")
        settings = next((s for name, s in PRESETS.items() if name == preset), None)
        if settings is None or not isinstance(given, dict):
            return body
        return {**body, "hyperparameters": {**settings, **given}}

    @model_validator(mode="after")
    def check_kind(self) -> Self:
        """Settings of a kind go with that kind, and are sound."""
        for kind in ("sweep", "tune"):
            if getattr(self, kind) is not None and self.kind != kind:
                raise ValueError(f"`{kind}` goes with kind {kind!r}, not {self.kind!r}")
        if self.kind != "train" and self.n_seeds != 1:
            raise ValueError(f"say `seeds` in `{self.kind}` in place of `n_seeds`")
        if self.kind == "tune":
            self.tune = self.tune or TuneSettings()
            check_space(self.tune.full_space, self.hyperparameters)
        if self.kind == "sweep":
            self.sweep = self.sweep or SweepSettings()
            n_cells = count_cells(self.sweep.grids)
            n_cells = min(n_cells, self.sweep.max_cells or n_cells)
            n_cells += len(self.baselines)
            if not 0 < n_cells * self.sweep.seeds <= MAX_CELLS:
                raise ValueError(
                    f"the sweep has {n_cells} cells of {self.sweep.seeds} seeds, and "
                    f"{MAX_CELLS} runs are allowed; shorten the grid or say `max_cells`"
                )
            self.list_cells()
        n_seeds = max(
            self.n_seeds,
            self.tune.seeds if self.tune else 1,
            self.sweep.seeds if self.sweep else 1,
        )
        replace(self.hyperparameters, seed=self.hyperparameters.seed + n_seeds - 1)
        return self

    def list_cells(self) -> list[dict[str, Any]]:
        """The settings of each cell of a sweep; baselines are cells too."""
        assert self.sweep is not None
        return list_cells(self.sweep, self.baselines, self.hyperparameters)

    @classmethod
    def setting_names(cls) -> list[str]:
        """Every name that a config may hold, at any depth."""
        parts = (Split, TrainConfig, ReadOptions)
        nested = [f.name for part in parts for f in fields(part)]
        return [
            *cls.model_fields,
            *SweepSettings.model_fields,
            *TuneSettings.model_fields,
            *nested,
        ]


def list_cells(
    sweep: SweepSettings, baselines: Sequence[str], base: TrainConfig
) -> list[dict[str, Any]]:
    """The grid's cells, as many as wanted; baselines and the reference are not drawn
    by lot."""
    also: list[dict[str, Any]] = [{"variant": name} for name in baselines]
    reference = sweep.reference
    if reference is not None:
        if not is_cell_of(sweep.grids, reference) and reference not in also:
            raise ValueError(f"the reference {reference} is none of the cells")
        also.append(reference)
    ours = [cell for cell in also if cell != CATBOOST]
    cells = expand_grid(sweep.grids, base, sweep.max_cells, ours)
    return [*cells, CATBOOST] if "catboost" in baselines else cells


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


class JobCreateOnDataset(JobSettings):
    """The same, on a dataset that was uploaded before."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"dataset_id": "ds_0123456789ab", "target": "quality"}
        }
    )

    dataset_id: Id = Field(examples=["ds_0123456789ab"])


class EventRead(BaseModel):
    """Something that happened to a job."""

    seq: int = Field(description="Counted from 1, without a gap.")
    type: str = Field(
        description="queued, warning, running, phase, epoch, checkpoint, resumed, "
        "released, lost, stopping, cancelling, succeeded, failed or cancelled; of a "
        "sweep or tune job also child (a run has ended), repeating and refitting."
    )
    data: dict[str, Any]
    created_at: dt.datetime

    @classmethod
    def of(cls, event: Event) -> Self:
        return cls(
            seq=event.seq,
            type=event.type,
            data=event.data,
            created_at=event.created_at,
        )


class EventPage(BaseModel):
    """A job's events, oldest first."""

    data: list[EventRead]
    next_after: int | None = Field(
        description="Send it as `after` for the next page; null on the last one."
    )


class JobError(BaseModel):
    """Why a job failed, as problem details."""

    type: str = "about:blank"
    title: str = "The job failed"
    detail: str
    code: str


class Progress(BaseModel):
    """How far training is."""

    epoch: int
    max_epochs: int
    best_epoch: int | None
    best_score: float | None
    eta_seconds: float | None
    seed: int | None = Field(description="Which of several seeds is trained, from 0.")
    n_finished: int | None = Field(description="Of a sweep or tune job: runs ended.")
    n_runs: int | None = Field(description="Of a sweep or tune job: all its runs.")


class EstimateRead(BaseModel):
    """What a job will take, as far as can be told before it runs."""

    n_parameters: int
    memory_bytes: int = Field(description="Peak of the training process on a CPU.")
    serving_bytes: int = Field(description="Memory of the loaded model.")
    flops_per_epoch: int
    seconds_per_epoch: float = Field(
        description="If a worker does 20 GFLOP/s, about what one core does."
    )


class JobRead(BaseModel):
    """A job as it is now."""

    id: str
    kind: str
    status: JobStatus
    phase: (
        Literal[
            "preparing",
            "training",
            "exporting",
            "evaluating",
            "comparing",
            "searching",
            "repeating",
            "refitting",
        ]
        | None
    )
    progress: Progress
    attempt: int
    notice: str | None = Field(
        description="What keeps a queued job waiting, if it is not its turn alone."
    )
    stopped_early: bool = Field(
        description="It was stopped, or its time ran out, and kept its best epoch."
    )
    name: str | None
    tags: list[str]
    parent_id: str | None = Field(description="The sweep or tune job it is a part of.")
    position: int | None = Field(description="Which part, from 0.")
    outcome: Outcome | None = Field(description="What a cell or a trial came to.")
    dataset_id: str
    model_id: str | None
    config: dict[str, Any] = Field(
        description="What was asked for, with every preset and guess spelled out."
    )
    estimate: EstimateRead
    columns: dict[str, str] = Field(
        description="The kind of each column as it is used, or why it is ignored."
    )
    error: JobError | None
    created_at: dt.datetime
    started_at: dt.datetime | None
    finished_at: dt.datetime | None
    links: dict[str, str]


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


class ModelRead(BaseModel):
    """A trained model: what it takes and what it answers."""

    id: str
    job_id: str
    task: Task
    target: str
    classes: list[str | int | bool] | None
    k: int
    columns: list[InputColumn]
    name: str | None
    version: int | None
    aliases: list[str]
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
    name: str | None
    version: int | None
    aliases: list[str]
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


class PredictOptions(BaseModel):
    """What to answer, and how: in a JSON body, or as query parameters."""

    model_config = ConfigDict(extra="forbid")

    missing_columns: Literal["error", "fill"] = Field(
        default="error",
        description="fill: a column absent from every row is taken as missing.",
    )
    calibrated: bool = Field(
        default=False,
        strict=True,
        description="Classification: `mean` and `entropy` at the temperature that was "
        "fitted on validation rows; `members` and `set` stay as they are.",
    )
    coverage: float = Field(
        default=0.9,
        strict=True,
        description="Of each `interval` or `set`: whole hundredths, 0.01 to 0.99.",
        json_schema_extra={"minimum": 0.01, "maximum": 0.99},
    )
    include: list[PredictField] | None = Field(
        default=None,
        description="Only these, as far as they apply to the model; null: all.",
    )
    exclude: list[PredictField] = Field(
        default_factory=list, description="Not these, such as `members`."
    )
    abstain_above: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Rows get an `abstain`: whether their `std` or, of classes, their "
        "`entropy` is above this.",
    )
    id_column: str | None = Field(
        default=None,
        description="The column that is handed through as `id`; null: the column `id`, "
        "if there is one.",
    )

    @field_validator("coverage")
    @classmethod
    def check_hundredths(cls, coverage: float) -> float:
        if not 0.005 < coverage < 0.995 or abs(coverage - round(coverage, 2)) > 1e-8:
            raise ValueError(
                "give a share in whole hundredths from 0.01 to 0.99, such as 0.9 for "
                f"90 %, however: {coverage}"
            )
        return round(coverage, 2)


class PredictRows(PredictOptions):
    """Rows to answer, each an object from column name to cell."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"rows": [{"alcohol": 9.4, "pH": 3.51}], "coverage": 0.9}
        },
    )

    rows: list[dict[str, Any]] = Field(min_length=1)


class PredictMatrix(PredictOptions):
    """The same with the names once."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"columns": ["alcohol", "pH"], "data": [[9.4, 3.51]]}
        },
    )

    columns: list[str]
    data: list[list[Any]] = Field(
        min_length=1, description="For each row, a cell for each column."
    )


class RowPrediction(TypedDict):
    """The answer for one row. What does not apply, or is not wanted, is not there."""

    id: NotRequired[Annotated[Cell, Field(description="That of the row.")]]
    mean: NotRequired[
        Annotated[
            float | list[float],
            Field(description="A number, or the probability of each class."),
        ]
    ]
    members: NotRequired[
        Annotated[
            list[float] | list[list[float]],
            Field(description="The same of each of the k members."),
        ]
    ]
    label: NotRequired[
        Annotated[Label, Field(description="Classes: the most probable one.")]
    ]
    std: NotRequired[
        Annotated[float, Field(description="Numbers, k > 1: deviation of members.")]
    ]
    entropy: NotRequired[
        Annotated[float, Field(description="Classes: of the mean, in nats.")]
    ]
    mutual_information: NotRequired[
        Annotated[
            float,
            Field(description="Classes, k > 1: entropy that members do not share."),
        ]
    ]
    disagreement: NotRequired[
        Annotated[
            float,
            Field(description="Classes, k > 1: share of pairs with different labels."),
        ]
    ]
    interval: NotRequired[
        Annotated[
            tuple[float | None, float | None],
            Field(description="Numbers: its ends, null where there is none."),
        ]
    ]
    set: NotRequired[
        Annotated[list[Label], Field(description="Classes: perhaps none of them.")]
    ]
    abstain: NotRequired[
        Annotated[bool, Field(description="Too uncertain, by `abstain_above`.")]
    ]


class PredictResponse(BaseModel):
    """Answers in the order of the rows."""

    model_id: str
    task: Task
    k: int
    classes: list[Label] | None
    calibrated: bool
    coverage: float
    warnings: list[str] = Field(
        description="Unseen categories, columns filled as missing, columns not used."
    )
    predictions: list[RowPrediction]


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    code: str
