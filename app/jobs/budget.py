"""A budget of time in place of settings: how long to search, and when to end it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from app.storage.tables import Job

MIN_SECONDS = 10
MAX_SECONDS = 30 * 24 * 3600
N_KEPT = 16
"""Of how many trials, the best on validation, members may be in the model."""


def is_budgeted(config: Mapping[str, Any]) -> bool:
    """Whether a job, or the one that it is a part of, has a budget."""
    return config.get("time_budget_seconds") is not None


def count_trials(seconds: int) -> int:
    """More than can be tried in the time; those that are not reached are dropped."""
    return max(8, min(200, seconds // 3))


def find_deadline(parent: Job) -> datetime | None:
    """When a parent begins no further child, and ends those that run."""
    seconds = parent.config.get("max_runtime_seconds")
    budget = parent.config.get("time_budget_seconds")
    if budget is not None:
        seconds = budget - parent.estimate.get("reserve_seconds", reserve(budget))
    if seconds is None or parent.started_at is None:
        return None
    return parent.started_at + timedelta(seconds=seconds)


def reserve(budget: float, seconds_per_epoch: float = 0.0) -> float:
    """Seconds to end the trials, and to make, check and judge the model of them.

    Args:
        seconds_per_epoch: of the given settings, by the estimate. On a large table it
            takes long to answer all rows: about an epoch to validate what is ended and
            to choose, and about another one for the model and its reports.
    """
    least = min(max(10.0, 0.1 * budget), 0.4 * budget, 180.0)
    return max(least, min(2 * seconds_per_epoch, 0.5 * budget))
