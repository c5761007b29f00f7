"""Partial dependence: how the answer moves with one column, all else as it is."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lometab.errors import DataError, suggest
from lometab.evaluation import Effect, EffectCurve, Effects
from lometab.explain.rows import Model, Rows
from lometab.table import PERIODS

Label = str | int | bool
MAX_POINTS = 12
MAX_CURVES = 5
"""Classes whose curves are told, of more than two."""
N_ICE = 20
MAX_MEMBERS = 64
"""Members whose curves are told, evenly spaced."""
_DAY = PERIODS["day"]


class Part(NamedTuple):
    """A phase of a moment: step i of n in a period."""

    name: str
    period: float
    offset: float
    """Seconds after 1970 at which a first step begins."""
    labels: tuple[str, ...]


PARTS = (
    Part("hour", _DAY, 0.0, tuple(f"{hour:02}:00" for hour in range(0, 24, 2))),
    Part(
        "weekday",
        PERIODS["week"],
        4 * _DAY,
        ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    ),
    Part(
        "month",
        PERIODS["year"],
        0.0,
        (
            *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
            *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
        ),
    ),
)
"""Months are twelfths of a year."""


class Grid(NamedTuple):
    """The points at which a column is tried, and how rows get each of them."""

    kind: Literal["numeric", "categorical", "datetime"]
    part: str | None
    points: list[float] | list[str]
    """As shown."""
    values: list[Any]
    """For each point the values of all rows, or one for all."""


def make_grids(rows: Rows, column: str) -> list[Grid]:
    """One for a column; for a datetime column one for the moment and each part that
    differs between rows."""
    values = rows.get(column)
    if not rows.is_numeric(column):
        return _of_categories(values)
    present = values[~np.isnan(values)]
    if not len(present):
        return []
    points = _find_points(present)
    if column not in rows.datetime:
        return [Grid("numeric", None, points, [*points])]
    has_times = bool((present % _DAY != 0).any())
    if not has_times:
        points = sorted({each // _DAY * _DAY for each in points})
    unit = "s" if has_times else "D"
    shown = [
        str(np.datetime64(int(each), "s").astype(f"datetime64[{unit}]"))
        for each in points
    ]
    grids = [Grid("datetime", "moment", shown, [*points])] if len(points) > 1 else []
    return grids + [
        Grid("datetime", part.name, [*part.labels], _shift(values, part))
        for part in PARTS
        if len(np.unique(_step(present, part))) > 1
    ]


def _of_categories(values: NDArray[Any]) -> list[Grid]:
    names, counts = np.unique(values.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MAX_POINTS]
    levels = [str(name) for name in names[order]]
    shown = [level or "(missing)" for level in levels]
    return [Grid("categorical", None, shown, [*levels])]


def _find_points(present: NDArray[np.float64]) -> list[float]:
    """All values if they are few, else quantiles from 2 to 98 %."""
    distinct = np.unique(present)
    if len(distinct) > MAX_POINTS:
        levels = np.linspace(0.02, 0.98, MAX_POINTS)
        distinct = np.unique(np.quantile(present, levels))
    return [float(each) for each in distinct]


def _step(moments: NDArray[np.float64], part: Part) -> NDArray[np.float64]:
    length = part.period / len(part.labels)
    steps: NDArray[np.float64] = np.mod(moments - part.offset, part.period) // length
    return steps


def _shift(moments: NDArray[np.float64], part: Part) -> list[NDArray[np.float64]]:
    """The moments moved within their period to each step; missing ones stay."""
    length = part.period / len(part.labels)
    now = _step(moments, part)
    return [moments + (i - now) * length for i in range(len(part.labels))]


def measure_effects(
    model: Model,
    rows: Rows,
    columns: Sequence[str],
    classes: Sequence[Label] | None,
    *,
    shows_rows: bool = True,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Effects:
    """The effects of columns on the answers to rows.

    Args:
        rows: what the answer is averaged over; a few dozen do.
        classes: the labels of the model's probabilities; None for a regression.
        shows_rows: whether the curves of single rows are told too.
    """
    for name in columns:
        if name not in rows.columns:
            raise DataError(
                f"the model takes no column {name!r}{suggest(name, rows.columns)}",
                column=name,
            )
    found = []
    n_model_rows = 0
    for i, column in enumerate(columns):
        for grid in make_grids(rows, column):
            outputs = _follow(model, rows, column, grid, classes, shows_rows)
            n_model_rows += len(rows) * len(grid.points)
            found.append(
                Effect(
                    column=column,
                    kind=grid.kind,
                    part=grid.part,
                    grid=grid.points,
                    outputs=outputs,
                )
            )
        on_step(i + 1, len(columns))
    return Effects(n_rows=len(rows), n_model_rows=n_model_rows, columns=found)


def _follow(
    model: Model,
    rows: Rows,
    column: str,
    grid: Grid,
    classes: Sequence[Label] | None,
    shows_rows: bool,
) -> list[EffectCurve]:
    """All points in one run."""
    changed = Rows.join([rows.put(column, value) for value in grid.values])
    mean, members = model(changed.x_num, changed.x_cat)
    shape = (len(grid.values), len(rows))
    mean = mean.reshape(*shape, -1).astype(np.float64)  # (G, N, C)
    members = members.reshape(*shape, members.shape[1], -1).astype(np.float64)
    n_members = members.shape[2]
    kept = np.unique(
        np.linspace(0, n_members - 1, min(n_members, MAX_MEMBERS)).round().astype(int)
    )
    return [
        EffectCurve(
            label=None if classes is None else classes[c],
            mean=_short(mean[:, :, c].mean(axis=1)),
            members=[_short(members[:, :, k, c].mean(axis=1)) for k in kept],
            ice=[_short(mean[:, i, c]) for i in range(min(len(rows), N_ICE))]
            if shows_rows
            else [],
        )
        for c in _choose_classes(mean, classes)
    ]


def _choose_classes(
    mean: NDArray[np.float64], classes: Sequence[Label] | None
) -> list[int]:
    if classes is None:
        return [0]
    if len(classes) == 2:
        return [1]
    likely = np.argsort(-mean.mean(axis=(0, 1)), kind="stable")[:MAX_CURVES]
    return sorted(int(c) for c in likely)


def _short(numbers: NDArray[np.float64]) -> list[float]:
    """With six digits that count: enough to draw, and half of the text."""
    return [float(f"{each:.6g}") for each in numbers]
