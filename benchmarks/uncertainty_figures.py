"""Numbers out of the stored runs of the study of diversity, with their intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, variance
from typing import Any

import numpy as np
from numpy.typing import NDArray

Run = tuple[dict[str, Any], dict[str, Any]]
"""The key of a run, and what it came to."""
Take = Callable[[dict[str, Any]], float | None]
"""A number out of a run; None where the run has none."""
Interval = tuple[float, float, float]
Floats = NDArray[np.float64]
N_DRAWS = 2000


# Numbers of a run


def take(name: str) -> Take:
    return lambda result: result.get(name)


def gain(first: str, second: str) -> Take:
    return minus(take(first), take(second))


def signals(way: str, figure: str) -> Take:
    """Of confidence `alone` or with mutual information (`both`), cross-validated."""
    return lambda result: (result.get("signals") or {}).get(way, {}).get(figure)


def added(figure: str) -> Take:
    """What mutual information adds to confidence."""
    return minus(signals("both", figure), signals("alone", figure))


def minus(first: Take, second: Take) -> Take:
    def find(result: dict[str, Any]) -> float | None:
        a, b = first(result), second(result)
        return None if a is None or b is None else float(a - b)

    return find


def times(factor: float, find: Take) -> Take:
    def scaled(result: dict[str, Any]) -> float | None:
        value = find(result)
        return None if value is None else factor * value

    return scaled


def nats(name: str) -> Take:
    """`gain` or `gain_error` of held-out log-likelihood, in nats per 1000 rows."""
    return times(1000, lambda result: (result.get("signals") or {}).get(name))


def narrower(result: dict[str, Any]) -> float | None:
    """Percent by which intervals are narrower."""
    width = result.get("width")
    return None if width is None else 100 * (1 - width)


def shift_of(name: str, place: int = 0) -> Take:
    """AUROC of a measure for shifted rows; at place 1 its standard error over rows."""

    def find(result: dict[str, Any]) -> float | None:
        pair = result.get("shift", {}).get(name)
        return None if pair is None else float(pair[place])

    return find


def members_doubt(place: int = 0) -> Take:
    """The same of spread or mutual information, whichever the task has."""

    def find(result: dict[str, Any]) -> float | None:
        spread = shift_of("spread", place)(result)
        if spread is not None:
            return spread
        return shift_of("mutual_information", place)(result)

    return find


# Over runs and sets


def by_set(runs: Sequence[Run], find: Take) -> dict[str, list[float]]:
    """The numbers of the runs that have one, by data set."""
    found: dict[str, list[float]] = {}
    for key, result in runs:
        value = find(result)
        if value is not None:
            found.setdefault(key["dataset"], []).append(value)
    return dict(sorted(found.items()))


def of_set(runs: Sequence[Run], name: str) -> list[Run]:
    return [run for run in runs if run[0]["dataset"] == name]


def over_sets(found: dict[str, list[float]]) -> Interval:
    """The mean of the sets' means; sets are drawn anew, and runs within each."""
    values = [np.array(each) for each in found.values()]
    rng = np.random.default_rng(0)
    drawn = [
        each[rng.integers(len(each), size=(N_DRAWS, len(each)))] for each in values
    ]
    return pool(
        [float(v.mean()) for v in values], [each.mean(axis=1) for each in drawn]
    )


def pool(middles: Sequence[float], drawn: Sequence[Floats]) -> Interval:
    """The mean over sets of a number whose draws are given; sets are drawn anew."""
    rng = np.random.default_rng(0)
    shape = N_DRAWS, len(drawn)
    draws = np.stack([each[rng.integers(len(each), size=shape)] for each in drawn])
    chosen = rng.integers(len(drawn), size=shape)
    found = np.take_along_axis(draws, chosen[None], axis=0)[0].mean(axis=1)
    lower, upper = np.quantile(found, [0.025, 0.975])
    return mean(middles), float(lower), float(upper)


def over_rows(values: Sequence[float], errors: Sequence[float]) -> Interval:
    """The mean of runs on the same rows, by their standard errors over rows, which
    more runs do not make smaller, and by how runs differ, which they do."""
    of_runs = variance(values) / len(values) if len(values) > 1 else 0.0
    half = 1.96 * math.sqrt(mean(errors) ** 2 + of_runs)
    return mean(values), mean(values) - half, mean(values) + half


# What is measured for each doubling of diversity


@dataclass(frozen=True)
class Measure:
    title: str
    find: Take
    digits: int
    is_better: bool
    """Whether more is."""
    of_mean: bool = False
    """As a percentage of the set's mean."""


@dataclass(frozen=True, eq=False)
class Slope:
    """The change for each doubling on a set, and when its runs are drawn anew."""

    value: float
    drawn: Floats

    @property
    def interval(self) -> Interval:
        lower, upper = np.quantile(self.drawn, [0.025, 0.975])
        return self.value, float(lower), float(upper)


def find_slope(results: Sequence[dict[str, Any]], measure: Measure) -> Slope | None:
    """By a line through all steps and seeds over log2 of the measured diversity; None
    with fewer than five runs."""
    pairs = [
        (math.log2(result["diversity"]), value)
        for result in results
        if result.get("diversity") and (value := measure.find(result)) is not None
    ]
    if len(pairs) < 5:
        return None
    x, y = np.array(pairs).T
    if measure.of_mean:
        y = 100 * y / y.mean()
    rows = np.random.default_rng(0).integers(len(x), size=(N_DRAWS, len(x)))
    rows = rows[np.ptp(x[rows], axis=1) > 0]
    return Slope(float(_fit(x, y)), _fit(x[rows], y[rows]))


def over_slopes(slopes: Sequence[Slope]) -> Interval:
    return pool([each.value for each in slopes], [each.drawn for each in slopes])


def _fit(x: Floats, y: Floats) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return (centred * y).sum(axis=-1) / (centred * centred).sum(axis=-1)


# In words


def show(interval: Interval, digits: int = 3, sign: str = "+") -> str:
    middle, lower, upper = (f"{each:{sign}.{digits}f}" for each in interval)
    return f"{middle} [{lower}, {upper}]"


def show_all(runs: Sequence[Run], find: Take, digits: int = 3) -> str:
    found = by_set(runs, find)
    return show(over_sets(found), digits) if found else "-"


def average(runs: Sequence[Run], find: Take, digits: int = 3) -> str:
    value = average_of(runs, find)
    return "-" if value is None else f"{value:.{digits}f}"


def average_of(runs: Sequence[Run], find: Take) -> float | None:
    """The mean of the sets' means."""
    found = by_set(runs, find)
    return mean(mean(each) for each in found.values()) if found else None


def count(found: dict[str, list[float]]) -> str:
    n_runs = sum(len(each) for each in found.values())
    return f"n = {len(found)} sets, {n_runs} runs"


def join(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
