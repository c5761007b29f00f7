"""Which rows train, which validate, which test."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from lometab.errors import ConfigError, DataError, suggest
from lometab.table.duplicates import hash_rows
from lometab.table.formats import MOMENT_FORMATS
from lometab.table.parquet import Column, Table
from lometab.table.sampling import share_rows, thin_parts
from lometab.table.schema import Schema, target
from lometab.table.values import (
    read_categories,
    read_moments,
    read_numbers,
)


@dataclass(frozen=True, kw_only=True)
class Split:
    """How the rows are parted into train, val and test."""

    # Read by pydantic where a request body holds this class: unknown keys are errors.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    kind: Literal["random", "time", "group", "column"] = "random"
    """random (stratified by class), by a time column (the latest rows are the test
    part), by a group column (no group is in two parts), or by a column that says
    train, val or test."""
    val: Annotated[float, Interval(gt=0, lt=1)] = 0.16
    """Share of the rows for validation."""
    test: Annotated[float, Interval(gt=0, lt=1)] = 0.2
    """Share of the rows for the test."""
    calibration: Annotated[float, Interval(ge=0, lt=1)] | None = None
    """Share of the rows for calibration alone: nothing is chosen by them. They are
    taken from the train part. null: a tenth for sweeps, searches and jobs that choose
    members, none otherwise; then the validation rows calibrate too. A split column may
    say calibration."""
    seed: Annotated[int, Interval(ge=0, le=2**31 - 1)] = 0
    """Seed of the random and the group split."""
    column: str | None = None
    """The column of the time, group and column splits."""
    group_duplicates: bool = False
    """Whether rows that are equal in every column are in one part of a random split."""

    def __post_init__(self) -> None:
        held = self.val + self.test + (self.calibration or 0.0)
        if held >= 1:
            names = "val, test and calibration" if self.calibration else "val and test"
            raise ConfigError(
                f"{names} must leave rows to train on, however they add up to {held:g}"
            )
        if (self.kind == "random") != (self.column is None):
            wanted = "no" if self.kind == "random" else "a"
            raise ConfigError(f"a split of kind {self.kind!r} takes {wanted} column")
        if self.group_duplicates and self.kind != "random":
            raise ConfigError("group_duplicates is for a split of kind 'random'")


_MIN_TRAIN_ROWS = 10
PartName = Literal["train", "val", "test", "calibration"]
Parts = dict[PartName, NDArray[np.intp]]
"""`calibration` is there only if the split has such a part."""


def split_rows(
    table: Table, schema: Schema, split: Split, *, max_rows: int | None = None
) -> Parts:
    """Row indices of each part, in ascending order; every row is in exactly one, or
    in none if it has no target and such rows are left out.

    Args:
        max_rows: of all parts together. If there are more, each part is thinned by lot
            to its share, by the split's seed, and in it each class; the rows that are
            left out are in no part.
    """
    if split.column is not None and split.column not in table:
        raise DataError(
            f"the table has no column {split.column!r}"
            f"{suggest(split.column, table)} to split by",
            column=split.column,
        )
    y = target(table, schema)
    kept = np.flatnonzero(~np.isnan(y) if schema.classes is None else y >= 0)
    if schema.classes is not None:
        _check_classes(y[kept], schema)
    if split.kind == "random":
        is_regression = schema.classes is None
        strata = np.zeros(len(kept), dtype=np.int64) if is_regression else y[kept]
        if split.group_duplicates:
            hashes = hash_rows(table, schema)[kept]
            _, first, row_of = np.unique(hashes, return_index=True, return_inverse=True)
            part_of = _split_random(strata[first], split)[row_of]
        else:
            part_of = _split_random(strata, split)
    elif split.kind == "time":
        part_of = _split_time(table, schema, split, kept)
    elif split.kind == "group":
        part_of = _split_group(table, schema, split, kept)
    else:
        part_of = _split_given(table, split, kept)
    parts: Parts = {
        "train": kept[part_of == 0],
        "val": kept[part_of == 1],
        "test": kept[part_of == 2],
    }
    if split.calibration or (part_of == 3).any():
        parts["calibration"] = kept[part_of == 3]
    _check_parts(parts, y, schema)
    if max_rows is not None and max_rows < len(kept):
        sizes = share_rows({name: len(rows) for name, rows in parts.items()}, max_rows)
        _check_sizes(sizes, max_rows, schema)
        classes = None if schema.classes is None else y
        parts = thin_parts(parts, classes, sizes, split.seed)
        _check_parts(parts, y, schema)
    return parts


def _boundaries(count: int, split: Split) -> list[tuple[int, int, int]]:
    """Begin, end and code of val, test and calibration among `count` ordered rows.

    Test is last, val before it; calibration is cut from the end of train, so that the
    others stay as they are. By time it stands between val and test: what is nearest
    to the rows to come is most like them.
    """
    n_test = round(count * split.test)
    n_val = round(count * split.val)
    n_own = round(count * (split.calibration or 0.0))
    val_end, own_end = count - n_test, count - n_test - n_val
    if split.kind == "time":
        val_end, own_end = val_end - n_own, count - n_test
    return [
        (val_end - n_val, val_end, 1),
        (count - n_test, count, 2),
        (own_end - n_own, own_end, 3),
    ]


def _assign(order: NDArray[np.intp], split: Split) -> NDArray[np.int64]:
    part_of = np.zeros(len(order), dtype=np.int64)
    for begin, end, code in _boundaries(len(order), split):
        part_of[order[begin:end]] = code
    return part_of


def _split_random(strata: NDArray[np.int64], split: Split) -> NDArray[np.int64]:
    """Each stratum is spread evenly over one order, which is then cut once.

    So the parts have the sizes asked for, and each class its share in each part.
    """
    rng = np.random.default_rng(split.seed)
    shuffled = rng.permutation(len(strata))
    place = np.empty(len(strata), dtype=np.float64)
    for stratum in np.unique(strata):
        rows = shuffled[strata[shuffled] == stratum]
        place[rows] = (np.arange(len(rows)) + rng.random()) / len(rows)
    return _assign(np.argsort(place, kind="stable"), split)


Rows = NDArray[np.intp]


def _split_time(
    table: Table, schema: Schema, split: Split, kept: Rows
) -> NDArray[np.int64]:
    assert split.column is not None
    times = _read_times(table[split.column], split.column, schema)[kept]
    if np.isnan(times).any():
        row = int(kept[np.isnan(times)][0]) + 1
        raise DataError(
            f"the time column {split.column!r} is missing in row {row}",
            column=split.column,
        )
    return _assign(np.argsort(times, kind="stable"), split)


def _read_times(values: Column, name: str, schema: Schema) -> NDArray[np.float64]:
    """Moments, or numbers such as years, in the order of time."""
    format = schema.formats.get(name)
    if format not in MOMENT_FORMATS:
        try:
            return read_numbers(values, name, schema.missing, format)
        except DataError:
            format = None
    return read_moments(values, name, schema.missing, format)


def _split_group(
    table: Table, schema: Schema, split: Split, kept: Rows
) -> NDArray[np.int64]:
    """Whole groups in random order until a part has its share of the rows."""
    assert split.column is not None
    texts = read_categories(table[split.column], schema.missing)[kept]
    groups, group_of, sizes = np.unique(texts, return_inverse=True, return_counts=True)
    if len(groups) < 3:
        raise DataError(
            f"a split by group needs at least 3 groups, however {split.column!r} has "
            f"{len(groups)}",
            column=split.column,
        )
    order = np.random.default_rng(split.seed).permutation(len(groups))
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    part_of_group = np.zeros(len(groups), dtype=np.int64)
    for begin, end, code in _boundaries(len(texts), split):
        part_of_group[order[(begin <= middle) & (middle < end)]] = code
    return part_of_group[group_of]


def _split_given(table: Table, split: Split, kept: Rows) -> NDArray[np.int64]:
    assert split.column is not None
    index = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
    index |= {"calibration": 3, "cal": 3}
    texts = read_categories(table[split.column], ())[kept]
    part_of = np.array([index.get(text.lower(), -1) for text in texts])
    if (part_of < 0).any():
        row = int(np.flatnonzero(part_of < 0)[0])
        raise DataError(
            f"the split column {split.column!r} must say train, val or test, or "
            f"calibration, in every row, however row {kept[row] + 1} says "
            f"{texts[row]!r}",
            column=split.column,
        )
    return part_of


def _check_classes(y: NDArray[Any], schema: Schema) -> None:
    assert schema.classes is not None
    counts = np.bincount(y, minlength=len(schema.classes))
    few = np.flatnonzero(counts < 3)
    if len(few):
        label, count = schema.classes[int(few[0])], int(counts[few[0]])
        raise DataError(
            f"the class {label!r} of {schema.target!r} has {count} row"
            f"{'s' * (count != 1)}; each class needs at least 3, one each to train, "
            "validate and test: give more rows, or leave the class out",
            column=schema.target,
        )


def _check_sizes(sizes: dict[Any, int], max_rows: int, schema: Schema) -> None:
    least = max(_MIN_TRAIN_ROWS, len(schema.classes or ()))
    if sizes["train"] < least:
        needed = math.ceil(least * max_rows / sizes["train"])
        raise DataError(
            f"max_rows {max_rows} leaves {sizes['train']} rows to train on, where "
            f"{least} are needed; set it to at least {needed}"
        )


def _check_parts(parts: Parts, y: NDArray[Any], schema: Schema) -> None:
    for part, rows in parts.items():
        needed = _MIN_TRAIN_ROWS if part == "train" else 1
        if len(rows) < needed:
            raise DataError(
                f"the {part} part would have {len(rows)} rows; it needs at "
                f"least {needed}: give more rows or other shares"
            )
    if schema.classes is None:
        if np.ptp(y[parts["train"]]) == 0:
            raise DataError(
                f"the target {schema.target!r} is the same in every training row",
                column=schema.target,
            )
        return
    counts = np.bincount(y[parts["train"]], minlength=len(schema.classes))
    if (counts == 0).any():
        label = schema.classes[int(np.flatnonzero(counts == 0)[0])]
        total = int((y == schema.classes.index(label)).sum())
        raise DataError(
            f"the class {label!r} of {schema.target!r} has {total} row"
            f"{'s' * (total != 1)} and none of them in the train part; each class "
            "needs rows in it",
            column=schema.target,
        )
