"""Jobs that are run by their children: sweeps by their cells, tune jobs by trials.

The children are ordinary train jobs that workers claim. A parent is held by no worker:
it begins with its first child, follows them, and ends with the last one. Nobody has to
be there for that: every worker tells the parent when a child of it has ended, and on
its patrol looks after all parents, whatever was missed.

A parent's row and its children's rows are never locked in one transaction in the order
child, parent; what goes down (cancel, stop) takes the parent first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import mean
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import blobs, db, jobs
from app.models import FINISHED, PARENTS, Event, Job, TrainedModel, new_id
from lometab.outcome import Outcome

HOLDER = "its children"
"""Whose lease a running parent is on; it never runs out."""
REPEAT_OF = "repeat_of"
"""In the config of a child: the trial that it runs once more, with another seed."""
REFIT_OF = "refit_of"
"""In the config of the job that trains the winner: which trial that was."""
KEPT_WEIGHTS = 3
"""Of how many children, the best on validation, the trained weights are kept."""


def add(
    session: Session, parent: Job, children: Sequence[Job], warnings: Sequence[str]
) -> None:
    """A new parent with its children; the caller commits."""
    jobs.add(session, parent, warnings)
    jobs.add_all(session, children)


def begin(session: Session, parent_id: str) -> None:
    """A child has been claimed: the first one begins the parent."""
    _begin(session, parent_id)
    session.commit()


def _begin(session: Session, parent_id: str) -> None:
    jobs.move_all(
        session,
        [Job.id == parent_id, Job.status == "queued"],
        ("running", {}),
        status="running",
        phase=sa.func.coalesce(
            Job.phase, sa.case((Job.kind == "tune", "searching"), else_=None)
        ),
        lease_owner=HOLDER,
        started_at=sa.func.coalesce(Job.started_at, db.now(session)),
    )


def follow(session: Session, child: Job) -> list[Job]:
    """A child may have ended: say so, and end the parent after the last one.

    Returns: the jobs that were made of it and now wait for a worker.
    """
    parent = _lock(session, child.parent_id)
    made: list[Job] = []
    if parent is not None:
        row = session.execute(_CHILDREN.where(Job.id == child.id)).one_or_none()
        if row is not None and row.status in FINISHED:
            told = session.scalars(
                sa.select(Event.data).where(
                    Event.job_id == parent.id,
                    Event.type == "child",
                    Event.data["job_id"].as_string() == child.id,
                )
            )
            if _about(row) not in told.all():
                _tell(session, parent, row)
        made = _settle(session, parent)
    session.commit()
    return made


_CHILDREN = sa.select(Job.id, Job.position, Job.status, Job.attempt, Job.outcome)


def _about(row: Any) -> dict[str, Any]:
    """What is told of a child's end; an end after another attempt is another one."""
    return {
        "position": row.position,
        "job_id": row.id,
        "status": row.status,
        "attempt": row.attempt,
    }


def _tell(session: Session, parent: Job, row: Any) -> None:
    is_run = row.position < parent.progress["n_runs"]  # no repeat, and no refit
    parent.progress = _count_progress(session, parent, row.outcome if is_run else None)
    jobs.move_all(session, [Job.id == parent.id], ("child", _about(row)))


def look_after(session: Session) -> list[Job]:
    """See to all parents that have not ended; the jobs that were made of it."""
    made: list[Job] = []
    ids = session.scalars(
        sa.select(Job.id).where(
            Job.kind.in_(PARENTS), Job.status.not_in(FINISHED), _IS_OPEN
        )
    ).all()
    for parent_id in ids:
        parent = _lock(session, parent_id)
        if parent is None:
            continue
        if parent.status == "queued":
            counts = count_children(session, parent.id)
            if counts.keys() - {"queued"}:  # whoever began a child did not come to it
                _begin(session, parent.id)
        elif parent.status == "running" and _is_out_of_time(session, parent):
            _stop(session, parent)
        elif parent.status == "stopping":
            _stop_children(session, parent)
        elif parent.status == "cancelling":
            jobs.cancel_all(session, [Job.parent_id == parent.id])
        session.refresh(parent)
        made += _settle(session, parent)
        session.commit()
    session.commit()
    return made


_IS_OPEN = Job.finished_at.is_(None)


def _lock(session: Session, parent_id: str | None) -> Job | None:
    """The parent's row, for us alone until the commit."""
    return session.scalar(
        sa.select(Job)
        .where(Job.id == parent_id, Job.status.not_in(FINISHED))
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def _count_progress(
    session: Session, parent: Job, outcome: dict[str, Any] | None
) -> dict[str, Any]:
    n_runs = parent.progress["n_runs"]
    rows = session.execute(
        sa.select(Job.status, sa.func.count())
        .where(Job.parent_id == parent.id, Job.position < n_runs)
        .group_by(Job.status)
    )
    n_finished = sum(count for status, count in rows if status in FINISHED)
    progress = {**parent.progress, "n_finished": n_finished}
    if parent.started_at is not None and n_finished:
        elapsed = (db.now(session) - parent.started_at).total_seconds()
        eta = elapsed / n_finished * (n_runs - n_finished)
        progress["eta_seconds"] = round(eta, 1)
    if outcome is not None:
        new, known = Outcome.from_dict(outcome), progress.get("best_score")
        sign = 1 if new.metric == "rmse" else -1
        if known is None or sign * new.val.score < sign * known:
            progress["best_score"] = new.val.score
    return progress


def count_children(session: Session, parent_id: str) -> dict[str, int]:
    """By status."""
    rows = session.execute(
        sa.select(Job.status, sa.func.count())
        .where(Job.parent_id == parent_id)
        .group_by(Job.status)
    )
    return {status: count for status, count in rows}


def _settle(session: Session, parent: Job) -> list[Job]:
    """End the parent if all its children have ended; the caller commits.

    A tune job first repeats its best trials and trains its winner: those jobs are
    returned.
    """
    counts = count_children(session, parent.id)
    if counts.keys() - set(FINISHED):
        return []
    has_succeeded = counts.get("succeeded", 0) > 0
    if parent.kind == "tune":
        refit = find_refit(session, parent)
        if refit is None and parent.status != "cancelling":
            made = _go_on(session, parent)
            if made:
                return made
        has_succeeded = refit is not None and refit.status == "succeeded"
    status, about = "succeeded", {}
    error: dict[str, Any] | None = None
    if parent.status == "cancelling":
        status = "cancelled"
    elif not has_succeeded:
        status, error = "failed", _explain_failure(session, parent.id)
        about = error
    _tell_rest(session, parent)
    jobs.move_all(
        session,
        [Job.id == parent.id],
        (status, about),
        status=status,
        error=error,
        phase=None,
        lease_owner=None,
        finished_at=db.now(session),
    )
    return []


def _tell_rest(session: Session, parent: Job) -> None:
    """Of children whose worker comes too late to tell, or died before it could."""
    told = session.scalars(
        sa.select(Event.data).where(Event.job_id == parent.id, Event.type == "child")
    )
    known = {(data["job_id"], data["attempt"], data["status"]) for data in told}
    rows = session.execute(
        _CHILDREN.where(Job.parent_id == parent.id).order_by(Job.position)
    ).all()
    for row in rows:
        if (row.id, row.attempt, row.status) not in known:
            _tell(session, parent, row)


def _explain_failure(session: Session, parent_id: str) -> dict[str, Any]:
    error = session.scalar(
        sa.select(Job.error)
        .where(Job.parent_id == parent_id, Job.status == "failed")
        .order_by(Job.position)
        .limit(1)
    )
    detail = "none of its jobs succeeded"
    if error is not None:
        detail += f"; the first that failed says: {error['detail']}"
    return {"code": "no_success", "detail": detail}


# Tune jobs


def _go_on(session: Session, parent: Job) -> list[Job]:
    """After the trials come repeats of the best ones, then the winner's training."""
    finalists = find_finalists(parent, read_children(session, parent))
    is_repeated = any(each.repeats for each in finalists)
    has_time = parent.status == "running" and not _is_out_of_time(session, parent)
    if not is_repeated and has_time:
        made = _repeat(session, parent, finalists)
        if made:
            return made
    winner = find_winner(finalists)
    return [] if winner is None else [_refit(session, parent, winner)]


@dataclass(frozen=True)
class Finalist:
    """One of the best trials, and its repeats with other seeds."""

    trial: Job
    repeats: list[Job]

    @property
    def outcomes(self) -> list[Outcome]:
        """Of the trial, and of repeats that were not cut short."""
        repeats = [each for each in self.repeats if not each.is_stop_wished]
        runs = [self.trial, *repeats]
        return [Outcome.from_dict(each.outcome) for each in runs if each.outcome]


def read_children(session: Session, parent: Job) -> Sequence[Job]:
    """By position: trials, repeats, the refit."""
    return session.scalars(
        sa.select(Job)
        .where(Job.parent_id == parent.id)
        .order_by(Job.position)
        .execution_options(populate_existing=True)
    ).all()


def find_finalists(parent: Job, children: Sequence[Job]) -> list[Finalist]:
    """Those that are repeated; before any is, the best trials seen to their end."""
    repeats: dict[int, list[Job]] = {}
    for child in children:
        if REPEAT_OF in child.config:
            repeats.setdefault(child.config[REPEAT_OF], []).append(child)
    if repeats:
        return [Finalist(children[i], repeats[i]) for i in sorted(repeats)]
    trials = children[: parent.config["tune"]["n_trials"]]
    ended = [
        (_rank(Outcome.from_dict(trial.outcome), trial.position), trial)
        for trial in trials
        if trial.status == "succeeded" and trial.outcome is not None
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
    return mean(_rank(outcome, 0)[0] for outcome in finalist.outcomes)


def _repeat(session: Session, parent: Job, finalists: Sequence[Finalist]) -> list[Job]:
    """The finalists with those seeds of the winner's training that they lack."""
    tune = parent.config["tune"]
    others = range(1, tune["seeds"])
    if len(finalists) < 2 or not others:
        return []
    made: list[Job] = []
    for i in others:  # all of them with one seed, then with the next
        for each in finalists:
            config = {**_without_marks(each.trial), "is_cell": True}
            settings = config["hyperparameters"]
            config["hyperparameters"] = {**settings, "seed": settings["seed"] + i}
            config[REPEAT_OF] = each.trial.position
            made.append(_make_child(parent, tune["n_trials"] + len(made), config))
    jobs.add_all(session, made)
    happening = {"trials": [each.trial.position for each in finalists]}
    jobs.move_all(
        session, [Job.id == parent.id], ("repeating", happening), phase="repeating"
    )
    return made


def _refit(session: Session, parent: Job, winner: Job) -> Job:
    """Train the winner with several seeds, as one model."""
    tune = parent.config["tune"]
    config = {
        **_without_marks(winner),
        "n_seeds": tune["seeds"],
        REFIT_OF: winner.position,
    }
    lock_row(session, winner)  # its weights must not be dropped on the way
    job = _make_child(parent, _refit_position(tune), config)
    job.name, job.tags = parent.name, parent.tags
    if not winner.is_stop_wished:  # else it has not been trained to its end
        job.checkpoint_sha256 = winner.checkpoint_sha256
    jobs.add(session, job)
    happening = {"trial": winner.position, "job_id": job.id}
    jobs.move_all(
        session, [Job.id == parent.id], ("refitting", happening), phase="refitting"
    )
    return job


def _without_marks(trial: Job) -> dict[str, Any]:
    """Its config, as that of a job of its own."""
    marks = ("is_cell", "trial_of")
    return {name: each for name, each in trial.config.items() if name not in marks}


def _make_child(parent: Job, position: int, config: dict[str, Any]) -> Job:
    return Job(
        id=new_id("job"),
        workspace_id=parent.workspace_id,
        dataset_id=parent.dataset_id,
        kind="train",
        parent_id=parent.id,
        position=position,
        queue=parent.queue,
        config=config,
        schema=parent.schema,
        estimate=parent.estimate,
        progress={"epoch": 0, "max_epochs": config["hyperparameters"]["max_epochs"]},
    )


def _refit_position(tune: dict[str, Any]) -> int:
    """After all trials and repeats that there may be."""
    n = tune.get("finalists", 1)
    n_repeats = n * (tune["seeds"] - 1) if n > 1 else 0
    return int(tune["n_trials"] + n_repeats)


def find_refit(session: Session, parent: Job) -> Job | None:
    """The job that trains the winner, if it has come to that."""
    if parent.kind != "tune":
        return None
    return session.scalar(
        sa.select(Job)
        .where(
            Job.parent_id == parent.id,
            Job.position == _refit_position(parent.config["tune"]),
        )
        .execution_options(populate_existing=True)
    )


def find_model_id(session: Session, parent: Job) -> str | None:
    """The model that the winner of a tune job became."""
    return session.scalar(
        sa.select(TrainedModel.id)
        .join(Job, Job.id == TrainedModel.job_id)
        .where(Job.parent_id == parent.id)
    )


# What a caller asks of a parent


def cancel(session: Session, parent: Job) -> bool:
    """End it and all of its children."""
    which = [Job.id == parent.id, Job.status.in_(("queued", "running", "stopping"))]
    moved = jobs.move_all(
        session,
        which,
        ("cancelling", {}),
        status="cancelling",
        lease_owner=HOLDER,
    )
    if moved:
        jobs.cancel_all(session, [Job.parent_id == parent.id])
        session.refresh(parent)
        _settle(session, parent)
    session.commit()
    return moved > 0


def stop(session: Session, parent: Job) -> bool:
    """Begin no further child, and end those that run with their best epoch so far."""
    moved = _stop(session, parent)
    session.commit()
    return moved


def _stop(session: Session, parent: Job) -> bool:
    moved = jobs.stop_all(session, [Job.id == parent.id])
    if moved:
        _stop_children(session, parent)
        session.refresh(parent)
    return moved > 0


def _stop_children(session: Session, parent: Job) -> None:
    if find_refit(session, parent) is not None:
        return  # what is left is the winner's own training
    which = [Job.parent_id == parent.id]
    # One that had begun and lost its worker keeps what it has, and the wish.
    has_begun = sa.or_(Job.checkpoint_sha256.is_not(None), Job.is_stop_wished)
    jobs.drop_queued(session, [*which, sa.not_(has_begun)])
    session.execute(
        sa.update(Job)
        .where(*which, Job.status == "queued")
        .values(is_stop_wished=True)
        .execution_options(synchronize_session=False)
    )
    jobs.stop_all(session, which)


def retry(session: Session, parent: Job) -> bool:
    """Run those of its children again that have not succeeded.

    Of a tune job that came to a winner, that is the winner's own training; of one that
    came to its finalists, their repeats.
    """
    lock_row(session, parent)
    which, phase = [Job.parent_id == parent.id], None
    if (refit := find_refit(session, parent)) is not None:
        which, phase = [Job.id == refit.id], "refitting"
    elif parent.kind == "tune":
        finalists = find_finalists(parent, read_children(session, parent))
        repeats = [job.id for each in finalists for job in each.repeats]
        if repeats:
            which, phase = [Job.id.in_(repeats)], "repeating"
    is_moved = parent.status in FINISHED and jobs.retry_all(session, which) > 0
    if is_moved:
        jobs.move_all(
            session,
            [Job.id == parent.id],
            ("queued", {"queue": parent.queue}),
            status="queued",
            phase=phase,
            error=None,
            started_at=None,  # its budget of time begins anew
            finished_at=None,
            is_stop_wished=False,
        )
    session.commit()
    return is_moved


def lock_row(session: Session, job: Job) -> None:
    """Have the row for us alone until the commit, as it is now."""
    session.refresh(job, with_for_update=True)


def _is_out_of_time(session: Session, parent: Job) -> bool:
    budget = parent.config.get("max_runtime_seconds")
    if budget is None or parent.started_at is None:
        return False
    elapsed: timedelta = db.now(session) - parent.started_at
    is_searching = find_refit(session, parent) is None
    return is_searching and elapsed > timedelta(seconds=budget)


# The trained weights of the best children


def is_worth_keeping(session: Session, child: Job, outcome: Outcome) -> bool:
    """Whether a child that is about to end is among the best so far."""
    if REPEAT_OF in child.config:
        return False  # what can be promoted is the trial
    rank = _rank(outcome, child.position)
    better = [each for each in _kept(session, child) if _rank(*each[1:]) < rank]
    return len(better) < KEPT_WEIGHTS


def drop_weights(session: Session, child: Job) -> None:
    """Forget the weights of children that are no longer among the best."""
    kept = sorted(_kept(session, child), key=lambda each: _rank(*each[1:]))
    for job, _, _ in kept[KEPT_WEIGHTS:]:
        sha256, job.checkpoint_sha256 = job.checkpoint_sha256, None
        session.flush()
        assert sha256 is not None
        blobs.remove_unused(session, job.workspace_id, sha256)
    session.commit()


def _kept(session: Session, child: Job) -> list[tuple[Job, Outcome, int | None]]:
    """The child's siblings, itself included, whose weights are kept."""
    rows = session.scalars(
        sa.select(Job)
        .where(
            Job.parent_id == child.parent_id,
            Job.status == "succeeded",
            Job.checkpoint_sha256.is_not(None),
        )
        .execution_options(populate_existing=True)
    )
    return [
        (job, Outcome.from_dict(job.outcome), job.position)
        for job in rows
        if job.outcome is not None
    ]


def _rank(outcome: Outcome, position: int | None) -> tuple[float, int]:
    """Less is better; of equal ones the first."""
    sign = 1 if outcome.metric == "rmse" else -1
    return sign * outcome.val.score, position or 0
