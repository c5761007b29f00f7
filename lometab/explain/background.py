"""A few training rows that are kept with a model, to explain its answers by."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from lometab.explain.rows import Rows

N_ROWS = 50
MAX_BYTES = 1_000_000
"""Of the rows as JSON; wide tables keep fewer, down to none."""


def pack_background(rows: Rows, seed: int = 0) -> dict[str, Any] | None:
    """Some of the training rows, fit for JSON; None if they are too large."""
    order = np.random.default_rng(seed).permutation(len(rows))
    n_rows = min(N_ROWS, len(rows))
    while n_rows:
        packed = _pack(rows.take(np.sort(order[:n_rows])))
        if len(json.dumps(packed)) <= MAX_BYTES:
            return packed
        n_rows //= 2
    return None


def _pack(rows: Rows) -> dict[str, Any]:
    numbers = [
        [None if np.isnan(each) else float(each) for each in row] for row in rows.x_num
    ]
    return {"numeric": numbers, "categorical": rows.x_cat.tolist()}


def unpack_background(
    packed: Mapping[str, Any] | None,
    numeric: list[str],
    categorical: list[str],
    datetime: list[str],
) -> Rows | None:
    """The rows that a model's file holds, if it holds any."""
    if packed is None:
        return None
    n_rows = len(packed["numeric"])
    x_num = np.array(packed["numeric"], dtype=np.float64).reshape(n_rows, len(numeric))
    x_cat = np.empty((n_rows, len(categorical)), dtype=object)
    for i, row in enumerate(packed["categorical"]):
        x_cat[i] = row
    return Rows(numeric, categorical, x_num, x_cat, datetime)
