"""Which settings to try: grids to sweep, spaces to tune, and those of the paper."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Annotated, Any

from annotated_types import Interval, Len

from lometab.config import TrainConfig
from lometab.errors import ConfigError

PAPER_GRID: dict[str, list[Any]] = {
    "rank": [1, 2, 4, 8, 16],
    "sigma_init": [0.1, 0.3, 0.5, 1.0, 2.0, 3.0],
}
"""The grid of the paper's section on controllability."""

Grid = Mapping[str, Sequence[Any]]


def expand_grid(
    grids: Sequence[Grid],
    base: TrainConfig,
    max_cells: int | None = None,
    also: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The cells of the grids, each once, as the settings that differ from `base`.

    Their order depends on the names and the values alone, not on the order of the
    names: a database may change that.

    Args:
        max_cells: if there are more, so many of them, drawn with a fixed seed.
        also: further cells, which are always there.

    Raises:
        ConfigError: a name or a value that is not allowed.
    """
    for grid in grids:
        for name, values in grid.items():
            _check_name(name)
            if not values:
                raise ConfigError(f"the grid has no value for {name}")
            for value in values:
                _normalise(base, {name: value})
    total = count_cells(grids)
    chosen: Sequence[int] = range(total)
    if max_cells is not None and total > max_cells:
        chosen = sorted(random.Random(0).sample(chosen, max_cells))
    cells = [_normalise(base, _cell_at(grids, i)) for i in chosen]
    cells += [_normalise(base, cell) for cell in also]
    return [*{frozenset(cell.items()): cell for cell in cells}.values()]


CATBOOST = {"variant": "catboost"}
"""The cell of a baseline that is none of our own variants and has no settings."""


def settings_of(base: TrainConfig, cell: Mapping[str, Any]) -> TrainConfig:
    """The base settings with those of the cell."""
    return base if cell == CATBOOST else replace(base, **cell)


def _cell_at(grids: Sequence[Grid], index: int) -> dict[str, Any]:
    """One cell of the grids, without making the others; the last name varies first."""
    for grid in grids:
        size = count_cells([grid])
        if index >= size:
            index -= size
            continue
        cell: dict[str, Any] = {}
        for name in sorted(grid, reverse=True):
            index, i = divmod(index, len(grid[name]))
            cell[name] = grid[name][i]
        return dict(sorted(cell.items()))
    raise IndexError(index)


def _normalise(base: TrainConfig, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The cell with numbers as the settings have them; ConfigError if not allowed."""
    for name in cell:
        _check_name(name)
    config = replace(base, **cell)
    found = {name: getattr(config, name) for name in cell}
    return {
        name: float(value) if isinstance(getattr(_DEFAULTS, name), float) else value
        for name, value in found.items()
    }


_DEFAULTS = TrainConfig()


def is_cell_of(grids: Sequence[Grid], cell: Mapping[str, Any]) -> bool:
    """Whether the grids have the cell."""
    return any(
        grid.keys() == cell.keys()
        and all(cell[name] in values for name, values in grid.items())
        for grid in grids
    )


def count_cells(grids: Sequence[Grid]) -> int:
    """How many there are at most, without making them."""
    return sum(math.prod(map(len, grid.values())) for grid in grids)


Finite = Annotated[float, Interval(ge=-1e300, le=1e300)]


@dataclass(frozen=True)
class Choice:
    """One of these values."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    values: Annotated[list[str | bool | int | float | None], Len(1, 1000)]


@dataclass(frozen=True)
class Range:
    """A number between two others, both included."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    low: Finite
    high: Finite
    step: Finite | None = None
    log: bool = False
    """Uniform in its logarithm."""
    or_zero: bool = False
    """Or exactly 0, as often as not."""


Distribution = Choice | Range

PAPER_SPACE: dict[str, Distribution] = {
    "k": Choice([16, 32]),
    "rank": Choice([1, 2, 4, 8, 16]),
    "sigma_init": Choice([0.1, 0.3, 0.5, 1.0]),
    "d_block": Range(64, 1024, step=16),
    "n_blocks": Range(1, 4),
    "lr": Range(1e-4, 5e-3, log=True),
    "weight_decay": Range(1e-4, 1e-1, log=True, or_zero=True),
    "dropout": Range(0.0, 0.5, or_zero=True),
    "d_embedding": Range(8, 32, step=4),
    "n_bins": Range(2, 128),
}
"""The paper's table of what Optuna tunes."""


BUDGET_SPACE: dict[str, Distribution] = {"d_block": Range(64, 512, step=16)}
"""Where a search on a budget departs from the paper's: a network of 1024 takes the time
of several others."""

NEIGHBOURS: list[dict[str, Any]] = [
    {"lr": 2e-3},
    {"d_block": 256, "dropout": 0.2},
    {"n_blocks": 2, "d_block": 192},
    {"sigma_init": 0.5},
    {"n_bins": 16},
    {"n_blocks": 4, "rank": 4},
    {"weight_decay": 1e-2},
]
"""What such a search tries after the settings that it was given, in their place."""


def near_space(base: TrainConfig) -> dict[str, Distribution]:
    """The neighbourhood of given settings: what they have, or what a neighbour has."""
    values: dict[str, set[Any]] = {}
    for neighbour in NEIGHBOURS:
        for name, value in neighbour.items():
            values.setdefault(name, {getattr(base, name)}).add(value)
    return {name: Choice(sorted(each)) for name, each in values.items()}


def is_whole(name: str) -> bool:
    """Whether a setting is a whole number."""
    return type(getattr(_DEFAULTS, name)) is int


def read_distribution(state: Mapping[str, Any]) -> Distribution:
    """A distribution as it is stored and told."""
    return Choice(**state) if "values" in state else Range(**state)


def contains(given: Distribution, value: Any) -> bool:
    """Whether a distribution can give the value."""
    if isinstance(given, Choice):
        return value in given.values
    if given.or_zero and value == 0:
        return True
    if not given.low <= value <= given.high:
        return False
    steps: float = (value - given.low) / given.step if given.step else 0.0
    return abs(steps - round(steps)) < 1e-9


def check_space(space: Mapping[str, Distribution], base: TrainConfig) -> None:
    """ConfigError for a name or a value that is not allowed."""
    for name, distribution in space.items():
        _check_name(name)
        if isinstance(distribution, Choice):
            if not distribution.values:
                raise ConfigError(f"the space has no value for {name}")
            extremes: list[Any] = distribution.values
        else:
            extremes = _check_range(name, distribution)
        for value in extremes:
            replace(base, **{name: value})  # raises for what is not allowed


def _check_range(name: str, given: Range) -> list[Any]:
    """Its ends, and 0 where that is possible."""
    if isinstance(getattr(_DEFAULTS, name), str | bool):
        raise ConfigError(f"{name} has no range; give its `values`")
    if not given.low <= given.high:
        raise ConfigError(f"the low end of {name} is above its high end")
    if given.log and given.low <= 0:
        raise ConfigError(f"{name} with log needs a low end above 0")
    if given.step is not None and (given.step <= 0 or given.log):
        raise ConfigError(f"the step of {name} must be above 0, and without log")
    ends: list[Any] = [given.low, given.high, *([0] if given.or_zero else [])]
    if is_whole(name):
        if any(end != int(end) for end in (*ends, given.step or 1)):
            raise ConfigError(f"{name} is a whole number, and so must its range be")
        return [int(end) for end in ends]
    return [float(end) for end in ends]


def _check_name(name: str) -> None:
    allowed = [each.name for each in fields(TrainConfig) if each.name != "seed"]
    if name == "seed":
        raise ConfigError("seed cannot be varied like this; set `seeds`, their number")
    if name not in allowed:
        near = get_close_matches(name, allowed, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {allowed}"
        raise ConfigError(f"{name!r} is no setting that can be varied{hint}")
