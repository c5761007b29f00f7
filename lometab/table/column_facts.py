"""The facts of every column of a table, by a few passes of SQL over its file.

The queries count; what a value means is still for `values` to say. Plain numbers are
counted by DuckDB, whose reading of them is the same (a test compares); any other
format is tried by `values` itself, batch by batch.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lometab.errors import DataError
from lometab.table.format_search import FormatSearch, find_forms, fits_all
from lometab.table.kinds import (
    Facts,
    Float,
    add_forms,
    count_steps,
    find_counts,
    find_facts,
    merge,
)
from lometab.table.values import (
    BLANKS,
    category,
    count_missing_words,
    count_texts,
    read_all_texts,
    read_numbers,
    read_texts,
)

if TYPE_CHECKING:
    import duckdb

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
N_TOP = 10
_MAX_COUNTED = 10_000
"""Texts are counted one by one up to so many distinct ones."""
_MAX_LISTED = 1000
"""The same for numbers."""
_SAMPLED = 20_000
"""Quantiles are taken of about so many rows."""
_FEW_ROWS = 20_000
"""A table of so many rows is looked at in memory: a query would take longer."""
_FEW_BYTES = 2**25
"""And of so many bytes."""
_MEMORY = "80MB"


@dataclass(frozen=True, kw_only=True)
class Summary:
    facts: Facts
    range: tuple[float, float] | None = None
    quantiles: dict[str, float] | None = None
    top: tuple[tuple[str, int], ...] | None = None


class ColumnFacts:
    """The columns c0, c1, ... of a Parquet file, for DuckDB and for Arrow.

    A table of few rows is looked at in memory. Of a larger one, one pass counts what is
    there and tells what of it is a number, without regard to blanks around values.
    Columns of plain numbers are done with that; of the others, the distinct texts are
    counted and read by `values`; those with too many are read whole, batch by batch.
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
        self._whole: pa.Table | None = None
        if self.n_rows <= _FEW_ROWS and n_bytes <= _FEW_BYTES:
            self._whole = file.read().combine_chunks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()

    def summarise(self) -> list[Summary]:
        if self._whole is not None:
            columns = self._whole.columns
            texts = read_all_texts(columns, self._missing)
            return [*map(self._summarise_column, columns, texts)]
        return [self._summarise(i, row) for i, row in enumerate(self._count_all())]

    def digest(self, i: int) -> bytes:
        """Equal for equal columns, and hardly ever for others."""
        digest = hashlib.blake2b(digest_size=16)
        for values in self._batches(i):
            for buffer in values.buffers():
                digest.update(buffer or b"")
        return digest.digest()

    def find_example(self, i: int) -> str | None:
        for values in self._batches(i):
            for value in values[:1000].to_pylist():
                if category(value, self._missing):
                    return show_value(value)
            return None
        return None

    def fits(self, i: int, form: str) -> bool:
        """Whether all texts of a column are numbers or dates of this form."""
        for values in self._batches(i):
            texts = count_texts(values, self._missing)
            if texts is None or not fits_all(texts, form):
                return False
        return True

    def describe_numbers(
        self, i: int, form: str
    ) -> tuple[tuple[float, float] | None, dict[str, float] | None]:
        """The range and the quantiles of numbers of some form."""
        parts = [read_numbers(v, "", self._missing, form) for v in self._batches(i)]
        values = np.concatenate(parts)
        return _describe(np.sort(values[~np.isnan(values)]))

    def find_rows(self, i: int, texts: Sequence[str]) -> dict[str, int]:
        """The first row of each text, from 0."""
        rows: dict[str, int] = {}
        start = 0
        for values in self._batches(i):
            trimmed = pc.utf8_trim(values, characters=BLANKS)
            for text in texts:
                place = pc.index(trimmed, pa.scalar(text, trimmed.type)).as_py()
                if place >= 0 and text not in rows:
                    rows[text] = start + place
            start += len(values)
            if len(rows) == len(texts):
                break
        return rows

    def count_missing_words(self, i: int) -> tuple[tuple[str, int], ...]:
        """Words that were read as missing, the most frequent first."""
        counts: Counter[str] = Counter()
        for values in self._batches(i):
            counts.update(count_missing_words(values, self._missing))
        return tuple(counts.most_common())

    def is_copy(self, i: int, j: int) -> bool:
        pairs = zip(self._batches(i), self._batches(j), strict=True)
        return all(one.equals(other) for one, other in pairs)

    def _summarise_column(self, column: pa.ChunkedArray, texts: Any) -> Summary:
        facts, counts, values = find_counts(column, self._missing, texts)
        if pa.types.is_boolean(column.type):
            facts = replace(facts, is_number=False, is_boolean=True)
        summary = Summary(facts=facts, top=_top(counts))
        if not facts.is_number or not counts:
            return summary
        assert values is not None
        extent, quantiles = _describe(np.sort(values[~np.isnan(values)]))
        return replace(summary, range=extent, quantiles=quantiles)

    def _summarise(self, i: int, row: Any) -> Summary:
        if row is None:  # texts too long for the queries
            return self._summarise_batches(i, None)
        if row["n_numbers"] == row["present"] > 0 and row["n_odd"] == 0:
            return self._summarise_numbers(i, row)
        kind = self._types[i]
        if row["n_distinct"] <= _MAX_COUNTED:
            summary = self._summarise_texts(self._count_texts(i))
        else:
            summary = self._summarise_batches(i, row["n_distinct"])
        if pa.types.is_timestamp(kind):
            facts = replace(summary.facts, formats=("y-m-d",), nearly=None)
            return replace(summary, facts=facts)
        if pa.types.is_boolean(kind):
            facts = replace(summary.facts, is_number=False, is_boolean=True)
            return Summary(facts=facts, top=summary.top)
        return summary

    def _summarise_numbers(self, i: int, row: Any) -> Summary:
        n_missing = self.n_rows - row["present"]
        top = None
        n_distinct = min(row["n_distinct"], row["present"])
        if n_distinct <= _MAX_LISTED:
            counts = merge(self._count_texts(i), self._missing)
            n_distinct, top = len(counts), _top(counts)
        is_whole = row["n_whole"] == row["present"]
        is_counted = is_monotone = False
        if is_whole and n_missing == 0 and n_distinct > 0.8 * self.n_rows:
            is_counted, is_monotone = count_steps(self._read_numbers(i))
            n_distinct = self.n_rows if is_counted else n_distinct
        return Summary(
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

    def _summarise_texts(self, counted: dict[Any, int]) -> Summary:
        """A column by its distinct values, each with its count."""
        counts = merge(counted, self._missing)
        facts = replace(
            find_facts([*counted], self._missing),
            n_rows=self.n_rows,
            n_missing=self.n_rows - sum(counts.values()),
            n_distinct=len(counts),
        )
        if not facts.is_number:
            facts = add_forms(facts, find_forms(_trim(counted, self._missing)))
        summary = Summary(facts=facts, top=_top(counts))
        if not facts.is_number or not counts:
            return summary
        values = read_numbers([*counted], "", self._missing)
        order = np.argsort(values)
        weights = np.cumsum(np.array([*counted.values()])[order][: len(values)])
        values = values[order][~np.isnan(values[order])]
        places = np.searchsorted(
            weights[: len(values)], np.array(QUANTILES) * weights[len(values) - 1]
        )
        # Every text is distinct here, but in the column it may come again.
        is_counted = facts.is_counted and len(counts) == self.n_rows
        return replace(
            summary,
            facts=replace(facts, is_counted=is_counted, is_monotone=False),
            range=_finite(values[0], values[-1]),
            quantiles=_name_quantiles(values[places].tolist()),
        )

    def _summarise_batches(self, i: int, n_distinct: int | None) -> Summary:
        """A column of too many distinct texts to be counted one by one."""
        n_missing, n_seen, is_number = 0, 0, True
        search = FormatSearch()
        low, high = np.inf, -np.inf
        for values in self._batches(i):
            texts = read_texts(values, self._missing)
            n_missing += texts.null_count if texts is not None else values.null_count
            if n_distinct is None:
                n_seen += len(values.unique())
            search.add(count_texts(values, self._missing) or {})
            if is_number:
                try:
                    numbers = read_numbers(values, "", self._missing)
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
        )
        if not is_number:
            facts = add_forms(facts, search.result(self.n_rows - n_missing))
        return Summary(facts=facts, range=_finite(low, high) if is_number else None)

    # SQL of one column: `t` is its value, null if missing; `n` the number in it

    def _value(self, i: int) -> str:
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
            # Texts that DuckDB takes for numbers and `number` does not.
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
        import duckdb  # small tables do without

        found: list[Any] = []
        for start in range(0, len(self._types), _AT_ONCE):
            part = range(start, min(start + _AT_ONCE, len(self._types)))
            counts, numbers, texts = (
                ", ".join(map(select, part))
                for select in (self._count, self._number, self._value)
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
        import duckdb

        if self._database is None:
            self._database = duckdb.connect(config={"memory_limit": _MEMORY})
            self._database.execute("SET preserve_insertion_order = false")
        row = self._database.execute(query).fetchone()
        assert row is not None
        return row

    # Arrow, where a value has to be understood

    def _batches(self, i: int) -> Iterator[pa.Array]:
        if self._whole is not None:
            yield from self._whole.column(i).chunks
            return
        size = max(1, self._n_bytes // self.n_rows)
        n_rows = min(2**16, max(16, 2**24 // size))
        for batch in self._file.iter_batches(batch_size=n_rows, columns=[f"c{i}"]):
            yield batch.column(0)

    def _read(self, i: int) -> pa.ChunkedArray:
        if self._whole is not None:
            return self._whole.column(i)
        return self._file.read(columns=[f"c{i}"]).column(0)

    def _count_texts(self, i: int) -> dict[Any, int]:
        """How often each value comes."""
        counts: Counter[Any] = Counter()
        for values in self._batches(i):
            found = values.value_counts()
            found_values, numbers = (
                found.field(0).to_pylist(),
                found.field(1).to_pylist(),
            )
            counts.update(dict(zip(found_values, numbers, strict=True)))
        return counts

    def _read_numbers(self, i: int) -> Float:
        parts = [read_numbers(v, "", self._missing) for v in self._batches(i)]
        return np.concatenate(parts)


_AT_ONCE = 5
"""Columns in one query: more would take more memory, and long to plan."""


def _trim(counted: dict[Any, int], missing: Collection[str]) -> dict[str, int]:
    """Counts of texts without blanks around them; other values by their category."""
    counts: dict[str, int] = {}
    for value, count in counted.items():
        text = value.strip(BLANKS) if isinstance(value, str) else category(value)
        if text and text not in missing:
            counts[text] = counts.get(text, 0) + count
    return counts


def _top(counts: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The most frequent; of those as frequent, the first by the alphabet."""
    least = sorted(counts.values(), reverse=True)[:N_TOP][-1:] or [0]
    more = [(text, n) for text, n in counts.items() if n > least[0]]
    ranked = sorted(more, key=lambda pair: (-pair[1], pair[0]))
    tied = sorted(text for text, n in counts.items() if n == least[0])
    tied = tied[: N_TOP - len(ranked)]
    ranked += [(text, least[0]) for text in tied]
    return tuple((show_value(text) or "", count) for text, count in ranked)


def _describe(
    values: Float,
) -> tuple[tuple[float, float] | None, dict[str, float] | None]:
    """The range and the quantiles of numbers in order."""
    if not len(values):
        return None, None
    finite = values[np.isfinite(values)]
    quantiles = None
    if len(finite):
        with np.errstate(over="ignore", invalid="ignore"):
            quantiles = _quantiles(finite)
    return _finite(values[0], values[-1]), _name_quantiles(quantiles)


def _quantiles(values: Float) -> list[float]:
    """`numpy.quantile` of numbers in order, which it need not find out."""
    places = np.array(QUANTILES) * (len(values) - 1)
    return [*map(float, np.interp(places, np.arange(len(values)), values))]


def _finite(low: float, high: float) -> tuple[float, float] | None:
    return (float(low), float(high)) if np.isfinite([low, high]).all() else None


def _name_quantiles(values: Sequence[float] | None) -> dict[str, float] | None:
    if values is None or not np.isfinite(values).all():
        return None
    return dict(zip(map(str, QUANTILES), values, strict=True))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def show_value(value: object) -> str | None:
    text = None if value is None else str(value)
    return text if text is None or len(text) <= 200 else text[:197] + "..."
