"""How long training takes: by what workers have measured, and else by a guess."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.workers import lives
from app.storage.enums import JobRole
from app.storage.tables import Job, Worker
from lometab.machine import guess_seconds

MAX_SECONDS = 3600
"""Longer is worth a warning."""
_N_KEPT = 20  # measured runs of each worker
_N_NEAR = 5  # those that are most alike decide


class Work(NamedTuple):
    """A network that is to be trained."""

    flops_per_epoch: int
    steps_per_epoch: int
    max_epochs: int

    @property
    def flops_per_step(self) -> float:
        return self.flops_per_epoch / self.steps_per_epoch


class Pace:
    """Seconds of an epoch, by epochs that were measured.

    Args:
        measured: runs with their `flops` and `steps` of an epoch, and its `seconds`.
    """

    def __init__(self, measured: Sequence[Mapping[str, float]] = ()) -> None:
        self.measured = [*measured]

    def seconds_per_epoch(self, work: Work) -> float:
        """A guess by arithmetic and steps, corrected by what it was off for those
        measured runs whose steps were nearest in size."""
        guess = guess_seconds(work.flops_per_epoch, work.steps_per_epoch)

        def distance(run: Mapping[str, float]) -> float:
            per_step = run["flops"] / run["steps"]
            return abs(math.log(per_step / work.flops_per_step))

        nearest = sorted(self.measured, key=distance)[:_N_NEAR]
        off = [
            run["seconds"] / guess_seconds(run["flops"], run["steps"])
            for run in nearest
        ]
        return guess * (median(off) if off else 1.0)


def read_pace(session: Session, queue: str, *, heard_within: float) -> Pace:
    """By the last runs of the workers of a queue that live."""
    rows = session.scalars(
        sa.select(Worker.epochs).where(lives(session, queue, heard_within))
    )
    return Pace([run for runs in rows for run in runs or ()])


def keep_pace(session: Session, job: Job, progress: Mapping[str, Any]) -> None:
    """Let the worker of a run that has ended tell how long its epochs took."""
    estimate, epoch = job.estimate, progress.get("epoch")
    is_known = job.role == JobRole.TRAIN and job.promoted_from is None
    # The first epochs of a short run say more of its start than of its pace, and the
    # last one of a run that was stopped was cut off.
    is_known = is_known and not job.is_stop_requested
    if not is_known or not epoch or epoch < 3 or "steps_per_epoch" not in estimate:
        return
    worker = session.get(Worker, job.lease_owner or "")
    if worker is None or not progress.get("seconds"):
        return
    run = {
        "flops": estimate["flops_per_epoch"],
        "steps": estimate["steps_per_epoch"],
        "seconds": progress["seconds"] / epoch,
    }
    worker.epochs = [*(worker.epochs or ()), run][-_N_KEPT:]


def describe_seconds(seconds: float) -> str:
    """
    >>> describe_seconds(5400), describe_seconds(200_000)
    ('1.5 hours', '2.3 days')
    """
    hours = seconds / 3600
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours"
