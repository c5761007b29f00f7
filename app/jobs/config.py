"""What a caller can ask for: the settings of a job, of a sweep and of a search."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, Self

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

from app.jobs import budget
from app.storage.enums import SEARCHES, JobKind
from lometab.config import (
    ALIASES,
    MAX_SEEDS,
    PRESET_SEEDS,
    PRESETS,
    BaselineName,
    Preset,
    TrainConfig,
)
from lometab.space import (
    BUDGET_SPACE,
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
from lometab.table import HELD_ROWS, OPTION_ALIASES, ColumnKind, ReadOptions, Split
from lometab.weights import Weights

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
# Without control characters: the database takes no NUL.
Tag = Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]

ALIASES_OF_JOBS = {
    **dict.fromkeys(
        ("target_column", "label", "label_column", "y", "outcome"), "target"
    ),
    **dict.fromkeys(("problem_type", "task_type", "objective"), "task"),
    **dict.fromkeys(("features", "feature_types", "dtypes"), "columns"),
    **dict.fromkeys(("test_size", "test_fraction"), "split.test"),
    **dict.fromkeys(("val_size", "validation_fraction", "validation"), "split.val"),
    **dict.fromkeys(("time_limit", "max_time", "timeout"), "max_runtime_seconds"),
    **dict.fromkeys(("presets", "quality"), "preset"),
    **dict.fromkeys(("sample", "sample_size", "subsample", "n_rows"), "max_rows"),
    **dict.fromkeys(("params", "parameters", "config"), "hyperparameters"),
}
"""What other services call settings of a job."""

OWN_PART = 0.1
"""Share of the rows that calibrate models which are chosen among many, or whose members
are: no rows that chose are left to tell how good the choice is."""
MAX_CELLS = 5000
"""Jobs that one sweep may consist of, seeds included."""


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

    kind: Literal[JobKind.TRAIN, JobKind.SWEEP, JobKind.TUNE] = Field(
        default=JobKind.TRAIN,
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
        le=MAX_SEEDS,
        description="Train so many times, each with its seed, and serve all members "
        "as one model of n_seeds x k. With the preset `best` a job of kind train "
        "without a budget has 4, unless you set another number.",
    )
    members: Literal["all", "selected"] | Annotated[int, Field(ge=1, le=4096)] = Field(
        default="all",
        description="Which members the model keeps: all; those that are chosen one by "
        "one on the validation rows until no other helps; or so many of these. With "
        "fewer than all, a tenth of the rows calibrates, unless `split.calibration` "
        "says otherwise.",
    )
    target: str = Field(description="The column to predict.")
    task: Literal["auto", "regression", "binary", "multiclass"] = Field(
        default="auto", description="auto: decided from the values of the target."
    )
    columns: dict[str, ColumnKind] = Field(
        default_factory=dict, description="Kinds that override the inferred ones."
    )
    weight_column: str | None = Field(
        default=None,
        description="The column that says how much each row counts, in training and in "
        "the score that chooses the epoch; it is no feature. Reports count rows alike.",
    )
    class_weight: (
        Literal["balanced"]
        | Annotated[
            dict[str, Annotated[float, Field(ge=0, le=1e9)]], Field(max_length=1000)
        ]
        | None
    ) = Field(
        default=None,
        description="How much a row of each class counts: numbers by class, 1 where "
        "there is none; `balanced`: each class alike.",
    )
    drop_missing_target: bool = Field(
        default=False, description="Leave out rows in which the target is missing."
    )
    min_frequency: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Categories in fewer training rows than this share one input; 1: "
        "each has its own, as in the paper. null: a tenth of the root of the number of "
        "rows, shown in the answer.",
    )
    max_rows: Annotated[int, Field(ge=20, le=10**12)] | None = Field(
        default=None,
        description="Of a table with more rows, so many are used in all: after the "
        "split each part is thinned by lot to its share, by the seed of the split, and "
        "each class keeps its share too. null: all rows are used.",
    )
    storage: Literal["auto", "memory", "file"] = Field(
        default="auto",
        description="Where the training rows are: in memory, or in a file of the "
        "worker from which they are read by blocks in an order drawn by lot. Then at "
        f"most {HELD_ROWS} rows of each part validate, calibrate and make the reports. "
        "auto: in a file if they do not fit in a worker's memory otherwise; what was "
        "chosen is shown in the answer.",
    )
    device: Literal["auto", "cpu", "gpu"] = Field(
        default="auto", description="auto: a GPU worker if one lives, else a CPU one."
    )
    split: Split = Field(default_factory=Split)
    calibrate_by: str | None = Field(
        default=None,
        description="A categorical column, or the target of a classification: each of "
        "its values gets intervals or sets of its own, so that coverage holds within "
        "it too; values with fewer than 20 calibration rows are taken together.",
    )
    importance_groups: (
        Annotated[
            list[Annotated[list[str], Field(min_length=1, max_length=1000)]],
            Field(max_length=20),
        ]
        | None
    ) = Field(
        default=None,
        description="Groups of columns whose importance is measured as one, in place "
        "of those that are found to go together.",
        examples=[[["latitude", "longitude"]]],
    )
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
    keep_rows: bool = Field(
        default=True,
        description="Keep a few training rows in the model's file, which `explain` and "
        "`/effects` need, and single test rows in its report. False: none, for rows "
        "that must not leave the table.",
    )
    max_runtime_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = Field(
        default=None,
        description="Then training stops and the best epoch so far is kept. A sweep "
        "begins no further cell, a tune job refits its winner.",
    )
    time_budget_seconds: (
        Annotated[int, Field(ge=budget.MIN_SECONDS, le=budget.MAX_SECONDS)] | None
    ) = Field(
        default=None,
        description="A budget in place of settings: the job becomes a search (kind "
        "tune) over all workers that begins with the given settings and their "
        "neighbourhood, and ends after about so many seconds, counted from its start, "
        "with one model: the members of its best trials that answer best together.",
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
        body = {**body, "hyperparameters": {**settings, **given}}
        is_search = body.get("kind", JobKind.TRAIN) != JobKind.TRAIN
        if not is_search and body.get("time_budget_seconds") is None:
            body.setdefault("n_seeds", PRESET_SEEDS[preset])
        return body

    @model_validator(mode="after")
    def check_kind(self) -> Self:
        """Settings of a kind go with that kind, and are sound."""
        if self.time_budget_seconds is not None:
            self._take_budget(self.time_budget_seconds)
        for kind in SEARCHES:
            if getattr(self, kind) is not None and self.kind != kind:
                raise ValueError(f"`{kind}` goes with kind '{kind}', not '{self.kind}'")
        if self.kind != JobKind.TRAIN and self.n_seeds != 1:
            raise ValueError(f"set `seeds` in `{self.kind}` in place of `n_seeds`")
        if self.split.calibration is None:
            is_chosen = self.kind in SEARCHES or self.members != "all"
            has_room = self.split.val + self.split.test <= 1 - 2 * OWN_PART
            is_cut = is_chosen and has_room and self.split.kind != "column"
            share = OWN_PART if is_cut else 0.0  # without it, there is a warning
            self.split = replace(self.split, calibration=share)
        if self.storage == "file" and not self.may_use_file:
            raise ValueError(
                "catboost takes its rows from memory; leave it out of `baselines`, or "
                "set `storage` to 'auto' and `max_rows` to what fits"
            )
        if self.kind == JobKind.TUNE:
            self.tune = self.tune or TuneSettings()
            check_space(self.tune.full_space, self.hyperparameters)
        if self.kind == JobKind.SWEEP:
            self.sweep = self.sweep or SweepSettings()
            n_cells = count_cells(self.sweep.grids)
            n_cells = min(n_cells, self.sweep.max_cells or n_cells)
            n_cells += len(self.baselines)
            if not 0 < n_cells * self.sweep.seeds <= MAX_CELLS:
                raise ValueError(
                    f"the sweep has {n_cells} cells of {self.sweep.seeds} seeds, and "
                    f"{MAX_CELLS} runs are allowed; shorten the grid or set `max_cells`"
                )
            self.list_cells()
        n_seeds = max(
            self.n_seeds,
            self.tune.n_trials if self.tune and self.time_budget_seconds else 1,
            self.tune.seeds if self.tune else 1,
            self.sweep.seeds if self.sweep else 1,
        )
        replace(self.hyperparameters, seed=self.hyperparameters.seed + n_seeds - 1)
        return self

    def _take_budget(self, seconds: int) -> None:
        """A job with a budget is a search, whatever it was asked as."""
        if self.kind == JobKind.SWEEP:
            raise ValueError(
                "`time_budget_seconds` ends with one model; a sweep, which compares, "
                "takes `max_runtime_seconds`"
            )
        if self.max_runtime_seconds is not None:
            raise ValueError(
                "set `time_budget_seconds` or `max_runtime_seconds`, not both"
            )
        tune = self.tune or TuneSettings(
            n_trials=budget.count_trials(seconds), space={**BUDGET_SPACE}
        )
        chosen = {"seeds", "finalists"} & tune.model_fields_set
        if self.n_seeds != 1 or chosen:
            raise ValueError(
                "with `time_budget_seconds` the model's members come from several "
                "trials, each with its seed; leave `n_seeds`, `seeds` and `finalists` "
                "out"
            )
        self.kind = JobKind.TUNE
        self.tune = tune.model_copy(update={"seeds": 1, "finalists": 1})

    @property
    def may_use_file(self) -> bool:
        """Whether all that it trains can take its rows from a file."""
        return self.storage != "memory" and "catboost" not in self.baselines

    @property
    def weights(self) -> Weights:
        return Weights(column=self.weight_column, by_class=self.class_weight)

    def list_cells(self) -> list[dict[str, Any]]:
        """The settings of each cell of a sweep; baselines are cells too."""
        assert self.sweep is not None
        return list_cells(self.sweep, self.baselines, self.hyperparameters)

    @classmethod
    def setting_names(cls) -> dict[str, str]:
        """Every name that a config may hold, or may be given by mistake, and where it
        belongs, such as `hyperparameters.k`."""
        parts: dict[str, Iterable[str]] = {
            "tune": TuneSettings.model_fields,
            "sweep": SweepSettings.model_fields,
            "read_options": (field.name for field in fields(ReadOptions)),
            "split": (field.name for field in fields(Split)),
            "hyperparameters": (field.name for field in fields(TrainConfig)),
        }
        nested = {
            name: f"{part}.{name}"
            for part, names in parts.items()
            if part in cls.model_fields
            for name in names
        }
        found = {**ALIASES_OF_JOBS}
        if "read_options" in cls.model_fields:
            found |= {n: f"read_options.{own}" for n, own in OPTION_ALIASES.items()}
        found |= {name: f"hyperparameters.{own}" for name, own in ALIASES.items()}
        return {**found, **nested, **{name: name for name in cls.model_fields}}


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
