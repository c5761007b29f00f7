"""What a predict request can ask for, in its query or in its JSON body."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self, get_args

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from starlette.datastructures import QueryParams

from app.errors import from_validation
from lometab.evaluation import Method
from lometab.table import (
    DateFormat,
    Delimiter,
    Encoding,
    NumberFormat,
    Quote,
    ReadOptions,
)

PredictField = Literal[
    "mean",
    "label",
    "members",
    "member_std",
    "std",
    "entropy",
    "mutual_information",
    "disagreement",
    "interval",
    "set",
    "trust",
    "novelty",
    "out_of_range",
    "unseen",
]
FIELDS: tuple[str, ...] = get_args(PredictField)
"""What can be asked for of each row, in the order in which it is answered."""
ANSWERED = tuple(n for n in FIELDS if n not in ("std", "out_of_range", "unseen"))
"""What is answered unless `include` says otherwise: `std` is a former name, and what
makes a row novel is for those who want to know."""
LEFT_OUT = {*FIELDS} - {*ANSWERED}


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
    conformal: Method | None = Field(
        default=None,
        description="How these are made. Intervals: `constant`, of one width, or "
        "`scaled` by the members' spread. Sets: `aps`, never empty, or `lac`, the "
        "smallest, perhaps empty. Null: for classes `aps`, for numbers what was "
        "narrower on validation rows.",
    )
    include: list[PredictField] | None = Field(
        default=None,
        description="Only these, as far as they apply to the model; null: all but "
        "`out_of_range`, `unseen`, and `std`, the former name of `member_std`.",
    )
    exclude: list[PredictField] = Field(
        default_factory=list, description="Not these, such as `members`."
    )
    abstain: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        strict=True,
        description="Rows get an `abstain`: whether their `trust` is below this. With "
        "0.05 that is the share of 5 % of the calibration rows that were the least "
        "certain.",
    )
    abstain_above: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="The same by a bound of your own: whether their `member_std` or, "
        "of classes, their `entropy` (in nats) is above this.",
    )
    explain: bool = Field(
        default=False,
        strict=True,
        description="Rows get an `explanation`: what each column adds to the answer, "
        "by Shapley values over training rows that are kept with the model. For at "
        "most 20 rows, answered as JSON.",
    )
    id_column: str | None = Field(
        default=None,
        description="The column that is handed through as `id`; null: the column `id`, "
        "if there is one.",
    )
    spreadsheet_safe: bool = Field(
        default=False,
        strict=True,
        description="Of an answer in CSV: a text that a spreadsheet would take for a "
        "formula, as it begins with = + - @ or a control character, gets a `'` before "
        "it.",
    )

    encoding: Encoding | None = Field(
        default=None,
        description="Of a CSV. Null: the charset of the content type, else by its "
        "bytes.",
    )
    delimiter: Delimiter | None = Field(
        default=None,
        description="Of a CSV. Null: that of the file the model was trained on, unless "
        "another one finds more of its columns in the first line.",
    )
    quote: Quote | None = Field(
        default=None, description="Of a CSV. Null: as the file shows, or in training."
    )
    header: bool | None = Field(
        default=None,
        strict=True,
        description="Of a CSV: whether its first line names the columns. Null: if it "
        "does, or if the training file's did.",
    )

    skip_lines: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        strict=True,
        description="Of a CSV: how many lines stand above its header. Null: those "
        "above the line that names the model's columns.",
    )
    skip_footer: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        strict=True,
        description="Of a CSV: how many last lines are no rows. Null: totals and "
        "notes.",
    )
    number_format: NumberFormat | None = Field(
        default=None,
        description="How numbers are written that are texts, in a CSV or in JSON. "
        "Null: as in training, unless the body has another delimiter; then as its "
        "values show.",
    )
    date_format: DateFormat | None = Field(
        default=None, description="Of a CSV: the same for its dates."
    )

    sheet: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Of an Excel workbook: the sheet, by its name. Null: the first.",
    )

    @cached_property
    def read_options(self) -> ReadOptions:
        return ReadOptions(
            encoding=self.encoding,
            delimiter=self.delimiter,
            quote=self.quote,
            header=self.header,
            skip_lines=self.skip_lines,
            skip_footer=self.skip_footer,
            number_format=self.number_format,
            date_format=self.date_format,
            sheet=self.sheet,
        )

    @model_validator(mode="after")
    def check_abstain(self) -> Self:
        if self.abstain is not None and self.abstain_above is not None:
            raise ValueError("give `abstain` or `abstain_above`, not both")
        return self

    @field_validator("coverage")
    @classmethod
    def check_hundredths(cls, coverage: float) -> float:
        if not 0.005 < coverage < 0.995 or abs(coverage - round(coverage, 2)) > 1e-8:
            raise ValueError(
                "give a share in whole hundredths from 0.01 to 0.99, such as 0.9 for "
                f"90 %, however: {coverage}"
            )
        return round(coverage, 2)


DEFAULT = PredictOptions()
JSON_OPTIONS = (
    "calibrated",
    "coverage",
    "explain",
    "abstain",
    "abstain_above",
    "header",
    "skip_lines",
    "skip_footer",
    "spreadsheet_safe",
)
"""Options that are no texts, whose texts in a query are JSON."""


def read_query(query: bytes) -> Mapping[str, str]:
    """The options in the query; of one that is there again, all values count."""
    texts: dict[str, str] = {}
    for name, value in QueryParams(query).multi_items() if query else ():
        texts[name] = f"{texts[name]},{value}" if name in texts else value
    return texts


def read_options(query: Mapping[str, str], body: Mapping[str, Any]) -> PredictOptions:
    """Those of the query, and over them those of the body."""
    if not query and not body:
        return DEFAULT
    given: dict[str, Any] = dict(query)
    for name in ("include", "exclude"):
        if name in given:
            given[name] = given[name].split(",")
    for name in JSON_OPTIONS:
        if name in given:
            try:
                given[name] = orjson.loads(given[name])
            except orjson.JSONDecodeError:
                pass  # a text, which is refused
    try:
        return PredictOptions.model_validate({**given, **body})
    except ValidationError as error:
        names = {name: name for name in PredictOptions.model_fields}
        raise from_validation(error, names) from None
