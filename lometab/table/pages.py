"""The headers of a Parquet file's pages: how large each is once unpacked.

The footer tells sizes too, but Arrow allocates what the page's own header asks for.
Where pages are, the footer tells; it is read here as well, as the one of Arrow's Python
functions for that ends the whole process if a footer contradicts itself. Both are
structs in Thrift's compact protocol.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lometab.errors import DataError

_MAGIC = b"PAR1"
_MAX_FOOTER = 2**25
_DICTIONARY_PAGE = 2
_DELTA_LENGTH_BYTE_ARRAY, _DELTA_BYTE_ARRAY = 6, 7


@dataclass(frozen=True)
class Page:
    n_bytes: int
    """Unpacked."""
    is_growing: bool
    """Whether each of its texts may be as long as the page: it is a dictionary, or they
    share beginnings."""
    is_delta: bool
    """Whether Arrow cannot keep its texts in a dictionary."""


@dataclass(frozen=True)
class ColumnChunk:
    """A column's part of a row group."""

    start: int
    end: int


def find_chunks(content: Any) -> list[list[ColumnChunk]]:
    """The column chunks of each row group, in the order of the columns.

    They have names too, which Arrow does not go by.
    """
    size = len(content)
    n_footer = int.from_bytes(content[-8:-4], "little")
    if bytes(content[-4:]) != _MAGIC or n_footer > size - 8:
        raise _damaged()
    if n_footer > _MAX_FOOTER:
        raise DataError(
            f"the Parquet file's footer has more than {_MAX_FOOTER >> 20} MiB; write "
            "it with fewer row groups"
        )
    footer = _Reader(content, size - 8 - n_footer).read_struct(0)
    groups = _structs(footer, 4)
    return [[_chunk(column) for column in _structs(group, 1)] for group in groups]


def _structs(found: dict[int, Any], field: int) -> list[dict[int, Any]]:
    values = found.get(field)
    if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
        raise _damaged()
    return values


def _chunk(column: dict[int, Any]) -> ColumnChunk:
    facts = column.get(3)
    if not isinstance(facts, dict):
        raise _damaged()
    start, n_bytes = _number(facts, 9), _number(facts, 7)
    dictionary = facts.get(11)
    if isinstance(dictionary, int) and 0 < dictionary < start:
        start = dictionary
    return ColumnChunk(start, start + n_bytes)


def find_pages(content: Any, chunk: ColumnChunk) -> Iterator[Page]:
    """The pages of a column chunk."""
    if chunk.end > len(content):
        raise _damaged()
    reader = _Reader(content, chunk.start)
    while reader.at < chunk.end:
        header = reader.read_struct(0)
        unpacked, packed = _number(header, 2), _number(header, 3)
        data = header.get(5) or header.get(8) or {}
        if not isinstance(data, dict):
            raise _damaged()
        encoding = data.get(2 if 5 in header else 4)
        yield Page(
            unpacked,
            header.get(1) == _DICTIONARY_PAGE or encoding == _DELTA_BYTE_ARRAY,
            encoding in (_DELTA_LENGTH_BYTE_ARRAY, _DELTA_BYTE_ARRAY),
        )
        reader.at += packed


def _number(header: dict[int, Any], field: int) -> int:
    value = header.get(field)
    if not isinstance(value, int) or value < 0:
        raise _damaged()
    return value


def _damaged() -> DataError:
    return DataError("the Parquet file's pages cannot be found, so it is damaged")


class _Reader:
    """Thrift's compact protocol, as far as page headers need it."""

    def __init__(self, content: Any, start: int) -> None:
        self._content = content
        self.at = start

    def read_struct(self, depth: int) -> dict[int, Any]:
        """What it holds, by the numbers of its fields; no booleans, no fractions."""
        if depth > 8:
            raise _damaged()
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._zigzag()
            value = self._value(kind, depth)
            if number in found:  # of two, others might take the other one
                raise _damaged()
            if value is not None:
                found[number] = value
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # a boolean, in the kind itself
            return None
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            self._skip(8)
        elif kind == 8:
            n_bytes = self._varint()
            self._skip(n_bytes)
            return bytes(self._content[self.at - n_bytes : self.at])
        elif kind in (9, 10):
            return self._list(depth)
        elif kind == 12:
            return self.read_struct(depth + 1)
        else:
            raise _damaged()
        return None

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        kind = head & 15
        values = []
        for _ in range(count):
            if kind in (1, 2):  # here a boolean has a byte
                self._skip(1)
            values.append(self._value(kind, depth + 1))
        return values

    def _skip(self, n_bytes: int) -> None:
        self.at += n_bytes
        if self.at > len(self._content):
            raise _damaged()

    def _byte(self) -> int:
        if not 0 <= self.at < len(self._content):
            raise _damaged()
        self.at += 1
        return int(self._content[self.at - 1])

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise _damaged()

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
