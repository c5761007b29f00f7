"""Watching a served model: counts of what is predicted, drift, and live scores."""

from app.monitor.alarms import announce_alarms
from app.monitor.collector import Collector, get_collector
from app.monitor.describe import describe_day
from app.monitor.outcomes import hash_id
from app.monitor.store import read_counts, take_outcomes
from app.monitor.tally import add

__all__ = [
    "Collector",
    "add",
    "announce_alarms",
    "describe_day",
    "get_collector",
    "hash_id",
    "read_counts",
    "take_outcomes",
]
