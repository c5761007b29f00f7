"""The quote and the delimiter of a CSV."""

import re
from collections import Counter
from dataclasses import replace
from typing import get_args

from lometab.errors import DataError
from lometab.table.dialect import (
    Delimiter,
    Dialect,
    Expected,
    Guess,
    ReadOptions,
    count_known,
    read_sample,
)
from lometab.table.encoding import Text
from lometab.table.headers import looks_numeric, width_of
from lometab.table.scan import Scan, clip, refuse, scan_text


def find_marks(
    text: Text,
    sample: str,
    skipped: int,
    options: ReadOptions,
    expected: Expected | None,
) -> tuple[dict[str, Guess], Scan]:
    """The quote and the delimiter, and what a pass over the whole file by them finds.

    A quote that does not hold for the whole file gives way to the next one.
    """
    tried: list[tuple[dict[str, Guess], Scan]] = []
    for quote in _find_quotes(sample, options.quote, expected):
        delimiter = _find_delimiter(sample, options.delimiter, quote.value, expected)
        scan = scan_text(text.source, delimiter.value, quote.value, skipped)
        tried.append(({"quote": quote, "delimiter": delimiter}, scan))
        if scan.bad_quote is None and scan.open_quote is None:
            break
        is_set = options.quote is not None
        if not is_set and scan.bad_quote is not None and not scan.has_quoted:
            none = Guess(value="none", confidence=0.9)  # inches, not quotes
            delimiter = _find_delimiter(sample, options.delimiter, "none", expected)
            scan = scan_text(text.source, delimiter.value, "none", skipped)
            tried.append(({"quote": none, "delimiter": delimiter}, scan))
            break
    sure, scan = tried[-1]
    if scan.bad_quote is not None or scan.open_quote is not None:
        sure, scan = tried[0]
    refuse(text.source, scan)
    return sure, scan


def _find_quotes(
    sample: str, given: str | None, expected: Expected | None
) -> list[Guess]:
    """Quotes in the order in which they are tried."""
    if given is not None:
        return [Guess(value=given, confidence=1.0)]
    trained = expected.dialect.quote if expected and expected.dialect else None
    found = Guess(value='"', confidence=1.0)
    if '"' not in sample and "'" in sample:
        texts = [text.strip() for text in re.split(r"[,;\t|\r\n]", sample[:20_000])]
        texts = [text for text in texts if text]
        quoted = [t for t in texts if len(t) > 1 and t[0] == t[-1] == "'"]
        if len(quoted) > 0.5 * len(texts) or (quoted and trained == "'"):
            found = Guess(value="'", confidence=0.8)
    quotes = [found]
    if found.value == "'":
        quotes.append(Guess(value='"', confidence=0.7))
    if trained == "none":
        quotes.append(Guess(value="none", confidence=0.8))
    return quotes


def begins_quoted(sample: str, quote: str) -> bool:
    """Whether the lines below the header begin with a quote, as R writes its row
    names."""
    if quote not in sample:
        return False
    lines = [line for line in re.split(r"[\r\n]+", sample, maxsplit=11)[1:11] if line]
    return bool(lines) and all(line.startswith(quote) for line in lines)


def _find_delimiter(
    sample: str, given: str | None, quote: str, expected: Expected | None
) -> Guess:
    if given is not None:
        return Guess(value=given, confidence=1.0)
    if expected is not None:
        found = _find_expected(sample, quote, expected)
        if found is not None:
            return Guess(value=found, confidence=1.0)
    return guess_delimiter(sample, quote)


def _find_expected(sample: str, quote: str, expected: Expected) -> str | None:
    """The delimiter by which the first line names the most columns of the model, that
    of the training file before others."""
    trained = expected.dialect.delimiter if expected.dialect else ","
    most, best = 0, None
    for delimiter in (trained, *get_args(Delimiter)):
        first = read_sample(sample, Dialect(delimiter=delimiter, quote=quote), 1)
        n_known = count_known(first[0], expected.columns) if first else 0
        if n_known > most:
            most, best = n_known, delimiter
        if n_known == len(expected.columns):
            break
    if best is None and expected.dialect and not expected.dialect.header:
        records = read_sample(sample, replace(expected.dialect, quote=quote), 100)
        names = [f"column_{i + 1}" for i in range(width_of(records, 0))]
        if count_known(names, expected.columns) == len(expected.columns):
            return trained
    return best


def guess_delimiter(sample: str, quote: str) -> Guess:
    """The one that cuts most lines into as many fields as the header has, at least two,
    and of several the one that makes whole numbers and texts of them."""
    ranked = []
    for delimiter in get_args(Delimiter):
        records = read_sample(sample, Dialect(delimiter=delimiter, quote=quote))
        if not records:
            continue
        first, body = records[0], records[1:] or records
        width, count = Counter(map(len, body)).most_common(1)[0]
        share = round(count / len(body), 2) if width > 1 else 0.0
        if not _fits_header(first, width):
            share /= 2
        n_looked = max(3, 5000 // max(width, 1))
        texts = [text for record in body[: min(100, n_looked)] for text in record]
        numeric = [looks_numeric(text) for text in texts]
        others = {*",;\t|"} - {delimiter}
        whole = [
            is_number or others.isdisjoint(text)
            for text, is_number in zip(texts, numeric, strict=True)
        ]
        part = max(1, len(texts))
        good, numbers = round(sum(whole) / part, 2), round(sum(numeric) / part, 2)
        ranked.append((share, good, numbers, delimiter))
    ranked.sort(reverse=True)
    if not ranked or ranked[0][0] == 0:
        return Guess(value=",", confidence=0.5)
    best, second = ranked[0], ranked[1]
    doubt = 0.3 if second[0] > 0.9 * best[0] else 0.0
    return Guess(value=best[-1], confidence=round(max(0.1, best[0] - doubt), 2))


def _fits_header(first: list[str], width: int) -> bool:
    """Whether a first line can name so many columns: one name may be left out, by R or
    before a last delimiter, and a last one may be empty."""
    n_names = len(first)
    return n_names == width or (
        n_names > 1
        and (n_names == width - 1 or (n_names == width + 1 and not first[-1]))
    )


def refuse_other_delimiters(sample: str) -> None:
    """Name what stands between fields if it is nothing that is read."""
    lines = [line for line in re.split(r"[\r\n]+", sample, maxsplit=21)[:20] if line]
    if len(lines) < 3:
        return
    for pattern, what in _OTHERS.items():
        rows = [re.split(pattern, line.strip()) for line in lines]
        width = len(rows[0])
        if width < 2 or any(len(row) != width for row in rows):
            continue
        texts = [text for row in rows[1:] for text in row]
        if what != "blanks" or sum(map(looks_numeric, texts)) > len(texts) / 2:
            raise DataError(
                f"line 1 seems to have {what} between its {width} fields: "
                f"{clip(lines[0])}; write , ; | or tabs instead, or set `delimiter` if "
                "it is a single column",
                line=1,
            )


_OTHERS = {r"\^": "^", "~": "~", ":": ":", "[ ]+": "blanks", "\x01": "\\x01"}
