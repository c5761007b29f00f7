"""Tables in JSON: an array of objects, one object a line, or columns and data.

Objects are gone through twice, piece by piece: first to find the columns and what they
hold, then to write them. So an array or lines take little memory, however long, and
what is not there in most objects is never written out for all of them at once.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from lometab.errors import DataError, FileTooLarge
from lometab.table.arrow import MAX_VALUE, Limits
from lometab.table.headers import distinguish
from lometab.table.json_pieces import PIECE, read_array, read_lines, unreadable
from lometab.table.scan import clip
from lometab.table.values import BLANKS

_MAX_BYTES = 2**28
_MAX_WHOLE = 2**30
"""Bytes that a text may take as objects if it is parsed as a whole."""
_LIST_BYTES, _VALUE_BYTES, _TEXT_BYTES = 400, 40, 56
"""Of an object as of a list: more than most take, as many of them take time, too."""
_CELLS = 2**20
"""Of a batch."""

Row = dict[str, Any]
Pieces = Callable[[], Iterable[Sequence[Any]]]
"""Goes through all rows, some at a time; it can be called again."""


def read_json_table(
    source: Path, limits: Limits
) -> tuple[list[str], Iterator[pa.RecordBatch], list[str]]:
    """The names of the columns, their values as c0, c1, ..., and warnings."""
    if source.stat().st_size > _MAX_BYTES:
        raise FileTooLarge(
            f"a JSON file may have {_MAX_BYTES >> 20} MiB; write the table as Parquet "
            "or CSV"
        )
    try:
        found = _open(source, limits)
        if isinstance(found, _Columns):
            names, batches = found.names, iter([found.make_batch(limits)])
        else:
            seen = _look(found(), limits)
            names = [*seen.kinds]
            batches = _make_batches(found, seen)
    except UnicodeDecodeError as error:
        raise DataError(f"the JSON file is not UTF-8 text: {error.reason}") from None
    warnings: list[str] = []
    shown = distinguish([_check_name(name) for name in names], warnings)
    return shown, batches, warnings


def _check_name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError("a column's name is no text of Unicode") from None
    return name.strip(BLANKS)


def read_json_lines(text: str) -> list[Any]:
    """What each line holds; DataError names the line that is no JSON."""
    pieces = read_lines(io.StringIO(text, newline=None))
    return [row for piece in pieces for row in piece]


# ----------------------------------------------------------------------------
# The forms


def _open(source: Path, limits: Limits) -> "Pieces | _Columns":
    read = _find_reader(source)
    if read is None:
        return _open_whole(source, limits)

    def pieces() -> Iterator[list[Any]]:
        with source.open(encoding="utf-8-sig") as file:
            yield from read(file)

    return pieces


def _find_reader(source: Path) -> Callable[[TextIO], Iterator[list[Any]]] | None:
    """How to read an array or lines; None: it has another form."""
    with source.open(encoding="utf-8-sig") as file:
        start = file.readline(PIECE)
        while start and not start.strip():
            start = file.readline(PIECE)
        if start.lstrip().startswith("["):
            return read_array
        try:
            json.loads(start)
        except (ValueError, RecursionError):
            return None
        while line := file.readline(PIECE):
            if line.strip():
                return read_lines
    return None


def _open_whole(source: Path, limits: Limits) -> "Pieces | _Columns":
    content = source.read_bytes()
    _measure(content)
    text = content.decode("utf-8-sig")
    del content
    found = _parse(text)
    if not isinstance(found, dict):
        raise DataError("the JSON file holds a single value and no table")
    for key in ("rows", "records", "data"):
        if isinstance(found.get(key), list) and "columns" not in found:
            return _hold(found[key])
    if isinstance(found.get("columns"), list) and isinstance(found.get("data"), list):
        _check(len(found["data"]), len(found["columns"]), limits)
        return _from_matrix(found["columns"], found["data"])
    if found and all(isinstance(each, list) for each in found.values()):
        _check(len(next(iter(found.values()))), len(found), limits)
        return _from_columns(found)
    return _hold([found])


def _measure(content: bytes) -> None:
    n_lists = content.count(b"{") + content.count(b"[")
    n_texts = content.count(b'"') // 2
    n_bytes = n_lists * _LIST_BYTES + content.count(b",") * _VALUE_BYTES
    # The text itself: as many bytes for each character as the widest of them needs.
    n_bytes += n_texts * _TEXT_BYTES + len(content) * (1 if content.isascii() else 4)
    if n_bytes > _MAX_WHOLE:
        raise FileTooLarge(
            f"the JSON file would take {n_bytes >> 20} MiB of memory, beyond the limit "
            f"of {_MAX_WHOLE >> 20} MiB; write the table as Parquet or CSV, or an "
            "object on each line"
        )


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"line {error.lineno} is no JSON: {error.msg}", line=error.lineno
        ) from None
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None


def _hold(rows: list[Any]) -> Pieces:
    return lambda: (rows,)


@dataclass
class _Columns:
    """Columns that were parsed as such."""

    names: list[str]
    columns: list[list[Any]]

    def make_batch(self, limits: Limits) -> pa.RecordBatch:
        n_rows = len(self.columns[0]) if self.columns else 0
        _check(n_rows, len(self.names), limits)
        if n_rows == 0:
            raise DataError("the JSON file has no rows")
        arrays = [
            to_array(name, each)
            for name, each in zip(self.names, self.columns, strict=True)
        ]
        return _to_batch(arrays)


def _from_matrix(names: list[Any], data: list[Any]) -> _Columns:
    for i, row in enumerate(data, start=1):
        if not isinstance(row, list) or len(row) != len(names):
            raise DataError(f"row {i} of data must be a list of {len(names)} values")
    texts = [name if isinstance(name, str) else _show(name, 1000) for name in names]
    return _Columns(texts, [[row[i] for row in data] for i in range(len(names))])


def _from_columns(found: dict[str, Any]) -> _Columns:
    lengths = {len(values) for values in found.values()}
    if len(lengths) > 1:
        first = next(iter(found))
        other = next(n for n in found if len(found[n]) != len(found[first]))
        raise DataError(
            f"all columns must have as many values, however {clip(first)!r} has "
            f"{len(found[first])} and {clip(other)!r} has {len(found[other])}",
            column=clip(other),
        )
    return _Columns([*found], [*found.values()])


# ----------------------------------------------------------------------------
# Objects


class _Long:
    """The kind of an integer that needs more than 64 bits."""


@dataclass
class _Seen:
    """What the rows hold."""

    n_rows: int = 0
    kinds: dict[str, set[type]] = field(default_factory=dict)
    """Of the values of each column, but for null."""


def _look(pieces: Iterable[Sequence[Any]], limits: Limits) -> _Seen:
    """Find the columns; what is beyond the limits is refused as soon as it is seen."""
    seen = _Seen()
    for rows in pieces:
        for row in rows:
            seen.n_rows += 1
            if not isinstance(row, dict):
                raise DataError(
                    f"row {seen.n_rows} must be an object with a value for each "
                    f"column, however it is {_show(row, 60)}"
                )
            for name, value in row.items():
                kinds = seen.kinds.setdefault(name, set())
                kind = type(value)
                if kind is int and not -(2**63) < value < 2**63:
                    kind = _Long
                elif kind is list or kind is dict:
                    raise _refuse_nested(name, seen.n_rows)
                kinds.add(kind)
            if len(seen.kinds) > limits.max_columns:
                break
        _check(seen.n_rows, len(seen.kinds), limits)
    if seen.n_rows == 0:
        raise DataError("the JSON file has no rows")
    if not seen.kinds:
        raise DataError("the JSON file has no columns")
    return seen


def _check(n_rows: int, n_columns: int, limits: Limits) -> None:
    if n_columns > limits.max_columns:
        raise FileTooLarge(
            f"the file has {n_columns} columns, beyond the limit of "
            f"{limits.max_columns}"
        )
    if n_rows > limits.max_rows:
        raise FileTooLarge(
            f"the file has {n_rows} rows, beyond the limit of {limits.max_rows}"
        )
    if n_rows * n_columns * 8 > limits.max_bytes:
        raise FileTooLarge(
            f"{n_rows} rows of {n_columns} columns take more than the limit of "
            f"{limits.max_bytes} bytes, as each row has a value for each column"
        )


def _make_batches(pieces: Pieces, seen: _Seen) -> Iterator[pa.RecordBatch]:
    kinds = {name: _choose_type(found) for name, found in seen.kinds.items()}
    size = max(1, _CELLS // max(1, len(kinds)))
    for rows in pieces():
        for start in range(0, len(rows), size):
            yield _make_batch(rows[start : start + size], kinds)


def _make_batch(
    rows: Sequence[Row], kinds: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    return _to_batch(
        [
            _fill(name, [row.get(name) for row in rows], kind)
            for name, kind in kinds.items()
        ]
    )


def _to_batch(arrays: list[pa.Array]) -> pa.RecordBatch:
    return pa.record_batch(arrays, names=[f"c{i}" for i in range(len(arrays))])


def _show(value: Any, length: int) -> str:
    try:
        return clip(json.dumps(value), length)
    except RecursionError:
        return "nested deeply"


# ----------------------------------------------------------------------------
# Columns


def to_array(name: str, values: Sequence[Any]) -> pa.Array:
    """A column of numbers, of booleans, or else of texts."""
    kinds: set[type] = {*map(type, values)} - {type(None)}
    if kinds & {list, dict}:
        row = next(i for i, v in enumerate(values, 1) if isinstance(v, list | dict))
        raise _refuse_nested(name, row)
    if int in kinds and not all(
        -(2**63) < value < 2**63 for value in values if type(value) is int
    ):
        kinds.add(_Long)
    return _fill(name, values, _choose_type(kinds))


def _choose_type(kinds: set[type]) -> pa.DataType:
    kinds = kinds - {type(None)}
    if kinds == {bool}:
        return pa.bool_()
    if kinds and kinds <= {int, float, _Long}:
        return pa.int64() if kinds == {int} else pa.float64()
    return pa.string()


def _fill(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.float64():
        try:
            values = [v if v is None else float(v) for v in values]
        except OverflowError:
            raise DataError(
                f"column {clip(name)!r} holds a number that no float64 holds",
                column=clip(name),
            ) from None
    elif kind == pa.string():
        values = _to_texts(name, values)
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        raise DataError(
            f"column {clip(name)!r} holds what is no text of Unicode", column=clip(name)
        ) from None


def _to_texts(name: str, values: Sequence[Any]) -> list[str | None]:
    texts = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
    for text in texts:
        if text is not None and "\0" in text:
            raise DataError(
                f"column {clip(name)!r} holds NUL characters", column=clip(name)
            )
        if text is not None and len(text) > MAX_VALUE:
            raise DataError(
                f"column {clip(name)!r} holds a text of more than "
                f"{MAX_VALUE >> 20} MiB",
                column=clip(name),
            )
    return texts


def _refuse_nested(name: str, row: int) -> DataError:
    return DataError(
        f"column {clip(name)!r} holds a list or an object in row {row}; numbers, texts "
        "and booleans are read",
        column=clip(name),
    )
