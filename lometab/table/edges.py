"""What stands around a table in its file: titles above, units below the header, totals
and notes at the end."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from lometab.table.headers import width_of
from lometab.table.scan import Source, open_binary
from lometab.table.values import BLANKS, MISSING

_MOST_TITLES = 20
_TAIL = 2**16
_TOTAL = re.compile(
    r"((grand |sub-?)?totals?|sums?|summe|gesamt(summe)?|insgesamt|averages?|mean"
    r"|mittelwert|somme|moyenne)( \(.*\))?[:.]?",
    re.IGNORECASE,
)
_NOTE = re.compile(r"[*#(\u2020].*|(source|note|notes|quelle|stand)\b.*", re.IGNORECASE)
_BRACKETS = re.compile(r"\(.*\)|\[.*\]")

Reader = Callable[[Sequence[str]], Any]
"""Gives the records of lines."""


def count_titles(records: Sequence[list[str]]) -> int:
    """How many first records are titles: one text each, above lines of more."""
    width = width_of(records, 1)
    if width < 2:
        return 0
    count = 0
    for record in records[: _MOST_TITLES + 1]:
        is_alone = len(record) == 1 or (len(record) == width and width > 2)
        if not is_alone or len(_present(record)) > 1:
            break
        count += 1
    is_above = count < len(records) and len(_present(records[count])) > 1
    return count if is_above and count <= _MOST_TITLES else 0


_MIN_EVIDENCE = 5
"""Rows of numbers below a line of texts before these are taken for units."""


def has_units(records: Sequence[list[str]], looks_typed: Callable[[str], bool]) -> bool:
    """Whether the line below the header holds units: texts above numbers only."""
    if len(records) < 2 + _MIN_EVIDENCE:
        return False
    row, body = records[1], records[2:102]
    if any("\n" in text or "\r" in text for text in row):
        return False
    if any(map(looks_typed, row)):  # as in nearly every table
        return False
    units = []
    for i, text in enumerate(row):
        column = _present(each[i] for each in body if i < len(each))
        if not column or not all(map(looks_typed, column)):
            continue
        text = text.strip(BLANKS)
        if len(text) > 12:
            return False
        if text not in MISSING or text == "-":
            units.append(text)
    return len(units) > 1 or any(map(_BRACKETS.fullmatch, units))


def count_footers(lines: Sequence[str], width: int, read: Reader) -> int:
    """How many of the last lines are totals or notes, and no rows.

    Args:
        lines: the last of the file, without blank ones.
    """
    count = 0
    for line in reversed(lines[1:]):
        [record] = [*read([line])] or [[]]
        present = _present(record)
        if not present or not _is_footer(record, present, width):
            break
        count += 1
    return count if count <= 5 else 0  # else it is how these rows are


def _is_footer(record: list[str], present: list[str], width: int) -> bool:
    first = present[0].strip(BLANKS)
    if len(record) == 1 < width:
        is_sentence = " " in first or ":" in first
        return bool(_TOTAL.fullmatch(first) or (_NOTE.fullmatch(first) and is_sentence))
    if len(record) != width or width < 2 or record[0].strip(BLANKS) != first:
        return False
    is_note = len(present) == 1 and width > 2 and _NOTE.fullmatch(first)
    return bool(_TOTAL.fullmatch(first) or is_note)


def count_totals(records: Sequence[list[str]]) -> int:
    """How many records begin as a total does."""
    firsts = (record[0].strip(BLANKS) for record in records if record)
    return sum(_TOTAL.fullmatch(first) is not None for first in firsts)


def read_tail(source: Source, count: int) -> list[tuple[int, str]]:
    """So many last lines that are not blank, each with the place where it begins."""
    with open_binary(source) as file:
        size = file.seek(0, 2)
        start = max(0, size - max(_TAIL, 1000 * count))
        file.seek(start)
        content = file.read()
    if b"\r" not in content and b"\n\n" not in content:
        cut = len(content)
        for _ in range(count + 2):
            cut = max(0, content.rfind(b"\n", 0, cut))
        start, content = start + cut, content[cut:]
    found = [
        (start + match.start(), match[0].decode("utf-8", "replace"))
        for match in re.finditer(rb"[^\r\n]+", content)
    ]
    return found[-count:] if len(found) > count or start == 0 else found[1:]


def find_line_end(source: Source, start: int) -> int:
    """Where the first line that is not blank ends, its newline included."""
    with open_binary(source) as file:
        file.seek(start)
        content = file.read(2**20)
    match = re.match(rb"[\r\n]*[^\r\n]+(\r\n|\r|\n|$)", content)
    return start + (match.end() if match else len(content))


def _present(texts: Any) -> list[str]:
    return [text for text in texts if text.strip(BLANKS) not in MISSING]
