"""Rows that say the same in every column."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.table.parquet import Table, n_rows
from lometab.table.schema import Schema, read_feature, target

_MAX_VALUES = 50_000_000
"""Larger tables are not looked through."""
Hashes = NDArray[np.uint64]


def hash_rows(table: Table, schema: Schema) -> Hashes:
    """Equal for rows whose inputs and target are equal, and hardly ever for others."""
    hashes = _mix(np.zeros(n_rows(table), np.uint64), target(table, schema))
    for name in schema.numeric:
        hashes = _mix(hashes, read_feature(table, schema, name))
    for name in schema.categorical:
        texts = read_feature(table, schema, name).astype(str)
        hashes = _mix(hashes, np.unique(texts, return_inverse=True)[1])
    return hashes


def _mix(hashes: Hashes, values: NDArray[np.generic]) -> Hashes:
    """One more column; the constants are those of SplitMix64."""
    numbers = values.astype(np.float64) + 0.0  # -0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan
    mixed = hashes * np.uint64(0x9E3779B97F4A7C15) + numbers.view(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def find_duplicates(
    table: Table, schema: Schema, parts: Mapping[Any, NDArray[np.intp]]
) -> list[str]:
    """A warning if rows to test on are also there to train on."""
    n_columns = len(schema.numeric) + len(schema.categorical)
    if n_rows(table) * n_columns > _MAX_VALUES:
        return []
    hashes = hash_rows(table, schema)
    n_copies = len(hashes) - len(np.unique(hashes))
    n_seen = int(np.isin(hashes[parts["test"]], hashes[parts["train"]]).sum())
    if n_seen == 0:
        return []
    return [
        f"{n_copies} of {len(hashes)} rows are exact copies of others, and {n_seen} of "
        f"the {len(parts['test'])} test rows are also training rows, so the test is "
        "easier than new rows will be; set `split.group_duplicates` to keep copies in "
        "one part"
    ]
