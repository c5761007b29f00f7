"""What is in a table: the facts of every column, by a few passes of SQL over the file.

The queries count; what a cell means is still for `lometab.cells` to say. Plain numbers
are counted by DuckDB, whose reading of them is the same (a test compares); any other
format is tried by `cells` itself, batch by batch.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lometab import cells
from lometab.config import Task
from lometab.data import (
    Facts,
    Float,
    Schema,
    Verdict,
    count_steps,
    features,
    find_formats,
    guess_task,
    judge,
    measure,
    target,
)
from lometab.errors import DataError
from lometab.reading import Reading, ReadOptions
from lometab.tables import ParquetTable

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
N_TOP = 10
N_HEAD = 5
_MAX_COUNTED = 10_000
"""Texts are counted one by one up to so many distinct ones."""
_MAX_LISTED = 1000
"""The same for numbers."""
_SAMPLED = 20_000
"""Quantiles are taken of about so many rows."""
_FEW_ROWS = 20_000
"""A table of so many rows is measured in memory: a query would take longer."""
_FEW_BYTES = 2**25
"""And of so many bytes."""
_MEMORY = "80MB"
_FORMATS = ("1,234.5", "1.234,5", "y-m-d", "d/m/y", "m/d/y")


@dataclass(frozen=True, kw_only=True)
class ColumnProfile:
    name: str
    verdict: Verdict
    n_missing: int
    missing_share: float
    n_distinct: int
    example: str | None
    """The first cell that is there, among the first rows."""
    range: tuple[float, float] | None = None
    quantiles: dict[str, float] | None = None
    top: tuple[tuple[str, int], ...] | None = None
    """The most frequent texts with their counts."""

    def to_dict(self) -> dict[str, Any]:
        state = asdict(self)
        verdict: dict[str, Any] = state.pop("verdict")
        return {"name": self.name} | verdict | state


@dataclass(frozen=True, kw_only=True)
class Profile:
    columns: tuple[ColumnProfile, ...]
    head: tuple[tuple[str | None, ...], ...]
    """The first rows, as texts."""
    warnings: tuple[str, ...]
    suggestions: tuple[dict[str, str], ...]
    """Targets and tasks that may be meant."""


def profile_table(
    path: Path, reading: Reading, options: ReadOptions | None = None
) -> Profile:
    """The profile of a table that `read_file` wrote."""
    options = options or ReadOptions()
    file = pq.ParquetFile(path, pre_buffer=False)
    with _Table(file, path, options.missing, reading.n_bytes) as table:
        columns = [
            _describe(table, i, name, measured, options, reading)
            for i, (name, measured) in enumerate(
                zip(reading.names, table.measure(), strict=True)
            )
        ]
        columns = _follow_format(table, columns, options)
        columns = _mark_copies(table, columns)
    return Profile(
        columns=tuple(columns),
        head=_head(file),
        warnings=(*reading.warnings, *_warn(columns)),
        suggestions=tuple(_suggest(columns)),
    )


def _describe(
    table: "_Table",
    i: int,
    name: str,
    measured: "_Measured",
    options: ReadOptions,
    reading: Reading,
) -> ColumnProfile:
    facts = measured.facts
    number_format: str | None = options.number_format
    if number_format is None and reading.delimiter is not None:
        # A comma that also parts cells would have to be quoted in every number.
        number_format = "1,234.5" if reading.delimiter.value == "," else "1.234,5"
    elif number_format in _FORMATS and facts.is_number:
        facts = replace(facts, formats=table.find_formats(i, (number_format,)))
    verdict = judge(
        name,
        facts,
        number_format=number_format,
        is_format_told=options.number_format is not None,
        date_format=options.date_format,
    )
    return ColumnProfile(
        name=name,
        verdict=verdict,
        n_missing=facts.n_missing,
        missing_share=round(facts.n_missing / facts.n_rows, 6),
        n_distinct=facts.n_distinct,
        example=table.find_example(i),
        range=measured.range if verdict.format is None else None,
        quantiles=measured.quantiles if verdict.format is None else None,
        top=measured.top,
    )


def _follow_format(
    table: "_Table", columns: list[ColumnProfile], options: ReadOptions
) -> list[ColumnProfile]:
    """Where a column proves that a file writes 1.234,5, then 1.000 is a thousand."""
    told = options.number_format is not None
    if told or all(column.verdict.format != "1.234,5" for column in columns):
        return columns
    followed = [*columns]
    for i, column in enumerate(columns):
        verdict = column.verdict
        is_plain = verdict.kind == "numeric" and verdict.format is None
        if is_plain and "." in (column.example or ""):
            if table.find_formats(i, ("1.234,5",)):
                note = "its numbers are read as 1.234,5, as those of other columns are"
                verdict = replace(verdict, format="1.234,5", note=note)
                followed[i] = replace(
                    column, verdict=verdict, range=None, quantiles=None
                )
    return followed


def _mark_copies(table: "_Table", columns: list[ColumnProfile]) -> list[ColumnProfile]:
    """Columns that say the same as an earlier one in every row are ignored."""
    alike: dict[Any, list[int]] = {}
    for i, column in enumerate(columns):
        if column.verdict.kind != "ignore":
            sign = (column.n_missing, column.n_distinct, column.range, column.top)
            alike.setdefault(sign, []).append(i)
    marked = [*columns]
    for places in alike.values():
        first: dict[bytes, int] = {}
        for i in places if len(places) > 1 else ():
            earlier = first.setdefault(table.digest(i), i)
            if earlier != i and table.is_copy(i, earlier):
                marked[i] = replace(
                    columns[i],
                    verdict=replace(
                        columns[i].verdict,
                        kind="ignore",
                        looks_like="copy",
                        reason=f"it says the same as {columns[earlier].name!r} in "
                        "every row",
                        note=None,
                    ),
                )
    return marked


def _warn(columns: Sequence[ColumnProfile]) -> Iterator[str]:
    for column in columns:
        verdict = column.verdict
        if verdict.reason is not None:
            yield f"column {column.name!r} is not used: {verdict.reason}"
        elif verdict.note is not None:
            yield f"column {column.name!r}: {verdict.note}"


def _suggest(columns: Sequence[ColumnProfile]) -> Iterator[dict[str, str]]:
    """Columns named as targets are, and the last one."""
    usable = [c for c in columns if c.verdict.kind in ("numeric", "categorical")]
    for column in usable:
        is_named = column.name.lower() in _TARGETS
        if is_named or column is usable[-1]:
            why = "its name" if is_named else "it is the last column"
            yield {"target": column.name, "task": _task(column), "why": why}


_TARGETS = {"target", "label", "class", "y", "outcome", "response", "income", "price"}


def _task(column: ColumnProfile) -> Task:
    if column.verdict.kind == "categorical" or column.n_distinct == 2:
        return "binary" if column.n_distinct == 2 else "multiclass"
    if column.top is None or column.verdict.format is not None:
        return "regression"
    return guess_task([text for text, _ in column.top])


def _head(file: pq.ParquetFile) -> tuple[tuple[str | None, ...], ...]:
    batch = next(file.iter_batches(batch_size=N_HEAD))
    columns = [
        [_show(cell) for cell in column] for column in batch.to_pydict().values()
    ]
    return tuple(zip(*columns, strict=True))


def _show(cell: object) -> str | None:
    text = None if cell is None else str(cell)
    return text if text is None or len(text) <= 200 else text[:197] + "..."


# ----------------------------------------------------------------------------
# Leaks


def find_leaks(table: ParquetTable, schema: Schema) -> list[str]:
    """Warnings about columns each of which alone tells the target almost perfectly."""
    sample = table.sample(_LEAK_ROWS)
    x_num, x_cat = features(sample, schema)
    y = target(sample, schema)
    kept = ~np.isnan(y) if schema.classes is None else y >= 0
    if kept.sum() < 50:
        return []
    left: dict[str, float] = {}
    for i, name in enumerate(schema.numeric):
        values = x_num[kept, i]
        if schema.classes is None:
            left[name] = _left_of_order(y[kept], values)
        else:
            left[name] = _left_of_errors(y[kept], _bins(values))
    measure_groups = _left_of_variance if schema.classes is None else _left_of_errors
    for i, name in enumerate(schema.categorical):
        groups = np.unique(x_cat[kept, i], return_inverse=True)[1]
        if groups.max() < kept.sum() / 5:
            left[name] = measure_groups(y[kept], groups)
    return [
        f"column {name!r} alone tells the target almost perfectly; if it is not known "
        "before the target is, set it to `ignore`"
        for name, share in left.items()
        if share < _LEAK_LEFT
    ]


_LEAK_ROWS = 20_000
_LEAK_LEFT = 0.01
"""What a leak leaves of the errors, or of the variance."""


def _bins(values: Float) -> NDArray[np.intp]:
    """Which of up to 200 bins of as many values each holds a value; the missing ones
    have one of their own."""
    count = min(200, len(values) // 10)
    ends = np.unique(np.nanquantile(values, np.linspace(0, 1, count + 1)[1:-1]))
    bins = np.searchsorted(ends, values)
    return np.where(np.isnan(values), len(ends) + 1, bins)


def _left_of_order(y: Float, values: Float) -> float:
    """The share of the variance of y's ranks that those of the values do not tell."""
    known = np.where(np.isnan(values), np.nanmedian(values), values)
    one, other = (
        np.unique(array, return_inverse=True)[1].astype(np.float64)
        for array in (y, known)
    )
    scale = one.std() * other.std()
    if scale == 0:
        return 1.0
    correlation = ((one - one.mean()) * (other - other.mean())).mean() / scale
    return float(1 - correlation**2)


def _left_of_variance(y: Float, group: NDArray[np.intp]) -> float:
    """The share of the variance of y that is within groups."""
    sizes = np.bincount(group)
    means = np.bincount(group, weights=y) / np.maximum(sizes, 1)
    total = y.var()
    return float(((y - means[group]) ** 2).mean() / total) if total else 1.0


def _left_of_errors(y: NDArray[np.int64], group: NDArray[np.intp]) -> float:
    """The errors of the most frequent class of each group, relative to those of the
    most frequent of all."""
    n_errors = len(y) - np.bincount(y).max()
    counts = np.zeros((group.max() + 1, y.max() + 1), dtype=np.int64)
    np.add.at(counts, (group, y), 1)
    left = len(y) - counts.max(axis=1).sum()
    return float(left / n_errors) if n_errors else 1.0


# ----------------------------------------------------------------------------
# The queries


@dataclass(frozen=True, kw_only=True)
class _Measured:
    facts: Facts
    range: tuple[float, float] | None = None
    quantiles: dict[str, float] | None = None
    top: tuple[tuple[str, int], ...] | None = None


class _Table:
    """The columns c0, c1, ... of a Parquet file, for DuckDB and for Arrow.

    A table of few rows is measured in memory. Of a larger one, one pass counts what is
    there and describes what of it is a number, without regard to blanks around cells.
    Columns of plain numbers are done with that; of the others, the distinct texts are
    counted and read by `cells`, and those with too many are read whole, batch by batch.
    """

    def __init__(
        self,
        file: pq.ParquetFile,
        path: Path,
        missing: Collection[str],
        n_bytes: int,
    ) -> None:
        self._file = file
        self._n_bytes = n_bytes
        self._database: duckdb.DuckDBPyConnection | None = None
        self._source = f"read_parquet({_quoted(str(path))}, file_row_number = true)"
        self._missing = frozenset(missing)
        self._types = [field.type for field in file.schema_arrow]
        self.n_rows: int = file.metadata.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def measure(self) -> list[_Measured]:
        n_columns = len(self._types)
        if self.n_rows <= _FEW_ROWS and self._n_bytes <= _FEW_BYTES:
            return [self._measure_column(self._read(i)) for i in range(n_columns)]
        return [self._measure(i, row) for i, row in enumerate(self._count_all())]

    def digest(self, i: int) -> bytes:
        """Equal for equal columns, and hardly ever for others."""
        digest = hashlib.blake2b(digest_size=16)
        for values in self._batches(i):
            for buffer in values.buffers():
                digest.update(buffer or b"")
        return digest.digest()

    def find_example(self, i: int) -> str | None:
        for values in self._batches(i):
            for cell in values[:1000].to_pylist():
                if cells.category(cell, self._missing):
                    return _show(cell)
            return None
        return None

    def find_formats(self, i: int, candidates: tuple[str, ...]) -> tuple[str, ...]:
        for values in self._batches(i):
            candidates = find_formats(values, self._missing, candidates)
            if not candidates:
                break
        return candidates

    def is_copy(self, i: int, j: int) -> bool:
        pairs = zip(self._batches(i), self._batches(j), strict=True)
        return all(one.equals(other) for one, other in pairs)

    def _measure_column(self, column: pa.ChunkedArray) -> _Measured:
        facts = measure(column, self._missing)
        if pa.types.is_boolean(column.type):
            facts = replace(facts, is_number=False, is_boolean=True)
        counted = column.value_counts()
        names, numbers = counted.field(0).to_pylist(), counted.field(1).to_pylist()
        counts = _merge(dict(zip(names, numbers, strict=True)), self._missing)
        measured = _Measured(facts=facts, top=_top(counts))
        if not facts.is_number or not counts:
            return measured
        values = cells.numbers(column, "", self._missing)
        values = np.sort(values[~np.isnan(values)])
        finite = values[np.isfinite(values)]
        quantiles = None
        if len(finite):
            with np.errstate(over="ignore", invalid="ignore"):
                quantiles = np.quantile(finite, QUANTILES).tolist()
        return replace(
            measured,
            range=_finite(values[0], values[-1]),
            quantiles=_name_quantiles(quantiles),
        )

    def _measure(self, i: int, row: Any) -> _Measured:
        if row is None:  # texts too long for the queries
            return self._measure_batches(i, None)
        if row["n_numbers"] == row["present"] > 0 and row["n_odd"] == 0:
            return self._measure_numbers(i, row)
        kind = self._types[i]
        if row["n_distinct"] <= _MAX_COUNTED:
            measured = self._measure_texts(self._count_texts(i))
        else:
            measured = self._measure_batches(i, row["n_distinct"])
        if pa.types.is_timestamp(kind):
            return replace(measured, facts=replace(measured.facts, formats=("y-m-d",)))
        if pa.types.is_boolean(kind):
            facts = replace(measured.facts, is_number=False, is_boolean=True)
            return _Measured(facts=facts, top=measured.top)
        return measured

    def _measure_numbers(self, i: int, row: Any) -> _Measured:
        n_missing = self.n_rows - row["present"]
        top = None
        n_distinct = min(row["n_distinct"], row["present"])
        if n_distinct <= _MAX_LISTED:
            counts = _merge(self._count_texts(i), self._missing)
            n_distinct, top = len(counts), _top(counts)
        is_whole = row["n_whole"] == row["present"]
        is_counted = is_monotone = False
        if is_whole and n_missing == 0 and n_distinct > 0.8 * self.n_rows:
            is_counted, is_monotone = count_steps(self._read_numbers(i))
            n_distinct = self.n_rows if is_counted else n_distinct
        return _Measured(
            facts=Facts(
                n_rows=self.n_rows,
                n_missing=n_missing,
                n_distinct=n_distinct,
                is_number=True,
                is_whole=is_whole,
                is_counted=is_counted,
                is_monotone=is_monotone,
            ),
            range=_finite(row["low"], row["high"]),
            quantiles=_name_quantiles(row["quantiles"]),
            top=top,
        )

    def _measure_texts(self, counted: dict[Any, int]) -> _Measured:
        """A column by its distinct cells, each with its count."""
        counts = _merge(counted, self._missing)
        facts = replace(
            measure([*counted], self._missing),
            n_rows=self.n_rows,
            n_missing=self.n_rows - sum(counts.values()),
            n_distinct=len(counts),
        )
        measured = _Measured(facts=facts, top=_top(counts))
        if not facts.is_number or not counts:
            return measured
        values = cells.numbers([*counted], "", self._missing)
        order = np.argsort(values)
        weights = np.cumsum(np.array([*counted.values()])[order][: len(values)])
        values = values[order][~np.isnan(values[order])]
        places = np.searchsorted(
            weights[: len(values)], np.array(QUANTILES) * weights[len(values) - 1]
        )
        # Every text is distinct here, but in the column it may come again.
        is_counted = facts.is_counted and len(counts) == self.n_rows
        return replace(
            measured,
            facts=replace(facts, is_counted=is_counted, is_monotone=False),
            range=_finite(values[0], values[-1]),
            quantiles=_name_quantiles(values[places].tolist()),
        )

    def _measure_batches(self, i: int, n_distinct: int | None) -> _Measured:
        """A column of too many distinct texts to be counted one by one."""
        n_missing, n_seen, is_number = 0, 0, True
        formats: tuple[str, ...] = _FORMATS
        low, high = np.inf, -np.inf
        for values in self._batches(i):
            texts = cells.texts(values, self._missing)
            n_missing += texts.null_count if texts is not None else values.null_count
            if n_distinct is None:
                n_seen += len(values.unique())
            if formats:
                formats = find_formats(values, self._missing, formats)
            if is_number:
                try:
                    numbers = cells.numbers(values, "", self._missing)
                except DataError:
                    is_number = False
                    continue
                low = np.fmin(low, np.fmin.reduce(numbers))
                high = np.fmax(high, np.fmax.reduce(numbers))
        facts = Facts(
            n_rows=self.n_rows,
            n_missing=n_missing,
            n_distinct=min(n_distinct or n_seen, self.n_rows - n_missing),
            is_number=is_number,
            formats=() if is_number else formats,
        )
        return _Measured(facts=facts, range=_finite(low, high) if is_number else None)

    # SQL of one column: `t` is its cell, null if missing; `n` the number in it

    def _cell(self, i: int) -> str:
        kind = self._types[i]
        if pa.types.is_floating(kind):
            return f"CASE WHEN isnan(c{i}) THEN NULL ELSE c{i} END AS t{i}"
        if not pa.types.is_string(kind):
            return f"c{i} AS t{i}"
        missing = ", ".join(_quoted(word) for word in sorted(self._missing))
        return f"CASE WHEN c{i} IN ({missing}) THEN NULL ELSE c{i} END AS t{i}"

    def _number(self, i: int) -> str:
        kind = self._types[i]
        if pa.types.is_timestamp(kind) or pa.types.is_boolean(kind):
            return f"CAST(NULL AS DOUBLE) AS n{i}"
        return f"TRY_CAST(t{i} AS DOUBLE) AS n{i}"

    def _count(self, i: int) -> str:
        odd = "0"
        if pa.types.is_string(self._types[i]):
            # Texts that DuckDB takes for numbers and `cells.number` does not.
            odd = f"count(*) FILTER (contains(t{i}, '_') OR isnan(n{i}))"
        every = max(1, self.n_rows // _SAMPLED)
        sampled = f"file_row_number % {every} = 0 AND isfinite(n{i})"
        return (
            f"{{'present': count(t{i}), 'n_numbers': count(n{i}), 'n_odd': {odd}, "
            f"'n_distinct': approx_count_distinct(t{i}), "
            f"'low': min(n{i}), 'high': max(n{i}), "
            f"'n_whole': count(*) FILTER (isfinite(n{i}) AND n{i} = trunc(n{i})), "
            f"'quantiles': quantile_cont(n{i}, {[*QUANTILES]}) FILTER ({sampled})}}"
        )

    def _count_all(self) -> list[Any]:
        """A dict for each column."""
        found: list[Any] = []
        for start in range(0, len(self._types), _AT_ONCE):
            part = range(start, min(start + _AT_ONCE, len(self._types)))
            counts, numbers, texts = (
                ", ".join(map(select, part))
                for select in (self._count, self._number, self._cell)
            )
            inner = f"SELECT {texts}, file_row_number FROM {self._source}"
            middle = f"SELECT *, {numbers} FROM ({inner})"
            try:
                found += self._fetch(f"SELECT {counts} FROM ({middle})")
            except duckdb.OutOfMemoryException:
                found += [None] * len(part)
        return found

    def _fetch(self, query: str) -> tuple[Any, ...]:
        """The only row of the answer."""
        if self._database is None:
            self._database = duckdb.connect(config={"memory_limit": _MEMORY})
            self._database.execute("SET preserve_insertion_order = false")
        row = self._database.execute(query).fetchone()
        assert row is not None
        return row

    # Arrow, where a cell has to be understood

    def _batches(self, i: int) -> Iterator[pa.Array]:
        size = max(1, self._n_bytes // self.n_rows)
        n_rows = min(2**16, max(16, 2**24 // size))
        for batch in self._file.iter_batches(batch_size=n_rows, columns=[f"c{i}"]):
            yield batch.column(0)

    def _read(self, i: int) -> pa.ChunkedArray:
        return self._file.read(columns=[f"c{i}"]).column(0)

    def _count_texts(self, i: int) -> dict[Any, int]:
        """How often each cell comes."""
        counts: Counter[Any] = Counter()
        for values in self._batches(i):
            found = values.value_counts()
            cells_, numbers = found.field(0).to_pylist(), found.field(1).to_pylist()
            counts.update(dict(zip(cells_, numbers, strict=True)))
        return counts

    def _read_numbers(self, i: int) -> Float:
        parts = [cells.numbers(v, "", self._missing) for v in self._batches(i)]
        return np.concatenate(parts)


_AT_ONCE = 5
"""Columns in one query: more would take more memory, and long to plan."""


def _merge(counted: dict[Any, int], missing: Collection[str]) -> dict[str, int]:
    """Counts of categories from those of cells; `3` and `3.0` are one."""
    counts: dict[str, int] = {}
    for cell, count in counted.items():
        text = cells.category(cell, missing)
        if text:
            counts[text] = counts.get(text, 0) + count
    return counts


def _top(counts: dict[str, int]) -> tuple[tuple[str, int], ...]:
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple((_show(text) or "", count) for text, count in ranked[:N_TOP])


def _finite(low: float, high: float) -> tuple[float, float] | None:
    return (float(low), float(high)) if np.isfinite([low, high]).all() else None


def _name_quantiles(values: Sequence[float] | None) -> dict[str, float] | None:
    if values is None or not np.isfinite(values).all():
        return None
    return dict(zip(map(str, QUANTILES), values, strict=True))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
