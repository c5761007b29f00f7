"""Sweeps and tune jobs: what their runs came to, and making a model of one of them."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from app import jobs
from app.access import Reader, Writer
from app.api.bodies.common import Id
from app.api.bodies.jobs import JobRead
from app.api.bodies.sweeps import (
    FinalistRead,
    ParallelAxis,
    PromoteRequest,
    RanksRead,
    Run,
    SweepRead,
    TrialRead,
    TuneRead,
)
from app.api.deps import JobDep, JobId, ReadSessionDep, get_or_404
from app.api.once import KeyHeader, Lock, create_once, keep
from app.api.responses import problems
from app.errors import WrongJobKind
from app.storage import db
from app.storage.enums import JobKind
from app.storage.tables import Dataset, Job
from lometab.evaluation import (
    COMPARISON_DEFINITIONS,
    DRAWS,
    Comparison,
    Outcome,
    Spread,
    compare_cells,
    rank_methods,
)
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
    _check_kind(job, JobKind.SWEEP)
    runs = _read_runs(session, job)
    counts: dict[str, int] = {}
    for each in runs:
        counts[each.status] = counts.get(each.status, 0) + 1
    seed = job.config["hyperparameters"]["seed"]
    by_cell: list[list[Run]] = [[] for _ in jobs.read_cells(job.config)]
    for each in runs:
        run = Run(job_id=each.id, seed=seed + each.repeat, status=each.status)
        by_cell[each.number].append(run)
    return SweepRead.model_validate(
        {
            "job_id": job.id,
            "status": job.status,
            "n_runs": len(runs),
            "counts": counts,
            "runs": by_cell,
            "comparison": _compare(job, runs),
            "definitions": COMPARISON_DEFINITIONS,
        }
    )


def _check_kind(job: Job, kind: JobKind) -> None:
    if job.kind != kind:
        raise WrongJobKind(f"the job is of the kind '{job.kind}', not '{kind}'")


def _read_runs(session: Session, job: Job) -> list[Any]:
    """Of each run its id, which cell and seed it is, its status and its outcome."""
    return [
        *session.execute(
            sa.select(Job.id, Job.number, Job.repeat, Job.status, Job.outcome)
            .where(Job.parent_id == job.id)
            .order_by(Job.repeat, Job.number)
        )
    ]


def _compare(job: Job, runs: list[Any]) -> Comparison:
    cells = jobs.read_cells(job.config)
    outcomes: list[list[Outcome]] = [[] for _ in cells]
    draws: list[dict[int, list[float]]] = [{} for _ in cells]
    for each in runs:
        if each.outcome is not None:
            outcomes[each.number].append(Outcome.from_dict(each.outcome))
            draws[each.number][each.repeat] = each.outcome.get(DRAWS, [])
    reference = job.config["sweep"]["reference"]
    at = None if reference is None else cells.index(reference)
    baselines = {i for i, cell in enumerate(cells) if cell == CATBOOST}
    return compare_cells(cells, outcomes, at, draws, baselines)


@router.get(
    "/jobs/{job_id}/tune",
    response_model=TuneRead,
    summary="The trials of a tune job, and what mattered",
    responses=problems(404, 409, 422),
)
def read_tune(job: JobDep, session: ReadSessionDep) -> TuneRead:
    """Live while it runs: every trial with its settings, the best one, how much each
    setting mattered, and the numbers of a parallel-coordinates plot."""
    _check_kind(job, JobKind.TUNE)
    children = jobs.read_children(session, job)
    trials = jobs.list_trials(children)
    space = jobs.read_space(job)
    is_regression = job.config["task"] == "regression"
    finalists = jobs.find_finalists(job, children)
    winner = jobs.find_winner(finalists)
    refit = jobs.find_refit(session, job)
    if refit is not None and refit.number is not None:
        winner = trials[refit.number]  # whatever was retried since
    read = [_read_trial(trial) for trial in trials]
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
        best=winner.number if winner else None,
        best_settings=winner.settings if winner else None,
        tied=_find_tied(trials),
        finalists=[_read_finalist(each) for each in finalists if each.repeats],
        importances=jobs.search.find_importances(space, full, is_regression),
        parallel_coordinates=[
            ParallelAxis(name="trial", values=numbers),
            *axes,
            ParallelAxis(name="score", values=scores),
        ],
        refit_job_id=refit.id if refit else None,
        model_id=jobs.find_model_id(session, job),
    )


def _find_tied(trials: list[Job]) -> list[int]:
    """Trials that nothing shows to be worse than the one with the best score."""
    ended = [t for t in trials if t.outcome and not t.outcome.get("is_pruned")]
    states = [trial.outcome or {} for trial in ended]
    compared = compare_cells(
        [trial.settings or {} for trial in ended],
        [[Outcome.from_dict(state)] for state in states],
        draws=[{0: state.get(DRAWS, [])} for state in states],
    )
    numbers = [trial.number for trial in ended]
    return [n for i in compared.tied if (n := numbers[i]) is not None]


def _read_trial(job: Job) -> TrialRead:
    assert job.number is not None
    outcome = Outcome.from_dict(job.outcome) if job.outcome else None
    return TrialRead(
        trial=job.number,
        job_id=job.id,
        status=job.status,
        is_pruned=outcome is not None and outcome.is_pruned,
        settings=job.settings,
        outcome=outcome,
    )


def _read_finalist(finalist: jobs.Finalist) -> FinalistRead:
    assert finalist.trial.number is not None
    return FinalistRead(
        trial=finalist.trial.number,
        runs=[
            Run(
                job_id=each.id,
                seed=each.config["hyperparameters"]["seed"],
                status=each.status,
            )
            for each in (finalist.trial, *finalist.repeats)
        ],
        score=Spread.of([outcome.val.score for outcome in finalist.outcomes]),
    )


@router.post(
    "/jobs/{job_id}/promote",
    status_code=202,
    response_model=JobRead,
    summary="Make a model of a cell or a trial",
    responses=problems(400, 404, 409, 422, 429),
)
def promote(
    caller: Writer,
    job_id: JobId,
    request: PromoteRequest,
    idempotency_key: KeyHeader = None,
) -> Response:
    """A train job with the settings of the cell or the trial, and its first seed. The
    weights of the best few runs are kept: these are exported as they are, others are
    trained again. With an `Idempotency-Key` the same request can be sent again without
    a second job."""

    def create(lock: Lock | None) -> JobRead:
        with db.transaction() as session:
            job = get_or_404(session, Job, job_id, caller.workspace_id)
            made = jobs.promote_run(session, job, **request.model_dump())
            answer = JobRead.of(made, None)
            keep(session, lock, answer)
        jobs.notify_of(made)
        return answer

    return create_once(request, ("promote", job_id), caller, idempotency_key, create)


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
            _check_kind(job, JobKind.SWEEP)
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
