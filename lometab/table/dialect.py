"""How a CSV is written: its encoding, delimiter, quotes and header.

Each is set by the caller, or else detected; `find_layout` does it for the file that
trains and for the file that is predicted. For the latter, the columns that the model
takes and the dialect of its training file are known, and decide where they can.
"""

import csv
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, Self

from annotated_types import Interval, Len

from lometab.errors import ConfigError
from lometab.table.formats import DateFormat, NumberFormat
from lometab.table.values import (
    BLANKS,
    MISSING,
)

Encoding = Literal["utf-8", "utf-16", "windows-1252", "latin-1"]
Delimiter = Literal[",", ";", "\t", "|"]
Quote = Literal['"', "'", "none"]

SAMPLE = 2**20
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
csv.field_size_limit(sys.maxsize)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a file is to be read; what is None is detected."""

    # Read by pydantic where a request body holds this class: unknown keys are errors.
    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    encoding: Encoding | None = None
    """How its bytes spell characters."""
    delimiter: Delimiter | None = None
    """What stands between the fields of a line."""
    quote: Quote | None = None
    """What stands around fields that hold delimiters or newlines; doubled inside."""
    header: bool | None = None
    """Whether the first line names the columns."""
    skip_lines: Annotated[int, Interval(ge=0, le=10_000)] | None = None
    """How many lines stand above the table."""
    skip_footer: Annotated[int, Interval(ge=0, le=1000)] | None = None
    """How many lines stand below it, such as a total."""
    number_format: NumberFormat | None = None
    """How numbers are written that are not plain."""
    date_format: DateFormat | None = None
    """How dates are written that are not in ISO 8601."""
    missing_values: tuple[str, ...] | None = None
    """Texts that mean missing, instead of the usual ones; the empty text always
    does."""
    not_missing: tuple[str, ...] = ()
    """Texts among these that are values, such as `none`."""
    sheet: Annotated[str, Len(1, 255)] | None = None
    """The sheet of an Excel workbook, by its name; the first one if None."""

    def __post_init__(self) -> None:
        for name in ("missing_values", "not_missing"):
            if any("\0" in word for word in getattr(self, name) or ()):
                raise ConfigError(f"{name} must not hold NUL characters")

    @property
    def missing(self) -> tuple[str, ...]:
        words = MISSING if self.missing_values is None else ("", *self.missing_values)
        return tuple(word for word in words if not word or word not in self.not_missing)


OPTION_ALIASES: dict[str, str] = {
    **dict.fromkeys(("sep", "separator"), "delimiter"),
    **dict.fromkeys(("decimal", "thousands"), "number_format"),
    **dict.fromkeys(("na_values", "null_values", "nullstr"), "missing_values"),
    **dict.fromkeys(("skiprows", "skip_rows", "skip"), "skip_lines"),
    **dict.fromkeys(("skipfooter", "skip_rows_after"), "skip_footer"),
    **dict.fromkeys(("quotechar", "quote_char"), "quote"),
    **dict.fromkeys(("dayfirst", "dateformat"), "date_format"),
    **dict.fromkeys(("charset", "file_encoding"), "encoding"),
    **dict.fromkeys(("has_header", "first_row"), "header"),
    **dict.fromkeys(("sheet_name", "sheetname", "worksheet"), "sheet"),
}
"""What other readers (pandas, polars, DuckDB) call options."""


@dataclass(frozen=True, kw_only=True)
class Guess:
    """Something about a file, and how sure it is: 1 is set, or beyond doubt."""

    value: Any
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a CSV is written. That of the training file travels with its model."""

    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str = '"'
    header: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """From what `to_dict` gave, or from a `Reading` as plain data."""
        names = [each.name for each in fields(cls)]
        found = {name: state[name] for name in names if name in state}
        return cls(
            **{
                name: value["value"] if isinstance(value, Mapping) else value
                for name, value in found.items()
                if value is not None
            }
        )

    def reader(self, lines: Iterable[str]) -> Any:
        if self.quote == "none":
            return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is known of a file that is to be predicted."""

    columns: Collection[str]
    """Those that the model takes."""
    dialect: Dialect | None = None
    """That of the file it was trained on."""


def read_sample(sample: str, dialect: Dialect, count: int = 1000) -> list[list[str]]:
    """The first records; the last one, which may be cut, if there are no others."""
    reader = dialect.reader(match[0] for match in LINE.finditer(sample))
    records: list[list[str]] = []
    try:
        for record in reader:
            if record:
                records.append(record)
            if len(records) == count:
                return records
    except csv.Error:  # a lone carriage return; whoever parses it will say where
        pass
    is_cut = len(sample) >= SAMPLE // 2 and len(records) > 1
    return records[:-1] if is_cut else records


def count_known(names: Iterable[str], known: Collection[str]) -> int:
    return len({name.strip(BLANKS + "\ufeff") for name in names}.intersection(known))
