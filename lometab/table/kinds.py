"""What a column is used as, by what is true of all its values."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lometab.errors import DataError
from lometab.table.format_search import Forms, find_forms
from lometab.table.formats import (
    CENSORED,
    MOMENT_FORMATS,
    PLAIN,
    base_of,
    is_number_format,
)
from lometab.table.parquet import Column
from lometab.table.values import (
    MISSING,
    category,
    count_present,
    count_texts,
    is_arrow,
    read_categories,
    read_numbers,
    read_texts,
)

ColumnKind = Literal["numeric", "categorical", "datetime", "ignore"]
Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is true of all values of a column."""

    n_rows: int
    n_missing: int
    n_distinct: int
    """Of texts that are there; about, if there are very many."""
    is_number: bool
    """Whether all that are there are plain numbers."""
    is_whole: bool = False
    """Whether these are whole."""
    is_counted: bool = False
    """Whether they are distinct whole numbers, none missing."""
    is_monotone: bool = False
    """Whether they rise, or fall, from row to row."""
    formats: tuple[str, ...] = ()
    """The formats of numbers or dates that fit all; none looked for if plain ones
    do."""
    is_ambiguous: bool = False
    """Whether two of these give different numbers."""
    nearly: str | None = None
    """If none fits, the one that fits nearly all."""
    unreadable: tuple[str, ...] = ()
    """The texts that this one does not fit."""
    units: tuple[str, ...] = ()
    """Several units that its numbers have."""
    is_boolean: bool = False


Looks = Literal[
    "number", "category", "boolean", "date", "text", "id", "constant", "empty", "copy"
]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a column is used as, and why."""

    kind: ColumnKind
    looks_like: Looks
    reason: str | None = None
    """Why it is ignored, if it is."""
    format: str | None = None
    """How its numbers or dates are written, if not plainly."""
    note: str | None = None
    """What the caller should know or may want to change."""
    nearly: str | None = None
    """The form that its numbers or dates have but for a few values."""
    unreadable: tuple[str, ...] = ()
    """These values. If the caller sets the kind, they are missing."""


def find_facts(values: Column, missing: Collection[str] = MISSING) -> Facts:
    """The facts of a column in memory."""
    return find_counts(values, missing)[0]


def find_counts(
    values: Column, missing: Collection[str] = MISSING, present: Any = None
) -> tuple[Facts, dict[str, int], Float | None]:
    """The facts, how often each category is there, and the numbers, if they are.

    Args:
        present: what `read_texts` gives of the column, if that is known.
    """
    if present is None and is_arrow(values):
        present = read_texts(values, missing)
    try:
        # Texts that have been read need not be held against the missing ones again.
        numbers = read_numbers(values, "", missing, None, texts=present)
    except DataError:
        numbers = None
    counts, texts = count_values(values, missing, present, numbers is not None)
    n_present = sum(counts.values())
    facts = Facts(
        n_rows=len(values),
        n_missing=len(values) - n_present,
        n_distinct=len(counts),
        is_number=numbers is not None,
        is_boolean=is_boolean(counts),
    )
    if numbers is None:
        return add_forms(facts, find_forms(texts)), counts, None
    is_counted, is_monotone = count_steps(numbers)
    known = numbers if n_present == len(numbers) else numbers[~np.isnan(numbers)]
    facts = replace(
        facts,
        is_whole=is_whole(known),
        is_counted=is_counted,
        is_monotone=is_monotone,
    )
    return facts, counts, numbers


def add_forms(facts: Facts, forms: Forms) -> Facts:
    return replace(
        facts,
        formats=forms.formats,
        is_ambiguous=forms.is_ambiguous,
        nearly=forms.nearly,
        unreadable=forms.unreadable,
        units=forms.units,
    )


def count_values(
    values: Column, missing: Collection[str], present: Any, are_numbers: bool
) -> tuple[dict[str, int], dict[str, int]]:
    """How often each category is there, and how often each text, blanks aside.

    Args:
        present: what `read_texts` gave, if the column is Arrow's.
    """
    if present is None:
        texts = None if is_arrow(values) else count_texts(values, missing)
    else:
        texts = count_present(present)
    if texts is None:
        found = Counter(read_categories(values, missing).tolist())
        found.pop("", None)
        return dict(found), dict(found)
    if are_numbers and not _HAS_CATEGORY.search("\n".join(texts)):
        return texts, texts
    return merge(texts, missing), texts


_HAS_CATEGORY = re.compile(r"\.0+$|^-0$|^[a-zA-Z]", re.MULTILINE)
"""Whether the category of a number's text may be another text."""


def merge(counted: Mapping[Any, int], missing: Collection[str]) -> dict[str, int]:
    """Counts of categories from those of values; `3` and `3.0` are one."""
    counts: dict[str, int] = {}
    for value, count in counted.items():
        text = category(value, missing)
        if text:
            counts[text] = counts.get(text, 0) + count
    return counts


def fits(
    convert: Callable[..., Float],
    values: Column,
    missing: Collection[str],
    style: str,
) -> bool:
    try:
        convert(values, "", missing, style)
    except DataError:
        return False
    return True


def count_steps(values: Float) -> tuple[bool, bool]:
    """Whether numbers are distinct and whole, and whether they only rise or fall."""
    if not is_whole(values):
        return False, False
    before, after = values[:-1], values[1:]
    is_monotone = bool((after > before).all() or (after < before).all())
    return is_monotone or len(np.unique(values)) == len(values), is_monotone


def is_whole(values: Float) -> bool:
    return bool(np.isfinite(values).all() and (np.mod(values, 1) == 0).all())


def is_boolean(distinct: Collection[str]) -> bool:
    if len(distinct) > 6:  # two words, each in up to three cases
        return False
    lowered = {text.lower() for text in distinct}
    return 0 < len(lowered) <= 2 and any(
        lowered <= words for words in ({"true", "false"}, {"yes", "no"}, {"t", "f"})
    )


def judge(
    name: str,
    facts: Facts,
    *,
    number_format: str | None = None,
    is_format_told: bool = False,
    date_format: str | None = None,
) -> Verdict:
    """What a column with these facts is used as.

    Args:
        number_format: the one to take where several fit.
        is_format_told: whether the caller has set it.
        date_format: the same for dates, as the caller has set it.
    """
    n_present = facts.n_rows - facts.n_missing
    if n_present == 0:
        return _ignore("empty", "every value is missing")
    if facts.n_distinct == 1 and facts.n_missing == 0:
        return _ignore("constant", "every value is the same")
    if _INDEX.fullmatch(name) and facts.n_distinct == n_present:
        return _ignore("id", "it is the index that pandas wrote, and not a value")
    if facts.is_number and not _find_numbers(facts, number_format):
        return _judge_plain(name, facts)
    if number_format != PLAIN:  # else the caller has said that there are plain ones
        if numbers := [f for f in facts.formats if is_number_format(f)]:
            return _judge_numbers(facts, numbers, number_format, is_format_told)
    dates = [f for f in facts.formats if f in MOMENT_FORMATS]
    if dates:
        return _judge_dates(dates, date_format)
    return _judge_texts(facts, n_present)


_INDEX = re.compile(r"__index_level_[0-9]+__|Unnamed: 0(\.[0-9]+)?")


def _find_numbers(facts: Facts, number_format: str | None) -> bool:
    """Whether a file's form of numbers fits plain ones too."""
    return number_format is not None and number_format in facts.formats


def _judge_plain(name: str, facts: Facts) -> Verdict:
    if facts.is_counted and facts.n_rows >= 20:
        if facts.is_monotone or _is_named_id(name):
            return _ignore("id", "it looks like an identifier (distinct whole numbers)")
    note = None
    if facts.is_whole and (2 < facts.n_distinct <= 20 or _is_named_code(name)):
        note = "if these are codes and not amounts, `categorical` is better"
    return Verdict(kind="numeric", looks_like="number", note=note)


def _judge_numbers(
    facts: Facts, numbers: list[str], number_format: str | None, is_told: bool
) -> Verdict:
    by_base = {base_of(each): each for each in numbers}
    chosen = by_base.get(number_format or "", numbers[0])
    note = f"its numbers are written as {chosen}"
    other = next((each for each in numbers if each != chosen), None)
    if other is not None and facts.is_ambiguous and not is_told:
        note += f", though {other} would fit too: set `number_format`"
    return Verdict(kind="numeric", looks_like="number", format=chosen, note=note)


def _judge_dates(dates: list[str], date_format: str | None) -> Verdict:
    if "y-m-d" in dates:
        return Verdict(kind="datetime", looks_like="date")
    if len(dates) > 1 and date_format not in dates:
        return _ignore(
            "date",
            f"its dates fit both {dates[0]} and {dates[1]}: set `date_format`",
        )
    chosen = date_format if date_format in dates else dates[0]
    note = None
    if chosen not in ("d/m/y", "m/d/y"):
        note = f"its dates are written as {chosen}"
    return Verdict(kind="datetime", looks_like="date", format=chosen, note=note)


def _judge_texts(facts: Facts, n_present: int) -> Verdict:
    note = _explain_nearly(facts)
    if facts.units:
        units = ", ".join(facts.units)
        note = f"its numbers have several units ({units}); bring them to one to use it"
    nearly: Any = {"nearly": facts.nearly, "unreadable": facts.unreadable}
    if facts.n_distinct > 50 and facts.n_distinct > 0.5 * n_present:
        if facts.nearly is not None:
            looks: Looks = "date" if facts.nearly in MOMENT_FORMATS else "number"
            assert note is not None
            return replace(_ignore(looks, note), **nearly)
        reason = f"it looks like free text ({facts.n_distinct} distinct texts)"
        return _ignore("text", f"{reason}; {note}" if note else reason)
    looks = "boolean" if facts.is_boolean else "category"
    return Verdict(kind="categorical", looks_like=looks, note=note, **nearly)


def _explain_nearly(facts: Facts) -> str | None:
    if facts.nearly is None:
        return None
    is_date = facts.nearly in MOMENT_FORMATS
    what, kind = ("dates", "datetime") if is_date else ("numbers", "numeric")
    shown = ", ".join(repr(text[:40]) for text in facts.unreadable[:3])
    if len(facts.unreadable) > 3:
        shown += f" and {len(facts.unreadable) - 3} more"
    bound = ""
    if all(CENSORED.fullmatch(text) for text in facts.unreadable):
        bound = ", of which only a bound is known"
    return (
        f"all its values are {what} but {shown}{bound}: set the column to `{kind}` to "
        "take these as missing, or mend them"
    )


def _ignore(looks_like: Looks, reason: str) -> Verdict:
    return Verdict(kind="ignore", looks_like=looks_like, reason=reason)


def _is_named_id(name: str) -> bool:
    return "id" in _words(name) or name.endswith(("Id", "ID"))


def _is_named_code(name: str) -> bool:
    return not _words(name).isdisjoint(("zip", "zipcode", "postcode", "plz", "code"))


def _words(name: str) -> set[str]:
    return {*name.lower().replace("-", "_").replace(" ", "_").split("_")}
