"""The trained weights of the best cells or trials, kept for whoever promotes one."""

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs.budget import N_KEPT, is_budgeted
from app.storage import blobs
from app.storage.enums import JobRole, JobStatus
from app.storage.tables import Job
from lometab.evaluation import Outcome

KEPT_WEIGHTS = 3
"""Of how many children, the best on validation, the trained weights are kept."""


def rank(outcome: Outcome, order: int | None) -> tuple[float, int]:
    """Less is better; of equal ones the first."""
    sign = 1 if outcome.metric == "rmse" else -1
    return sign * outcome.val.score, order or 0


def is_worth_keeping(session: Session, child: Job, outcome: Outcome) -> bool:
    """Whether a child that is about to end is among the best so far."""
    if child.role == JobRole.REPEAT:
        return False  # what can be promoted is the trial
    own = rank(outcome, child.position)
    better = [each for each in _kept(session, child) if rank(*each[1:]) < own]
    return len(better) < _n_kept(child)


def drop_weights(session: Session, child: Job) -> None:
    """Forget the weights of children that are no longer among the best."""
    kept = sorted(_kept(session, child), key=lambda each: rank(*each[1:]))
    for job, _, _ in kept[_n_kept(child) :]:
        sha256, job.checkpoint_sha256 = job.checkpoint_sha256, None
        session.flush()
        assert sha256 is not None
        blobs.remove_unused(session, job.workspace_id, sha256)


def _n_kept(child: Job) -> int:
    return N_KEPT if is_budgeted(child.config) else KEPT_WEIGHTS


def _kept(session: Session, child: Job) -> list[tuple[Job, Outcome, int | None]]:
    """The child's siblings, itself included, whose weights are kept."""
    rows = session.scalars(
        sa.select(Job)
        .where(
            Job.parent_id == child.parent_id,
            Job.status == JobStatus.SUCCEEDED,
            Job.checkpoint_sha256.is_not(None),
        )
        .execution_options(populate_existing=True)
    )
    return [
        (job, Outcome.from_dict(job.outcome), job.position)
        for job in rows
        if job.outcome is not None
    ]
