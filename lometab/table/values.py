"""What one value means: missing, a number, a category's text, a moment in time.

Training, CSV and JSON all read values by these functions, so that the same value cannot
mean two things. `category`, `number` and `moment` tell what a value means;
`read_categories`, `read_numbers` and `read_moments` read whole columns, those of Arrow
without a loop over values.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lometab.errors import DataError
from lometab.table.formats import (
    PLAIN,
    number_style,
    read_moment,
    to_plain,
)
from lometab.table.formats import (
    MomentFormat as MomentFormat,
)
from lometab.table.formats import (
    NumberFormat as NumberFormat,
)

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
"""What may stand around a value's text without meaning anything."""

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")


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
        raise DataError(f"a value must be single, however: {type(value).__name__}")
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating):
        value = float(value)
        return category(str(int(value)) if value.is_integer() else repr(value), missing)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        if value.time() == time():
            value = value.date()
    return category(str(value), missing)


def number(
    value: object,
    missing: Collection[str] = MISSING,
    format: str | None = None,
) -> float:
    """The number in a value; NaN if it is missing; ValueError if it is something else.

    >>> number("1.5"), number(True), number("NA"), number("1.234,5", format="1.234,5")
    (1.5, 1.0, nan, 1234.5)
    """
    if isinstance(value, str):
        text = value.strip(BLANKS)
        if text in missing:
            return float("nan")
        if format is not None and format != PLAIN:
            text = to_plain(text, format)
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


def moment(
    value: object,
    missing: Collection[str] = MISSING,
    format: str | None = None,
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
        value = read_moment(text, format or "y-m-d")
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return float("nan")
        return float(value.astype("datetime64[us]").astype(np.float64) / 1e6)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return number(value, missing)


# ----------------------------------------------------------------------------
# Columns


def read_categories(
    values: "Iterable[object] | pa.ChunkedArray", missing: Collection[str] = MISSING
) -> NDArray[np.object_]:
    """`category` of each value, as an object array of texts. A text is read once."""
    absent = frozenset(missing)
    if is_arrow(values):
        distinct, index = _encode(values)
        texts = [category(value, absent) for value in [*distinct, None]]
        encoded: NDArray[np.object_] = np.array(texts, dtype=object)[index]
        return encoded
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        moments, places = np.unique(values, return_inverse=True)
        return np.array([category(m, absent) for m in moments], dtype=object)[places]
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


def read_numbers(
    values: "Iterable[object] | pa.ChunkedArray",
    name: str,
    missing: Collection[str] = MISSING,
    format: str | None = None,
    *,
    first_row: int = 1,
    texts: Any = None,
) -> NDArray[np.float64]:
    """`number` of each value; DataError names the column and the row of a bad one.

    Args:
        first_row: the number of the first value's row in its table.
        texts: what `read_texts` gave for them, if it was asked.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if is_arrow(values) and not _is_encoded(values):
        converted = _cast_numbers(values, missing, format, texts)
        if converted is not None:
            return converted
    wanted = "a number" if format in (None, PLAIN) else f"a number such as {format}"
    return _convert(number, values, name, missing, format, wanted, first_row)


def read_moments(
    values: "Iterable[object] | pa.ChunkedArray",
    name: str,
    missing: Collection[str] = MISSING,
    format: str | None = None,
    *,
    first_row: int = 1,
) -> NDArray[np.float64]:
    """`moment` of each value; DataError names the column and the row of a bad one."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        seconds = values.astype("datetime64[us]").astype(np.float64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    if is_arrow(values) and not _is_encoded(values):
        converted = _cast_moments(values, missing, format)
        if converted is not None:
            return converted
    wanted = "a date such as 2024-05-31T12:00:00"
    if format not in (None, "y-m-d"):
        wanted = f"a date of the form {format}"
    return _convert(moment, values, name, missing, format, wanted, first_row)


def _convert(
    convert: Callable[[object, Collection[str], Any], float],
    values: Iterable[object],
    name: str,
    missing: Collection[str],
    format: str | None,
    wanted: str,
    first_row: int,
) -> NDArray[np.float64]:
    absent = frozenset(missing)
    distinct: Any
    index: NDArray[np.intp] | None = None
    if is_arrow(values):
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
            raise DataError(
                f"column {name!r} must hold {wanted} in every row, however row "
                f"{row + first_row} holds {_shown(value)}",
                column=name,
            ) from None
    return converted[:-1] if index is None else converted[index]


def _shown(value: object) -> str:
    if isinstance(value, str):
        value = value[:100]
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


# ----------------------------------------------------------------------------
# Columns of Arrow. What its kernels cannot convert as a whole is converted value by
# value, so that they decide nothing but the speed.


def is_arrow(values: Any) -> bool:
    return hasattr(values, "type") and hasattr(values, "null_count")


def _is_encoded(values: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_dictionary(values.type))


def _encode(values: Any) -> tuple[list[Any], NDArray[np.intp]]:
    """The distinct values, in the order of their first rows, and each row's place.

    The place of a null is -1. A dictionary is read once, whatever points at it: its
    texts written out for every row might take any amount of memory.
    """
    from lometab.table.arrow import keep

    encoded = values
    if not _is_encoded(values):
        encoded = keep(values).dictionary_encode()
    if hasattr(encoded, "unify_dictionaries"):
        encoded = encoded.unify_dictionaries().combine_chunks()
    index = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    index = index.astype(np.intp)
    distinct = encoded.dictionary
    if encoded is not values:
        return distinct.to_pylist(), index
    used, first, places = np.unique(index, return_index=True, return_inverse=True)
    order = np.argsort(first)
    order = order[used[order] >= 0]
    rank = np.full(len(used), -1, dtype=np.intp)
    rank[order] = np.arange(len(order))
    return keep(distinct.take(used[order])).to_pylist(), rank[places]


def count_texts(values: Any, missing: Collection[str] = MISSING) -> Any:
    """How often each text is in a column, blanks around it and missing ones aside.

    None if the column does not hold texts.
    """
    if not is_arrow(values):
        values = values if isinstance(values, list | tuple) else list(values)
        if not all(isinstance(value, str) or value is None for value in values):
            return None
        counts: Counter[str] = Counter()
        for value in values:
            text = "" if value is None else value.strip(BLANKS)
            if text not in missing:
                counts[text] += 1
        counts.pop("", None)
        return dict(counts)
    texts = read_texts(values, missing)
    return None if texts is None else count_present(texts)


_SHORT = 1000
"""Of a column of so many rows, Python counts faster than Arrow."""


def count_present(texts: Any) -> dict[str, int]:
    """How often each text is in a column of Arrow's, nulls aside."""
    if len(texts) <= _SHORT:
        counts = Counter(texts.to_pylist())
        counts.pop(None, None)
        return dict(counts)
    found = texts.value_counts()
    pairs = zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)
    return {text: count for text, count in pairs if text is not None}


def count_missing_words(
    values: Any, missing: Collection[str] = MISSING
) -> dict[str, int]:
    """How often each word that means missing is in a column of texts of Arrow's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(values.type):
        return {}
    words = pa.array([word for word in missing if word], pa.string())
    is_word = pc.is_in(pc.utf8_trim(values, characters=BLANKS), value_set=words)
    if not pc.any(is_word).as_py():
        return {}
    found = pc.utf8_trim(values.filter(is_word), characters=BLANKS).value_counts()
    pairs = zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)
    return dict(pairs)


def read_texts(values: Any, missing: Collection[str] = MISSING) -> Any:
    """The texts of a column without blanks around them, null where they are missing.

    None if the column does not hold texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return None
    trimmed = pc.utf8_trim(values, characters=BLANKS)
    absent = pc.is_in(trimmed, value_set=pa.array([*missing], values.type))
    return pc.if_else(absent, None, trimmed)


def read_all_texts(columns: Sequence[Any], missing: Collection[str]) -> list[Any]:
    """`read_texts` of each column, all at once: a call costs more than a short column.

    Args:
        columns: of Arrow's, each in one chunk that is not empty.
    """
    import pyarrow as pa

    places = [i for i, each in enumerate(columns) if pa.types.is_string(each.type)]
    texts: list[Any] = [None] * len(columns)
    if places:
        joined = pa.chunked_array([columns[i].chunk(0) for i in places])
        for i, chunk in zip(places, read_texts(joined, missing).chunks, strict=True):
            texts[i] = chunk
    return texts


def _cast_numbers(
    values: Any, missing: Collection[str], format: str | None, texts: Any
) -> NDArray[np.float64] | None:
    """`number` of a whole column, or None if it takes a closer look."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        converted = values.cast(pa.float64(), safe=False)
        return _to_numpy(converted)
    found = read_texts(values, missing) if texts is None else texts
    if found is None:
        return None
    if format is not None and format != PLAIN:
        if pc.all(match_numbers(found, format)).as_py() is False:
            return None
        found = _to_plain_texts(found, format)
    try:
        converted = _to_numpy(found.cast(pa.float64()))
    except pa.ArrowInvalid:
        return None
    # Arrow knows spellings of these that `number` does not.
    is_odd = ~np.isfinite(converted)
    return None if is_odd.sum() > found.null_count else converted


def match_numbers(texts: Any, format: str) -> Any:
    """Which texts are numbers of this form."""
    import pyarrow.compute as pc

    if format == PLAIN:
        return pc.match_substring_regex(texts, _PLAIN_NUMBER)
    return pc.match_substring_regex(texts, f"^{number_style(format).pattern}$")


_PLAIN_NUMBER = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"


def _to_plain_texts(texts: Any, format: str) -> Any:
    """`to_plain` of texts that are all of this form."""
    import pyarrow.compute as pc

    style = number_style(format)
    texts = pc.replace_substring(texts, "\u2212", "-")
    texts = pc.replace_substring_regex(texts, r"^\((.*)\)$", r"-\1")
    for unit in (style.prefix, style.suffix):
        if unit:
            texts = pc.replace_substring(texts, unit, "", max_replacements=1)
    texts = pc.replace_substring_regex(texts, style.marks, "")
    return pc.replace_substring(texts, style.decimal, ".")


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
        found = read_texts(values, missing)
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
