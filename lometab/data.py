"""From a file to arrays: reading, the schema, the raw inputs and the target."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lometab import cells
from lometab.config import Task
from lometab.errors import DataError, suggest

Table = Mapping[str, Sequence[object] | NDArray[Any]]
"""A table in memory: the cells of each column by its name."""

ColumnKind = Literal["numeric", "categorical", "datetime", "ignore"]
Label = str | int | bool
Float = NDArray[np.float64]

# ----------------------------------------------------------------------------
# Reading


def read_csv(content: bytes) -> dict[str, NDArray[np.object_]]:
    """The columns of a CSV file as texts. DataError names the line that is wrong."""
    if not content.strip():
        raise DataError("the file is empty; a CSV with a header row is needed")
    text = _decode(content)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True
    )
    try:
        names = _column_names(next(reader))
        rows = []
        for row in reader:
            if len(row) != len(names) and row:
                raise DataError(
                    f"line {reader.line_num} has {len(row)} cells where the header has "
                    f"{len(names)}: {_clip(','.join(row))}",
                    line=reader.line_num,
                )
            if row:
                rows.append(row)
    except csv.Error as error:
        raise DataError(
            f"line {reader.line_num} cannot be read as CSV: {error}",
            line=reader.line_num,
        ) from None
    if not rows:
        raise DataError("the file has a header but no rows")
    columns = zip(*rows, strict=True)
    return {
        name: np.array(column, dtype=object)
        for name, column in zip(names, columns, strict=True)
    }


def _decode(content: bytes) -> str:
    is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"line {line} is not UTF-8 text; save the file as CSV with UTF-8 encoding",
            line=line,
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            f"line {line} holds a NUL byte, so this is no text file; a CSV is needed",
            line=line,
        )
    return text


def _delimiter(text: str) -> str:
    """The delimiter that the header has most of; a comma if it has none."""
    header = text[: text.find("\n")] if "\n" in text else text
    return max(",;\t|", key=header.count)


def _column_names(header: list[str]) -> list[str]:
    names = [name.strip() or f"column_{i}" for i, name in enumerate(header, start=1)]
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"the header names column {name!r} {names.count(name)} times; "
                "give each column its own name",
                column=name,
                line=1,
            )
    return names


def _clip(text: str, length: int = 80) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


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
) -> Schema:
    """Decide each column's kind from all its cells, and the task from the target's.

    Args:
        columns: kinds that the caller has decided.
        reserved: columns that split or group the rows and so are never features.
    """
    columns = columns or {}
    absent = frozenset(missing)
    for name in (target, *columns, *reserved):
        if name not in table:
            raise DataError(
                f"the table has no column {name!r}{suggest(name, table)}; "
                f"its columns are {_clip(', '.join(table), 300)}",
                column=name,
            )
    task, classes = _infer_task(table[target], target, task, absent)
    kinds: dict[str, ColumnKind] = {}
    ignored: dict[str, str] = {}
    for name, values in table.items():
        if name == target:
            continue
        if name in reserved:
            kinds[name], ignored[name] = "ignore", BY_SPLIT
        elif name in columns:
            kinds[name] = columns[name]
            if kinds[name] == "ignore":
                ignored[name] = BY_CALLER
        else:
            kinds[name], reason = infer_kind(name, values, absent)
            if reason:
                ignored[name] = reason
    schema = Schema(
        target=target,
        task=task,
        classes=classes,
        numeric=tuple(n for n, kind in kinds.items() if kind in _NUMERIC),
        categorical=tuple(n for n, kind in kinds.items() if kind == "categorical"),
        datetime=tuple(n for n, kind in kinds.items() if kind == "datetime"),
        ignored=ignored,
        missing=tuple(missing),
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


def infer_kind(
    name: str,
    values: Sequence[object] | NDArray[Any],
    missing: Collection[str] = cells.MISSING,
) -> tuple[ColumnKind, str | None]:
    """A column's kind by all its cells, and why it is ignored if it is."""
    texts = cells.categories(values, missing)
    present = texts[texts != ""]
    n_distinct = len(set(present))
    if n_distinct == 0:
        return "ignore", "every cell is missing"
    if n_distinct == 1 and len(present) == len(texts):
        return "ignore", "every cell is the same"
    numeric = _try(cells.numbers, values, missing)
    if numeric is not None:
        if _is_id(name, numeric):
            return "ignore", "it looks like an identifier (distinct whole numbers)"
        return "numeric", None
    if _try(cells.moments, values, missing) is not None:
        return "datetime", None
    if n_distinct > 50 and n_distinct > 0.5 * len(present):
        return "ignore", f"it looks like free text ({n_distinct} distinct texts)"
    return "categorical", None


def _try(
    convert: Any, values: Sequence[object] | NDArray[Any], missing: Collection[str]
) -> Float | None:
    try:
        converted: Float = convert(values, "", missing)
    except DataError:
        return None
    return converted


def _is_id(name: str, values: Float) -> bool:
    """Distinct whole numbers that only rise or fall, or whose column is named so."""
    if len(values) < 20 or not np.all(np.mod(values, 1) == 0):  # NaN fails too
        return False
    if len(np.unique(values)) != len(values):
        return False
    steps = np.diff(values)
    is_monotone = bool((steps > 0).all() or (steps < 0).all())
    words = name.lower().replace("-", "_").replace(" ", "_").split("_")
    return is_monotone or "id" in words or name.endswith(("Id", "ID"))


def _infer_task(
    values: Sequence[object] | NDArray[Any],
    target: str,
    task: Task | Literal["auto"],
    missing: Collection[str],
) -> tuple[Task, tuple[Label, ...] | None]:
    texts = cells.categories(values, missing)
    n_missing = int((texts == "").sum())
    if n_missing:
        rows = ", ".join(str(row + 1) for row in np.flatnonzero(texts == "")[:5])
        raise DataError(
            f"the target {target!r} is missing in {n_missing} rows (row {rows}"
            f"{', ...' if n_missing > 5 else ''}); fill or remove them",
            column=target,
        )
    distinct = sorted(set(texts))
    if len(distinct) < 2:
        raise DataError(
            f"the target {target!r} has only one value, {distinct[0]!r}; "
            "there is nothing to learn",
            column=target,
        )
    if task == "auto":
        task = _guess_task(distinct)
    if task == "regression":
        _refuse_infinite(cells.numbers(values, target, missing), target)
        return task, None
    if task == "binary" and len(distinct) != 2:
        raise DataError(
            f"a binary target must have 2 values, however {target!r} has "
            f"{len(distinct)}; use task 'multiclass' or 'regression'",
            column=target,
        )
    if len(distinct) > 1000 or len(distinct) > len(texts) / 2:
        raise DataError(
            f"the target {target!r} has {len(distinct)} distinct values in "
            f"{len(texts)} rows, too many to be classes; use task 'regression' or "
            "another target",
            column=target,
        )
    return task, _labels(distinct)


def _guess_task(distinct: list[str]) -> Task:
    """Two values: binary. Texts, or whole numbers that count from 0 or 1: multiclass.

    Other numbers are regression: a rating from 3 to 9 is a quantity, not a code.
    """
    if len(distinct) == 2:
        return "binary"
    try:
        values = sorted(float(text) for text in distinct)
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
    if all(text.removeprefix("-").isdecimal() for text in distinct) and all(
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
    n_rows = len(next(iter(table.values())))
    x_num = np.empty((n_rows, len(schema.numeric)), dtype=np.float64)
    for i, name in enumerate(schema.numeric):
        convert = cells.moments if name in schema.datetime else cells.numbers
        x_num[:, i] = convert(table[name], name, missing)
        _refuse_infinite(x_num[:, i], name)
    x_cat = np.empty((n_rows, len(schema.categorical)), dtype=object)
    for i, name in enumerate(schema.categorical):
        x_cat[:, i] = cells.categories(table[name], missing)
    return x_num, x_cat


def target(table: Table, schema: Schema) -> NDArray[Any]:
    """The target: float64 numbers, or int64 indices into `schema.classes`."""
    values = table[schema.target]
    missing = frozenset(schema.missing)
    if schema.classes is None:
        return cells.numbers(values, schema.target, missing)
    index = {cells.category(label): i for i, label in enumerate(schema.classes)}
    texts = cells.categories(values, missing)
    unknown = set(texts) - set(index)
    if unknown:
        raise DataError(
            f"the target {schema.target!r} holds {sorted(unknown)[0]!r}, which is none "
            f"of the classes {_clip(str(list(schema.classes)), 200)}",
            column=schema.target,
        )
    return np.array([index[text] for text in texts], dtype=np.int64)
