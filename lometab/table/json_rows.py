"""Tables in JSON: an array of objects, one object a line, or columns and data."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lometab.errors import DataError, FileTooLarge
from lometab.table.headers import distinguish
from lometab.table.values import BLANKS

_MAX_BYTES = 2**28
"""A file is read as a whole, and takes several times its size."""


def read_json_table(
    source: Path, max_columns: int, max_rows: int
) -> tuple[list[str], pa.RecordBatch, list[str]]:
    """The names of the columns, their values as c0, c1, ..., and warnings."""
    if source.stat().st_size > _MAX_BYTES:
        raise FileTooLarge(
            f"a JSON file may have {_MAX_BYTES >> 20} MiB; write the table as Parquet "
            "or CSV"
        )
    try:
        text = source.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"the JSON file is not UTF-8 text: {error.reason}") from None
    names, columns = read_json_columns(text)
    if len(names) > max_columns:
        raise FileTooLarge(
            f"the file has {len(names)} columns, beyond the limit of {max_columns}"
        )
    n_rows = len(columns[0]) if columns else 0
    if n_rows > max_rows:
        raise FileTooLarge(
            f"the file has {n_rows} rows, beyond the limit of {max_rows}"
        )
    if n_rows == 0:
        raise DataError("the JSON file has no rows")
    warnings: list[str] = []
    shown = distinguish([name.strip(BLANKS) for name in names], warnings)
    arrays = [to_array(name, each) for name, each in zip(shown, columns, strict=True)]
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(len(arrays))])
    return shown, batch, warnings


def read_json_columns(text: str) -> tuple[list[str], list[list[Any]]]:
    """The names and the values of each column."""
    found = _parse(text)
    if isinstance(found, dict):
        for key in ("rows", "records", "data"):
            if isinstance(found.get(key), list) and "columns" not in found:
                return _from_records(found[key])
        if isinstance(found.get("columns"), list) and isinstance(
            found.get("data"), list
        ):
            return _from_matrix(found["columns"], found["data"])
        if found and all(isinstance(each, list) for each in found.values()):
            return _from_columns(found)
        return _from_records([found])
    if not isinstance(found, list):
        raise DataError("the JSON file holds a single value and no table")
    return _from_records(found)


def read_json_lines(text: str) -> list[Any]:
    """What each line holds; DataError names the line that is no JSON."""
    rows = []
    for i, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise DataError(f"line {i} is no JSON: {error}", line=i) from None
    return rows


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        is_lines = error.msg == "Extra data" and text.lstrip().startswith("{")
        if is_lines:
            return read_json_lines(text)
        raise DataError(
            f"line {error.lineno} is no JSON: {error.msg}", line=error.lineno
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"the JSON file cannot be read: {error}") from None


def _from_records(rows: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    names: dict[str, None] = {}
    for i, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DataError(
                f"row {i} must be an object with a value for each column, however it "
                f"is {json.dumps(row)[:60]}"
            )
        names.update(dict.fromkeys(row))
    return [*names], [[row.get(name) for row in rows] for name in names]


def _from_matrix(
    names: list[Any], data: list[Any]
) -> tuple[list[str], list[list[Any]]]:
    for i, row in enumerate(data, start=1):
        if not isinstance(row, list) or len(row) != len(names):
            raise DataError(f"row {i} of data must be a list of {len(names)} values")
    return [str(name) for name in names], [[*each] for each in zip(*data, strict=True)]


def _from_columns(found: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    lengths = {name: len(values) for name, values in found.items()}
    if len({*lengths.values()}) > 1:
        raise DataError(f"all columns must have as many values, however: {lengths}")
    return [*found], [*found.values()]


def to_array(name: str, values: Sequence[Any]) -> pa.Array:
    """A column of numbers, of booleans, or else of texts."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds & {list, dict}:
        row = next(i for i, v in enumerate(values, 1) if isinstance(v, list | dict))
        raise DataError(
            f"column {name!r} holds a list or an object in row {row}; numbers, texts "
            "and booleans are read",
            column=name,
        )
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds and kinds <= {int, float}:
        if kinds == {int} and all(v is None or abs(v) < 2**63 for v in values):
            return pa.array(values, pa.int64())
        return pa.array([v if v is None else float(v) for v in values], pa.float64())
    texts = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
    if any("\0" in text for text in texts if text is not None):
        raise DataError(f"column {name!r} holds NUL characters", column=name)
    return pa.array(texts, pa.string())
