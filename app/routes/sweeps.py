"""Sweeps and tune jobs: what their runs came to, and making a model of one of them."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from app import db, jobs, sweeps
from app.auth import Reader
from app.deps import ChangedJobDep, JobDep, ReadSessionDep, SessionDep, get_or_404
from app.errors import Invalid, WrongJobKind, WrongJobStatus
from app.models import Dataset, Job, new_id
from app.planning import read_cells
from app.queue import enqueue_training
from app.routes.jobs import read_job_row
from app.routes.responses import problems
from app.schemas import (
    FinalistRead,
    Id,
    JobRead,
    ParallelAxis,
    PromoteRequest,
    RanksRead,
    Run,
    SweepRead,
    TrialRead,
    TuneRead,
)
from lometab.comparison import (
    DEFINITIONS,
    Comparison,
    Spread,
    compare_cells,
    rank_methods,
)
from lometab.outcome import Outcome
from lometab.space import CATBOOST

router = APIRouter(tags=["sweeps"])


@router.get(
    "/jobs/{job_id}/sweep",
    response_model=SweepRead,
    summary="The cells of a sweep side by side",
    responses=problems(404, 409, 422),
)
def read_sweep(job: JobDep, session: ReadSessionDep) -> SweepRead:
    """Live while it runs: means and deviations over the seeds that are finished, the
    best cells, the Pareto set, and the settings at which the members collapsed."""
    _check_kind(job, "sweep")
    runs = _read_runs(session, job)
    counts: dict[str, int] = {}
    for each in runs:
        counts[each.status] = counts.get(each.status, 0) + 1
    n_cells = len(read_cells(job.config))
    seed = job.config["hyperparameters"]["seed"]
    return SweepRead.model_validate(
        {
            "job_id": job.id,
            "status": job.status,
            "n_runs": len(runs),
            "counts": counts,
            "runs": [
                [
                    Run(
                        job_id=each.id,
                        seed=seed + each.position // n_cells,
                        status=each.status,
                    )
                    for each in runs[cell::n_cells]
                ]
                for cell in range(n_cells)
            ],
            "comparison": _compare(job, runs),
            "definitions": DEFINITIONS,
        }
    )


def _check_kind(job: Job, kind: str) -> None:
    if job.kind != kind:
        raise WrongJobKind(f"the job is of the kind {job.kind!r}, not {kind!r}")


def _read_runs(session: Session, job: Job) -> list[Any]:
    """Id, position, status and outcome of the runs, by position."""
    return [
        *session.execute(
            sa.select(Job.id, Job.position, Job.status, Job.outcome)
            .where(Job.parent_id == job.id)
            .order_by(Job.position)
        )
    ]


def _compare(job: Job, runs: list[Any]) -> Comparison:
    cells = read_cells(job.config)
    outcomes: list[list[Outcome]] = [[] for _ in cells]
    for each in runs:
        if each.outcome is not None:
            outcome = Outcome.from_dict(each.outcome)
            outcomes[each.position % len(cells)].append(outcome)
    reference = job.config["sweep"]["reference"]
    at = None if reference is None else cells.index(reference)
    return compare_cells(cells, outcomes, at)


@router.get(
    "/jobs/{job_id}/tune",
    response_model=TuneRead,
    summary="The trials of a tune job, and what mattered",
    responses=problems(404, 409, 422),
)
def read_tune(job: JobDep, session: ReadSessionDep) -> TuneRead:
    """Live while it runs: every trial with its settings, the best one, how much each
    setting mattered, and the numbers of a parallel-coordinates plot."""
    from app.tuning import find_importances  # Optuna: not for each API process

    _check_kind(job, "tune")
    n_trials = job.config["tune"]["n_trials"]
    children = sweeps.read_children(session, job)
    trials = children[:n_trials]
    space = trials[0].config["trial_of"]["space"]
    is_regression = job.config["task"] == "regression"
    finalists = sweeps.find_finalists(job, children)
    winner = sweeps.find_winner(finalists)
    refit = sweeps.find_refit(session, job)
    if refit is not None and sweeps.REFIT_OF in refit.config:
        winner = trials[refit.config[sweeps.REFIT_OF]]  # whatever was retried since
    read = [_read_trial(trial, list(space)) for trial in trials]
    known = [each for each in read if each.outcome is not None and each.settings]
    full = [
        (each.settings, each.outcome.val.score)
        for each in known
        if each.settings and each.outcome and not each.outcome.is_pruned
    ]
    axes = [
        ParallelAxis(name=name, values=[(t.settings or {})[name] for t in known])
        for name in space
    ]
    numbers = [each.trial for each in known]
    scores = [each.outcome.val.score for each in known if each.outcome]
    return TuneRead(
        job_id=job.id,
        status=job.status,
        metric="rmse" if is_regression else "accuracy",
        space=space,
        trials=read,
        best=winner.position if winner else None,
        best_settings=_varied(winner, list(space)) if winner else None,
        finalists=[_read_finalist(each) for each in finalists if each.repeats],
        importances=find_importances(space, full, is_regression),
        parallel_coordinates=[
            ParallelAxis(name="trial", values=numbers),
            *axes,
            ParallelAxis(name="score", values=scores),
        ],
        refit_job_id=refit.id if refit else None,
        model_id=sweeps.find_model_id(session, job),
    )


def _read_trial(job: Job, names: list[str]) -> TrialRead:
    assert job.position is not None
    outcome = Outcome.from_dict(job.outcome) if job.outcome else None
    return TrialRead(
        trial=job.position,
        job_id=job.id,
        status=job.status,
        is_pruned=outcome is not None and outcome.is_pruned,
        settings=_varied(job, names) if _is_drawn(job) else None,
        outcome=outcome,
    )


def _read_finalist(finalist: sweeps.Finalist) -> FinalistRead:
    runs = [finalist.trial, *finalist.repeats]
    position = finalist.trial.position
    assert position is not None
    return FinalistRead(
        trial=position,
        runs=[
            Run(
                job_id=each.id,
                seed=each.config["hyperparameters"]["seed"],
                status=each.status,
            )
            for each in runs
        ],
        score=Spread.of([outcome.val.score for outcome in finalist.outcomes]),
    )


def _is_drawn(trial: Job) -> bool:
    """Whether its settings are its own by now."""
    return bool(trial.config["trial_of"].get("is_drawn"))


def _varied(job: Job, names: list[str]) -> dict[str, Any]:
    return {name: job.config["hyperparameters"][name] for name in names}


@router.post(
    "/jobs/{job_id}/promote",
    status_code=202,
    response_model=JobRead,
    summary="Make a model of a cell or a trial",
    responses=problems(400, 404, 409, 422),
)
def promote(
    job: ChangedJobDep, session: SessionDep, request: PromoteRequest
) -> JobRead:
    """A train job with the settings of the cell or the trial, and its first seed. The
    weights of the best few runs are kept: these are exported as they are, others are
    trained again."""
    wanted = {"sweep": request.cell, "tune": request.trial}
    if job.kind not in wanted:
        raise WrongJobKind(f"a job of the kind {job.kind!r} has nothing to promote")
    word = {"sweep": "cell", "tune": "trial"}[job.kind]
    position = wanted[job.kind]
    if position is None or (request.cell is not None and request.trial is not None):
        raise Invalid(f"say which {word} shall become a model: a `{word}` and no other")
    n_known = (
        len(read_cells(job.config))
        if job.kind == "sweep"
        else job.config["tune"]["n_trials"]
    )
    if position >= n_known:
        raise Invalid(f"there is no {word} {position}; they are 0 to {n_known - 1}")
    # Locked: its weights must not be dropped on the way.
    run = session.scalars(
        sa.select(Job)
        .where(Job.parent_id == job.id, Job.position == position)
        .with_for_update()
    ).one()
    if job.kind == "tune" and not _is_drawn(run):
        raise WrongJobStatus(
            f"trial {position} has no settings yet",
            job_status=run.status,
        )
    if run.config.get("cell") == CATBOOST:
        raise Invalid(
            f"cell {position} is CatBoost, which is there for comparison; promote a "
            "cell of the ensemble or of one of its variants"
        )
    apart = ("is_cell", "cell", "trial_of")
    config = {name: value for name, value in run.config.items() if name not in apart}
    made = Job(
        id=new_id("job"),
        workspace_id=job.workspace_id,
        dataset_id=job.dataset_id,
        kind="train",
        name=request.name,
        tags=request.tags,
        queue=job.queue,
        config={
            **config,
            "n_seeds": request.n_seeds,
            "promoted_from": {"job_id": job.id, word: position},
        },
        schema=job.schema,
        estimate=run.estimate,
        checkpoint_sha256=run.checkpoint_sha256 if run.outcome else None,
        progress={"epoch": 0, "max_epochs": config["hyperparameters"]["max_epochs"]},
    )
    jobs.add(session, made)
    session.commit()
    enqueue_training(made.id, made.queue)
    return read_job_row(made, None)


@router.get(
    "/ranks",
    response_model=RanksRead,
    summary="Rank the settings of several sweeps over their data sets",
    responses=problems(404, 409, 422),
)
def read_ranks(
    caller: Reader,
    job_id: Annotated[
        list[Id],
        Query(min_length=1, max_length=100, description="Sweeps, one per data set."),
    ],
) -> RanksRead:
    """As the paper ranks: by the mean test score on each data set, ties in the order of
    the names; settings that all of the sweeps have are ranked."""
    scores: dict[str, dict[str, float]] = {}
    is_less_better: dict[str, bool] = {}
    files: dict[str, str] = {}
    with db.reading() as session:
        for each in dict.fromkeys(job_id):
            job = get_or_404(session, Job, each, caller.workspace_id)
            _check_kind(job, "sweep")
            compared = _compare(job, _read_runs(session, job))
            scores[each] = {
                _name(cell.settings): cell.test.score.mean
                for cell in compared.cells
                if cell.test.score is not None
            }
            is_less_better[each] = compared.metric == "rmse"
            files[each] = session.get_one(Dataset, job.dataset_id).filename
    return RanksRead(jobs=files, methods=rank_methods(scores, is_less_better))


def _name(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
