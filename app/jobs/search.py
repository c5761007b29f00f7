"""Optuna, in our own database: what to try next, and what not to go on with.

A trial of the study bears the id of the job that it belongs to. The job's row stays
the truth: a study is told what the rows say, so that a worker may die at any moment
between the two. Whoever does not tune does not import this: Optuna is large.
"""

import logging
from dataclasses import replace
from functools import cache
from typing import Any

import optuna
import sqlalchemy as sa
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState

from app.jobs.budget import is_budgeted
from app.jobs.tune import read_space
from app.settings import Settings, get_settings
from app.storage import db
from app.storage.enums import FINISHED, JobRole, JobStatus
from app.storage.tables import Job
from lometab.config import TrainConfig, stored_config
from lometab.evaluation import Outcome
from lometab.space import (
    NEIGHBOURS,
    Choice,
    Distribution,
    Range,
    contains,
    is_whole,
)

log = logging.getLogger(__name__)
optuna.logging.set_verbosity(optuna.logging.WARNING)

StudyError = StorageInternalError
"""The study is out of reach."""
N_STARTUP_TRIALS = 5
N_WARMUP_EPOCHS = 10
IS_ZERO = "{} is 0"
"""The parameter that says whether one with `or_zero` is exactly 0."""


@cache
def get_storage() -> optuna.storages.RDBStorage:
    """Optuna's own tables in our database; they are made when first needed."""
    settings = get_settings()
    options = _engine_options(settings)
    try:
        return optuna.storages.RDBStorage(settings.sqlalchemy_url, options)
    except (sa.exc.OperationalError, sa.exc.ProgrammingError, sa.exc.IntegrityError):
        # another process made the tables at the same moment
        return optuna.storages.RDBStorage(settings.sqlalchemy_url, options)


def _engine_options(settings: Settings) -> dict[str, Any]:
    if settings.sqlalchemy_url.startswith("sqlite"):
        return {"connect_args": {"timeout": 30}}
    arguments = {"prepare_threshold": None} if settings.database_pooler else {}
    return {"pool_size": 1, "connect_args": arguments}


def open_study(parent_id: str, is_regression: bool, seed: int) -> optuna.Study:
    """The one study of a tune job; every worker opens the same."""
    return optuna.create_study(
        study_name=parent_id,
        storage=get_storage(),
        direction="minimize" if is_regression else "maximize",
        # By seed and trial, so that workers do not all draw the same.
        sampler=optuna.samplers.TPESampler(
            n_startup_trials=N_STARTUP_TRIALS, constant_liar=True, seed=seed
        ),
        pruner=optuna.pruners.MedianPruner(
            n_startup_trials=N_STARTUP_TRIALS, n_warmup_steps=N_WARMUP_EPOCHS
        ),
        load_if_exists=True,
    )


class Trial:
    """One trial of a study, which is one job."""

    def __init__(self, job: Job) -> None:
        assert job.parent_id is not None and job.number is not None
        with db.reading() as session:
            self.space = read_space(session.get_one(Job, job.parent_id))
        is_regression = job.config["task"] == "regression"
        self.study = open_study(job.parent_id, is_regression, job.number)
        tell_study(self.study)
        self.number = job.number
        self.is_budgeted = is_budgeted(job.config)
        self.base = stored_config(job.config["hyperparameters"])
        self._trial = self._find(job.id, is_drawn=job.settings is not None)
        drawn = {name: self._suggest(name, each) for name, each in self.space.items()}
        config = replace(self.base, **drawn)
        self.settings = {name: getattr(config, name) for name in self.space}

    def _find(self, job_id: str, is_drawn: bool) -> optuna.Trial:
        """What an earlier attempt at the job had drawn, or a new one."""
        if is_drawn and self._find_running(job_id) is None:
            # The study has closed it, and the job was tried again: with the settings
            # that its row has, and its checkpoint.
            params = self._within_space(self.base)
            self.study.add_trial(
                optuna.create_trial(
                    state=TrialState.RUNNING,
                    params=params,
                    distributions={name: self._suggested(name) for name in params},
                    user_attrs={"job_id": job_id},
                )
            )
        running = self._find_running(job_id)
        if running is not None:
            return optuna.Trial(self.study, running)
        first = self._find_first()
        if first is not None:
            self.study.enqueue_trial(self._within_space(first), skip_if_exists=True)
        trial = self.study.ask()
        trial.set_user_attr("job_id", job_id)
        return trial

    def _find_first(self) -> TrainConfig | None:
        """What is tried before Optuna is asked: a search shall not miss what was there
        before it, and one on a budget looks near that."""
        if self.number == 0:
            return self.base
        if self.is_budgeted and self.number <= len(NEIGHBOURS):
            return replace(self.base, **NEIGHBOURS[self.number - 1])
        return None

    def _find_running(self, job_id: str) -> int | None:
        for each in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if each.user_attrs.get("job_id") == job_id:
                return each._trial_id
        return None

    def _suggested(self, name: str) -> BaseDistribution:
        """What `_suggest` asks of Optuna for a parameter."""
        if name not in self.space:  # whether another one is 0
            return CategoricalDistribution([True, False])
        given = self.space[name]
        if isinstance(given, Choice):
            return CategoricalDistribution(given.values)
        if is_whole(name):
            low, high, step = int(given.low), int(given.high), int(given.step or 1)
            return IntDistribution(low, high, log=given.log, step=step)
        return FloatDistribution(given.low, given.high, log=given.log, step=given.step)

    def _within_space(self, config: TrainConfig) -> dict[str, Any]:
        """Those of the hyperparameters that lie in the space."""
        found: dict[str, Any] = {}
        for name, given in self.space.items():
            value = getattr(config, name)
            if not contains(given, value):
                continue
            if isinstance(given, Range) and given.or_zero:
                found[IS_ZERO.format(name)] = value == 0
                if value == 0:
                    continue
            found[name] = value
        return found

    def _suggest(self, name: str, given: Distribution) -> Any:
        if isinstance(given, Range) and given.or_zero:
            if self._trial.suggest_categorical(IS_ZERO.format(name), [True, False]):
                return 0 if is_whole(name) else 0.0
        asked = self._suggested(name)
        if isinstance(asked, CategoricalDistribution):
            return self._trial.suggest_categorical(name, asked.choices)
        if isinstance(asked, IntDistribution):
            return self._trial.suggest_int(
                name, asked.low, asked.high, step=asked.step, log=asked.log
            )
        assert isinstance(asked, FloatDistribution)
        return self._trial.suggest_float(
            name, asked.low, asked.high, step=asked.step, log=asked.log
        )

    def is_hopeless(self, progress: dict[str, Any]) -> bool:
        """Tell what an epoch came to; whether others were better by then."""
        try:
            self._trial.report(progress["val_score"], progress["epoch"])
            return self._trial.should_prune()
        except (StudyError, UpdateFinishedTrialError) as error:
            log.warning("an epoch of a trial goes untold: %s", error)
            return False


def tell_study(study: optuna.Study) -> None:
    """What became of the jobs whose trials the study takes to be running."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    by_job = {each.user_attrs.get("job_id"): each.number for each in running}
    with db.reading() as session:
        rows = session.execute(
            sa.select(Job.id, Job.status, Job.outcome).where(
                Job.id.in_([*by_job]), Job.status.in_(FINISHED)
            )
        ).all()
    for job_id, status, state in rows:
        number = by_job[job_id]
        if status != JobStatus.SUCCEEDED:
            study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
            continue
        outcome = Outcome.from_dict(state)
        if outcome.is_pruned:
            study.tell(number, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            study.tell(number, outcome.val.score, skip_if_finished=True)


def tell_all(parent_id: str) -> None:
    """Tell the study of a tune job; after the last trial, none is left running.

    A worker may have died after it drew a trial and before it could write whose it is.
    """
    study = optuna.load_study(study_name=parent_id, storage=get_storage())
    tell_study(study)
    with db.reading() as session:
        n_open = session.scalar(
            sa.select(sa.func.count()).where(
                Job.parent_id == parent_id,
                Job.role == JobRole.TRIAL,
                Job.status.not_in(FINISHED),
            )
        )
    if n_open == 0:
        for each in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(each.number, state=TrialState.FAIL, skip_if_finished=True)


def delete_study(parent_id: str) -> None:
    try:
        optuna.delete_study(study_name=parent_id, storage=get_storage())
    except KeyError:
        log.info("%s has no study", parent_id)


def find_importances(
    space: dict[str, Distribution],
    trials: list[tuple[dict[str, Any], float]],
    is_regression: bool,
) -> dict[str, float]:
    """How much each setting mattered for the score, in shares of 1.

    Args:
        trials: settings and validation scores of trials that were seen to their end.
    """
    given = {name: _distribution(name, each) for name, each in space.items()}
    varied = {name: each for name, each in given.items() if not each.single()}
    if len(trials) < 2 or not varied:
        return {}
    study = optuna.create_study(direction="minimize" if is_regression else "maximize")
    for settings, score in trials:
        params = {name: settings[name] for name in varied}
        if not all(contains(space[name], params[name]) for name in varied):
            continue  # a variant that sets one by itself, such as k
        study.add_trial(
            optuna.create_trial(params=params, distributions=varied, value=score)
        )
    if len(study.trials) < 2:
        return {}
    evaluator = PedAnovaImportanceEvaluator()
    return get_param_importances(study, evaluator=evaluator)


def _distribution(name: str, given: Distribution) -> BaseDistribution:
    """All that a setting could be; a possible 0 widens the range."""
    if isinstance(given, Choice):
        return CategoricalDistribution(given.values)
    low = 0.0 if given.or_zero else given.low
    is_log = given.log and low > 0
    if is_whole(name):
        return IntDistribution(int(low), int(given.high), log=is_log)
    return FloatDistribution(low, given.high, log=is_log)
