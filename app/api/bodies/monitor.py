"""Bodies of monitoring."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

Id = str | int | float | bool
Label = str | int | bool


class ColumnRead(BaseModel):
    """What was seen of one column."""

    missing: float | None = Field(description="Share of the rows.")
    unseen: float | None = Field(
        description="Share of the rows with a category that training did not have."
    )
    out_of_range: float | None = Field(
        description="Share of the rows with a number beyond the range of training."
    )
    psi: float = Field(
        description="Population stability index against the training rows' histogram; "
        "of dates and times, of missing ones only, as they come after training."
    )
    bound: float | None = Field(
        description="Above which it is drift: by chance, rows like the training rows "
        "get beyond it, in some column, at most as often as `false_alarm_rate` says; "
        "never below 0.1, where a shift is too small to matter. Null if there is "
        "nothing to compare: no rows, or all in one bin."
    )
    is_drifted: bool


class UncertaintyRead(BaseModel):
    """Trust of the answers, beside that of calibration rows."""

    mean_trust: float
    expected_mean_trust: float
    least_certain_share: float = Field(description="Share with a trust below 0.05.")
    expected_least_certain_share: float


class LabelShare(BaseModel):
    """How often a label is answered."""

    label: Label
    share: float
    expected: float | None = Field(description="On the calibration rows.")


class OutcomesRead(BaseModel):
    """What the truth said of answers whose outcomes were posted."""

    n: int
    coverage: float = Field(description="Of the intervals or sets that are counted.")
    measured_coverage: float | None = Field(
        description="Null if they depend on a column, which is not kept."
    )
    rmse: float | None = None
    mae: float | None = None
    bias: float | None = Field(default=None, description="Mean of truth minus answer.")
    accuracy: float | None = None
    brier: float | None = None
    nll: float | None = None
    ece: float | None = None


class Watched(BaseModel):
    """What was predicted in some time."""

    n_rows: int
    n_left_out: int = Field(description="Rows that came too fast to be counted.")
    columns: dict[str, ColumnRead]
    drifted: list[str] = Field(description="Columns whose PSI is above its bound.")
    is_alarm: bool
    uncertainty: UncertaintyRead | None
    novel_share: float | None = Field(
        description="Share of rows unlike the training rows; 0.005 by chance."
    )
    labels: list[LabelShare] | None
    mean: float | None = Field(description="Numbers: of the answers.")
    outcomes: OutcomesRead | None


class WatchedDay(Watched):
    """What was predicted on one day."""

    day: str = Field(description="In UTC.", examples=["2026-11-17"])


class MonitorRead(BaseModel):
    """A served model, watched."""

    model_id: str
    is_on: bool = Field(description="Whether this service counts what it predicts.")
    has_reference: bool = Field(
        description="Whether the model knows the histograms of its training rows; "
        "those of earlier versions do not."
    )
    n_training_rows: int | None
    false_alarm_rate: float = Field(
        description="How often, at most, a look at rows like the training rows is an "
        "alarm; of a day, all looks together for the webhook `monitor.alarm`."
    )
    days: list[WatchedDay] = Field(description="The latest first, today's so far.")
    total: Watched = Field(description="All of these days together.")


class OutcomeWrite(BaseModel):
    """What a predicted row turned out to be."""

    model_config = ConfigDict(extra="forbid")

    id: Id = Field(
        description="The id that its row had when it was predicted, as a text: 1, 1.0 "
        'and "1" are one id, and so are true and "TRUE"; "007" is another than "7".'
    )
    value: Label | float = Field(description="The target's value, or its class.")

    @field_validator("id", mode="before")
    @classmethod
    def has_id(cls, given: object) -> object:
        if given is None:
            raise ValueError("an id must not be null: rows without one are not kept")
        return given


class OutcomesWrite(BaseModel):
    """Outcomes of rows that were predicted with ids."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"outcomes": [{"id": "a17", "value": 5.5}]}},
    )

    outcomes: Annotated[list[OutcomeWrite], Field(min_length=1, max_length=10_000)]


class OutcomesTaken(BaseModel):
    """What became of posted outcomes."""

    matched: int = Field(description="Ids that were held against their latest answer.")
    unknown: int = Field(
        description="Ids that no waiting answer has: never predicted, taken already, "
        "or too long ago."
    )
