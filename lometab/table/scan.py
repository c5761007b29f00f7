"""One pass over a CSV file: what must be true of all of it before it is parsed.

A lenient parser takes a quote that nothing closes for one huge field. Here every quote,
every line and every byte is looked at first, and what is wrong is named by its line.
"""

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from lometab.errors import DataError

Source = bytes | Path
"""A file: its content if it is small, else where it is."""
BLOCK = 2**20
"""Bytes that are read at once."""
NUL = "holds a NUL byte, so this is no text file"
MAX_RECORD = 2**20
"""A record must fit into this."""


@dataclass
class Scan:
    """Counts of a file, and the places of what is wrong with it."""

    n_records: int = 0
    n_blank: int = 0
    first_start: int = 0
    first_end: int = 0
    """Where the first record begins, and where it ends, its newline included."""
    has_quoted: bool = False
    """Whether any field begins with a quote."""
    has_long_records: bool = False
    """Whether a record goes on over several lines."""
    nul: int | None = None
    bad_quote: int | None = None
    """A quote that is neither around a field nor doubled inside one."""
    open_quote: int | None = None
    """The last quote, if it opens a field that nothing closes."""
    long_record: int | None = None
    """The start of a record too long to be parsed."""
    lone_return: int | None = None
    """A carriage return that ends a line by itself."""
    has_newlines: bool = False
    """Whether other lines end otherwise."""


def scan_text(source: Source, delimiter: str, quote: str, skipped: int) -> Scan:
    """Read all bytes once. Delimiters, quotes and newlines are ASCII, and so cannot be
    part of another character."""
    if isinstance(source, bytes) and _is_simple(source, quote):
        return _count_simple(source, skipped)
    scan = Scan()
    around = np.zeros(256, dtype=bool)
    around[[*b"\r\n", ord(delimiter)]] = True
    mark = None if quote == "none" else ord(quote)
    position = n_quotes = 0  # before the block
    start = 0  # of the current record
    before = ord("\n")  # the byte before the block
    with open_binary(source) as file:
        start = position = skipped + 3 * (file.read(3) == codecs.BOM_UTF8)
        file.seek(position)
        for block in _whole_blocks(file, mark):
            if scan.nul is None and b"\0" in block:
                scan.nul = position + block.index(b"\0")
            content = np.frombuffer(block, np.uint8)
            quotes = _none
            if mark is not None and block.find(mark) >= 0:
                quotes = np.flatnonzero(content == mark)
                _check_quotes(scan, content, quotes, n_quotes, position, before, around)
            ends = np.flatnonzero(content == 10)
            if b"\r" in block:
                returns = np.flatnonzero(content == 13)
                after = np.minimum(returns + 1, len(content) - 1)
                ends = np.union1d(ends, returns[content[after] != 10])
            inside = (n_quotes + np.searchsorted(quotes, ends)) % 2 == 1
            scan.has_long_records |= bool(inside.any())
            ends = ends[~inside]
            is_newline = content[ends] == 10
            scan.has_newlines |= bool(is_newline.any())
            if scan.lone_return is None and not is_newline.all():
                scan.lone_return = position + int(ends[np.argmin(is_newline)])
            starts = np.append(start, position + ends[:-1] + 1)[: len(ends)]
            is_crlf = is_newline & (np.where(ends > 0, content[ends - 1], before) == 13)
            is_blank = position + ends - is_crlf <= starts
            is_long = position + ends - starts > MAX_RECORD
            if scan.long_record is None and is_long.any():
                scan.long_record = int(starts[np.argmax(is_long)])
            if scan.n_records == 0 and not is_blank.all():
                place = int(np.argmin(is_blank))
                scan.first_start = int(starts[place])
                scan.first_end = position + int(ends[place]) + 1
            scan.n_records += int((~is_blank).sum())
            scan.n_blank += int(is_blank.sum())
            if len(ends):
                start = position + int(ends[-1]) + 1
            position += len(block)
            n_quotes += len(quotes)
            before = block[-1]
            if scan.long_record is None and position - start > MAX_RECORD:
                scan.long_record = start
    if start < position:  # the last record has no newline
        if scan.n_records == 0:
            scan.first_start, scan.first_end = start, position
        scan.n_records += 1
    if n_quotes % 2 == 0:
        scan.open_quote = None
    return scan


def _is_simple(content: bytes, quote: str) -> bool:
    """Whether every newline ends a record, and none of them can be wrong."""
    return (
        len(content) <= MAX_RECORD
        and (quote == "none" or quote.encode() not in content)
        and not any(mark in content for mark in (b"\r", b"\0", b"\n\n"))
        and not content.startswith((b"\n", codecs.BOM_UTF8))
    )


def _count_simple(content: bytes, skipped: int) -> Scan:
    n_ends = content.count(b"\n", skipped)
    return Scan(
        n_records=n_ends + (skipped < len(content) and not content.endswith(b"\n")),
        first_start=skipped,
        first_end=content.find(b"\n", skipped) + 1 or len(content),
        has_newlines=n_ends > 0,
    )


_none = np.empty(0, dtype=np.intp)


def _check_quotes(
    scan: Scan,
    content: Any,
    quotes: Any,
    n_before: int,
    position: int,
    before: int,
    around: Any,
) -> None:
    """An opening quote follows a delimiter or a newline, and a closing one precedes
    one; or it is half of a doubled one."""
    padded = np.empty(len(content) + 2, dtype=np.uint8)
    padded[0], padded[1:-1], padded[-1] = before, content, ord("\n")
    is_opening = (n_before + np.arange(len(quotes))) % 2 == 0
    opening, closing = quotes[is_opening], quotes[~is_opening]
    mark = content[quotes[0]]
    begins = around[padded[opening]]
    is_fine = np.empty(len(quotes), dtype=bool)
    is_fine[is_opening] = begins | (padded[opening] == mark)
    after = padded[closing + 2]
    is_fine[~is_opening] = around[after] | (after == mark)
    scan.has_quoted |= bool(begins.any())
    if len(opening):
        scan.open_quote = position + int(opening[-1])
    if scan.bad_quote is None and not is_fine.all():
        scan.bad_quote = position + int(quotes[np.argmin(is_fine)])


def open_binary(source: Source) -> IO[bytes]:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(BLOCK), b"")


def _whole_blocks(file: IO[bytes], mark: int | None) -> Iterator[bytes]:
    """Blocks that end neither in a quote nor in a carriage return, except the last."""
    for block in blocks(file):
        while block[-1] in (13, mark) and (more := file.read(1)):
            block += more
        yield block


def refuse(source: Source, scan: Scan) -> None:
    if scan.nul is not None:
        raise error_at(source, scan.nul, NUL)
    if scan.bad_quote is not None:
        raise error_at(
            source,
            scan.bad_quote,
            "has a quote inside a field; write it twice and put quotes around the "
            "field, or set `quote` to `none` if quotes are nothing but characters",
        )
    if scan.open_quote is not None:
        raise error_at(source, scan.open_quote, "opens a quote that nothing closes")
    if scan.long_record is not None:
        raise error_at(
            source,
            scan.long_record,
            f"begins a record of more than {MAX_RECORD >> 20} MiB",
        )
    if scan.lone_return is not None and scan.has_newlines:
        raise error_at(
            source,
            scan.lone_return,
            "has a carriage return inside a field; put quotes around the field",
        )


def error_at(source: Source, offset: int, what: str) -> DataError:
    """The error about the line in which a byte is, with that line's text."""
    line, start, position = 1, 0, 0
    with open_binary(source) as file:
        for block in _whole_blocks(file, None):
            block = block[: offset - position]
            ends = [match.end() for match in re.finditer(rb"\r\n|\r|\n", block)]
            line += len(ends)
            if ends:
                start = position + ends[-1]
            position += len(block)
            if position >= offset:
                break
        file.seek(start)
        text = re.split(rb"[\r\n]", file.read(400))[0].decode("utf-8", "replace")
    return DataError(f"line {line} {what}: {clip(text)}", line=line)


def clip(text: str, length: int = 80) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
