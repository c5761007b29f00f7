"""A text file in whatever encoding, as UTF-8."""

import codecs
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import numpy as np

from lometab.errors import DataError, FileTooLarge
from lometab.table.scan import NUL, Source, blocks, error_at, open_binary


@dataclass(frozen=True)
class Text:
    """A file in UTF-8, and what it was before."""

    source: Source
    encoding: str
    confidence: float = 1.0
    warnings: tuple[str, ...] = ()
    _file: Any = field(default=None, repr=False)
    """Where it is kept, if it had to be decoded; gone with the last reference."""


def find_text(
    source: Source,
    given: str | None,
    trained: str | None = None,
    max_bytes: int = sys.maxsize,
) -> Text:
    """The text of a file, by its encoding if it is set, else by its bytes.

    Args:
        trained: the encoding to take for bytes that are not UTF-8.
    """
    if isinstance(source, bytes) and given in (None, "utf-8") and _is_plain(source):
        return Text(source, "utf-8")
    if given is not None and codecs.lookup(given).name != "utf-8":
        return _decode(source, _find_order(source, given), 1.0, max_bytes)
    start = _read_start(source)
    if given is None and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _decode(source, "utf-16", 1.0, max_bytes)
    if given is None and (found := _find_utf16(start)):
        return _decode(source, found, 0.9, max_bytes)
    bad = _find_bad_byte(source)
    if bad is None:
        return Text(source, "utf-8")
    offset, is_after_utf8 = bad
    if given is not None:
        raise error_at(source, offset, "is not UTF-8 text; set its `encoding`")
    if is_after_utf8:
        raise error_at(
            source,
            offset,
            "holds a byte that is not UTF-8, as what is before it is; mend it, or set "
            "the file's `encoding`",
        )
    encoding = "latin-1" if trained == "latin-1" else "windows-1252"
    return _decode(source, encoding, 0.8, max_bytes)


def _is_plain(content: bytes) -> bool:
    """Whether it is ASCII, and so the same in every encoding but UTF-16."""
    return content.isascii() and b"\0" not in content


def _read_start(source: Source) -> bytes:
    with open_binary(source) as file:
        return file.read(2**16)


def _find_order(source: Source, encoding: str) -> str:
    """UTF-16 without a mark has its bytes in some order."""
    if codecs.lookup(encoding).name != "utf-16":
        return encoding
    start = _read_start(source)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return encoding
    return _find_utf16(start) or "utf-16-le"


def _find_utf16(start: bytes) -> str | None:
    """UTF-16 without a mark: every second byte of plain text is then zero."""
    if b"\0" not in start:
        return None
    zeros = np.frombuffer(start[: len(start) // 2 * 2], np.uint8).reshape(-1, 2) == 0
    if len(zeros) == 0:
        return None
    first, second = zeros.mean(axis=0)
    if second > 0.4 and first == 0:
        return "utf-16-le"
    return "utf-16-be" if first > 0.4 and second == 0 else None


def _find_bad_byte(source: Source) -> tuple[int, bool] | None:
    """Where a file stops being UTF-8, and whether there are letters of UTF-8 beyond
    ASCII before that. NUL bytes, which no text has, are an error."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = 0
    has_letters = False
    with open_binary(source) as file:
        for block in _and_the_end(blocks(file)):
            n_held = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                good = error.object[: error.start]
                has_letters = has_letters or not good.isascii()
                _refuse_nul(source)
                return position - n_held + error.start, has_letters
            has_letters = has_letters or not text.isascii()
            position += len(block)
    return None


def _refuse_nul(source: Source) -> None:
    position = 0
    with open_binary(source) as file:
        for block in blocks(file):
            if (place := block.find(b"\0")) >= 0:
                raise error_at(source, position + place, NUL)
            position += len(block)


def _decode(source: Source, encoding: str, confidence: float, max_bytes: int) -> Text:
    """The same text in UTF-8: in memory or in a file, as the source is."""
    warnings: tuple[str, ...] = ()
    if confidence < 1:
        warnings = (
            f"the file is not UTF-8 and was read as {encoding}; set its `encoding` if "
            "letters are wrong",
        )
    if isinstance(source, bytes):
        content = b"".join(_decoded_blocks(source, encoding, max_bytes))
        return Text(content, encoding, confidence, warnings)
    file: IO[bytes] = NamedTemporaryFile(prefix="lometab-decoded-")
    for block in _decoded_blocks(source, encoding, max_bytes):
        file.write(block)
    file.flush()
    return Text(Path(file.name), encoding, confidence, warnings, file)


def _decoded_blocks(source: Source, encoding: str, max_bytes: int) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    n_lines = n_bytes = 0
    with open_binary(source) as file:
        for block in _and_the_end(blocks(file)):
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeError as error:
                before = block[: getattr(error, "start", 0)].decode(encoding, "ignore")
                line = n_lines + _count_lines(before) + 1
                raise DataError(
                    f"line {line} is not {encoding} text; set its `encoding`, or save "
                    "the file as CSV in UTF-8",
                    line=line,
                ) from None
            n_lines += _count_lines(text)
            content = text.encode("utf-8", "surrogatepass")
            n_bytes += len(content)
            if n_bytes > max_bytes:
                raise FileTooLarge(
                    f"the file is larger than the limit of {max_bytes} bytes in UTF-8"
                )
            yield content


def _and_the_end(blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield from blocks
    yield b""


def _count_lines(text: str) -> int:
    """The ends of lines, of whatever kind."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")
