"""Answers from one ONNX file: rows in, the mean, every member and the uncertainty out.

Needs numpy and onnxruntime only. Read top to bottom: the answer, the predictor, rows
to columns, and the look into a file before ONNX Runtime opens it.
"""

import hashlib
import json
import math
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from lometab import cells, metrics
from lometab.errors import ConfigError, DataError, ModelFileError, nearest

onnxruntime.disable_telemetry_events()  # it would report to its makers

FORMAT_VERSION = 1
"""The version of the file's metadata and of its inputs and outputs."""

MissingColumns = Literal["error", "fill"]
Label = str | int | bool
Array = NDArray[Any]

_PLAIN = frozenset((int, float, type(None)))
_NO_TEXTS = np.empty((1, 0), dtype=object)
_ORT_ERRORS = (  # they have no base class of their own
    ort_state.Fail,
    ort_state.InvalidArgument,
    ort_state.InvalidGraph,
    ort_state.InvalidProtobuf,
    ort_state.NotImplemented,
    ort_state.RuntimeException,
)
MAX_ROWS = 1024
"""Rows in one run: more take memory and are no faster."""


@dataclass(slots=True)
class Notes:
    """What is worth a warning about rows. Chunks of one table share their notes."""

    absent: list[str] = field(default_factory=list)
    """Columns that no row has."""
    extra: list[str] = field(default_factory=list)
    """Columns that the model does not know."""
    n_rows: int = 0
    """How many rows have been encoded."""
    n_unseen: dict[str, int] = field(default_factory=dict)
    """For each column, cells with a category that training did not have."""
    unseen: dict[str, set[str]] = field(default_factory=dict)
    """Some of these categories: enough to name the first ones."""

    def see(self, column: str, texts: Collection[str], n_cells: int) -> None:
        self.n_unseen[column] = self.n_unseen.get(column, 0) + n_cells
        kept = {*self.unseen.get(column, ()), *texts}
        self.unseen[column] = {*sorted(kept)[: _N_LISTED + 1]}

    def warnings(self) -> list[str]:
        found = [
            f"column {name!r} is absent from every row and was filled as missing"
            for name in self.absent
        ]
        if self.extra:
            found.append(f"columns not used: {_listed(self.extra)}")
        found += [
            f"column {name!r} holds categories that training did not have in {count} "
            f"of {self.n_rows} rows: {_listed(sorted(self.unseen[name]))}"
            for name, count in self.n_unseen.items()
        ]
        return found


class Encoded(NamedTuple):
    """Rows as the inputs of the file, and what was noticed on the way."""

    x_num: NDArray[np.float64]
    """(N, n_num), NaN missing."""
    x_cat: NDArray[np.object_]
    """(N, n_cat), "" missing."""
    warnings: list[str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """The answers for N rows by K members. What does not apply is None."""

    mean: Array
    """(N,) target values, or (N, C) probabilities, calibrated if that was asked."""
    members: Array
    """(N, K) or (N, K, C): each member's own."""
    label: list[Label] | None = None
    """Classification: the most probable class, as it was in the training data."""
    std: Array | None = None
    """Regression: standard deviation over members, (N,); None if K = 1."""
    entropy: Array | None = None
    """Classification: of the mean, in nats, (N,)."""
    mutual_information: Array | None = None
    """Classification: the entropy that members do not share; None if K = 1."""
    disagreement: Array | None = None
    """Classification: share of pairs of members with other labels; None if K = 1."""
    interval: Array | None = None
    """Regression: conformal lower and upper end, (N, 2), if the file can say."""
    set: list[list[Label]] | None = None
    """Classification: conformal set of classes for each row, if the file can say."""
    warnings: list[str] = field(default_factory=list)
    """Unseen categories, columns filled as missing, columns not used."""


class Predictor:
    """A trained ensemble, loaded from the file that `lometab.export.to_onnx` made.

    One predictor may be used by many threads at once; make it after forking.

    Attributes:
        task, target, classes, k, numeric, categorical, datetime: as in training.
        columns: the numeric and the categorical ones.
        metadata: all that the file tells of itself.
        providers: where ONNX Runtime really computes.
        folded_bytes: what the weights take in memory.
    """

    def __init__(
        self,
        source: str | Path | bytes,
        *,
        providers: Sequence[str] | None = None,
        threads: int = 1,
    ) -> None:
        """
        Args:
            source: the file's path or its content.
            providers: ONNX Runtime's execution providers in the order of preference;
                those that are not installed are passed over. None: the CPU.
            threads: threads for one run. With 1, run many at once from many threads.
        """
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        self.metadata = _read_metadata(content)
        self.task: str = self.metadata["task"]
        self.target: str = self.metadata["target"]
        self.classes: list[Label] | None = self.metadata["classes"]
        self.k: int = self.metadata["k"]
        self.numeric: list[str] = self.metadata["numeric"]
        self.categorical: list[str] = self.metadata["categorical"]
        self.datetime: list[str] = self.metadata["datetime"]
        self.folded_bytes: int = self.metadata["folded_bytes"]
        self.columns = [*self.numeric, *self.categorical]
        self._columns = frozenset(self.columns)
        self._used = self._columns | {self.target, *self.metadata["ignored"]}
        self._missing = frozenset(self.metadata["missing"])
        self._formats: dict[str, str] = self.metadata.get("formats", {})
        self._levels = [
            frozenset(self.metadata["levels"][name]) for name in self.categorical
        ]
        self._session = _open_session(content, providers, threads)
        self.providers: list[str] = self._session.get_providers()
        self._compute = self._session.run
        if self.providers == ["CPUExecutionProvider"]:
            # Without its checks, which our inputs pass: a twentieth of a short run.
            self._compute = self._session._sess.run

    def predict(
        self,
        rows: Any,
        *,
        missing_columns: MissingColumns = "error",
        calibrated: bool = False,
        coverage: float = 0.9,
    ) -> Prediction:
        """Answer rows in any form that `encode` takes.

        Args:
            missing_columns: a column that no row has is an error, or is filled as
                missing with a warning.
            calibrated: classification: whether `mean` and its `entropy` are at the
                temperature that was fitted on validation rows. Members and sets stay.
            coverage: of the conformal intervals or sets, in whole hundredths.

        Raises:
            DataError: the rows cannot be used.
            ConfigError: the model has no temperature, or the coverage is no hundredth.
        """
        x_num, x_cat, warnings = self.encode(rows, missing_columns=missing_columns)
        mean, members = self.run(x_num, x_cat)
        return self.describe(
            mean, members, calibrated=calibrated, coverage=coverage, warnings=warnings
        )

    def encode(
        self, rows: Any, *, missing_columns: MissingColumns = "error"
    ) -> Encoded:
        """The inputs of the file from rows as people have them.

        Args:
            rows: records (a list of dicts), columns (a dict of lists or arrays), or a
                frame or table with named columns, such as those of pandas, polars and
                pyarrow.
        """
        names, table, n_rows = _columns(rows, self._columns)
        if n_rows == 0:
            raise DataError("there are no rows to predict")
        notes = self.compare(names, missing_columns=missing_columns)
        x_num, x_cat = self.encode_columns(table, n_rows, notes)
        return Encoded(x_num, x_cat, notes.warnings())

    def compare(
        self, names: Collection[str], *, missing_columns: MissingColumns = "error"
    ) -> Notes:
        """Hold the names of a table's columns against those the model takes."""
        known = names if isinstance(names, dict) else dict.fromkeys(names)
        if known.keys() == self._columns:
            return Notes()
        absent = [name for name in self.numeric if name not in known]
        absent += [name for name in self.categorical if name not in known]
        extra = [name for name in names if name not in self._used]
        if absent and missing_columns == "error":
            raise _absent_columns(absent, extra)
        return Notes(absent=absent, extra=extra)

    def encode_columns(
        self, table: Mapping[str, Any], n_rows: int, notes: Notes
    ) -> tuple[NDArray[np.float64], NDArray[np.object_]]:
        """The inputs of the file from rows, or a chunk of them, whose names are fine.

        Args:
            table: each column's cells, as a list, an array, or an Arrow array.
            notes: what `compare` gave; what is noticed is added.
        """
        x_num = np.empty((n_rows, len(self.numeric)), dtype=np.float64)
        for i, name in enumerate(self.numeric):
            column = table.get(name)
            if column is None:
                x_num[:, i] = np.nan
            elif type(column) is list and _PLAIN.issuperset(map(type, column)):
                x_num[:, i] = column  # what the functions below would give
            else:
                convert = cells.moments if name in self.datetime else cells.numbers
                format = self._formats.get(name)
                x_num[:, i] = convert(column, name, self._missing, format)
        if np.isinf(x_num).any():
            raise _infinite(x_num, self.numeric)
        x_cat = np.empty((n_rows, len(self.categorical)), dtype=object)
        notes.n_rows += n_rows
        for i, name in enumerate(self.categorical):
            if name not in table:
                x_cat[:, i] = ""
                continue
            x_cat[:, i] = cells.categories(table[name], self._missing)
            self._replace_unseen_(x_cat[:, i], i, notes)
        return x_num, x_cat

    def encode_record(
        self, record: Mapping[str, Any], notes: Notes
    ) -> tuple[NDArray[np.float64], NDArray[np.object_]] | None:
        """The same from one row with nothing unusual in its cells, as most requests
        have it; None for any other, which `encode_columns` takes."""
        numbers = [record.get(name) for name in self.numeric]
        if (
            not _PLAIN.issuperset(map(type, numbers))
            or math.inf in numbers
            or -math.inf in numbers
        ):
            return None
        x_cat = _NO_TEXTS
        if self.categorical:
            texts = [record.get(name) for name in self.categorical]
            for text, levels in zip(texts, self._levels, strict=True):
                if type(text) is not str or text not in levels:
                    return None
            x_cat = np.array([texts], dtype=object)
        notes.n_rows += 1
        return np.array([numbers], dtype=np.float64), x_cat

    def run(
        self, x_num: NDArray[np.float64], x_cat: NDArray[np.object_]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """`mean` and `members` of rows that are encoded already."""
        if 0 < len(x_num) <= MAX_ROWS:
            return self._run(x_num, x_cat)
        classes = () if self.classes is None else (len(self.classes),)
        mean = np.empty((len(x_num), *classes), dtype=np.float32)
        members = np.empty((len(x_num), self.k, *classes), dtype=np.float32)
        for start in range(0, len(x_num), MAX_ROWS):
            rows = slice(start, start + MAX_ROWS)
            mean[rows], members[rows] = self._run(x_num[rows], x_cat[rows])
        return mean, members

    def _run(
        self, x_num: NDArray[np.float64], x_cat: NDArray[np.object_]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        inputs: dict[str, Array] = {}
        if self.numeric:
            inputs["numeric"] = np.ascontiguousarray(x_num, np.float64)
        if self.categorical:
            inputs["categorical"] = x_cat
        mean, members = self._compute(["mean", "members"], inputs, None)
        return mean, members

    def describe(
        self,
        mean: Array,
        members: Array,
        *,
        calibrated: bool = False,
        coverage: float = 0.9,
        warnings: Sequence[str] = (),
    ) -> Prediction:
        """The answer that `run` gave, with labels and the uncertainty of each row."""
        fields = self.measure(mean, members, calibrated=calibrated, coverage=coverage)
        return Prediction(**fields, warnings=[*warnings])

    def measure(
        self,
        mean: Array,
        members: Array,
        *,
        calibrated: bool = False,
        coverage: float = 0.9,
        without: Collection[str] = (),
    ) -> dict[str, Any]:
        """What `describe` tells of each row, as a dict of the fields of its answer.

        Args:
            without: fields that are not wanted, and need not be there.
        """
        quantile = self._conformity(coverage)
        temperature = self._temperature() if calibrated else 1.0
        fields: dict[str, Any] = {"mean": mean, "members": members}
        if self.classes is None:
            if "std" not in without:
                fields["std"] = _spread(members)
            if quantile is not None and "interval" not in without:
                fields["interval"] = _interval(mean, quantile)
            return fields
        if quantile is not None and "set" not in without:
            fields["set"] = [
                [self.classes[c] for c in np.flatnonzero(row)]
                for row in metrics.conformal_set(mean, quantile)
            ]
        if temperature != 1:
            fields["mean"] = mean = metrics.temper(mean, temperature)
        fields["label"] = [self.classes[c] for c in mean.argmax(axis=1)]
        for name, measure, of in (
            ("entropy", metrics.predictive_entropy, mean),
            ("mutual_information", metrics.mutual_information, members),
            ("disagreement", metrics.disagreement, members),
        ):
            if name not in without:
                fields[name] = measure(of)
        return fields

    def _conformity(self, coverage: float) -> float | None:
        """The quantile of validation's conformity scores; None if the file has none."""
        quantiles = self.metadata.get("conformity")
        if quantiles is None:
            return None
        percent = round(100 * coverage)
        if not 1 <= percent <= 99 or abs(100 * coverage - percent) > 1e-6:
            raise ConfigError(
                "coverage must be in whole hundredths, 0.01 to 0.99, however: "
                f"{coverage=}"
            )
        quantile = quantiles[percent - 1]  # null: validation was too small to tell
        return float("inf") if quantile is None else float(quantile)

    def _temperature(self) -> float:
        """The one in the file; ConfigError if there is none to apply."""
        if self.classes is None:
            raise ConfigError(
                "calibrated is for probabilities, and this model answers with numbers; "
                "leave it out, its intervals are calibrated by the coverage"
            )
        temperature = self.metadata.get("temperature")
        if temperature is None:
            raise ConfigError(
                "this model was exported without a temperature; leave out calibrated"
            )
        return float(temperature)

    def _replace_unseen_(
        self, texts: NDArray[np.object_], column: int, notes: Notes
    ) -> None:
        """Put one text for all unseen categories, and note them.

        ONNX Runtime gives zeros for either, but cannot take every Python string.
        """
        levels = self._levels[column]
        distinct = {*texts} - levels - {""}
        if not distinct:
            return
        unseen = [i for i, text in enumerate(texts) if text in distinct]
        marker = "unseen"
        while marker in levels:
            marker += "_"
        texts[unseen] = marker
        notes.see(self.categorical[column], distinct, len(unseen))


def _interval(mean: Array, quantile: float) -> Array:
    if len(mean) == 1:
        center = mean.item()
        return np.array([[center - quantile, center + quantile]])
    interval: Array = mean[:, None] + np.array([-quantile, quantile])
    return interval


def _spread(members: Array) -> Array | None:
    """The standard deviation over members, sooner for one row, as most requests have:
    a handful of numpy's calls takes as long as a quarter of a small model's run."""
    n_rows, k = members.shape
    if n_rows > 1 or k == 1:
        return metrics.member_std(members)
    numbers = members[0].tolist()
    mean = sum(numbers) / k
    return np.array([math.dist(numbers, [mean] * k) / math.sqrt(k)])


def find_providers(wanted: Sequence[str]) -> list[str]:
    """Where ONNX Runtime really computes if it is asked for these: what is installed
    may still fail to start, and then it falls back without an error."""
    return [*_open_session(_IDENTITY, wanted, threads=1).get_providers()]


# A graph that hands one number through, as ONNX encodes it.
_NUMBER = b"\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"
_GRAPH = (
    b"\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\x12\x01g"
    b"\x5a\x0f\x0a\x01x" + _NUMBER + b"\x62\x0f\x0a\x01y" + _NUMBER
)
_IDENTITY = b"\x08\x08\x42\x02\x10\x12\x3a" + bytes([len(_GRAPH)]) + _GRAPH


def _open_session(
    content: bytes, providers: Sequence[str] | None, threads: int
) -> onnxruntime.InferenceSession:
    wanted = ["CPUExecutionProvider"] if providers is None else [*providers]
    installed = onnxruntime.get_available_providers()
    available = [name for name in wanted if name in installed]
    if not available:
        raise ValueError(
            f"providers must name one of {installed}, however: {providers=}"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait for work would otherwise keep their cores busy.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(content, options, providers=available)
    except _ORT_ERRORS as error:
        raise ModelFileError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load the model: {error}"
        ) from error


# ----------------------------------------------------------------------------
# Rows to columns


def _columns(
    rows: Any, wanted: Collection[str]
) -> tuple[Collection[str], dict[str, Any], int]:
    """The names of all columns, cells of those that are wanted, the number of rows."""
    if isinstance(rows, list | tuple):
        return _from_records(rows, wanted)
    names = rows if isinstance(rows, Mapping) else getattr(rows, "column_names", None)
    if names is None:  # not pyarrow's, whose `columns` are not names
        names = getattr(rows, "columns", None)
    if names is None:
        raise DataError(
            "rows must be a list of records, a dict of columns or a frame, however: "
            f"{type(rows).__name__}"
        )
    names = [*names]
    known = [name for name in names if name in wanted] or names[:1]
    table = {name: _cells(rows[name], name) for name in known}
    n_rows = len(table[known[0]]) if known else 0
    for name, column in table.items():
        if len(column) != n_rows:
            raise DataError(
                f"all columns must have as many cells, however {known[0]!r} has "
                f"{n_rows} and {name!r} has {len(column)}",
                column=name,
            )
    return names, table, n_rows


def _from_records(
    rows: Sequence[Any], wanted: Collection[str]
) -> tuple[Collection[str], dict[str, Any], int]:
    names: dict[str, None] = {}
    for i, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DataError(
                f"row {i} must be an object with a value for each column, however it "
                f"is {reprlib.repr(row)}"
            )
        names.update(dict.fromkeys(row))
    table = {name: [row.get(name) for row in rows] for name in names if name in wanted}
    return names, table, len(rows)


def _cells(column: Any, name: str) -> Any:
    """A column's cells as a list or an array; missing ones as None or NaN."""
    if isinstance(column, list | tuple):
        return column
    if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__len__"):
        raise DataError(
            f"column {name!r} must be a list of cells, however it is "
            f"{reprlib.repr(column)}; one row is a list of one record",
            column=name,
        )
    if hasattr(column, "null_count") and hasattr(column, "dictionary_encode"):
        return column  # Arrow's, which `cells` reads as a whole
    array = np.asarray(column)
    if array.ndim != 1:
        raise DataError(
            f"column {name!r} must have one dimension, however: {array.shape}",
            column=name,
        )
    if array.dtype.kind == "M":
        seconds = array.astype("datetime64[us]").astype(np.float64) / 1e6
        return np.where(np.isnat(array), np.nan, seconds)
    if array.dtype.kind == "O" and hasattr(column, "notna"):
        # pandas has several objects that mean missing, and some cannot be compared.
        array = array.copy()
        array[~np.asarray(column.notna())] = None
    return array


def _infinite(x_num: NDArray[np.float64], names: Sequence[str]) -> DataError:
    row, column = (int(place[0]) for place in np.nonzero(np.isinf(x_num)))
    return DataError(
        f"column {names[column]!r} holds an infinite number in row {row + 1}; replace "
        "it by a large number or leave the cell empty",
        column=names[column],
    )


def _absent_columns(absent: list[str], extra: list[str]) -> DataError:
    """The error for columns no row has; it names what may have been meant by them."""
    near = nearest(absent[0], extra)
    if near:
        hint = f"; {near!r} is unknown (did you mean {absent[0]!r}?)"
    else:
        hint = "; cells may be null, but the column must be there"
    if len(absent) == 1:
        sentence = f"column {absent[0]!r} is absent from every row"
    else:
        sentence = f"{len(absent)} columns are absent from every row: {_listed(absent)}"
    return DataError(sentence + hint, column=absent[0])


_N_LISTED = 5


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(reprlib.repr(name) for name in names[:_N_LISTED])
    return shown + (", ..." if len(names) > _N_LISTED else "")


# ----------------------------------------------------------------------------
# The file, before ONNX Runtime opens it
#
# ONNX files are protobuf messages. What follows reads just enough of their encoding to
# tell a whole file of ours from anything else, and to refuse one that would make ONNX
# Runtime open other files.

_METADATA = 14
"""The field of a model that holds its metadata."""

_PARTS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external data"},
}
"""For each kind of message, the fields that lead to tensors."""

_CHECKSUM = b'{"checksum": "'
_BLANK = b"0" * 64


def seal(content: bytes) -> bytes:
    """Write the checksum into the metadata of a new file."""
    start = content.rindex(_CHECKSUM + _BLANK) + len(_CHECKSUM)
    digest = hashlib.sha256(content).hexdigest().encode()
    return content[:start] + digest + content[start + len(digest) :]


def _read_metadata(content: bytes) -> dict[str, Any]:
    """The metadata of a file that is whole, ours and closed in itself."""
    if not content.startswith(b"\x08"):  # the version every ONNX file begins with
        raise ModelFileError("this is no ONNX file")
    start, end = _find_metadata(content)
    try:
        metadata = json.loads(content[start:end])
        version = metadata["version"]
    except (ValueError, TypeError, KeyError):
        raise ModelFileError(_CHANGED) from None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ModelFileError(
            f"the file has format version {version}, and this lometab reads up to "
            f"{FORMAT_VERSION}: a newer lometab is needed"
        )
    digest_start = start + len(_CHECKSUM)
    digest_end = digest_start + len(_BLANK)
    view = memoryview(content)
    digest = hashlib.sha256(view[:digest_start])
    digest.update(_BLANK)
    digest.update(view[digest_end:])
    if digest.hexdigest().encode() != content[digest_start:digest_end]:
        raise ModelFileError(_CHANGED)
    return dict(metadata)


_CHANGED = "the file was changed since it was exported: its checksum does not match"


def _find_metadata(content: bytes) -> tuple[int, int]:
    """Where the metadata's text begins and ends."""
    found = None
    todo = [("model", 0, len(content))]
    while todo:
        kind, *bounds = todo.pop()
        for number, start, end in _fields(content, *bounds):
            part = _PARTS[kind].get(number)
            if part == "external data":
                raise ModelFileError(
                    "the model keeps tensors in other files, which are never opened"
                )
            if part is not None:
                todo.append((part, start, end))
            elif kind == "model" and number == _METADATA:
                entry = {n: (a, b) for n, a, b in _fields(content, start, end)}
                if content[slice(*entry.get(1, (0, 0)))] == b"lometab":
                    found = entry.get(2)
    if found is None:
        raise ModelFileError(
            "this is an ONNX model, but none that lometab exported: it has no metadata "
            "named lometab"
        )
    return found


def _fields(content: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each field of the message in content[start:end]."""
    while start < end:
        key, start = _varint(content, start)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            _, stop = _varint(content, start)
        elif wire_type == 2:
            size, start = _varint(content, start)
            stop = start + size
        elif wire_type in (1, 5):
            stop = start + (8 if wire_type == 1 else 4)
        else:
            raise ModelFileError(_CUT_SHORT)
        if stop > end:
            raise ModelFileError(_CUT_SHORT)
        yield number, start, stop
        start = stop


def _varint(content: bytes, start: int) -> tuple[int, int]:
    """A number in seven bits a byte, lowest first, and the place behind it."""
    value = 0
    for i, byte in enumerate(content[start : start + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, start + i + 1
    raise ModelFileError(_CUT_SHORT)


_CUT_SHORT = "the file is no whole ONNX file: it was cut short or damaged"
