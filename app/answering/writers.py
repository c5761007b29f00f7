"""Predictions as clients want them, written in chunks: JSON, CSV or Arrow."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from app.answering.columns import Columns
from lometab.predictor import Label

Skipped = NDArray[np.bool_] | None
"""Which rows have no answer; None: all have one."""


class Writer:
    """Written by `begin`, any number of `write`, and `end`; or by `write_all`."""

    def begin(self, head: dict[str, Any]) -> bytes:
        return b""

    def write(self, columns: Columns, skipped: Skipped = None) -> bytes:
        """
        Args:
            skipped: rows that have no answer, which tables show as nulls.
        """
        raise NotImplementedError

    def end(self) -> bytes:
        return b""

    def write_all(self, head: dict[str, Any], columns: Columns) -> bytes:
        return b"".join((self.begin(head), self.write(columns), self.end()))


class JsonWriter(Writer):
    """One object with a list of objects. What is infinite or NaN becomes null."""

    media_type = "application/json"

    def __init__(self) -> None:
        self._is_first = True

    def begin(self, head: dict[str, Any]) -> bytes:
        return orjson.dumps(head)[:-1] + b',"predictions":['

    def write_all(self, head: dict[str, Any], columns: Columns) -> bytes:
        return orjson.dumps(
            {**head, "predictions": _to_rows(columns)},
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    def write(self, columns: Columns, skipped: Skipped = None) -> bytes:
        content = orjson.dumps(_to_rows(columns), option=orjson.OPT_SERIALIZE_NUMPY)[
            1:-1
        ]
        if self._is_first:
            self._is_first = False
            return content
        return b"," + content

    def end(self) -> bytes:
        return b"]}"


def _to_rows(columns: Columns) -> list[dict[str, Any]]:
    names = [*columns]
    if names and len(columns[names[0]]) == 1:  # sooner, as most requests have one
        return [{name: column[0] for name, column in columns.items()}]
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


class CsvWriter(Writer):
    """A column for each number; a set is its JSON text."""

    media_type = "text/csv"

    def __init__(
        self,
        classes: Sequence[Label] | None,
        is_spreadsheet_safe: bool = False,
        *,
        has_header: bool = True,
    ) -> None:
        self._classes = classes
        self._is_spreadsheet_safe = is_spreadsheet_safe
        self._is_first = has_header

    def write(self, columns: Columns, skipped: Skipped = None) -> bytes:
        if "set" in columns:
            texts = [orjson.dumps(each).decode() for each in columns["set"]]
            columns = {**columns, "set": pa.array(texts)}
        flat = skip(flatten(columns, self._classes), skipped)
        if self._is_spreadsheet_safe:
            flat = {name: _defuse(value) for name, value in flat.items()}
        table = pa.table(flat)
        file = io.BytesIO()
        if self._is_first:
            self._is_first = False
            names = io.StringIO()  # Arrow would put quotes round each
            csv.writer(names, lineterminator="\n").writerow(table.column_names)
            file.write(names.getvalue().encode())
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
        pyarrow.csv.write_csv(table, file, options)
        return file.getvalue()


def flatten(columns: Columns, classes: Sequence[Label] | None) -> dict[str, pa.Array]:
    """A column for each number."""
    label_type = find_label_type(classes)
    flat: dict[str, pa.Array] = {}
    for name, value in columns.items():
        if not isinstance(value, np.ndarray) or value.ndim == 1:
            flat[name] = _to_arrow(value, label_type)
        elif name == "interval":
            flat["interval_lower"] = _numbers(value[:, 0])
            flat["interval_upper"] = _numbers(value[:, 1])
        elif name == "mean":
            flat |= _by_class("mean", value, classes)
        else:
            for k in range(value.shape[1]):
                if value.ndim == 2:
                    flat[f"member_{k}"] = _numbers(value[:, k])
                else:
                    flat |= _by_class(f"member_{k}", value[:, k], classes)
    return flat


def _by_class(
    name: str, value: Any, classes: Sequence[Label] | None
) -> dict[str, pa.Array]:
    assert classes is not None
    return {f"{name}_{label}": _numbers(value[:, c]) for c, label in enumerate(classes)}


def skip(arrays: dict[str, pa.Array], skipped: Skipped) -> dict[str, pa.Array]:
    """Null for all but the id of rows that have no answer."""
    if skipped is None or not skipped.any():
        return arrays
    places = pa.array(np.arange(len(skipped)), mask=skipped)
    return {
        name: array if name == "id" else array.take(places)
        for name, array in arrays.items()
    }


_FORMULA = "^[=+@\\-\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""How a text begins that spreadsheets take for a formula; some in full width."""


def _defuse(value: pa.Array) -> pa.Array:
    """Texts that spreadsheets show as texts; numbers are left alone."""
    kind = value.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        kind = pa.string() if pa.types.is_string_view(kind) else pa.binary()
        value = value.cast(kind)
    if kind not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return value
    is_formula = pc.match_substring_regex(value, _FORMULA)
    before, after = pa.scalar(b"'").cast(kind), pa.scalar(b"").cast(kind)
    quoted = pc.binary_join_element_wise(before, value, after)
    return pc.if_else(is_formula, quoted, value)


class ArrowWriter(Writer):
    """A stream of record batches: lists for members, classes and intervals."""

    media_type = "application/vnd.apache.arrow.stream"

    def __init__(self, classes: Sequence[Label] | None) -> None:
        self._label_type = find_label_type(classes)
        self._file = io.BytesIO()
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._metadata: dict[str, bytes] = {}
        self.n_head = 0
        """Bytes of the schema, with which the first piece begins."""

    def begin(self, head: dict[str, Any]) -> bytes:
        self._metadata = {"lometab": orjson.dumps(head)}
        return b""

    def write(self, columns: Columns, skipped: Skipped = None) -> bytes:
        arrays = {
            name: _to_arrow(value, self._label_type) for name, value in columns.items()
        }
        arrays = skip(arrays, skipped)
        batch = pa.RecordBatch.from_pydict(arrays, metadata=self._metadata)
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
            self.n_head = batch.schema.serialize().size
        self._writer.write_batch(batch)
        return self._take()

    def end(self) -> bytes:
        assert self._writer is not None
        self._writer.close()
        return self._take()

    def _take(self) -> bytes:
        content = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return content


def find_label_type(classes: Sequence[Label] | None) -> pa.DataType:
    """Arrow's type for labels; texts if they are of several types."""
    kinds = {type(label) for label in classes or ()}
    if kinds == {bool}:
        return pa.bool_()
    return pa.int64() if kinds == {int} else pa.string()


def _to_arrow(value: Any, label_type: pa.DataType) -> pa.Array:
    """(N, K, C) becomes N lists of K lists of C numbers."""
    if isinstance(value, pa.Array):
        return value
    if not isinstance(value, np.ndarray):
        return _labels(value, label_type)
    if value.dtype.kind != "f":
        return pa.array(value)
    array = _numbers(value.reshape(-1))
    for size in reversed(value.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _numbers(value: Any) -> pa.Array:
    """What is infinite, such as the end of an interval that holds all, is null."""
    is_finite = np.isfinite(value)
    return pa.array(value, mask=None if is_finite.all() else ~is_finite)


def _labels(value: list[Any], label_type: pa.DataType) -> pa.Array:
    """A label for each row, or a set of them."""
    if value and isinstance(value[0], list):
        if label_type == pa.string():
            value = [[str(label) for label in each] for each in value]
        return pa.array(value, pa.list_(label_type))
    if label_type == pa.string():
        value = [str(label) for label in value]
    return pa.array(value, label_type)
