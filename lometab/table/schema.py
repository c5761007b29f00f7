"""From a table to arrays: the schema, the raw inputs and the target."""

import math
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lometab.config import Task
from lometab.errors import DataError, suggest
from lometab.table.formats import BASES, MOMENT_FORMATS, PLAIN, is_number_format
from lometab.table.kinds import ColumnKind, Float, Verdict, find_facts, fits, judge
from lometab.table.parquet import Column, Table, n_rows
from lometab.table.values import (
    MISSING,
    category,
    number,
    read_categories,
    read_moments,
    read_numbers,
)

Label = str | int | bool

# ----------------------------------------------------------------------------
# Schema


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Which column is what. `numeric` and `categorical` are in the model's order."""

    target: str
    task: Task
    classes: tuple[Label, ...] | None
    """The labels in the order of class indices; None for regression."""
    numeric: tuple[str, ...]
    """Columns that enter as numbers, those of `datetime` among them."""
    categorical: tuple[str, ...]
    datetime: tuple[str, ...] = ()
    """The numeric columns that hold moments, as UTC epoch seconds."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Columns that the model does not see, each with the reason."""
    missing: tuple[str, ...] = MISSING
    """Texts that mean missing."""
    formats: dict[str, str] = field(default_factory=dict)
    """How columns write their numbers or dates, where that is not the plain way."""
    missing_in: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts of a column that are no numbers, or no dates, and were set to be missing
    in it."""
    drop_missing_target: bool = False
    """Whether rows without a target are left out."""
    min_frequency: int = 1
    """Categories in fewer training rows than this share one input."""

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in state.items()
        }
        missing_in = fields.get("missing_in", {})
        fields["missing_in"] = {name: tuple(each) for name, each in missing_in.items()}
        return cls(**fields)

    def missing_of(self, name: str) -> frozenset[str]:
        """The texts that mean missing in a column."""
        return frozenset((*self.missing, *self.missing_in.get(name, ())))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def infer_schema(
    table: Table,
    *,
    target: str,
    task: Task | Literal["auto"] = "auto",
    columns: Mapping[str, ColumnKind] | None = None,
    reserved: Collection[str] = (),
    missing: Sequence[str] = MISSING,
    verdicts: Mapping[str, Verdict] | None = None,
    drop_missing_target: bool = False,
    min_frequency: int | None = None,
    max_rows: int | None = None,
    describe_rows: Callable[[Sequence[int]], str] | None = None,
) -> Schema:
    """Decide each column's kind from all its values, and the task from the target's.

    Args:
        columns: kinds that the caller has decided.
        reserved: columns that split or group the rows and so are never features.
        verdicts: what has been decided of columns before; others are looked at.
        min_frequency: how rare categories are that share one input; None: by the
            number of rows.
        max_rows: how many rows will be used, if not all.
        describe_rows: names rows in errors, given their numbers from 0.
    """
    columns = columns or {}
    verdicts = verdicts or {}
    absent = frozenset(missing)
    for name in (target, *columns, *reserved):
        if name not in table:
            raise DataError(
                f"the table has no column {name!r}{suggest(name, table)}; "
                f"its columns are {_clip(', '.join(table), 300)}"
                + _explain_names(table),
                column=name,
            )
    if target in columns or target in reserved:
        what = "a feature" if target in columns else "the column to split by"
        raise DataError(
            f"column {target!r} is the target and cannot be {what} too", column=target
        )
    kinds: dict[str, ColumnKind] = {}
    ignored: dict[str, str] = {}
    formats: dict[str, str] = {}
    missing_in: dict[str, tuple[str, ...]] = {}
    for name in table:
        if columns.get(name) == "ignore":
            ignored[name] = BY_CALLER
            continue
        verdict = verdicts.get(name) or judge(name, find_facts(table[name], absent))
        if name in columns and name not in reserved:
            verdict = _overrule(name, table[name], columns[name], verdict, absent)
        if verdict.format is not None:
            formats[name] = verdict.format
        if verdict.unreadable and verdict.kind in _NUMERIC:
            missing_in[name] = verdict.unreadable
        if name in reserved:
            ignored[name] = BY_SPLIT
        elif name != target:
            kinds[name] = verdict.kind
            if verdict.reason is not None:
                ignored[name] = verdict.reason
    if not is_number_format(formats.get(target)):
        formats.pop(target, None)
    task, classes = _infer_task(
        table[target],
        target,
        task,
        absent,
        formats.get(target),
        drop_missing_target,
        describe_rows or _describe_rows,
    )
    if task != "regression":
        formats.pop(target, None)
    schema = Schema(
        target=target,
        task=task,
        classes=classes,
        numeric=tuple(n for n, kind in kinds.items() if kind in _NUMERIC),
        categorical=tuple(n for n, kind in kinds.items() if kind == "categorical"),
        datetime=tuple(n for n, kind in kinds.items() if kind == "datetime"),
        ignored=ignored,
        missing=tuple(missing),
        formats=formats,
        missing_in=missing_in,
        drop_missing_target=drop_missing_target,
        min_frequency=min_frequency
        or default_min_frequency(min(n_rows(table), max_rows or sys.maxsize)),
    )
    if not schema.numeric and not schema.categorical:
        reasons = ", ".join(f"{name}: {reason}" for name, reason in ignored.items())
        raise DataError(
            "no column is left to learn from besides the target"
            + (f" ({_clip(reasons, 300)})" if reasons else "")
            + "; set kinds with `columns`"
        )
    return schema


def _explain_names(names: Collection[str]) -> str:
    """Why columns have no names of their own."""
    if not all(re.fullmatch("column_[0-9]+", name) for name in names):
        return ""
    return (
        ": the first line was taken as data; if it names the columns, upload the file "
        "with `header` set to true in `read_options`"
    )


def default_min_frequency(n_rows: int) -> int:
    """A tenth of the root of the number of rows: 1 below 400 rows, 10 of 10,000, and
    100 of a million."""
    return max(1, math.isqrt(n_rows) // 10)


BY_CALLER = "the caller said so"
BY_SPLIT = "it decides the split"
_NUMERIC = ("numeric", "datetime")


def _overrule(
    name: str,
    values: Column,
    kind: ColumnKind,
    verdict: Verdict,
    missing: Collection[str],
) -> Verdict:
    """The verdict with the kind that the caller wants; DataError if it cannot be."""
    if verdict.looks_like == "copy" and verdict.format is not None:
        # It was numeric or datetime as what it is a copy of.
        is_number = is_number_format(verdict.format)
        verdict = replace(verdict, kind="numeric" if is_number else "datetime")
    if kind == "categorical":
        return replace(verdict, kind=kind, reason=None, format=None)
    if kind == verdict.kind:
        return replace(verdict, reason=None)
    if kind == "datetime" and verdict.looks_like == "date" and not verdict.nearly:
        raise DataError(
            f"column {name!r} cannot be a datetime yet: {verdict.reason}", column=name
        )
    is_nearly = is_number_format(verdict.nearly) == (kind == "numeric")
    if verdict.nearly is not None and is_nearly:
        plain = verdict.nearly in (PLAIN, "y-m-d")
        format = None if plain else verdict.nearly
        return replace(verdict, kind=kind, reason=None, format=format)
    convert: Any = read_numbers if kind == "numeric" else read_moments
    styles = (PLAIN, *BASES) if kind == "numeric" else MOMENT_FORMATS
    for style in styles:
        if fits(convert, values, missing, style):
            plain = style == styles[0]
            return replace(
                verdict, kind=kind, reason=None, format=None if plain else style
            )
    convert(values, name, missing)  # says which row is wrong
    raise AssertionError("a column that fits no format was converted")


# ----------------------------------------------------------------------------
# The task


def _infer_task(
    values: Column,
    target: str,
    task: Task | Literal["auto"],
    missing: Collection[str],
    format: str | None,
    drop_missing: bool,
    describe_rows: Callable[[Sequence[int]], str],
) -> tuple[Task, tuple[Label, ...] | None]:
    texts = read_categories(values, missing)
    absent = np.flatnonzero(texts == "")
    if len(absent) and not drop_missing:
        raise DataError(
            f"the target {target!r} is missing in {len(absent)} rows "
            f"({describe_rows(absent[:5].tolist())}"
            f"{', ...' if len(absent) > 5 else ''}); fill or remove them, or set "
            "`drop_missing_target`",
            column=target,
        )
    distinct = sorted(set(texts) - {""})
    if len(distinct) < 2:
        seen = f"only one value, {distinct[0]!r}" if distinct else "no value at all"
        raise DataError(
            f"the target {target!r} has {seen}; there is nothing to learn",
            column=target,
        )
    if task == "auto":
        is_written = is_number_format(format) and len(distinct) > 2
        task = "regression" if is_written else guess_task(distinct)
    if task == "regression":
        _refuse_infinite(read_numbers(values, target, missing, format), target)
        return task, None
    if task == "binary" and len(distinct) != 2:
        raise DataError(
            f"a binary target must have 2 values, however {target!r} has "
            f"{len(distinct)}; use task 'multiclass' or 'regression'",
            column=target,
        )
    n_present = len(texts) - len(absent)
    if len(distinct) > n_present / 2 and n_present < 12:
        raise DataError(
            f"there are {n_present} rows with a target, too few to train on: at least "
            "12 are needed, and hundreds to learn something"
        )
    if len(distinct) > 1000 or len(distinct) > n_present / 2:
        raise DataError(
            f"the target {target!r} has {len(distinct)} distinct values in "
            f"{n_present} rows, too many to be classes; use task 'regression' or "
            "another target",
            column=target,
        )
    return task, _labels(distinct)


def _describe_rows(rows: Sequence[int]) -> str:
    return "row " + ", ".join(str(row + 1) for row in rows)


def guess_task(distinct: list[str]) -> Task:
    """Two values: binary. Texts, or whole numbers that count from 0 or 1: multiclass.

    Other numbers are regression: a rating from 3 to 9 is a quantity, not a code.
    """
    if len(distinct) == 2:
        return "binary"
    try:
        values = sorted(number(text, ()) for text in distinct)
    except ValueError:
        return "multiclass"
    is_code = values == [values[0] + i for i in range(len(values))]
    if is_code and values[0] in (0, 1) and len(values) <= 20:
        return "multiclass"
    return "regression"


def _labels(distinct: list[str]) -> tuple[Label, ...]:
    """The classes in order, as whole numbers or booleans where all of them are."""
    if set(distinct) == {"false", "true"}:
        return (False, True)
    if all(re.fullmatch(r"-?[0-9]{1,18}", text) for text in distinct) and all(
        str(int(text)) == text for text in distinct
    ):
        return tuple(sorted(int(text) for text in distinct))
    return tuple(distinct)


def _refuse_infinite(values: Float, name: str) -> None:
    rows = np.flatnonzero(np.isinf(values))
    if len(rows):
        raise DataError(
            f"column {name!r} holds an infinite number in row {rows[0] + 1}; replace "
            "it by a large number or leave it empty",
            column=name,
        )


# ----------------------------------------------------------------------------
# Arrays


def features(table: Table, schema: Schema) -> tuple[Float, NDArray[np.object_]]:
    """The raw inputs: `x_num` (N, n_num), NaN missing; `x_cat` (N, n_cat), "" missing.

    These are the two inputs of the ONNX file.
    """
    x_num = np.empty((n_rows(table), len(schema.numeric)), dtype=np.float64)
    for i, name in enumerate(schema.numeric):
        x_num[:, i] = read_feature(table, schema, name)
    x_cat = np.empty((n_rows(table), len(schema.categorical)), dtype=object)
    for i, name in enumerate(schema.categorical):
        x_cat[:, i] = read_feature(table, schema, name)
    return x_num, x_cat


def read_feature(table: Table, schema: Schema, name: str) -> NDArray[Any]:
    """One column of `x_num` or of `x_cat`."""
    if name in schema.categorical:
        return read_categories(table[name], frozenset(schema.missing))
    convert = read_moments if name in schema.datetime else read_numbers
    found = convert(
        table[name], name, schema.missing_of(name), schema.formats.get(name)
    )
    _refuse_infinite(found, name)
    return found


def target(table: Table, schema: Schema) -> NDArray[Any]:
    """The target: float64 numbers, or int64 indices into `schema.classes`.

    Where it is missing, and rows without it are left out, NaN or -1.
    """
    values = table[schema.target]
    missing = frozenset(schema.missing)
    if schema.classes is None:
        format = schema.formats.get(schema.target)
        return read_numbers(values, schema.target, missing, format)
    index = {category(label): i for i, label in enumerate(schema.classes)}
    if schema.drop_missing_target:
        index[""] = -1
    texts = read_categories(values, missing)
    unknown = set(texts) - set(index)
    if unknown:
        raise DataError(
            f"the target {schema.target!r} holds {sorted(unknown)[0]!r}, which is none "
            f"of the classes {_clip(str(list(schema.classes)), 200)}",
            column=schema.target,
        )
    return np.array([index[text] for text in texts], dtype=np.int64)


def _clip(text: str, length: int = 80) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
