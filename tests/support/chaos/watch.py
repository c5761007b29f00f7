"""Memory, descriptors and connections of processes that live long."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psutil
import psycopg

from tests.support.chaos.field import Battlefield

SECONDS = 5.0
MOST_GROWTH = 1.1
MOST_MORE = 5
"""Of descriptors, threads and connections, which are few: that many beside a tenth."""


class Watch:
    """Looks now and then at the first API, the first worker, and Postgres."""

    def __init__(
        self, field: Battlefield, read_cache: Callable[[], float] | None = None
    ) -> None:
        """
        Args:
            read_cache: bytes of the models that the first API keeps loaded.
        """
        self.field = field
        self.read_cache = read_cache
        self.seen: dict[str, list[float]] = {}
        self._looked_at = 0.0

    def look(self) -> None:
        if time.monotonic() - self._looked_at < SECONDS:
            return
        self._looked_at = time.monotonic()
        for name, kept in (
            ("API", self.field.apis[0]),
            ("worker", self.field.workers[0]),
        ):
            process = psutil.Process(kept.process.pid)
            self._add(f"{name}, MiB", process.memory_info().rss / 2**20)
            self._add(f"{name}, descriptors", process.num_fds())
            self._add(f"{name}, threads", process.num_threads())
        if self.read_cache is not None:
            models = self.read_cache() / 2**20
            self._add("API, its models, MiB", models)
            self._add("API without its models, MiB", self.seen["API, MiB"][-1] - models)
        try:
            with self.field.postgres.connect() as connection:
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE backend_type = 'client backend'"
                ).fetchone()
        except psycopg.OperationalError:
            return  # it is just restarted
        if row is not None:
            self._add("connections to Postgres", row[0])

    def _add(self, name: str, value: float) -> None:
        self.seen.setdefault(name, []).append(value)

    def judge(self) -> list[list[Any]]:
        """For each: the median of the first and of the last third, and the most; but
        for the first sixth, when everything is used for the first time."""
        lines: list[list[Any]] = []
        for name, values in self.seen.items():
            kept = values[len(values) // 6 :]
            third = max(1, len(kept) // 3)
            first, last = median(kept[:third]), median(kept[-third:])
            lines.append([name, round(first), round(last), round(max(kept))])
        return lines


def find_grown(lines: list[list[Any]]) -> list[str]:
    """Names of what was not flat."""
    grown = []
    for name, first, last, _ in lines:
        most = MOST_GROWTH * first + (0 if name.endswith("MiB") else MOST_MORE)
        if last > most:
            grown.append(name)
    return grown
