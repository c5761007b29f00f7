"""How the numbers and dates of a body are written.

That belongs to a file and not to a model: a body with another delimiter than the
training file had may also have other decimal marks. Then its own values decide. So do
numbers that are texts in JSON, if the training file had decimal commas: a program
writes points.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from app.serving.rows import CsvRows, Matrix, Records, StoredRows
from lometab.errors import DataError
from lometab.table import (
    ReadOptions,
    base_of,
    count_texts,
    fits_all,
    read_numbers,
    with_base,
)

Readable = CsvRows | Records | Matrix | StoredRows
_DELIMITED = (CsvRows, StoredRows)
POINT, COMMA = "1,234.5", "1.234,5"
_DATES = ("d/m/y", "m/d/y")
_CHUNK = 2**16


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the model knows of its columns."""

    numbers: tuple[str, ...]
    dates: tuple[str, ...]
    formats: Mapping[str, str]
    missing: frozenset[str]
    delimiter: str
    """Of the training file; a comma if it was none."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "Columns":
        dates = tuple(metadata["datetime"])
        return cls(
            numbers=tuple(n for n in metadata["numeric"] if n not in dates),
            dates=dates,
            formats=metadata.get("formats", {}),
            missing=frozenset(metadata["missing"]).union(
                *metadata.get("missing_in", {}).values()
            ),
            delimiter=metadata.get("reading", {}).get("delimiter", ","),
        )


@dataclass
class _Seen:
    """What the values of a body allow."""

    fits: dict[str, bool]
    doubtful: str | None = None
    """A text that is another number in the other form."""


def find_formats(
    rows: Readable, metadata: Mapping[str, Any], options: ReadOptions
) -> tuple[dict[str, str] | None, list[str]]:
    """The forms by which to read each column, None if as in training; and warnings."""
    told_number, told_date = options.number_format, options.date_format
    is_csv = _delimiter_of(rows) is not None
    if not is_csv and not (told_number or told_date):
        forms = metadata.get("formats", {}).values()
        if not any(base_of(form) == COMMA for form in forms):
            return None, []
    model = Columns.of(metadata)
    is_otherwise = _delimiter_of(rows) != model.delimiter
    if not (is_otherwise or told_number or told_date):
        return None, []
    formats, warnings = dict(model.formats), []
    if told_number is not None:
        formats |= _with_bases(model, told_number)
    elif is_otherwise:
        base, warning = _choose_base(model, rows)
        formats |= _with_bases(model, base) if base is not None else {}
        warnings += [warning] if warning else []
    for name in model.dates:
        if formats.get(name) in _DATES:
            if told_date is not None:
                formats[name] = told_date
            elif is_otherwise and is_csv:
                formats[name], more = _choose_date(model, rows, name)
                warnings += more
    return formats, warnings


def _delimiter_of(rows: Readable) -> str | None:
    return rows.delimiter if isinstance(rows, _DELIMITED) else None


def _with_bases(model: Columns, base: str) -> dict[str, str]:
    return {name: with_base(model.formats.get(name), base) for name in model.numbers}


def _choose_base(model: Columns, rows: Readable) -> tuple[str | None, str | None]:
    """How the body writes numbers, None if as in training; and a warning."""
    bases = {base_of(model.formats.get(name)) for name in model.numbers}
    trained = COMMA if COMMA in bases else POINT
    seen = _look(model, rows, trained)
    point, comma = seen.fits[POINT], seen.fits[COMMA]
    if not (point or comma):
        return None, None  # whoever reads the values says which is wrong
    if point and comma:
        if seen.doubtful is None:
            return None, None
        if trained == COMMA and _delimiter_of(rows) == ",":
            return POINT, _tell(POINT, COMMA, seen.doubtful)
        delimiter = _delimiter_of(rows)
        if delimiter is None:
            raise DataError(
                f"{seen.doubtful!r} may be a number written as 1,234.5 or as 1.234,5, "
                "as the training file has it; send numbers as such and not as texts, "
                "or set `number_format`"
            )
        raise DataError(
            f"{seen.doubtful!r} may be a number written as 1,234.5 or as 1.234,5: the "
            f"body has {delimiter!r} between its fields where the training file "
            f"had {model.delimiter!r}, so it may write numbers otherwise too; set "
            "`number_format`"
        )
    found = POINT if point else COMMA
    if found == trained:
        return (None if trained == COMMA else found), None
    return found, _tell(found, trained)


def _tell(found: str, trained: str, doubtful: str | None = None) -> str:
    example = f" (such as {doubtful!r})" if doubtful else ""
    return (
        f"the numbers of this body{example} are read as {found}, where the training "
        f"file wrote {trained}; set `number_format` if that is wrong"
    )


def _look(model: Columns, rows: Readable, trained: str) -> _Seen:
    seen = _Seen(fits={POINT: True, COMMA: True})
    for chunk, _ in rows.chunks(model.numbers, _CHUNK):
        for name, column in chunk.items():
            texts = _texts_of(column, model.missing)
            for base in (POINT, COMMA):
                form = with_base(model.formats.get(name), base)
                seen.fits[base] = seen.fits[base] and fits_all(texts, form)
            if all(seen.fits.values()) and seen.doubtful is None:
                seen.doubtful = _find_doubtful(model, name, texts, trained)
            elif not any(seen.fits.values()):
                return seen
    return seen


def _texts_of(column: Any, missing: frozenset[str]) -> list[str]:
    """Those that are there; numbers in JSON are none."""
    if isinstance(column, list):
        texts = {each.strip() for each in column if isinstance(each, str)}
        return [*(texts - missing)]
    return [*(count_texts(column, missing) or {})]


def _find_doubtful(
    model: Columns, name: str, texts: list[str], trained: str
) -> str | None:
    array = pa.array(texts, pa.string())
    point, comma = (
        read_numbers(array, name, (), with_base(model.formats.get(name), base))
        for base in (POINT, COMMA)
    )
    for i in np.flatnonzero(point != comma).tolist():
        # A model of plain numbers takes 1.305 as it is written.
        if trained == COMMA or "," in texts[i]:
            return texts[i]
    return None


def _choose_date(model: Columns, rows: Readable, name: str) -> tuple[str, list[str]]:
    """The order of days and months in a column of the body."""
    trained = model.formats[name]
    other = _DATES[_DATES.index(trained) - 1]
    fits = {trained: True, other: True}
    for chunk, _ in rows.chunks([name], _CHUNK):
        for column in chunk.values():
            texts = _texts_of(column, model.missing)
            fits = {form: fits[form] and fits_all(texts, form) for form in fits}
    if not fits[other] or not (fits[trained] or fits[other]):
        return trained, []
    found = trained if fits[trained] else other
    return found, [
        f"the dates of column {name!r} are read as {found}; set `date_format` if that "
        "is wrong"
    ]
