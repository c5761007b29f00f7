"""Bodies of datasets."""

import datetime as dt
from dataclasses import fields
from typing import Any, Literal

from pydantic import (
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from app.errors import from_validation
from lometab.config import Task
from lometab.table import OPTION_ALIASES, ColumnKind, Looks, ReadOptions


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
    nearly: str | None = Field(
        default=None,
        description="The form that its numbers or dates have but for a few values.",
    )
    unreadable: list[str] = Field(
        default_factory=list,
        description="These values: they are missing if you set the column's kind to "
        "`numeric` or `datetime`.",
    )
    n_missing: int
    missing_words: list[Category] = Field(
        default_factory=list, description="Words that were read as missing."
    )
    missing_share: float
    n_distinct: int = Field(description="About, if there are very many.")
    example: str | None
    range: tuple[float, float] | None
    quantiles: dict[str, float] | None = Field(
        description="Of about twenty thousand rows if there are more."
    )
    top: list[Category] | None = Field(description="The most frequent values.")

    @field_validator("top", "missing_words", mode="before")
    @classmethod
    def name_pairs(cls, pairs: Any) -> Any:
        return pairs and [{"value": value, "count": count} for value, count in pairs]


class GuessRead(BaseModel):
    """Something about a file, and how sure it is."""

    value: str | bool | int
    confidence: float = Field(ge=0, le=1, description="1: told, or beyond doubt.")


class ReadingRead(BaseModel):
    """What a file turned out to be; each of the guesses can be told instead."""

    format: Literal["csv", "parquet", "arrow", "json", "xlsx"]
    compression: Literal["gzip", "zstd"] | None
    encoding: GuessRead | None
    delimiter: GuessRead | None
    quote: GuessRead | None
    header: GuessRead | None
    skip_lines: GuessRead | None = None
    skip_footer: GuessRead | None = None
    sheet: GuessRead | None = Field(
        default=None, description="The sheet of a workbook that was read."
    )


class Suggestion(BaseModel):
    """A column that may be the target."""

    target: str
    task: Task
    why: str


class DatasetSummary(BaseModel):
    """An uploaded table."""

    id: str
    filename: str
    name: str | None
    tags: list[str]
    description: str | None
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


def parse_read_options(content: bytes) -> ReadOptions:
    """The part `read_options` of an upload."""
    try:
        return _OPTIONS.validate_json(content)
    except ValidationError as error:
        own = {field.name: field.name for field in fields(ReadOptions)}
        raise from_validation(error, OPTION_ALIASES | own) from None


_OPTIONS = TypeAdapter(ReadOptions)
