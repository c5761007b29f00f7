"""Permutation importance: how much worse a model is when a column is shuffled."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lometab.errors import DataError, suggest
from lometab.evaluation import (
    Answer,
    ColumnImportance,
    GroupImportance,
    Importance,
    metrics,
)
from lometab.explain.groups import find_groups
from lometab.explain.rows import Model, Rows

MAX_COLUMNS = 200
"""Columns that are measured at most: those that tell most of the target alone."""
MIN_ROWS = 50
N_REPEATS = 5
FEW_REPEATS = 3
"""If there is no room for N_REPEATS of a few hundred rows."""


class Plan(NamedTuple):
    """How many test rows are shuffled how often."""

    n_rows: int
    n_repeats: int


def plan_importance(n_columns: int, n_test: int, budget: int) -> Plan:
    """As many rows as a budget of model rows has for each column."""
    per_column = max(1, budget // max(1, n_columns))
    n_repeats = N_REPEATS if per_column >= 300 * N_REPEATS else FEW_REPEATS
    if n_test * N_REPEATS <= per_column:
        return Plan(n_test, N_REPEATS)
    return Plan(min(n_test, max(MIN_ROWS, per_column // n_repeats)), n_repeats)


def measure_importance(
    model: Model,
    rows: Rows,
    y: NDArray[Any],
    answer: Answer,
    *,
    plan: Plan | None = None,
    columns: Sequence[str] | None = None,
    groups: Sequence[Sequence[str]] | None = None,
    seed: int = 0,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Importance:
    """Shuffle each column, and each group of columns as one.

    With all rows in each repeat, the orders are those of scikit-learn's
    `permutation_importance` for the same seed.

    Args:
        answer: what the model says to the rows as they are.
        columns: which to measure; by default all, or the first MAX_COLUMNS.
        groups: columns to shuffle as one; None: those found to go together.
        on_step: is told how many of all columns and groups are done.
    """
    plan = plan or Plan(len(rows), N_REPEATS)
    measured = [*(columns or rows.columns)][:MAX_COLUMNS]
    found: list[tuple[list[str], float | None]]
    if groups is None:
        found = [*find_groups(rows, measured)]
    else:
        found = [([*group], None) for group in groups]
        _check_names(rows, found)
    repeats = _draw(len(rows), plan, seed)
    steps = [[column] for column in measured] + [group for group, _ in found]
    results = []
    for i, step in enumerate(steps):
        results.append(_measure(model, rows, y, answer, step, repeats))
        on_step(i + 1, len(steps))
    alone = [
        ColumnImportance(column=column, **result)
        for column, result in zip(measured, results, strict=False)
    ]
    together = [
        GroupImportance(columns=group, association=association, **result)
        for (group, association), result in zip(
            found, results[len(measured) :], strict=True
        )
    ]
    return Importance(
        metric="rmse" if answer[0].ndim == 1 else "nll",
        n_rows=plan.n_rows,
        n_repeats=plan.n_repeats,
        n_model_rows=len(steps) * plan.n_rows * plan.n_repeats,
        columns=sorted(alone, key=lambda each: -each.mean),
        groups=sorted(together, key=lambda each: -each.mean),
        agreement=_agree([each.members for each in alone]),
        n_skipped=len(rows.columns) - len(measured),
        warnings=_warn(found, len(rows.columns) - len(measured)),
    )


def _check_names(rows: Rows, groups: list[tuple[list[str], float | None]]) -> None:
    for group, _ in groups:
        for name in group:
            if name not in rows.columns:
                raise DataError(
                    f"there is no column {name!r}{suggest(name, rows.columns)}",
                    column=name,
                )


def _draw(
    n: int, plan: Plan, seed: int
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """For each repeat its rows, and the order in which they give their values."""
    legacy = np.random.RandomState(np.random.RandomState(seed).randint(2**31))
    rng = np.random.default_rng(seed)
    shuffle, order = np.arange(plan.n_rows), np.arange(plan.n_rows)
    found = []
    for _ in range(plan.n_repeats):
        legacy.shuffle(shuffle)
        order = order[shuffle]
        everything = np.arange(n)
        rows = everything if plan.n_rows == n else rng.permutation(n)[: plan.n_rows]
        found.append((rows, order))
    return found


def _measure(
    model: Model,
    rows: Rows,
    y: NDArray[Any],
    answer: Answer,
    columns: list[str],
    repeats: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
) -> dict[str, Any]:
    ensemble, members = [], []
    for taken, order in repeats:
        shuffled = rows.take(taken).shuffled(columns, order)
        after = model(shuffled.x_num, shuffled.x_cat)
        before = tuple(each[taken] for each in answer)
        increase = [
            errors(y[taken], new) - errors(y[taken], old)
            for new, old in zip(after, before, strict=True)
        ]
        ensemble.append(float(increase[0]))
        members.append(increase[1])
    alone = np.mean(members, axis=0)
    return {
        "mean": float(np.mean(ensemble)),
        "std": float(np.std(ensemble)),
        "members": [float(each) for each in alone],
        "member_std": float(np.std(alone)) if len(alone) > 1 else None,
    }


def errors(y: NDArray[Any], answers: NDArray[Any]) -> Any:
    """The RMSE or log loss of one answer, or of each member's: (N, ...) -> (...).

    Numbers are (N,) or (N, K), probabilities (N, C) or (N, K, C); which of the two
    (N, K) is shows by `y`, which is whole for classes.
    """
    answers = answers.astype(np.float64)
    if y.dtype.kind in "iu":
        true = np.take_along_axis(
            answers, y.reshape(-1, *[1] * (answers.ndim - 1)), axis=-1
        )[..., 0]
        return -np.log(np.clip(true, metrics.MIN_PROBABILITY, 1.0)).mean(axis=0)
    truth = y.reshape(-1, *[1] * (answers.ndim - 1))
    return np.sqrt(((answers - truth) ** 2).mean(axis=0))


def _agree(members: list[list[float]]) -> float | None:
    """Mean rank correlation of the members' importances."""
    table = np.array(members)  # (columns, K)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 2:
        return None
    ranks = table.argsort(axis=0).argsort(axis=0)
    matrix = np.corrcoef(ranks.T)
    k = table.shape[1]
    return float((matrix.sum() - k) / (k * (k - 1)))


def _warn(groups: list[tuple[list[str], float | None]], n_skipped: int) -> list[str]:
    warnings = [
        f"the columns {', '.join(map(repr, group[:5]))}"
        f"{' and more' if len(group) > 5 else ''} go together ({association:.2f}): one "
        "can stand in for another, so read the importance of the group"
        for group, association in groups
        if association is not None
    ]
    if n_skipped:
        warnings.append(
            f"{n_skipped} columns that tell least of the target alone were not measured"
        )
    return warnings
