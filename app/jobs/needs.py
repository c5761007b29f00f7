"""What a job takes with its rows in memory or in a file, and which of the two fits."""

from dataclasses import dataclass
from typing import Any

from app.errors import TooMuchMemory
from app.jobs.config import JobSettings
from app.jobs.pace import Work
from app.jobs.planning import list_sizes
from lometab.config import Storage, TrainConfig
from lometab.cost import Cost, cost_of
from lometab.table import Schema

IMPORTED_BYTES = 400 * 10**6
"""What a training process takes before it has any data."""
_MIN_ROWS = 1000
"""Fewer are not proposed."""


@dataclass(frozen=True)
class Needs:
    """Of a job, or of the largest of its runs."""

    body: JobSettings
    schema: Schema
    n_table: int
    """Rows of the table."""
    widths: list[int]
    """Inputs of each categorical column."""

    def list_work(self, n_rows: int) -> list[Work]:
        """Of each run, if so many rows are used."""
        return [self.find_work(config, n_rows) for config in list_sizes(self.body)]

    def find_work(self, config: TrainConfig, n_rows: int) -> Work:
        """Of a run with these settings, if so many rows are used."""
        cost = self._cost(config, n_rows, "memory")
        return Work(cost.flops_per_epoch, cost.steps_per_epoch, config.max_epochs)

    def choose(self, n_rows: int, limit: float, whose: str) -> dict[str, Any]:
        """The estimate with the rows where they fit, in memory if they fit there.

        Raises:
            TooMuchMemory: they fit nowhere; it says how many rows would.
        """
        found = []
        for storage in self._storages():
            estimate = self._estimate(n_rows, storage)
            if estimate["memory_bytes"] <= limit:
                return estimate
            found.append(estimate["memory_bytes"])
        least = min(found)
        raise TooMuchMemory(
            f"training would take about {least >> 20} MiB, and {whose} "
            f"{int(limit) >> 20} MiB for it; {self._propose(n_rows, int(limit))}"
        )

    def _storages(self) -> list[Storage]:
        if not self.body.may_use_file:
            return ["memory"]
        return ["file"] if self.body.storage == "file" else ["memory", "file"]

    def _propose(self, n_rows: int, limit: int) -> str:
        """What to change, by the estimate."""
        smaller = "a smaller k, d_block, batch_size or n_bins"
        most = self._find_most_rows(n_rows, limit)
        if most is None:
            return f"try {smaller}"
        also = ""
        if self.body.storage == "memory" and "catboost" not in self.body.baselines:
            also = ", leave `storage` at 'auto'"
        return f"set `max_rows` to at most {most:,}{also}, or try {smaller}"

    def _find_most_rows(self, n_rows: int, limit: int) -> int | None:
        """The largest number of rows that fits, in round figures; None if there is none
        that is worth it."""
        config = self._find_largest(n_rows)

        def fits(n: int) -> bool:
            each = (self._bytes(config, n, storage) for storage in self._storages())
            return min(each) <= limit

        low, high = _MIN_ROWS, n_rows
        if high <= low or not fits(low):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        unit: int = 10 ** (len(str(low)) - 3)
        return low // unit * unit

    def _find_largest(self, n_rows: int) -> TrainConfig:
        return max(
            list_sizes(self.body),
            key=lambda config: self._cost(config, n_rows, "memory").job_bytes,
        )

    def _estimate(self, n_rows: int, storage: Storage) -> dict[str, Any]:
        costs = [self._cost(c, n_rows, storage) for c in list_sizes(self.body)]
        expected = max(costs, key=lambda each: each.job_bytes)
        return {
            "n_parameters": self._n_seeds * expected.n_parameters,
            "memory_bytes": self._with_others(expected),
            "serving_bytes": self._n_seeds * expected.serving_bytes,
            "disk_bytes": expected.disk_bytes,
            "storage": storage,
            "n_rows": n_rows,
        }

    def _bytes(self, config: TrainConfig, n_rows: int, storage: Storage) -> int:
        return self._with_others(self._cost(config, n_rows, storage))

    def _with_others(self, cost: Cost) -> int:
        """With members of further seeds, which are there when the file is made and
        checked."""
        further = (self._n_seeds - 1) * cost.serving_bytes
        return IMPORTED_BYTES + cost.job_bytes + further

    @property
    def _n_seeds(self) -> int:
        return self.body.tune.seeds if self.body.tune is not None else self.body.n_seeds

    def _cost(self, config: TrainConfig, n_rows: int, storage: Storage) -> Cost:
        return cost_of(
            self.schema,
            n_rows,
            config,
            cardinalities=self.widths,
            split=self.body.split,
            is_file=True,
            has_checkpoints=True,
            storage=storage,
            n_table=self.n_table,
        )
