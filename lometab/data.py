"""From a table to arrays: the schema, the raw inputs and the target."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from lometab import cells
from lometab.config import Task
from lometab.errors import DataError, suggest
from lometab.tables import Column, Table, n_rows

ColumnKind = Literal["numeric", "categorical", "datetime", "ignore"]
Label = str | int | bool
Float = NDArray[np.float64]

# ----------------------------------------------------------------------------
# Kinds


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is true of all cells of a column."""

    n_rows: int
    n_missing: int
    n_distinct: int
    """Of texts that are there; about, if there are very many."""
    is_number: bool
    """Whether all that are there are plain numbers."""
    is_whole: bool = False
    """Whether these are whole."""
    is_counted: bool = False
    """Whether they are distinct whole numbers, none missing."""
    is_monotone: bool = False
    """Whether they rise, or fall, from row to row."""
    formats: tuple[str, ...] = ()
    """The formats of numbers or dates that fit all; none looked for if plain ones
    do."""
    is_boolean: bool = False


Looks = Literal[
    "number", "category", "boolean", "date", "text", "id", "constant", "empty", "copy"
]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a column is used as, and why."""

    kind: ColumnKind
    looks_like: Looks
    reason: str | None = None
    """Why it is ignored, if it is."""
    format: str | None = None
    """How its numbers or dates are written, if not plainly."""
    note: str | None = None
    """What the caller should know or may want to change."""


def measure(values: Column, missing: Collection[str] = cells.MISSING) -> Facts:
    """The facts of a column in memory."""
    texts = cells.categories(values, missing)
    present = texts[texts != ""]
    distinct = set(present)
    facts = Facts(
        n_rows=len(texts),
        n_missing=len(texts) - len(present),
        n_distinct=len(distinct),
        is_number=False,
        is_boolean=is_boolean(distinct),
    )
    try:
        numbers = cells.numbers(values, "", missing)
    except DataError:
        return replace(facts, formats=find_formats(values, missing))
    is_counted, is_monotone = count_steps(numbers)
    return replace(
        facts,
        is_number=True,
        is_whole=is_whole(numbers[~np.isnan(numbers)]),
        is_counted=is_counted,
        is_monotone=is_monotone,
    )


def find_formats(
    values: Column,
    missing: Collection[str],
    candidates: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The formats in which all cells are numbers, or else dates."""
    numbers, dates = get_args(cells.NumberFormat), get_args(cells.MomentFormat)
    if candidates is None:
        candidates = (*numbers[1:], *dates)
    found = [
        style
        for style in candidates
        if fits(
            cells.numbers if style in numbers else cells.moments,
            values,
            missing,
            style,
        )
    ]
    return tuple(found)


def fits(
    convert: Callable[..., Float],
    values: Column,
    missing: Collection[str],
    style: str,
) -> bool:
    try:
        convert(values, "", missing, style)
    except DataError:
        return False
    return True


def count_steps(values: Float) -> tuple[bool, bool]:
    """Whether numbers are distinct and whole, and whether they only rise or fall."""
    if not is_whole(values):
        return False, False
    before, after = values[:-1], values[1:]
    is_monotone = bool((after > before).all() or (after < before).all())
    return is_monotone or len(np.unique(values)) == len(values), is_monotone


def is_whole(values: Float) -> bool:
    return bool(np.isfinite(values).all() and (np.mod(values, 1) == 0).all())


def is_boolean(distinct: Collection[str]) -> bool:
    lowered = {text.lower() for text in distinct}
    return 0 < len(lowered) <= 2 and any(
        lowered <= words for words in ({"true", "false"}, {"yes", "no"}, {"t", "f"})
    )


def judge(
    name: str,
    facts: Facts,
    *,
    number_format: str | None = None,
    is_format_told: bool = False,
    date_format: str | None = None,
) -> Verdict:
    """What a column with these facts is used as.

    Args:
        number_format: the one to take where several fit.
        is_format_told: whether the caller has said so.
        date_format: the same for dates, as the caller has said.
    """
    n_present = facts.n_rows - facts.n_missing
    if n_present == 0:
        return _ignore("empty", "every cell is missing")
    if facts.n_distinct == 1 and facts.n_missing == 0:
        return _ignore("constant", "every cell is the same")
    if facts.is_number and number_format not in facts.formats:
        if facts.is_counted and facts.n_rows >= 20:
            if facts.is_monotone or _is_named_id(name):
                return _ignore(
                    "id", "it looks like an identifier (distinct whole numbers)"
                )
        note = None
        if facts.is_whole and (2 < facts.n_distinct <= 20 or _is_named_code(name)):
            note = "if these are codes and not amounts, `categorical` is better"
        return Verdict(kind="numeric", looks_like="number", note=note)
    numbers = [f for f in facts.formats if f in get_args(cells.NumberFormat)]
    if number_format == "1234.5":
        numbers = []  # the caller has said that there are plain ones alone
    if numbers:
        chosen = number_format if number_format in numbers else numbers[0]
        note = f"its numbers are written as {chosen}"
        other = next((f for f in numbers if f != chosen), None)
        if other is not None and not is_format_told:
            note += f", though {other} would fit too: say `number_format`"
        return Verdict(kind="numeric", looks_like="number", format=chosen, note=note)
    dates = [f for f in facts.formats if f in get_args(cells.MomentFormat)]
    if "y-m-d" in dates:
        return Verdict(kind="datetime", looks_like="date")
    if len(dates) > 1 and date_format not in dates:
        return _ignore(
            "date",
            "its dates fit both d/m/y and m/d/y: say `date_format`",
        )
    if dates:
        chosen = date_format if date_format in dates else dates[0]
        return Verdict(kind="datetime", looks_like="date", format=chosen)
    if facts.n_distinct > 50 and facts.n_distinct > 0.5 * n_present:
        return _ignore(
            "text", f"it looks like free text ({facts.n_distinct} distinct texts)"
        )
    looks: Looks = "boolean" if facts.is_boolean else "category"
    return Verdict(kind="categorical", looks_like=looks)


def _ignore(looks_like: Looks, reason: str) -> Verdict:
    return Verdict(kind="ignore", looks_like=looks_like, reason=reason)


def _is_named_id(name: str) -> bool:
    return "id" in _words(name) or name.endswith(("Id", "ID"))


def _is_named_code(name: str) -> bool:
    return not _words(name).isdisjoint(("zip", "zipcode", "postcode", "plz", "code"))


def _words(name: str) -> set[str]:
    return {*name.lower().replace("-", "_").replace(" ", "_").split("_")}


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
    missing: tuple[str, ...] = cells.MISSING
    """Texts that mean missing."""
    formats: dict[str, str] = field(default_factory=dict)
    """How columns write their numbers or dates, where that is not the plain way."""
    drop_missing_target: bool = False
    """Whether rows without a target are left out."""

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in state.items()
        }
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def infer_schema(
    table: Table,
    *,
    target: str,
    task: Task | Literal["auto"] = "auto",
    columns: Mapping[str, ColumnKind] | None = None,
    reserved: Collection[str] = (),
    missing: Sequence[str] = cells.MISSING,
    verdicts: Mapping[str, Verdict] | None = None,
    drop_missing_target: bool = False,
    describe_rows: Callable[[Sequence[int]], str] | None = None,
) -> Schema:
    """Decide each column's kind from all its cells, and the task from the target's.

    Args:
        columns: kinds that the caller has decided.
        reserved: columns that split or group the rows and so are never features.
        verdicts: what has been decided of columns before; others are looked at.
        describe_rows: names rows in errors, given their numbers from 0.
    """
    columns = columns or {}
    verdicts = verdicts or {}
    absent = frozenset(missing)
    for name in (target, *columns, *reserved):
        if name not in table:
            raise DataError(
                f"the table has no column {name!r}{suggest(name, table)}; "
                f"its columns are {_clip(', '.join(table), 300)}",
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
    for name in table:
        if columns.get(name) == "ignore":
            ignored[name] = BY_CALLER
            continue
        verdict = verdicts.get(name) or judge(name, measure(table[name], absent))
        if name in columns and name not in reserved:
            verdict = _overrule(name, table[name], columns[name], verdict, absent)
        if verdict.format is not None:
            formats[name] = verdict.format
        if name in reserved:
            ignored[name] = BY_SPLIT
        elif name != target:
            kinds[name] = verdict.kind
            if verdict.reason is not None:
                ignored[name] = verdict.reason
    if formats.get(target) not in get_args(cells.NumberFormat):
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
        drop_missing_target=drop_missing_target,
    )
    if not schema.numeric and not schema.categorical:
        reasons = ", ".join(f"{name}: {reason}" for name, reason in ignored.items())
        raise DataError(
            "no column is left to learn from besides the target"
            + (f" ({_clip(reasons, 300)})" if reasons else "")
            + "; set kinds with `columns`"
        )
    return schema


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
        is_number = verdict.format in get_args(cells.NumberFormat)
        verdict = replace(verdict, kind="numeric" if is_number else "datetime")
    if kind == "categorical":
        return replace(verdict, kind=kind, reason=None, format=None)
    if kind == verdict.kind:
        return replace(verdict, reason=None)
    if kind == "datetime" and verdict.looks_like == "date":
        raise DataError(
            f"column {name!r} cannot be a datetime yet: {verdict.reason}", column=name
        )
    convert: Any = cells.numbers if kind == "numeric" else cells.moments
    styles = get_args(cells.NumberFormat if kind == "numeric" else cells.MomentFormat)
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
    texts = cells.categories(values, missing)
    absent = np.flatnonzero(texts == "")
    if len(absent) and not drop_missing:
        raise DataError(
            f"the target {target!r} is missing in {len(absent)} rows "
            f"({describe_rows(absent[:5].tolist())}"
            f"{', ...' if len(absent) > 5 else ''}); fill or remove them, or say "
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
        is_written = format in get_args(cells.NumberFormat) and len(distinct) > 2
        task = "regression" if is_written else guess_task(distinct)
    if task == "regression":
        _refuse_infinite(cells.numbers(values, target, missing, format), target)
        return task, None
    if task == "binary" and len(distinct) != 2:
        raise DataError(
            f"a binary target must have 2 values, however {target!r} has "
            f"{len(distinct)}; use task 'multiclass' or 'regression'",
            column=target,
        )
    n_present = len(texts) - len(absent)
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
        values = sorted(cells.number(text, ()) for text in distinct)
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
            "it by a large number or leave the cell empty",
            column=name,
        )


# ----------------------------------------------------------------------------
# Arrays


def features(table: Table, schema: Schema) -> tuple[Float, NDArray[np.object_]]:
    """The raw inputs: `x_num` (N, n_num), NaN missing; `x_cat` (N, n_cat), "" missing.

    These are the two inputs of the ONNX file.
    """
    missing = frozenset(schema.missing)
    x_num = np.empty((n_rows(table), len(schema.numeric)), dtype=np.float64)
    for i, name in enumerate(schema.numeric):
        convert = cells.moments if name in schema.datetime else cells.numbers
        x_num[:, i] = convert(table[name], name, missing, schema.formats.get(name))
        _refuse_infinite(x_num[:, i], name)
    x_cat = np.empty((n_rows(table), len(schema.categorical)), dtype=object)
    for i, name in enumerate(schema.categorical):
        x_cat[:, i] = cells.categories(table[name], missing)
    return x_num, x_cat


def target(table: Table, schema: Schema) -> NDArray[Any]:
    """The target: float64 numbers, or int64 indices into `schema.classes`.

    Where it is missing, and rows without it are left out, NaN or -1.
    """
    values = table[schema.target]
    missing = frozenset(schema.missing)
    if schema.classes is None:
        format = schema.formats.get(schema.target)
        return cells.numbers(values, schema.target, missing, format)
    index = {cells.category(label): i for i, label in enumerate(schema.classes)}
    if schema.drop_missing_target:
        index[""] = -1
    texts = cells.categories(values, missing)
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
