"""Why one row has its answer: Shapley values by permutation sampling.

Starting from a background row, the values of the explained row are put in one column
after the other, in a random order; each column gets the change that it makes, averaged
over orders and background rows. Each order is gone through forwards and backwards, and
each background row equally often. The changes along an order add up to the whole way,
so the values add up to the answer minus the mean answer of the background rows exactly.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.explain.rows import Model, Rows

MODEL_ROWS = 500
"""Rows that the model answers for one explained row, about: more are more exact."""
N_PAIRS, MAX_MODEL_ROWS = 20, 4000
"""Orders that many columns get at least, each forwards and backwards, while that takes
no more model rows than this."""
MIN_PAIRS = 2
SECONDS = 5.0
"""Then no further orders are gone through."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """What each column adds to the answer to one row."""

    base: float
    """The mean answer to the background rows."""
    values: dict[str, float]
    """By column; their sum is the answer minus the base."""
    standard_error: dict[str, float]
    """Of the values, from sampling orders and background rows."""
    member_std: dict[str, float] | None
    """How far the members' own values spread; None if there is one."""
    n_background: int
    n_orders: int
    n_model_rows: int
    seconds: float


def plan_orders(
    n_columns: int, n_background: int, model_rows: int
) -> tuple[int, int, int]:
    """How many background rows are used, how many pairs of orders, in how many rounds
    over the background rows."""
    rows_of_pair = max(1, 2 * (n_columns - 1))
    some = min(N_PAIRS, MAX_MODEL_ROWS // rows_of_pair)
    pairs = max(MIN_PAIRS, some, model_rows // rows_of_pair)
    used = min(n_background, pairs)
    rounds = max(1, pairs // used)
    return used, used * rounds, rounds


def explain_row(
    model: Model,
    row: Rows,
    background: Rows,
    mean: float,
    members: NDArray[Any],
    *,
    output: int | None = None,
    model_rows: int = MODEL_ROWS,
    seconds: float = SECONDS,
    seed: int = 0,
) -> Explanation:
    """Explain the answer to a row.

    Args:
        row: one row.
        mean, members: what the model says to it: () and (K,), of the class `output`.
        output: the class whose probability is explained; None for a regression.
        model_rows: about how many rows the model may answer for it.
        seconds: which it takes about, at most: fewer orders are gone through if the
            model is slow, but for the few that are always needed.
    """
    started_at = perf_counter()
    n_columns = len(row.columns)
    used, _, rounds = plan_orders(n_columns, len(background), model_rows)
    starts = background.take(slice(0, used))
    start, n_model_rows = _answer(model, starts, output), used
    # A round asks so many times as many rows: is there time for that?
    one_round = 2 * (n_columns - 1) * (perf_counter() - started_at)
    if one_round > seconds and used > MIN_PAIRS:
        used = max(MIN_PAIRS, int(used * seconds / one_round))
        starts, start = starts.take(slice(0, used)), start[:used]
    end = np.concatenate([[mean], members]).astype(np.float64)
    rng = np.random.default_rng(seed)
    found: list[NDArray[np.float64]] = []
    for _ in range(rounds):
        orders = rng.permuted(np.tile(np.arange(n_columns), (used, 1)), axis=1)
        pair = [
            _go_along(model, row, starts, each, start, end, output)
            for each in (orders, orders[:, ::-1])
        ]
        n_model_rows += 2 * used * (n_columns - 1)
        found.append((pair[0] + pair[1]) / 2)
        if perf_counter() - started_at > seconds:
            break
    steps = np.concatenate(found)  # (pairs, columns, 1 + K)
    values = steps.mean(axis=0)
    n_pairs = len(steps)
    error = steps[:, :, 0].std(axis=0) / np.sqrt(max(1, n_pairs - 1))
    spread = values[:, 1:].std(axis=1) if members.size > 1 else None
    return Explanation(
        base=float(start[:, 0].mean()),
        values=_name(row, values[:, 0]),
        standard_error=_name(row, error),
        member_std=None if spread is None else _name(row, spread),
        n_background=used,
        n_orders=2 * n_pairs,
        n_model_rows=n_model_rows,
        seconds=round(perf_counter() - started_at, 6),
    )


def _name(row: Rows, numbers: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(row.columns, numbers.tolist(), strict=True))


def _answer(model: Model, rows: Rows, output: int | None) -> NDArray[np.float64]:
    """The ensemble's answer and each member's: (N, 1 + K)."""
    mean, members = model(rows.x_num, rows.x_cat)
    if output is not None:
        mean, members = mean[:, output], members[:, :, output]
    return np.concatenate([mean[:, None], members], axis=1).astype(np.float64)


def _go_along(
    model: Model,
    row: Rows,
    starts: Rows,
    orders: NDArray[np.intp],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    output: int | None,
) -> NDArray[np.float64]:
    """What each column changes on the way from each start to the row, in its order:
    (starts, columns, 1 + K)."""
    n, n_columns = orders.shape
    places = np.argsort(orders, axis=1)
    # Between start and end: after step j, the columns in the first j places are new.
    is_new = places[:, None, :] < np.arange(1, n_columns)[None, :, None]
    n_num = len(row.numeric)
    between = Rows(
        row.numeric,
        row.categorical,
        _mix(is_new[:, :, :n_num], row.x_num, starts.x_num),
        _mix(is_new[:, :, n_num:], row.x_cat, starts.x_cat),
        row.datetime,
    )
    path = np.empty((n, n_columns + 1, start.shape[1]))
    path[:, 0], path[:, -1] = start, end
    if n_columns > 1:
        path[:, 1:-1] = _answer(model, between, output).reshape(n, n_columns - 1, -1)
    changes = np.diff(path, axis=1)  # by place
    return np.take_along_axis(changes, places[:, :, None], axis=1)


def _mix(
    is_new: NDArray[np.bool_], row: NDArray[Any], starts: NDArray[Any]
) -> NDArray[Any]:
    mixed = np.where(is_new, row[:, None, :], starts[:, None, :])
    n_rows = mixed.shape[0] * mixed.shape[1]
    flat: NDArray[Any] = mixed.reshape(n_rows, mixed.shape[2])
    return flat
