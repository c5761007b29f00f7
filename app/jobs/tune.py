"""What a search comes to: its finalists, its winner, and the jobs made of these.

What to try next is asked of Optuna, in `app.jobs.search`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs import states
from app.jobs.budget import is_budgeted
from app.jobs.make import make_like
from app.jobs.moves import move_all
from app.jobs.weights import rank
from app.storage.enums import EventType, JobPhase, JobRole, JobStatus
from app.storage.tables import Job
from lometab.evaluation import Outcome
from lometab.space import Distribution, read_distribution


@dataclass(frozen=True)
class Finalist:
    """One of the best trials, and its repeats with other seeds."""

    trial: Job
    repeats: list[Job]

    @property
    def outcomes(self) -> list[Outcome]:
        """Of the trial, and of repeats that were not cut short."""
        repeats = [each for each in self.repeats if not each.is_stop_requested]
        runs = [self.trial, *repeats]
        return [Outcome.from_dict(each.outcome) for each in runs if each.outcome]


def read_space(parent: Job) -> dict[str, Distribution]:
    """What a search draws from, as it was when the search was created."""
    space: dict[str, Any] = parent.config["tune"]["space"]
    told = {name: each for name, each in space.items() if each is not None}
    return {name: read_distribution(each) for name, each in told.items()}


def read_children(session: Session, parent: Job) -> Sequence[Job]:
    """In the order in which they begin."""
    return session.scalars(
        sa.select(Job)
        .where(Job.parent_id == parent.id)
        .order_by(Job.position)
        .execution_options(populate_existing=True)
    ).all()


def list_trials(children: Sequence[Job]) -> list[Job]:
    """By their numbers."""
    trials = [child for child in children if child.role == JobRole.TRIAL]
    return sorted(trials, key=lambda trial: trial.number or 0)


def find_finalists(parent: Job, children: Sequence[Job]) -> list[Finalist]:
    """Those that are repeated; before any is, the best trials seen to their end."""
    trials = list_trials(children)
    repeats: dict[int, list[Job]] = {}
    for child in children:
        if child.role == JobRole.REPEAT and child.number is not None:
            repeats.setdefault(child.number, []).append(child)
    if repeats:
        return [Finalist(trials[i], repeats[i]) for i in sorted(repeats)]
    ended = [
        (rank(Outcome.from_dict(trial.outcome), trial.number), trial)
        for trial in trials
        if trial.status == JobStatus.SUCCEEDED and trial.outcome is not None
        if not trial.outcome.get("is_pruned")
    ]
    ended.sort(key=lambda pair: pair[0])
    distinct: list[Job] = []  # a search may try the same settings again
    for _, trial in ended:
        settings = [each.config["hyperparameters"] for each in distinct]
        if trial.config["hyperparameters"] not in settings:
            distinct.append(trial)
    n = parent.config["tune"].get("finalists", 1)
    return [Finalist(trial, []) for trial in distinct[:n]]


def find_winner(finalists: Sequence[Finalist]) -> Job | None:
    """The one with the best mean score on validation; of equal ones the first.

    Where repeats are missing, a lucky run does not beat the mean of several: only
    those with the most runs count.
    """
    if not finalists:
        return None
    most = max(len(each.outcomes) for each in finalists)
    full = [each for each in finalists if len(each.outcomes) == most]
    return min(full, key=_mean_score).trial


def _mean_score(finalist: Finalist) -> float:
    """Less is better."""
    return mean(rank(outcome, 0)[0] for outcome in finalist.outcomes)


def find_refit(session: Session, parent: Job) -> Job | None:
    """The job that trains the winner, if it has come to that."""
    return session.scalar(
        sa.select(Job)
        .where(Job.parent_id == parent.id, Job.role == JobRole.REFIT)
        .execution_options(populate_existing=True)
    )


def go_on(session: Session, parent: Job, *, has_time: bool) -> list[Job]:
    """After the trials come repeats of the best ones, then the winner's training.

    Returns: the jobs that were made of it and now wait for a worker.
    """
    children = read_children(session, parent)
    if is_budgeted(parent.config):
        return _combine(session, parent, children)
    finalists = find_finalists(parent, children)
    is_repeated = any(each.repeats for each in finalists)
    if not is_repeated and has_time:
        made = _repeat(session, parent, finalists, n_before=len(children))
        if made:
            return made
    winner = find_winner(finalists)
    if winner is None:
        return []
    return [_refit(session, parent, winner, n_before=len(children))]


def _repeat(
    session: Session, parent: Job, finalists: Sequence[Finalist], *, n_before: int
) -> list[Job]:
    """The finalists with those seeds of the winner's training that they lack."""
    others = range(1, parent.config["tune"]["seeds"])
    if len(finalists) < 2 or not others:
        return []
    made: list[Job] = []
    for i in others:  # all of them with one seed, then with the next
        for each in finalists:
            given = each.trial.config["hyperparameters"]
            settings = {**given, "seed": given["seed"] + i}
            made.append(
                make_like(
                    parent,
                    role=JobRole.REPEAT,
                    config={**each.trial.config, "hyperparameters": settings},
                    parent_id=parent.id,
                    position=n_before + len(made),
                    number=each.trial.number,
                    repeat=i,
                )
            )
    states.add_all(session, made)
    event = {"trials": [each.trial.number for each in finalists]}
    move_all(
        session,
        [Job.id == parent.id],
        (EventType.REPEATING, event),
        phase=JobPhase.REPEATING,
    )
    return made


def list_networks(children: Sequence[Job]) -> list[Job]:
    """Trials whose weights are kept, the best first."""
    kept = [
        (rank(Outcome.from_dict(trial.outcome), trial.number), trial)
        for trial in list_trials(children)
        if trial.status == JobStatus.SUCCEEDED
        if trial.outcome is not None and trial.checkpoint_sha256 is not None
    ]
    return [trial for _, trial in sorted(kept, key=lambda pair: pair[0])]


def find_networks(session: Session, job: Job) -> dict[int, str]:
    """The hashes of the weights of the trials that a job makes a model of."""
    numbers = (job.made_of or {}).get("trials", [])
    rows = session.execute(
        sa.select(Job.number, Job.checkpoint_sha256).where(
            Job.parent_id == job.parent_id,
            Job.role == JobRole.TRIAL,
            Job.number.in_(numbers),
        )
    )
    return {
        number: sha256
        for number, sha256 in rows
        if number is not None and sha256 is not None
    }


def _combine(session: Session, parent: Job, children: Sequence[Job]) -> list[Job]:
    """One model of members of the best trials, if there are any."""
    networks = list_networks(children)
    if not networks:
        return []
    best, numbers = networks[0], [trial.number for trial in networks]
    job = make_like(
        parent,
        role=JobRole.REFIT,
        config=best.config,
        made_of={"trials": numbers},
        parent_id=parent.id,
        position=len(children),
        number=best.number,
        repeat=0,
        name=parent.name,
        tags=parent.tags,
    )
    states.add(session, job)
    event = {"trial": best.number, "trials": numbers, "job_id": job.id}
    move_all(
        session,
        [Job.id == parent.id],
        (EventType.REFITTING, event),
        phase=JobPhase.REFITTING,
    )
    return [job]


def _refit(session: Session, parent: Job, winner: Job, *, n_before: int) -> Job:
    """Train the winner with several seeds, as one model."""
    # Locked: its weights must not be dropped on the way.
    session.refresh(winner, with_for_update=True)
    has_ended = not winner.is_stop_requested  # else it was not trained to its end
    job = make_like(
        parent,
        role=JobRole.REFIT,
        config={**winner.config, "n_seeds": parent.config["tune"]["seeds"]},
        parent_id=parent.id,
        position=n_before,
        number=winner.number,
        repeat=0,
        name=parent.name,
        tags=parent.tags,
        warnings=parent.warnings,
        checkpoint_sha256=winner.checkpoint_sha256 if has_ended else None,
    )
    states.add(session, job)
    event = {"trial": winner.number, "job_id": job.id}
    move_all(
        session,
        [Job.id == parent.id],
        (EventType.REFITTING, event),
        phase=JobPhase.REFITTING,
    )
    return job
