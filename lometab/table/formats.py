"""The forms in which people write numbers and dates.

A form of numbers is named by how it writes 1234.5, with its currency or unit:
`1,234.5`, `1.234,5 kg`, `$1,234.5`. A form of dates is named by the order of its parts.
"""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

NumberFormat = Literal["1234.5", "1,234.5", "1.234,5"]
"""How a file writes its numbers; blanks and ' may mark thousands in the last two."""

DateFormat = Literal["d/m/y", "m/d/y"]
"""Which of day and month comes first, where both could."""

MomentFormat = Literal["y-m-d", "d/m/y", "m/d/y", "y/m/d", "d mon y", "mon d y", "h:m"]
"""How a column writes its dates: ISO 8601, parts in this order with months as numbers
or as English names, or times of a day."""

PLAIN = "1234.5"
BASES = ("1,234.5", "1.234,5")
MOMENT_FORMATS: tuple[str, ...] = get_args(MomentFormat)

_MARKS = "'\u2019 \u00a0\u2007\u202f"
_BLANK = "[ \u00a0\u2007\u202f]?"
_SIGN = "[+\u2212-]"
_EXPONENT = "(?:[eE][+-]?[0-9]+)?"


def _digits(thousands: str, decimal: str) -> str:
    group = f"[{thousands}{_MARKS}]"
    whole = f"[0-9]+|[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+"
    if thousands == ",":  # as India groups them
        whole += "|[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}"
    return f"(?:(?:{whole})(?:[{decimal}][0-9]*)?|[{decimal}][0-9]+){_EXPONENT}"


_DIGITS = {"1,234.5": _digits(",", "."), "1.234,5": _digits(".", ",")}
_CURRENCY = r"(?:(?:US|R|A|C|NZ|HK|S)?\$|[€£¥₹₽₩₺₫₪฿]|CHF|USD|EUR|GBP|INR|JPY|Rs\.?)"
_NAME = re.compile(r"(.*?)(1234\.5|1,234\.5|1\.234,5)(.*)", re.DOTALL)
_LOOSE = re.compile(
    rf"\(?{_SIGN}?{_BLANK}(?P<prefix>{_CURRENCY})?{_BLANK}{_SIGN}?"
    rf"[0-9.,][0-9.,{_MARKS}]*{_EXPONENT}"
    r"(?P<suffix>[^\d\s.,()<>+'\"=?*#:;/\\_\u2212-][^\d()<>]{0,11})?\)?"
)
CENSORED = re.compile(r"[<>≤≥~≈] ?[0-9.,]+")
"""A number of which only a bound is known."""


class NumberStyle(NamedTuple):
    """A form of numbers, taken apart."""

    base: str
    prefix: str
    suffix: str
    pattern: str
    """Of its texts, for RE2 and for Python alike."""
    regex: re.Pattern[str]

    @property
    def marks(self) -> str:
        """What may stand between thousands, as a class of characters."""
        return f"[{self.base[1]}{_MARKS}]"

    @property
    def decimal(self) -> str:
        return self.base[5]


def is_number_format(name: str | None) -> bool:
    return name is not None and _NAME.fullmatch(name) is not None


def name_style(base: str, prefix: str = "", suffix: str = "") -> str:
    """The name of a form.

    >>> name_style("1,234.5", "$"), name_style("1.234,5", "", "kg")
    ('$1,234.5', '1.234,5 kg')
    """
    gap = " " if prefix[-1:].isalpha() else ""
    return f"{prefix}{gap}{base}{' ' if suffix else ''}{suffix}"


def with_base(name: str | None, base: str) -> str:
    """The form with the same unit whose numbers are written as in another one."""
    found = _NAME.fullmatch(name or PLAIN)
    assert found is not None
    return name_style(base, found[1].strip(), found[3].strip())


def base_of(name: str | None) -> str:
    found = _NAME.fullmatch(name or PLAIN)
    return found[2] if found is not None else PLAIN


@lru_cache(maxsize=1000)
def number_style(name: str) -> NumberStyle:
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"not a form of numbers: {name!r}")
    base = BASES[0] if found[2] == PLAIN else found[2]
    prefix, suffix = found[1].strip(), found[3].strip()
    front = f"(?:{re.escape(prefix)}{_BLANK})?" if prefix else ""
    back = f"(?:{_BLANK}{re.escape(suffix)})?" if suffix else ""
    inner = f"{_DIGITS[base]}{back}"
    pattern = (
        f"(?:{_SIGN}?{_BLANK}{front}{inner}|{front}{_SIGN}{inner}|"
        rf"\({_BLANK}{front}{inner}{_BLANK}\))"
    )
    return NumberStyle(base, prefix, suffix, pattern, re.compile(pattern))


def to_plain(text: str, name: str) -> str:
    """A number's text as Python writes it; ValueError if it is not of this form.

    >>> to_plain("(1.234,5 €)", "1.234,5 €"), to_plain("-$1,23,456", "$1,234.5")
    ('-1234.5', '-123456')
    """
    style = number_style(name)
    if not style.regex.fullmatch(text):
        raise ValueError(f"not a number of the form {name}: {text!r}")
    text = text.replace("\u2212", "-")
    if text.startswith("("):
        text = "-" + text[1:-1]
    if style.prefix:
        text = text.replace(style.prefix, "", 1)
    if style.suffix:
        text = text.strip().removesuffix(style.suffix)
    return re.sub(style.marks, "", text).replace(style.decimal, ".")


def find_units(texts: Iterable[str]) -> Counter[tuple[str, str]]:
    """How many texts are numbers with each pair of a currency before and a unit after
    them; none is a pair too."""
    counts: Counter[tuple[str, str]] = Counter()
    for text in texts:
        found = _LOOSE.fullmatch(text)
        if found is not None:
            suffix = (found["suffix"] or "").strip()
            counts[found["prefix"] or "", suffix] += 1
    return counts


def choose_unit(counts: Counter[tuple[str, str]]) -> tuple[str, str]:
    """The one unit of a column, if nearly all numbers that have a unit have this one,
    and at least half of all; all of them if it is a share."""
    with_unit = {pair: n for pair, n in counts.items() if pair != ("", "")}
    if not with_unit:
        return "", ""
    pair = max(with_unit, key=lambda each: with_unit[each])
    count, total = with_unit[pair], sum(with_unit.values())
    n_without = counts["", ""]
    is_share = pair[1] in ("%", "‰")
    if count < 0.95 * total or n_without > (0.05 * count if is_share else count):
        return "", ""
    return pair


# ----------------------------------------------------------------------------
# Dates

_DAY, _MONTH = "(?:0?[1-9]|[12][0-9]|3[01])", "(?:0?[1-9]|1[0-2])"
_CLOCK = "(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?(?: ?[AaPp][.]?[Mm][.]?)?"
_THEN = f"(?:,? {_CLOCK})?"
_YEAR = r"(?:/[0-9]{4}|/[0-9]{2}|[.][0-9]{4}|[.][0-9]{2}|-[0-9]{4})"
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WORD = (
    "(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)[.]?"
)
_GAP = "(?:[ ./-]|, ?)"
MOMENTS: dict[str, str] = {
    "y-m-d": "[0-9]{4}-[0-9]{2}-[0-9]{2}.*",
    "d/m/y": f"{_DAY}[/.-]{_MONTH}{_YEAR}{_THEN}",
    "m/d/y": f"{_MONTH}[/.-]{_DAY}{_YEAR}{_THEN}",
    "y/m/d": f"[0-9]{{4}}[/.]{_MONTH}[/.]{_DAY}{_THEN}",
    "d mon y": f"{_DAY}{_GAP}?{_WORD}{_GAP}?(?:[0-9]{{4}}|[0-9]{{2}}){_THEN}",
    "mon d y": f"{_WORD} ?{_DAY}(?:st|nd|rd|th)?(?:, ?| )[0-9]{{4}}{_THEN}",
    "h:m": _CLOCK,
}
"""The texts of each form, for RE2 and for Python alike. Which days a month has is for
`read_moment` to know."""
_MOMENTS = {name: re.compile(pattern) for name, pattern in MOMENTS.items()}


def read_moment(text: str, name: str) -> datetime:
    """The moment in a text; ValueError if it is not of this form, or ISO 8601.

    >>> read_moment("28-Jun-2019", "d mon y"), read_moment("7:30 pm", "h:m")
    (datetime.datetime(2019, 6, 28, 0, 0), datetime.datetime(1970, 1, 1, 19, 30))
    """
    is_iso = text[:4].isdecimal() and text[4:5] == "-"
    if name == "y-m-d" or (is_iso and name != "h:m"):
        if len(text) < 10 or not is_iso:  # fromisoformat takes 20240101 as a date
            raise ValueError(f"not a date: {text!r}")
        return datetime.fromisoformat(text)
    if not _MOMENTS[name].fullmatch(text):
        raise ValueError(f"not a date of the form {name}: {text!r}")
    parts = [int(part) for part in re.findall("[0-9]+", text)]
    if name == "h:m":
        parts = [1970, 1, 1, *parts]
    elif "mon" in name:
        word = re.search("[A-Za-z]{3}", text.lower().replace("th", ""))
        assert word is not None
        day, year, *clock = parts
        parts = [year, _MONTHS.index(word[0]) + 1, day, *clock]
    elif name != "y/m/d":
        first, then, year, *clock = parts
        day, month = (first, then) if name == "d/m/y" else (then, first)
        parts = [year, month, day, *clock]
    year, month, day, *clock = parts
    if year < 100:
        year += 2000 if year < 69 else 1900  # as POSIX has it
    hour, minute, second = _read_clock(text, clock)
    return datetime(year, month, day, hour, minute, second)


def _read_clock(text: str, clock: list[int]) -> tuple[int, ...]:
    half = re.sub("[^a-z]", "", text[-4:].lower())[-2:]
    if clock and half in ("am", "pm"):
        if not 1 <= clock[0] <= 12:
            raise ValueError(f"not a time of 12 hours: {text!r}")
        clock[0] = clock[0] % 12 + (12 if half == "pm" else 0)
    return (*clock, 0, 0, 0)[:3]
