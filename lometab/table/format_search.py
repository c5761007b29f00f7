"""Which form of numbers or dates the texts of a column have.

A form that fits all of them is one that the column may have. One that fits nearly all
tells which values spoil the column.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lometab.errors import DataError
from lometab.table.formats import (
    BASES,
    CENSORED,
    MOMENT_FORMATS,
    MOMENTS,
    PLAIN,
    choose_unit,
    find_units,
    name_style,
)
from lometab.table.values import match_numbers, moment, read_numbers

MAX_UNREADABLE = 50
"""Distinct texts that may spoil a column for it to be nearly of a form."""
_MAX_SHARE = 0.05
"""The rows that they may have; half of them if they are bounds such as <0.5."""
_LOOKED_AT = 2000
"""Texts by which units are found."""


@dataclass(frozen=True, kw_only=True)
class Forms:
    """What `FormatSearch` found."""

    formats: tuple[str, ...] = ()
    """Those that fit every text."""
    is_ambiguous: bool = False
    """Whether two forms of numbers fit and give different numbers."""
    nearly: str | None = None
    """If none fits: the one that fits nearly every text."""
    unreadable: tuple[str, ...] = ()
    """The texts that this one does not fit."""
    units: tuple[str, ...] = ()
    """Several units that its numbers have, if that is what spoils it."""


class FormatSearch:
    """The forms of a column whose texts come in parts."""

    def __init__(self) -> None:
        self._bad: dict[str, dict[str, int]] = {}
        """For each form that may fit, the texts that it does not."""
        self._n_fitting: dict[str, int] = {}
        self._is_ambiguous = False
        self._units: tuple[str, ...] = ()
        self._is_begun = False

    def add(self, counts: Mapping[str, int]) -> None:
        """Distinct texts that are there, without blanks, and how often each is."""
        if not counts:
            return
        if not self._is_begun:
            self._begin([*counts])
        texts = pa.array([*counts], pa.string())
        numbers: dict[str, NDArray[np.float64]] = {}
        for form in [*self._bad]:
            fits = self._fit(form, texts, numbers)
            bad = self._bad[form]
            for i in np.flatnonzero(~fits)[: MAX_UNREADABLE + 1].tolist():
                text = texts[i].as_py()
                bad[text] = bad.get(text, 0) + counts[text]
            self._n_fitting[form] += int(fits.sum())
            if len(bad) > MAX_UNREADABLE or self._n_fitting[form] == 0:
                del self._bad[form]
        if len(numbers) == 2:
            one, other = numbers.values()
            both = ~np.isnan(one) & ~np.isnan(other)
            self._is_ambiguous |= bool((one[both] != other[both]).any())

    def result(self, n_present: int) -> Forms:
        formats = tuple(form for form, bad in self._bad.items() if not bad)
        if formats:
            n_numbers = sum(form not in MOMENT_FORMATS for form in formats)
            is_ambiguous = self._is_ambiguous and n_numbers == 2
            return Forms(formats=formats, is_ambiguous=is_ambiguous)
        nearly = [form for form in self._bad if self._is_nearly(form, n_present)]
        if not nearly:
            return Forms(units=self._units)
        best = min(nearly, key=lambda form: sum(self._bad[form].values()))
        return Forms(nearly=best, unreadable=tuple(self._bad[best]))

    def _begin(self, texts: list[str]) -> None:
        counts = find_units(texts[:_LOOKED_AT])
        unit = choose_unit(counts)
        forms = [PLAIN, *(name_style(base, *unit) for base in BASES), *MOMENT_FORMATS]
        self._bad = {form: {} for form in forms}
        self._n_fitting = dict.fromkeys(forms, 0)
        self._is_begun = True
        units = sorted(f"{before}{after}" for before, after in counts)
        is_all = sum(counts.values()) == min(len(texts), _LOOKED_AT)
        if unit == ("", "") and is_all and 1 < len(units) <= 5:
            self._units = tuple(filter(None, units))

    def _is_nearly(self, form: str, n_present: int) -> bool:
        bad = self._bad[form]
        is_bound = all(CENSORED.fullmatch(text) for text in bad)
        share = 0.5 if is_bound else _MAX_SHARE
        enough = n_present >= 20 and self._n_fitting[form] >= 3
        return enough and sum(bad.values()) <= share * n_present

    def _fit(
        self, form: str, texts: Any, numbers: dict[str, NDArray[np.float64]]
    ) -> NDArray[np.bool_]:
        if form in MOMENT_FORMATS:
            return _fit_moments(form, texts)
        matches = match_numbers(texts, form)
        fits: NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False)
        if form == PLAIN:
            return fits
        try:
            read = read_numbers(pc.if_else(matches, texts, None), "", (), form)
        except DataError:  # two signs, which a pattern does not tell
            return np.zeros(len(fits), dtype=bool)
        numbers[form] = read
        return fits


def _fit_moments(form: str, texts: Any) -> NDArray[np.bool_]:
    pattern = MOMENTS[form] if form == "h:m" else f"({MOMENTS[form]}|[0-9]{{4}}-.*)"
    matches = pc.match_substring_regex(texts, f"^(?:{pattern})$")
    fits: NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False).copy()
    for i in np.flatnonzero(fits).tolist():
        try:
            moment(texts[i].as_py(), (), form)
        except (ValueError, OverflowError):
            fits[i] = False
    return fits


def find_forms(counts: Mapping[str, int]) -> Forms:
    search = FormatSearch()
    search.add(counts)
    return search.result(sum(counts.values()))


def fits_all(texts: Collection[str], form: str) -> bool:
    """Whether every text is of one form."""
    array = pa.array([*texts], pa.string())
    if form in MOMENT_FORMATS:
        return bool(_fit_moments(form, array).all())
    return pc.all(match_numbers(array, form)).as_py() is not False
