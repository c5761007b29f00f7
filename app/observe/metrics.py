"""Counts of this process, and how they are written for Prometheus.

Counting is a few additions in memory under a lock. What is true of the whole service at
the moment, such as the length of the queue, is not counted but looked up when someone
asks: see `gauge`. Labels are names of ours alone: no key, no id, no value of the data.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SHORT_SECONDS = (5e-5, 1e-4, 2.5e-4, 5e-4, *SECONDS)
LONG_SECONDS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 4 * 3600)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)

Labels = tuple[str, ...]
MAX_SERIES = 1000
"""Of a family; what comes beyond is not counted."""


class Family:
    """A counter or a histogram, by the values of its labels."""

    def __init__(
        self,
        name: str,
        meaning: str,
        labels: Labels = (),
        bounds: tuple[float, ...] | None = None,
    ) -> None:
        """Make it known by its name.

        Args:
            bounds: of a histogram's buckets; None makes a counter.
        """
        self.name, self.meaning, self.labels, self.bounds = (
            name,
            meaning,
            labels,
            bounds,
        )
        self._lock = threading.Lock()
        self._series: dict[Labels, list[float]] = {}
        FAMILIES[name] = self

    def add(self, *labels: str, n: float = 1) -> None:
        with self._lock:
            series = self._series.get(labels) or self._begin(labels, 1)
            series[0] += n

    def observe(self, value: float, *labels: str) -> None:
        """A value of a histogram: into its bucket, and into the sum, which is last."""
        bounds = self.bounds
        assert bounds is not None
        with self._lock:
            series = self._series.get(labels) or self._begin(labels, len(bounds) + 2)
            series[bisect_left(bounds, value)] += 1
            series[-1] += value

    def _begin(self, labels: Labels, size: int) -> list[float]:
        series = [0.0] * size
        if len(self._series) < MAX_SERIES:
            self._series[labels] = series
        return series

    def read(self) -> list[tuple[Labels, list[float]]]:
        with self._lock:
            return [(labels, [*series]) for labels, series in self._series.items()]

    def clear(self) -> None:
        with self._lock:
            self._series.clear()


FAMILIES: dict[str, Family] = {}


class Gauge(NamedTuple):
    """A number as it is now."""

    name: str
    meaning: str
    labels: Labels
    values: Sequence[tuple[Labels, float]]


_LOCAL: dict[str, Callable[[], Gauge]] = {}
_SHARED: list[Callable[[], Iterable[Gauge]]] = []


def gauge(name: str, meaning: str, read: Callable[[], float]) -> None:
    """A number of this process; those of several processes are added up."""
    _LOCAL[name] = lambda: Gauge(name, meaning, (), [((), float(read()))])


def shared_gauges(read: Callable[[], Iterable[Gauge]]) -> None:
    """Numbers that whichever process is asked looks up for all of them."""
    if read not in _SHARED:
        _SHARED.append(read)


Snapshot = dict[str, Any]
"""All that a process counted, as JSON."""


def take_snapshot() -> Snapshot:
    counted = {name: family.read() for name, family in FAMILIES.items()}
    gauges = {name: read().values[0][1] for name, read in _LOCAL.items()}
    return {"counted": counted, "gauges": gauges}


def render(others: Iterable[Snapshot] = ()) -> str:
    """The counts of this process and of others, in Prometheus' text format."""
    snapshots = [take_snapshot(), *others]
    lines: list[str] = []
    for name, family in sorted(FAMILIES.items()):
        lines += _render_family(family, _add_up(name, snapshots))
    for name, read in sorted(_LOCAL.items()):
        about = read()
        total = sum(each["gauges"].get(name, 0.0) for each in snapshots)
        lines += _render_gauge(about._replace(values=[((), total)]))
    for read_all in _SHARED:
        for about in read_all():
            lines += _render_gauge(about)
    return "\n".join([*lines, ""])


def _add_up(name: str, snapshots: Iterable[Snapshot]) -> Mapping[Labels, list[float]]:
    sums: dict[Labels, list[float]] = {}
    for snapshot in snapshots:
        for labels, series in snapshot["counted"].get(name, ()):
            known = sums.setdefault(tuple(labels), [0.0] * len(series))
            if len(known) == len(series):  # else a process of another version
                sums[tuple(labels)] = [
                    a + b for a, b in zip(known, series, strict=True)
                ]
    return sums


def _render_family(family: Family, sums: Mapping[Labels, list[float]]) -> Iterable[str]:
    kind = "counter" if family.bounds is None else "histogram"
    yield f"# HELP {family.name} {family.meaning}"
    yield f"# TYPE {family.name} {kind}"
    for labels, series in sorted(sums.items()):
        pairs = [*zip(family.labels, labels, strict=True)]
        if family.bounds is None:
            yield f"{family.name}{_label(pairs)} {_number(series[0])}"
            continue
        total = 0.0
        bounds = [*map(_number, family.bounds), "+Inf"]
        for bound, n in zip(bounds, series[:-1], strict=True):
            total += n
            text = _label([*pairs, ("le", bound)])
            yield f"{family.name}_bucket{text} {_number(total)}"
        yield f"{family.name}_sum{_label(pairs)} {_number(series[-1])}"
        yield f"{family.name}_count{_label(pairs)} {_number(total)}"


def _render_gauge(about: Gauge) -> Iterable[str]:
    yield f"# HELP {about.name} {about.meaning}"
    yield f"# TYPE {about.name} gauge"
    for labels, value in about.values:
        pairs = [*zip(about.labels, labels, strict=True)]
        yield f"{about.name}{_label(pairs)} {_number(value)}"


def _label(pairs: Iterable[tuple[str, str]]) -> str:
    texts = [f'{name}="{_escape(value)}"' for name, value in pairs]
    return "{" + ",".join(texts) + "}" if texts else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# What is counted: one list, so that nobody invents a second name.

HTTP = Family(
    "lometab_http_requests_total",
    "Answers by method, route and status.",
    ("method", "route", "status"),
)
HTTP_SECONDS = Family(
    "lometab_http_seconds",
    "From the first byte of a request to the last of its answer.",
    ("route",),
    SECONDS,
)
PREDICT_SECONDS = Family(
    "lometab_predict_phase_seconds",
    "What predict spends its time on: queue, parse, run, encode, explain.",
    ("phase",),
    SHORT_SECONDS,
)
PREDICT_REQUESTS = Family(
    "lometab_predict_batch_requests", "Requests that shared a run.", (), SIZES
)
PREDICT_ROWS = Family("lometab_predict_batch_rows", "Rows of a run.", (), SIZES)
CACHE = Family(
    "lometab_model_cache_total",
    "Whether the model that was asked for was loaded: hit or miss.",
    ("found",),
)
EVENT_LAG = Family(
    "lometab_event_lag_seconds",
    "From an event of a job to when it is sent to a stream.",
    (),
    SECONDS,
)
ATTEMPTS = Family(
    "lometab_attempts_total", "Attempts at jobs, by how they ended.", ("ended",)
)
EXPIRED = Family(
    "lometab_lease_expiries_total", "Jobs taken back from workers that fell silent."
)
EPOCHS = Family("lometab_epochs_total", "Epochs that were trained.")
PHASE_SECONDS = Family(
    "lometab_phase_seconds",
    "How long the phases of jobs took.",
    ("phase",),
    LONG_SECONDS,
)
