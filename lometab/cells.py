"""What one cell means: missing, a number, a category's text, a moment in time.

Training, CSV and JSON all read cells by these functions, so that the same cell cannot
mean two things. `category`, `number` and `moment` say what a cell means; `categories`,
`numbers` and `moments` read whole columns, those of Arrow without a loop over cells.
"""

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lometab.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

MISSING: tuple[str, ...] = (
    "",
    "NA",
    "N/A",
    "n/a",
    "na",
    "#N/A",
    "<NA>",
    "NaN",
    "nan",
    "NAN",
    "null",
    "NULL",
    "Null",
    "None",
    "none",
    "NONE",
    "?",
    "-",
)
"""Texts that mean missing, blanks around them aside, unless the caller has a list."""

BLANKS = " \t\n\r\f\v\u00a0\u2007\u202f\u3000"
"""What may stand around a cell's text without meaning anything."""

NumberFormat = Literal["1234.5", "1,234.5", "1.234,5"]
"""How a column writes its numbers; blanks and ' may mark thousands in the last two."""

MomentFormat = Literal["y-m-d", "d/m/y", "m/d/y"]
"""How a column writes its dates: ISO 8601, or days and months in this order."""

NUMBERS: dict[str, str] = {
    "1,234.5": r"[+-]?([0-9]+|[0-9]{1,3}([,' \x{a0}\x{202f}][0-9]{3})+)([.][0-9]*)?",
    "1.234,5": r"[+-]?([0-9]+|[0-9]{1,3}([.' \x{a0}\x{202f}][0-9]{3})+)(,[0-9]*)?",
}
"""The texts of each format but the first, as Arrow and DuckDB (RE2) match them."""
_DAY, _MONTH = "(0?[1-9]|[12][0-9]|3[01])", "(0?[1-9]|1[0-2])"
_REST = (
    r"(/[0-9]{4}|/[0-9]{2}|[.][0-9]{4}|[.][0-9]{2}|-[0-9]{4})"
    "( [0-9]{1,2}:[0-9]{2}(:[0-9]{2})?( ?[AaPp][Mm])?)?"
)
MOMENTS: dict[str, str] = {
    "d/m/y": f"{_DAY}[/.-]{_MONTH}{_REST}",
    "m/d/y": f"{_MONTH}[/.-]{_DAY}{_REST}",
}
"""The same for moments. Which days a month has is for `moment` to know."""

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
_PATTERNS = {
    name: re.compile(re.sub(r"\\x\{(\w+)\}", lambda m: chr(int(m[1], 16)), pattern))
    for name, pattern in (NUMBERS | MOMENTS).items()
}


def category(value: object, missing: Collection[str] = MISSING) -> str:
    """The text of a category; the empty text if it is missing.

    `3`, `3.0`, `"3"` and `"3.0"` are one category, and so are `True` and `"TRUE"`;
    `"007"` and `"3.10"` stay what they are.

    >>> category(3.0), category("3"), category(True), category(None), category(" a ")
    ('3', '3', 'true', '', 'a')
    """
    if isinstance(value, str):
        text = value.strip(BLANKS)
        if text in missing:
            return ""
        if whole := _WHOLE.fullmatch(text):
            text = whole[1]
        elif text.lower() in ("true", "false"):
            text = text.lower()
        return "0" if text == "-0" else text
    if value is None or value != value:
        return ""
    if isinstance(value, list | dict | tuple | set):
        raise DataError(f"a cell must hold one value, however: {type(value).__name__}")
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating):
        value = float(value)
        return category(str(int(value)) if value.is_integer() else repr(value), missing)
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        if value.time() == time():
            value = value.date()
    return category(str(value), missing)


def number(
    value: object,
    missing: Collection[str] = MISSING,
    format: NumberFormat | None = None,
) -> float:
    """The number in a cell; NaN if it is missing; ValueError if it is something else.

    >>> number("1.5"), number(True), number("NA"), number("1.234,5", format="1.234,5")
    (1.5, 1.0, nan, 1234.5)
    """
    if isinstance(value, str):
        text = value.strip(BLANKS)
        if text in missing:
            return float("nan")
        if format is not None and format != "1234.5":
            if not _PATTERNS[format].fullmatch(text):
                raise ValueError(f"not a number of the form {format}: {value!r}")
            text = re.sub(_MARKS[format], "", text).replace(",", ".")
        elif "_" in text or not text.isascii():  # float() takes both
            raise ValueError(f"not a number: {value!r}")
        found = float(text)
        if found != found:  # a spelling of NaN that does not mean missing
            raise ValueError(f"not a number: {value!r}")
        return found
    if value is None:
        return float("nan")
    if isinstance(value, int | float | np.number | np.bool_ | Decimal):
        return float(value)
    raise ValueError(f"not a number: {value!r}")


_MARKS = {"1,234.5": "[,' \u00a0\u202f]", "1.234,5": "[.' \u00a0\u202f]"}


def moment(
    value: object,
    missing: Collection[str] = MISSING,
    format: MomentFormat | None = None,
) -> float:
    """Seconds since 1970 in UTC of a date's text; NaN if missing; else ValueError.

    A text without a zone is taken as UTC. Numbers pass as they are.

    >>> moment("1970-01-02"), moment("1970-01-01T01:00:00+01:00"), moment(None)
    (86400.0, 0.0, nan)
    >>> moment("2/1/1970", format="d/m/y"), moment("1/2/70 1:00 am", format="m/d/y")
    (86400.0, 90000.0)
    """
    if isinstance(value, str):
        text = value.strip(BLANKS)
        if text in missing:
            return float("nan")
        if format is not None and format != "y-m-d" and not text[:4].isdecimal():
            value = _day_and_month(text, format)
        elif len(text) < 10 or text[4] != "-":  # fromisoformat takes 20240101 as a date
            raise ValueError(f"not a date: {value!r}")
        else:
            value = datetime.fromisoformat(text)
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return float("nan")
        return float(value.astype("datetime64[us]").astype(np.float64) / 1e6)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return number(value, missing)


def _day_and_month(text: str, format: MomentFormat) -> datetime:
    """The moment in a text such as 31/12/2024 23:59, of which RE2 likes the form."""
    if not _PATTERNS[format].fullmatch(text):
        raise ValueError(f"not a date of the form {format}: {text!r}")
    first, then, year, *clock = (int(part) for part in re.findall("[0-9]+", text))
    day, month = (first, then) if format == "d/m/y" else (then, first)
    if year < 100:
        year += 2000 if year < 69 else 1900  # as POSIX has it
    half = text[-2:].lower()
    if half in ("am", "pm"):
        if not 1 <= clock[0] <= 12:
            raise ValueError(f"not a time of 12 hours: {text!r}")
        clock[0] = clock[0] % 12 + (12 if half == "pm" else 0)
    hour, minute, second = (*clock, 0, 0, 0)[:3]
    return datetime(year, month, day, hour, minute, second)


# ----------------------------------------------------------------------------
# Columns


def categories(
    values: "Iterable[object] | pa.ChunkedArray", missing: Collection[str] = MISSING
) -> NDArray[np.object_]:
    """`category` of each value, as an object array of texts. A text is read once."""
    absent = frozenset(missing)
    if _is_arrow(values):
        distinct, index = _encode(plain(values))
        texts = [category(value, absent) for value in [*distinct, None]]
        encoded: NDArray[np.object_] = np.array(texts, dtype=object)[index]
        return encoded
    known: dict[str, str] = {}
    found: list[str] = []
    for value in values:
        if isinstance(value, str):
            text = known.get(value)
            if text is None:
                text = known[value] = category(value, absent)
        else:
            text = category(value, absent)
        found.append(text)
    return np.array(found, dtype=object)


def numbers(
    values: "Iterable[object] | pa.ChunkedArray",
    name: str,
    missing: Collection[str] = MISSING,
    format: str | None = None,
) -> NDArray[np.float64]:
    """`number` of each value; DataError names the column and the row of a bad one."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if _is_arrow(values):
        converted = _cast_numbers(values, missing, format)
        if converted is not None:
            return converted
    return _convert(number, values, name, missing, format, "a number")


def moments(
    values: "Iterable[object] | pa.ChunkedArray",
    name: str,
    missing: Collection[str] = MISSING,
    format: str | None = None,
) -> NDArray[np.float64]:
    """`moment` of each value; DataError names the column and the row of a bad one."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if _is_arrow(values):
        converted = _cast_moments(values, missing, format)
        if converted is not None:
            return converted
    wanted = "a date such as 2024-05-31T12:00:00"
    if format in get_args(MomentFormat)[1:]:
        wanted = f"a date of the form {format}"
    return _convert(moment, values, name, missing, format, wanted)


def _convert(
    convert: Callable[[object, Collection[str], Any], float],
    values: Iterable[object],
    name: str,
    missing: Collection[str],
    format: str | None,
    wanted: str,
) -> NDArray[np.float64]:
    absent = frozenset(missing)
    distinct: Any
    index: NDArray[np.intp] | None = None
    if _is_arrow(values):
        distinct, index = _encode(values)
    else:
        distinct = values if isinstance(values, list | np.ndarray) else list(values)
    converted = np.empty(len(distinct) + 1, dtype=np.float64)
    converted[-1] = np.nan
    for i, value in enumerate(distinct):
        try:
            converted[i] = convert(value, absent, format)
        except (ValueError, OverflowError, TypeError):
            row = i if index is None else int(np.flatnonzero(index == i)[0])
            shown = repr(value)
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            raise DataError(
                f"column {name!r} must hold {wanted} in every row, however row "
                f"{row + 1} holds {shown}",
                column=name,
            ) from None
    return converted[:-1] if index is None else converted[index]


# ----------------------------------------------------------------------------
# Columns of Arrow. What its kernels cannot convert as a whole is converted cell by
# cell, so that they decide nothing but the speed.


def plain_type(kind: Any, name: str = "") -> Any:
    """The type in which a column is kept. What a float64 would round stays a text."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type, name)
    if pa.types.is_integer(kind):
        return pa.string() if kind == pa.uint64() else pa.int64()
    if pa.types.is_decimal(kind):
        return pa.float64() if kind.precision <= 15 else pa.string()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_boolean(kind):
        return pa.bool_()
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if kind in (pa.string(), pa.large_string(), pa.string_view(), pa.null()):
        return pa.string()
    raise DataError(
        f"column {name!r} holds {kind}; numbers, texts, booleans and dates are read",
        column=name,
    )


def plain(column: Any, name: str = "") -> Any:
    """A column of Arrow in the type in which it is kept; so a cell means one thing, in
    training and in prediction."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = plain_type(column.type, name)
    if pa.types.is_timestamp(kind):
        options = pc.CastOptions(kind, allow_time_truncate=True)
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            column = column.cast(pa.timestamp(column.type.unit))  # in UTC
        try:
            kept = pc.cast(column, options=options)
            ends = pc.min_max(kept.cast(pa.int64()))
            low, high = ends["min"].as_py(), ends["max"].as_py()
        except pa.ArrowInvalid:
            low = high = _LAST + 1
        if low is not None and not (_FIRST <= low and high <= _LAST):
            raise DataError(
                f"column {name!r} holds dates outside the years 1 to 9999", column=name
            )
        return kept
    return column.cast(kind, safe=False)


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first moment of year 1 and of the last of year 9999."""


def _is_arrow(values: Any) -> bool:
    return hasattr(values, "type") and hasattr(values, "null_count")


def _encode(values: Any) -> tuple[list[Any], NDArray[np.intp]]:
    """The distinct values, in the order of their first rows, and each row's place.

    The place of a null is -1.
    """
    encoded = values.dictionary_encode()
    if hasattr(encoded, "unify_dictionaries"):
        encoded = encoded.unify_dictionaries().combine_chunks()
    index = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), index.astype(np.intp)


def texts(values: Any, missing: Collection[str] = MISSING) -> Any:
    """The texts of a column without blanks around them, null where they are missing.

    None if the column does not hold texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return None
    trimmed = pc.utf8_trim(values, characters=BLANKS)
    absent = pc.is_in(trimmed, value_set=pa.array([*missing], values.type))
    return pc.if_else(absent, None, trimmed)


def _cast_numbers(
    values: Any, missing: Collection[str], format: str | None
) -> NDArray[np.float64] | None:
    """`number` of a whole column, or None if it takes a closer look."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        converted = values.cast(pa.float64(), safe=False)
        return _to_numpy(converted)
    found = texts(values, missing)
    if found is None:
        return None
    if format is not None and format != "1234.5":
        pattern = f"^({NUMBERS[format]})$"
        if pc.all(pc.match_substring_regex(found, pattern)).as_py() is False:
            return None
        found = pc.replace_substring_regex(found, _MARKS[format], "")
        found = pc.replace_substring(found, ",", ".")
    try:
        converted = _to_numpy(found.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None
    # Arrow knows spellings of these that `number` does not.
    is_odd = ~np.isfinite(converted)
    return None if is_odd.sum() > found.null_count else converted


def _cast_moments(
    values: Any, missing: Collection[str], format: str | None
) -> NDArray[np.float64] | None:
    """`moment` of a whole column, or None if it takes a closer look."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        moments = values.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
    elif format in (None, "y-m-d"):
        found = texts(values, missing)
        if found is None:
            return None
        shape = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2})?$"
        if pc.all(pc.match_substring_regex(found, shape)).as_py() is False:
            return None
        try:
            moments = found.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            return None
    else:
        return None
    micro = moments.cast(pa.int64())
    return _to_numpy(micro.cast(pa.float64(), safe=False)) / 1e6


def _to_numpy(values: Any) -> NDArray[np.float64]:
    """Nulls become NaN."""
    array: NDArray[np.float64] = np.asarray(values.to_numpy(zero_copy_only=False))
    return array.astype(np.float64, copy=True)
