"""The names of a table's columns, from a header as it is."""

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from lometab.errors import DataError
from lometab.table.formats import MOMENT_FORMATS, NumberFormat
from lometab.table.values import BLANKS, MISSING, moment, number

_NUMBER_FORMATS = get_args(NumberFormat)
_N_TOLD = 20
"""Names about which there is a warning each."""


def name_columns(
    records: list[list[str]], has_header: bool, begins_quoted: bool
) -> tuple[list[str], list[str]]:
    """The names of the columns, and what had to be done to them."""
    body = records[1:] if has_header else records
    first = records[0]
    width = width_of(body, len(first))
    if not has_header:
        return [f"column_{i}" for i in range(1, width + 1)], []
    names = [name.strip(BLANKS + "\ufeff") for name in first]
    warnings = []
    rows = [row for row in body if len(row) == width]
    if len(names) == width - 1 and all(not row[-1].strip() for row in rows):
        names.append("")
        warnings.append("every line ends with a delimiter")
    elif (
        1 < len(names) == width - 1
        and begins_quoted
        and len(rows) == len({row[0] for row in rows})
    ):
        names.insert(0, "")
        warnings.append("the header has no name for the first column, as R writes it")
    elif len(names) == width + 1 and not names[-1]:
        names.pop()
        warnings.append("the header ends with a delimiter")
    elif len(names) != width:
        columns = "1 column" if len(names) == 1 else f"{len(names)} columns"
        raise DataError(f"names {columns} where the lines below have {width} fields")
    return distinguish(names, warnings), warnings


def width_of(records: Sequence[list[str]], preferred: int) -> int:
    """How many fields most records have; of several widths as frequent, the one
    preferred."""
    counts = Counter(map(len, records))
    return max(counts, key=lambda w: (counts[w], w == preferred), default=preferred)


def distinguish(names: Sequence[str], warnings: list[str]) -> list[str]:
    """Names for columns that have none or another's."""
    taken = set(names)
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    distinct: list[str] = []
    n_renamed = 0
    for i, name in enumerate(names, start=1):
        new = name
        if not name or name in seen:
            wanted = name or f"column_{i}"
            new = wanted
            counts[wanted] += bool(name)
            while new in seen or new in taken:
                counts[wanted] += 1
                new = f"{wanted}_{counts[wanted]}"
            n_renamed += 1
            if n_renamed <= _N_TOLD:
                was = f"another column {name!r}" if name else f"column {i}, unnamed,"
                warnings.append(f"{was} is called {new!r}")
        seen.add(new)
        distinct.append(new)
    if n_renamed > _N_TOLD:
        warnings.append(f"and {n_renamed - _N_TOLD} more columns got other names")
    return distinct


# ----------------------------------------------------------------------------
# Whether there is one


def guess_header(records: list[list[str]]) -> tuple[bool, float]:
    """Whether the first line names the columns, and how sure that is.

    Names differ in kind from what stands below them: a text above numbers, or one that
    is none of a column's values although these come again and again.
    """
    first, body = records[0], records[1:101]
    if not body:
        return True, 0.5
    if len(first) == width_of(body, len(first)) - 1:
        return True, 0.9  # names without that of the index
    n_names = n_typed = n_returning = n_new = 0
    kinds = [kind_of(text) for text in first]
    for i, text in enumerate(first):
        column = [row[i] for row in body if i < len(row) and row[i] not in MISSING]
        text = text.strip(BLANKS)
        if text in MISSING or not column:
            continue
        kind = kind_of(column[0])
        is_of_kind = looks_numeric if kind == "number" else _is_date
        is_kind = kind is not None and all(map(is_of_kind, column))
        if is_kind and kinds[i] != kind:
            n_names += 1
        elif is_kind:
            n_typed += 1
        elif text in column:
            n_returning += 1
        elif len({*column}) <= len(column) / 2:
            n_new += 1
    if n_names and not n_returning and not n_typed:
        return True, 0.99
    typed = [text for text, kind in zip(first, kinds, strict=True) if kind]
    if n_names and not n_returning and all(map(_is_name, typed)):
        return True, 0.9  # numbers among the names, such as years
    if n_names > n_typed + n_returning:
        return True, 0.8
    if n_typed:
        is_counted = len(first) > 2 and first == [str(i) for i in range(len(first))]
        if is_counted and any("." in each for row in body for each in row):
            return True, 0.8  # as pandas names columns that have no names
        if n_new and not n_returning and all(map(_is_name, typed)):
            return True, 0.7
        return False, 0.6 if n_names or n_new else 0.8
    if n_returning > len(first) / 2:
        return False, 0.7  # the first line is like the others
    return True, 0.8 if n_new else 0.7


def _is_name(text: str) -> bool:
    """Whether a number or date may be a column's name: whole ones, and dates."""
    return text.strip(BLANKS).isdecimal() or _is_date(text)


def _is_date(text: str) -> bool:
    return kind_of(text) == "date"


def kind_of(text: str) -> str | None:
    """Whether a text is a number or a date, as most names of columns are not."""
    if looks_numeric(text):
        return "number"
    for style in MOMENT_FORMATS:
        try:
            moment(text, (), style)
            return "date"
        except ValueError:
            continue
    return None


def looks_numeric(text: str) -> bool:
    for style in _NUMBER_FORMATS:
        try:
            number(text, (), style)
            return True
        except ValueError:
            continue
    return False
