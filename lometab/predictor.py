"""Answers from one ONNX file: rows in, the mean, every member and the uncertainty out.

Needs numpy and onnxruntime only. Read top to bottom: the answer, the predictor, rows
to columns.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from lometab.errors import ConfigError, DataError
from lometab.evaluation import Conformal, Method, metrics
from lometab.notes import Notes as Notes
from lometab.notes import absent_columns
from lometab.onnx_file import read_metadata
from lometab.prediction import Answered, Array, Encoded
from lometab.prediction import Label as Label
from lometab.prediction import Prediction as Prediction
from lometab.session import find_providers as find_providers
from lometab.session import open_session
from lometab.table import (
    MARGIN,
    columns_of,
    read_categories,
    read_moments,
    read_numbers,
)

if TYPE_CHECKING:
    from lometab.explain import Rows

MissingColumns = Literal["error", "fill"]

_PLAIN = frozenset((int, float, type(None)))
_NO_TEXTS = np.empty((1, 0), dtype=object)
MAX_ROWS = 1024
"""Rows in one run: more take memory and are no faster."""
_SESSION_BYTES = 2**19
_FILE_COPIES = 3
"""What a session takes by itself, and how often the file is held: its metadata as
objects, its weights as they are multiplied by (`tests/lometab/test_loaded.py`)."""


class Predictor:
    """A trained ensemble, loaded from the file that `lometab.export.to_onnx` made.

    One predictor may be used by many threads at once; make it after forking.

    Attributes:
        task, target, classes, k, numeric, categorical, datetime: as in training.
        columns: the numeric and the categorical ones.
        metadata: all that the file tells of itself.
        conformal: how intervals or sets are made; None if the file does not tell.
        providers: where ONNX Runtime really computes.
        folded_bytes: what the weights take in memory.
        loaded_bytes: about what it takes in all, its session and the file included.
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
        self.metadata = read_metadata(content)
        self.task: str = self.metadata["task"]
        self.target: str = self.metadata["target"]
        self.classes: list[Label] | None = self.metadata["classes"]
        self.k: int = self.metadata["k"]
        self.numeric: list[str] = self.metadata["numeric"]
        self.categorical: list[str] = self.metadata["categorical"]
        self.datetime: list[str] = self.metadata["datetime"]
        self.folded_bytes: int = self.metadata["folded_bytes"]
        self.loaded_bytes = (
            self.folded_bytes + _FILE_COPIES * len(content) + _SESSION_BYTES
        )
        self.columns = [*self.numeric, *self.categorical]
        self._columns = frozenset(self.columns)
        self._used = self._columns | {self.target, *self.metadata["ignored"]}
        self._missing = frozenset(self.metadata["missing"])
        self._formats: dict[str, str] = self.metadata.get("formats", {})
        self._missing_in = {
            name: self._missing.union(texts)
            for name, texts in self.metadata.get("missing_in", {}).items()
        }
        self._levels = [
            frozenset(self.metadata["levels"][name]) for name in self.categorical
        ]
        self._rare: Collection[str] = self.metadata.get("rare", {})
        self.conformal: Conformal | None = None
        if "conformity" in self.metadata:
            self.conformal = Conformal(self.metadata)
        self._group_column = -1
        if self.conformal is not None and self.conformal.by in self.categorical:
            self._group_column = self.categorical.index(self.conformal.by)
        self._ranks: tuple[Array, Array] | None = None
        if "doubt" in self.metadata:
            self._ranks = metrics.trust_ranks(self.metadata["doubt"])
        self._ranges = [
            _widen(*self.metadata.get("ranges", {}).get(name, (-math.inf, math.inf)))
            if name not in self.datetime
            else (-math.inf, math.inf)
            for name in self.numeric
        ]
        known = self.metadata.get("with_missing")  # not in files of before
        self._may_miss = [known is None or name in known for name in self.numeric]
        self._lower, self._upper = np.array(self._ranges).reshape(-1, 2).T
        self._session = open_session(content, providers, threads)
        names = {output.name for output in self._session.get_outputs()}
        self.has_novelty = "novelty" in names
        self._outputs = ["mean", "members", *["novelty"] * self.has_novelty]
        self.providers: list[str] = self._session.get_providers()

    @cached_property
    def background(self) -> "Rows | None":
        """The training rows that the file holds to explain answers by, if any."""
        from lometab.explain import unpack_background

        return unpack_background(
            self.metadata.get("background"),
            self.numeric,
            self.categorical,
            self.datetime,
        )

    def predict(
        self,
        rows: Any,
        *,
        missing_columns: MissingColumns = "error",
        calibrated: bool = False,
        coverage: float = 0.9,
        conformal: Method | None = None,
    ) -> Prediction:
        """Answer rows in any form that `encode` takes.

        Args:
            missing_columns: a column that no row has is an error, or is filled as
                missing with a warning.
            calibrated: classification: whether `mean` and its `entropy` are at the
                temperature that was fitted on validation rows. Members and sets stay.
            coverage: of the conformal intervals or sets, in whole hundredths.
            conformal: how they are made: `constant` or `scaled` intervals, `aps` or
                `lac` sets; None: as calibration found best.

        Raises:
            DataError: the rows cannot be used.
            ConfigError: the model has no temperature or no such method, or the coverage
                is no hundredth.
        """
        x_num, x_cat, notes = self._encode(rows, missing_columns)
        mean, members, novelty = self.run_all(x_num, x_cat)
        if novelty is not None:
            notes.see_novel(novelty[:, 0])
        more = self.warn_of_coverage(coverage, conformal)
        return self.describe(
            mean,
            members,
            calibrated=calibrated,
            coverage=coverage,
            conformal=conformal,
            groups=self.find_groups(x_cat),
            novelty=novelty,
            warnings=[*notes.warnings(), *more],
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
        x_num, x_cat, notes = self._encode(rows, missing_columns)
        return Encoded(x_num, x_cat, notes.warnings())

    def _encode(
        self, rows: Any, missing_columns: MissingColumns
    ) -> tuple[NDArray[np.float64], NDArray[np.object_], Notes]:
        names, table, n_rows = columns_of(rows, self._columns)
        if n_rows == 0:
            raise DataError("there are no rows to predict")
        notes = self.compare(names, missing_columns=missing_columns)
        return *self.encode_columns(table, n_rows, notes), notes

    def compare(
        self, names: Collection[str], *, missing_columns: MissingColumns = "error"
    ) -> Notes:
        """Hold the names of a table's columns against those the model takes."""
        known = names if isinstance(names, dict) else dict.fromkeys(names)
        if known.keys() == self._columns:
            return Notes(rare=self._rare)
        absent = [name for name in self.numeric if name not in known]
        absent += [name for name in self.categorical if name not in known]
        extra = [name for name in names if name not in self._used]
        if absent and missing_columns == "error":
            raise absent_columns(absent, extra)
        return Notes(absent=absent, extra=extra, rare=self._rare)

    def encode_columns(
        self,
        table: Mapping[str, Any],
        n_rows: int,
        notes: Notes,
        *,
        formats: Mapping[str, str] | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.object_]]:
        """The inputs of the file from rows, or a chunk of them, whose names are fine.

        Args:
            table: each column's values, as a list, an array, or an Arrow array.
            notes: what `compare` gave; what is noticed is added.
            formats: how numbers and dates are written, if not as in training.
        """
        formats = self._formats if formats is None else formats
        first_row = notes.n_rows + 1
        x_num = np.empty((n_rows, len(self.numeric)), dtype=np.float64)
        for i, name in enumerate(self.numeric):
            column = table.get(name)
            if column is None:
                x_num[:, i] = np.nan
            elif type(column) is list and _PLAIN.issuperset(map(type, column)):
                x_num[:, i] = column  # what the functions below would give
            else:
                convert = read_moments if name in self.datetime else read_numbers
                format = formats.get(name)
                x_num[:, i] = convert(
                    column,
                    name,
                    self._missing_in.get(name, self._missing),
                    format,
                    first_row=first_row,
                )
        if np.isinf(x_num).any():
            raise _infinite(x_num, self.numeric, first_row)
        for name, count in zip(self.numeric, self.count_beyond(x_num), strict=True):
            if count:
                notes.see_beyond(name, count)
        self._note_missing(x_num, table, notes)
        x_cat = np.empty((n_rows, len(self.categorical)), dtype=object)
        notes.n_rows += n_rows
        for i, name in enumerate(self.categorical):
            if name not in table:
                x_cat[:, i] = ""
                continue
            x_cat[:, i] = read_categories(table[name], self._missing)
            if "" not in self._levels[i] and (n := (x_cat[:, i] == "").sum()):
                notes.see_missing(name, int(n))
            self._replace_unseen_(x_cat[:, i], i, notes)
        return x_num, x_cat

    def _note_missing(
        self, x_num: NDArray[np.float64], table: Mapping[str, Any], notes: Notes
    ) -> None:
        """Those of columns which rows have, and which training had in every row."""
        if all(self._may_miss) or not (is_missing := np.isnan(x_num)).any():
            return
        counts = is_missing.sum(axis=0).tolist()
        for name, count, may_miss in zip(
            self.numeric, counts, self._may_miss, strict=True
        ):
            if count and not may_miss and name in table:
                notes.see_missing(name, count)

    def count_beyond(self, x_num: NDArray[np.float64]) -> list[int]:
        """Of each numeric column, how many numbers are out of its training range."""
        is_beyond = (x_num < self._lower) | (x_num > self._upper)
        counts: list[int] = is_beyond.sum(axis=0).tolist()
        return counts

    def known_levels(self, column: int) -> frozenset[str]:
        """The categories that training had in a categorical column, by its place."""
        return self._levels[column]

    def encode_record(
        self, record: Mapping[str, Any], notes: Notes
    ) -> tuple[NDArray[np.float64], NDArray[np.object_]] | None:
        """The same from one row with nothing unusual in its values, as most requests
        have it; None for any other, which `encode_columns` takes."""
        numbers = [record.get(name) for name in self.numeric]
        if (
            not _PLAIN.issuperset(map(type, numbers))
            or math.inf in numbers
            or -math.inf in numbers
        ):
            return None
        for number, (lower, upper), may_miss in zip(
            numbers, self._ranges, self._may_miss, strict=True
        ):
            if number is None:
                if not may_miss:
                    return None
            elif not lower <= number <= upper:
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
        mean, members, _ = self.run_all(x_num, x_cat)
        return mean, members

    def run_all(
        self, x_num: NDArray[np.float64], x_cat: NDArray[np.object_]
    ) -> Answered:
        """The same, and how unlike the training rows they are."""
        if 0 < len(x_num) <= MAX_ROWS:
            return self._run(x_num, x_cat)
        classes = () if self.classes is None else (len(self.classes),)
        mean = np.empty((len(x_num), *classes), dtype=np.float32)
        members = np.empty((len(x_num), self.k, *classes), dtype=np.float32)
        novelty = np.empty((len(x_num), 3), dtype=np.float32)
        for start in range(0, len(x_num), MAX_ROWS):
            rows = slice(start, start + MAX_ROWS)
            mean[rows], members[rows], found = self._run(x_num[rows], x_cat[rows])
            if found is not None:
                novelty[rows] = found
        return Answered(mean, members, novelty if self.has_novelty else None)

    def _run(self, x_num: NDArray[np.float64], x_cat: NDArray[np.object_]) -> Answered:
        inputs: dict[str, Array] = {}
        if self.numeric:
            inputs["numeric"] = np.ascontiguousarray(x_num, np.float64)
        if self.categorical:
            inputs["categorical"] = x_cat
        return Answered(*self._session.run(self._outputs, inputs))

    @property
    def knows_trust(self) -> bool:
        """Whether answers have a `trust`."""
        return self._ranks is not None

    def find_groups(self, x_cat: NDArray[np.object_]) -> NDArray[np.object_] | None:
        """Of encoded rows, the values that have intervals or sets of their own."""
        if self._group_column < 0:
            return None
        groups: NDArray[np.object_] = x_cat[:, self._group_column]
        return groups

    def describe(
        self,
        mean: Array,
        members: Array,
        *,
        calibrated: bool = False,
        coverage: float = 0.9,
        conformal: Method | None = None,
        groups: Array | None = None,
        novelty: Array | None = None,
        warnings: Sequence[str] = (),
    ) -> Prediction:
        """The answer that `run` gave, with labels and the uncertainty of each row.

        Args:
            groups: what `find_groups` gave.
        """
        fields = self.describe_fields(
            mean,
            members,
            calibrated=calibrated,
            coverage=coverage,
            conformal=conformal,
            groups=groups,
            novelty=novelty,
        )
        return Prediction(**fields, warnings=[*warnings])

    def describe_fields(
        self,
        mean: Array,
        members: Array,
        *,
        calibrated: bool = False,
        coverage: float = 0.9,
        conformal: Method | None = None,
        groups: Array | None = None,
        novelty: Array | None = None,
        without: Collection[str] = (),
    ) -> dict[str, Any]:
        """What `describe` tells of each row, as a dict of the fields of its answer.

        Args:
            without: fields that are not wanted, and need not be there.
        """
        choice = None
        if self.conformal is not None:
            choice = self.conformal.choose(coverage, conformal, groups)
        temperature = self._temperature() if calibrated else 1.0
        fields: dict[str, Any] = {"mean": mean, "members": members}
        if novelty is not None:
            for i, name in enumerate(("novelty", "out_of_range", "unseen")):
                if name not in without:
                    fields[name] = novelty[:, i]
        if self.classes is None:
            spread = _spread(members)
            fields["member_std"] = spread
            if choice is not None and "interval" not in without:
                assert self.conformal is not None
                fields["interval"] = self.conformal.interval(mean, spread, choice)
            if "trust" not in without:
                fields["trust"] = self._trust(spread)
            return fields
        if choice is not None and "set" not in without:
            assert self.conformal is not None
            fields["set"] = [
                [self.classes[c] for c in chosen]
                for chosen in self.conformal.list_sets(mean, choice)
            ]
        entropy = None
        if "entropy" not in without or "trust" not in without:
            entropy = metrics.predictive_entropy(mean)
        if "trust" not in without:
            fields["trust"] = self._trust(entropy)
        if temperature != 1:
            fields["mean"] = mean = metrics.temper(mean, temperature)
            entropy = metrics.predictive_entropy(mean)
        fields["label"] = [self.classes[c] for c in mean.argmax(axis=1)]
        fields["entropy"] = entropy
        for name, uncertainty in (
            ("mutual_information", metrics.mutual_information),
            ("disagreement", metrics.disagreement),
        ):
            if name not in without:
                fields[name] = uncertainty(members)
        return fields

    def find_trust(self, mean: Array, members: Array) -> Array | None:
        """`trust` of answered rows; None if the file does not know."""
        if self._ranks is None:
            return None
        if self.classes is None:
            return self._trust(metrics.member_std(members))
        return self._trust(metrics.predictive_entropy(mean))

    def _trust(self, doubt: Array | None) -> Array | None:
        """Share of calibration rows that were less certain; None if unknown."""
        if self._ranks is None or doubt is None:
            return None
        return metrics.trust(doubt, self._ranks)

    def warn_of_coverage(
        self, coverage: float, conformal: Method | None = None
    ) -> list[str]:
        """Where too few rows calibrated for intervals or sets of this coverage."""
        if self.conformal is None:
            return []
        return self.conformal.warnings(coverage, conformal)

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

        The file takes all of them alike, but cannot take every Python string.
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


def _spread(members: Array) -> Array | None:
    """The standard deviation over members, sooner for one row, as most requests have:
    a handful of numpy's calls takes as long as a quarter of a small model's run."""
    n_rows, k = members.shape
    if n_rows > 1 or k == 1:
        return metrics.member_std(members)
    numbers = members[0].tolist()
    mean = sum(numbers) / k
    return np.array([math.dist(numbers, [mean] * k) / math.sqrt(k)])


def _widen(lower: float, upper: float) -> tuple[float, float]:
    """Beyond which a number is out of range: those of `lometab.table.Novelty`."""
    margin = MARGIN * (upper - lower) if upper < math.inf else 0.0
    return lower - margin, upper + margin


# ----------------------------------------------------------------------------
# Rows to columns


def _infinite(
    x_num: NDArray[np.float64], names: Sequence[str], first_row: int
) -> DataError:
    row, column = (int(place[0]) for place in np.nonzero(np.isinf(x_num)))
    return DataError(
        f"column {names[column]!r} holds an infinite number in row {row + first_row}; "
        "replace it by a large number or leave it empty",
        column=names[column],
    )
