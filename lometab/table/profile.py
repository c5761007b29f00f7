"""What is in a table: what each column is used as, the first rows, warnings."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lometab.config import Task
from lometab.table.arrow import keep
from lometab.table.column_facts import ColumnFacts, Summary, show_value
from lometab.table.dialect import ReadOptions
from lometab.table.formats import BASES, base_of, is_number_format
from lometab.table.kinds import Facts, Verdict, judge
from lometab.table.parquet import Column, Table, write_table
from lometab.table.reading import Reading
from lometab.table.schema import guess_task
from lometab.table.values import category

N_HEAD = 5


@dataclass(frozen=True, kw_only=True)
class ColumnProfile:
    name: str
    verdict: Verdict
    n_missing: int
    missing_share: float
    n_distinct: int
    example: str | None
    """The first value that is there, among the first rows."""
    range: tuple[float, float] | None = None
    quantiles: dict[str, float] | None = None
    top: tuple[tuple[str, int], ...] | None = None
    """The most frequent texts with their counts."""
    missing_words: tuple[tuple[str, int], ...] = ()
    """Words that were read as missing, with their counts."""

    def to_dict(self) -> dict[str, Any]:
        # Not by `asdict`, whose copies take longer than all else for many columns.
        own = {name: value for name, value in vars(self).items() if name != "verdict"}
        return {"name": self.name} | vars(self.verdict) | own


@dataclass(frozen=True, kw_only=True)
class Profile:
    columns: tuple[ColumnProfile, ...]
    head: tuple[tuple[str | None, ...], ...]
    """The first rows, as texts."""
    warnings: tuple[str, ...]
    suggestions: tuple[dict[str, str], ...]
    """Targets and tasks that may be meant."""

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"columns": [each.to_dict() for each in self.columns]}


def profile_table(
    path: Path, reading: Reading, options: ReadOptions | None = None
) -> Profile:
    """The profile of a table that `read_file` wrote."""
    options = options or ReadOptions()
    file = pq.ParquetFile(path, pre_buffer=False)
    with ColumnFacts(file, path, options.missing, reading.n_bytes) as table:
        summaries = table.summarise()
        base, warnings = _find_base(table, summaries, options, reading)
        columns = [
            _profile_column(table, i, name, summary, options, reading, base)
            for i, (name, summary) in enumerate(
                zip(reading.names, summaries, strict=True)
            )
        ]
        columns = _mark_copies(table, columns)
    return Profile(
        columns=tuple(columns),
        head=_head(file),
        warnings=(*reading.warnings, *warnings, *_warn(columns)),
        suggestions=tuple(_suggest(columns)),
    )


def judge_columns(table: Table) -> dict[str, Verdict]:
    """What the columns of a table in memory are used as, as those of a file are."""
    names = [*table]
    arrays = [_to_arrow(table[name], name) for name in names]
    batch = pa.record_batch(arrays, names=[f"c{i}" for i in range(len(names))])
    with TemporaryDirectory(prefix="lometab-judge-") as folder:
        path = Path(folder) / "table.parquet"
        n_rows, n_bytes = write_table(path, names, [batch])
        reading = Reading(
            format="arrow",
            compression=None,
            names=tuple(names),
            n_rows=n_rows,
            n_bytes=n_bytes,
        )
        profile = profile_table(path, reading)
    return {column.name: column.verdict for column in profile.columns}


def _to_arrow(column: Column, name: str) -> pa.Array:
    """Numbers, booleans and moments as they are; whatever else as texts."""
    values = np.asarray(column)
    if values.dtype.kind in "fiubM":
        return keep(pa.array(values), name)
    texts = [
        each if isinstance(each, str) else category(each) or None
        for each in values.tolist()
    ]
    return pa.array(texts, pa.string())


def _find_base(
    table: ColumnFacts,
    summaries: Sequence[Summary],
    options: ReadOptions,
    reading: Reading,
) -> tuple[str | None, list[str]]:
    """How the file writes its numbers, as far as columns prove it, and warnings.

    A file has one form: where a column proves it, columns that fit two follow it.
    """
    if options.number_format is not None:
        return options.number_format, []
    proven = {
        base
        for base in BASES
        for summary in summaries
        if _bases(summary.facts) == {base}
    }
    is_open = any(len(_bases(each.facts)) == 2 for each in summaries)
    if not proven and is_open and _proves_point(table, summaries):
        proven.add("1,234.5")
    if len(proven) == 1:
        return proven.pop(), []
    usual = None
    if reading.delimiter is not None:
        # A comma that also separates fields would have to be quoted in every number.
        usual = "1,234.5" if reading.delimiter.value == "," else "1.234,5"
    if not proven:
        return usual, []
    warning = (
        "some columns write numbers as 1,234.5 and others as 1.234,5; see the ranges, "
        "and set `number_format` if one is wrong"
    )
    return usual, [warning]


def _bases(facts: Facts) -> set[str]:
    return {base_of(form) for form in facts.formats if is_number_format(form)}


def _proves_point(table: ColumnFacts, summaries: Sequence[Summary]) -> bool:
    """Whether plain numbers have a point that cannot mark thousands."""
    return any(
        summary.facts.is_number
        and not summary.facts.is_whole
        and not table.fits(i, "1.234,5")
        for i, summary in enumerate(summaries)
    )


def _profile_column(
    table: ColumnFacts,
    i: int,
    name: str,
    summary: Summary,
    options: ReadOptions,
    reading: Reading,
    base: str | None,
) -> ColumnProfile:
    facts = summary.facts
    is_told = options.number_format is not None
    is_thousands = False
    if facts.is_number and base in BASES:
        # Plain numbers of a file that writes 1.234,5 may be thousands; else, its form
        # reads them as they are.
        if is_told or (base == "1.234,5" and _has_points(summary)):
            if table.fits(i, base):
                facts = replace(facts, formats=(base,))
                is_thousands = not is_told
    verdict = judge(
        name,
        facts,
        number_format=base,
        is_format_told=is_told,
        date_format=options.date_format,
    )
    if is_thousands and verdict.format is not None:
        note = f"its numbers are read as {base}, as those of other columns are"
        verdict = replace(verdict, note=note)
    if i == 0 and _is_unnamed(name, reading) and facts.is_counted:
        reason = "it has no name and numbers the rows, as the index of a frame does"
        verdict = Verdict(kind="ignore", looks_like="id", reason=reason)
    if verdict.looks_like == "number" and verdict.format is None and not is_told:
        verdict = _warn_of_thousands(table, i, verdict)
    verdict = _add_lines(table, i, verdict, reading)
    extent, quantiles = summary.range, summary.quantiles
    if verdict.format is not None:
        extent = quantiles = None
        if is_number_format(verdict.format):
            extent, quantiles = table.describe_numbers(i, verdict.format)
    return ColumnProfile(
        name=name,
        verdict=verdict,
        n_missing=facts.n_missing,
        missing_share=round(facts.n_missing / facts.n_rows, 6),
        n_distinct=facts.n_distinct,
        example=table.find_example(i),
        range=extent,
        quantiles=quantiles,
        top=summary.top,
        missing_words=table.count_missing_words(i) if facts.n_missing else (),
    )


def _warn_of_thousands(table: ColumnFacts, i: int, verdict: Verdict) -> Verdict:
    """Where every plain number might be written as 1.234,5, and mean thousands."""
    example = table.find_example(i) or ""
    if verdict.kind != "numeric" or not _THOUSANDS.fullmatch(example):
        return verdict
    if not table.fits(i, "1.234,5"):
        return verdict
    note = f"{example} is read as a number below a thousand: if its point marks "
    note += "thousands, set `number_format` to 1.234,5"
    return replace(verdict, note=note)


_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")


def _has_points(summary: Summary) -> bool:
    return summary.top is None or any("." in text for text, _ in summary.top)


def _is_unnamed(name: str, reading: Reading) -> bool:
    return name == "column_1" and reading.header is not None and reading.header.value


def _add_lines(
    table: ColumnFacts, i: int, verdict: Verdict, reading: Reading
) -> Verdict:
    """Where the values are that spoil a column."""
    if verdict.nearly is None:
        return verdict
    rows = table.find_rows(i, verdict.unreadable[:3])
    first = 1 if reading.first_line is None else reading.first_line
    what = "row" if reading.first_line is None else "line"
    places = ", ".join(
        f"{text[:40]!r} in {what} {row + first}" for text, row in rows.items()
    )
    if verdict.reason is not None:
        return replace(verdict, reason=f"{verdict.reason} ({places})")
    return replace(verdict, note=f"{verdict.note} ({places})")


def _mark_copies(
    table: ColumnFacts, columns: list[ColumnProfile]
) -> list[ColumnProfile]:
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
        yield from _warn_of_words(column)


def _warn_of_words(column: ColumnProfile) -> Iterator[str]:
    """Words that may be a category and were read as missing."""
    words = [each for each in column.missing_words if each[0].lower() in _DOUBTFUL]
    if words:
        counts = ", ".join(f"{count} times {word!r}" for word, count in words)
        kept = ", ".join(f'"{word}"' for word, _ in words)
        yield (
            f"column {column.name!r}: read as missing: {counts}; set `not_missing` to "
            f"[{kept}] if that is a value"
        )


_DOUBTFUL = {"none", "nil", "-"}


def _suggest(columns: Sequence[ColumnProfile]) -> list[dict[str, str]]:
    """Columns that may be the target, the best guess first: those named as targets
    are, and the last one."""
    usable = [c for c in columns if c.verdict.kind in ("numeric", "categorical")]
    ranked = []
    for place, column in enumerate(usable):
        is_last = column is usable[-1]
        score, why = _score_name(column.name)
        if score == 0 and not is_last:
            continue
        reasons = [why] if why else []
        if is_last:
            reasons.append("it is the last column")
        if column.n_distinct == 2:
            reasons.append("it has two values")
        if place == 0 and not is_last:
            reasons.append("it is the first column")
        # Inputs are named `class` or `status` too, so that place and values count.
        score += 1.5 * is_last + 0.5 * (column.n_distinct == 2) + 0.2 * (place == 0)
        task = _task(column)
        found = {"target": column.name, "task": task, "why": ", ".join(reasons)}
        ranked.append((-score, place, found))
    return [found for _, _, found in sorted(ranked, key=lambda each: each[:2])]


def _score_name(name: str) -> tuple[float, str]:
    """How much a name is that of a target, and why."""
    parts = re.sub("([a-z0-9])([A-Z])", r"\1 \2", name.strip())
    words = re.sub("[^a-z0-9]+", " ", parts.lower()).split()
    if "".join(words) in _TARGETS:
        return 3.0, "its name"
    if not _TARGETS.isdisjoint(words):
        return 1.0, "a word in its name"
    return 0.0, ""


_TARGETS = {
    *("target", "label", "labels", "class", "y", "outcome", "response", "income"),
    *("price", "survived", "attrition", "churn", "churned", "exited", "default"),
    *("defaulted", "diagnosis", "species", "quality", "fraud", "isfraud", "salary"),
    *("score", "rating", "grade", "result", "medv", "medhousevalue", "medhouseval"),
    *("medianhousevalue", "saleprice", "loanstatus", "charges", "converted"),
    *("subscribed", "purchased", "clicked", "approved", "readmitted", "is_fraud"),
}


def _task(column: ColumnProfile) -> Task:
    if column.verdict.kind == "categorical" or column.n_distinct == 2:
        return "binary" if column.n_distinct == 2 else "multiclass"
    if column.top is None or column.verdict.format is not None:
        return "regression"
    return guess_task([text for text, _ in column.top])


def _head(file: pq.ParquetFile) -> tuple[tuple[str | None, ...], ...]:
    batch = next(file.iter_batches(batch_size=N_HEAD))
    columns = [
        [show_value(value) for value in column] for column in batch.to_pydict().values()
    ]
    return tuple(zip(*columns, strict=True))
