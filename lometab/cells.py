"""What one cell means: missing, a number, a category's text, a moment in time.

Training, CSV and JSON all read cells by these functions, so that the same cell cannot
mean two things. Each takes the values of a whole column.
"""

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from lometab.errors import DataError

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

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
_MARK = re.compile("_")  # float() takes "1_000"; nobody's CSV means that


def category(value: object, missing: Collection[str] = MISSING) -> str:
    """The text of a category; the empty text if it is missing.

    `3`, `3.0`, `"3"` and `"3.0"` are one category, and so are `True` and `"TRUE"`;
    `"007"` and `"3.10"` stay what they are.

    >>> category(3.0), category("3"), category(True), category(None), category(" a ")
    ('3', '3', 'true', '', 'a')
    """
    if isinstance(value, str):
        text = value.strip()
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
    return category(str(value), missing)


def number(value: object, missing: Collection[str] = MISSING) -> float:
    """The number in a cell; NaN if it is missing; ValueError if it is something else.

    >>> number("1.5"), number(True), number("NA")
    (1.5, 1.0, nan)
    """
    if isinstance(value, str):
        text = value.strip()
        if text in missing:
            return float("nan")
        if _MARK.search(text):
            raise ValueError(f"not a number: {value!r}")
        return float(text)
    if value is None:
        return float("nan")
    if isinstance(value, int | float | np.number | np.bool_ | Decimal):
        return float(value)
    raise ValueError(f"not a number: {value!r}")


def moment(value: object, missing: Collection[str] = MISSING) -> float:
    """Seconds since 1970 in UTC of an ISO 8601 text; NaN if missing; else ValueError.

    A text without a zone is taken as UTC. Numbers pass as they are.

    >>> moment("1970-01-02"), moment("1970-01-01T01:00:00+01:00"), moment(None)
    (86400.0, 0.0, nan)
    """
    if isinstance(value, str):
        text = value.strip()
        if text in missing:
            return float("nan")
        if len(text) < 10 or text[4] != "-":  # fromisoformat takes 20240101 as a date
            raise ValueError(f"not a date: {value!r}")
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


def categories(
    values: Iterable[object], missing: Collection[str] = MISSING
) -> NDArray[np.object_]:
    """`category` of each value, as an object array of texts. A text is read once."""
    known: dict[str, str] = {}
    texts: list[str] = []
    for value in values:
        if isinstance(value, str):
            text = known.get(value)
            if text is None:
                text = known[value] = category(value, missing)
        else:
            text = category(value, missing)
        texts.append(text)
    return np.array(texts, dtype=object)


def numbers(
    values: Iterable[object], name: str, missing: Collection[str] = MISSING
) -> NDArray[np.float64]:
    """`number` of each value; DataError names the column and the row of a bad one."""
    return _convert(number, values, name, missing, "a number")


def moments(
    values: Iterable[object], name: str, missing: Collection[str] = MISSING
) -> NDArray[np.float64]:
    """`moment` of each value; DataError names the column and the row of a bad one."""
    return _convert(moment, values, name, missing, "a date such as 2024-05-31T12:00:00")


def _convert(
    convert: Callable[[object, Collection[str]], float],
    values: Iterable[object],
    name: str,
    missing: Collection[str],
    wanted: str,
) -> NDArray[np.float64]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    values = values if isinstance(values, list | np.ndarray) else list(values)
    absent = frozenset(missing)
    converted = np.empty(len(values), dtype=np.float64)
    for row, value in enumerate(values):
        try:
            converted[row] = convert(value, absent)
        except (ValueError, OverflowError, TypeError):
            shown = repr(value)
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            raise DataError(
                f"column {name!r} must hold {wanted} in every row, however row "
                f"{row + 1} holds {shown}",
                column=name,
            ) from None
    return converted
