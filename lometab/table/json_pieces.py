"""The text of JSON a few megabytes at a time: the elements of an array, or lines.

As objects, a text takes up to fifty times its size: so of a long one there is never
more than a piece.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from lometab.errors import DataError

PIECE = 2**22
"""Characters; no element and no line may be longer."""
_SPACES = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


def read_array(file: TextIO) -> Iterator[list[Any]]:
    """The elements of the array that the text is, as many as a piece has."""
    text = file.read(PIECE)
    at = text.index("[") + 1
    n_lines = n_found = 0
    is_first = True
    while True:
        found, at, error = _decode_piece(text, at, is_first)
        if found:
            yield found
        n_found, is_first = n_found + len(found), False
        n_lines += text.count("\n", 0, at)
        rest = text[at:]
        if error is None:
            _check_end(rest, file, n_lines)
            return
        more = file.read(PIECE)
        if not more or (not found and len(rest) >= PIECE):
            raise _explain(error, n_lines + error.doc.count("\n", at, error.pos), more)
        text, at = rest + more, 0


def _decode_piece(
    text: str, at: int, is_first: bool
) -> tuple[list[Any], int, json.JSONDecodeError | None]:
    """The elements from a place on, the place after them, and why there are no more;
    None: the array ends there."""
    found: list[Any] = []
    end = _skip(text, at)
    if is_first and text.startswith("]", end):
        return found, end + 1, None
    while True:
        try:
            value, end = _decode(text, end)
        except json.JSONDecodeError as error:
            return found, at, error
        except (ValueError, RecursionError) as error:
            raise unreadable(error) from None
        end = _skip(text, end)
        mark = text[end : end + 1]
        if mark not in (",", "]"):
            told = json.JSONDecodeError("Expecting ',' delimiter", text, end)
            return found, at, told
        found.append(value)
        if mark == "]":
            return found, end + 1, None
        at = end + 1
        end = _skip(text, at)


def _skip(text: str, at: int) -> int:
    match = _SPACES.match(text, at)
    return at if match is None else match.end()


def _explain(error: json.JSONDecodeError, n_lines: int, more: str) -> DataError:
    is_cut = error.pos >= len(error.doc) - 8 or error.msg.startswith("Untermin")
    if more and is_cut:
        return DataError(
            f"line {n_lines + 1} begins or holds an object of more than {PIECE >> 20} "
            "MiB",
            line=n_lines + 1,
        )
    return DataError(f"line {n_lines + 1} is no JSON: {error.msg}", line=n_lines + 1)


def _check_end(rest: str, file: TextIO, n_lines: int) -> None:
    while rest:
        end = _skip(rest, 0)
        n_lines += rest.count("\n", 0, end)
        if end < len(rest):
            line = n_lines + 1
            raise DataError(f"line {line} is no JSON: Extra data", line=line)
        rest = file.read(PIECE)


def read_lines(file: TextIO) -> Iterator[list[Any]]:
    """What the lines hold, as many as a piece has; a DataError names one that is no
    JSON."""
    found: list[Any] = []
    number = n_held = 0
    while line := file.readline(PIECE + 1):
        number += 1
        if len(line) > PIECE:
            raise DataError(
                f"line {number} has more than {PIECE >> 20} MiB", line=number
            )
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} is no JSON: {error}", line=number) from None
        n_held += len(line)
        if n_held >= PIECE:
            yield found
            found, n_held = [], 0
    if found:
        yield found


def unreadable(error: Exception) -> DataError:
    return DataError(f"the JSON file cannot be read: {error}")
