"""Jobs: what is asked for, how it moves, and what becomes of it.

    from app import jobs

    with db.transaction() as session:
        jobs.cancel(session, job)

Whoever is outside this package uses what is named here and nothing behind it. Names are
loaded when they are first used (PEP 562): a worker needs no table reader, and nobody
but a worker that tunes, and whoever reads a search, needs Optuna (`jobs.search`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.jobs import idempotency as idempotency
    from app.jobs import search as search
    from app.jobs.budget import find_deadline as find_deadline
    from app.jobs.claims import claim as claim
    from app.jobs.commands import cancel as cancel
    from app.jobs.commands import delete as delete
    from app.jobs.commands import find_model_id as find_model_id
    from app.jobs.commands import retry as retry
    from app.jobs.commands import stop as stop
    from app.jobs.config import ChoiceOrRange as ChoiceOrRange
    from app.jobs.config import JobSettings as JobSettings
    from app.jobs.config import Name as Name
    from app.jobs.config import SweepSettings as SweepSettings
    from app.jobs.config import Tag as Tag
    from app.jobs.config import TuneSettings as TuneSettings
    from app.jobs.create import Plan as Plan
    from app.jobs.create import create_job as create_job
    from app.jobs.create import estimate_job as estimate_job
    from app.jobs.create import notify_of as notify_of
    from app.jobs.create import plan_job as plan_job
    from app.jobs.events import EventRead as EventRead
    from app.jobs.events import hub as hub
    from app.jobs.facts import read_facts as read_facts
    from app.jobs.failures import describe_failure as describe_failure
    from app.jobs.gauges import read_gauges as read_gauges
    from app.jobs.moves import NewEvent as NewEvent
    from app.jobs.naming import rename_model as rename_model
    from app.jobs.pace import MAX_SECONDS as MAX_SECONDS
    from app.jobs.pace import describe_seconds as describe_seconds
    from app.jobs.parents import begin_parent as begin_parent
    from app.jobs.parents import follow as follow
    from app.jobs.parents import list_open as list_open
    from app.jobs.parents import reconcile as reconcile
    from app.jobs.planning import count_runs as count_runs
    from app.jobs.planning import read_cells as read_cells
    from app.jobs.predictions import MAX_FAULTS as MAX_FAULTS
    from app.jobs.predictions import Fault as Fault
    from app.jobs.predictions import PredictionPlan as PredictionPlan
    from app.jobs.predictions import create_prediction as create_prediction
    from app.jobs.predictions import delete_result as delete_result
    from app.jobs.predictions import drop_answers as drop_answers
    from app.jobs.predictions import find_result as find_result
    from app.jobs.predictions import finish_part as finish_part
    from app.jobs.predictions import list_answers as list_answers
    from app.jobs.promote import promote_run as promote_run
    from app.jobs.promote import prune_model as prune_model
    from app.jobs.queue import get_celery as get_celery
    from app.jobs.queue import notify as notify
    from app.jobs.states import drop_checkpoint as drop_checkpoint
    from app.jobs.states import drop_old_checkpoints as drop_old_checkpoints
    from app.jobs.states import end_cancelled as end_cancelled
    from app.jobs.states import fail as fail
    from app.jobs.states import finish as finish
    from app.jobs.states import finish_measured as finish_measured
    from app.jobs.states import heartbeat as heartbeat
    from app.jobs.states import keep_checkpoint as keep_checkpoint
    from app.jobs.states import lose as lose
    from app.jobs.states import read_status as read_status
    from app.jobs.states import release as release
    from app.jobs.states import report_progress as report_progress
    from app.jobs.states import requeue_stalled as requeue_stalled
    from app.jobs.states import set_settings as set_settings
    from app.jobs.tune import Finalist as Finalist
    from app.jobs.tune import find_finalists as find_finalists
    from app.jobs.tune import find_networks as find_networks
    from app.jobs.tune import find_refit as find_refit
    from app.jobs.tune import find_winner as find_winner
    from app.jobs.tune import list_trials as list_trials
    from app.jobs.tune import read_children as read_children
    from app.jobs.tune import read_space as read_space
    from app.jobs.waiting import Waiting as Waiting
    from app.jobs.waiting import find_waiting as find_waiting
    from app.jobs.waiting import list_waiting as list_waiting
    from app.jobs.weights import drop_weights as drop_weights
    from app.jobs.weights import is_worth_keeping as is_worth_keeping
    from app.jobs.workers import ALONE as ALONE
    from app.jobs.workers import Share as Share
    from app.jobs.workers import count_workers as count_workers
    from app.jobs.workers import find_share as find_share
    from app.jobs.workers import find_training_bytes as find_training_bytes
    from app.jobs.workers import find_training_threads as find_training_threads
    from app.jobs.workers import forget_dead_workers as forget_dead_workers
    from app.jobs.workers import forget_worker as forget_worker
    from app.jobs.workers import has_queued as has_queued
    from app.jobs.workers import heartbeat_worker as heartbeat_worker
    from app.jobs.workers import list_workers as list_workers

_MODULES = ("idempotency", "search")
_NAMES = {
    "budget": ("find_deadline",),
    "claims": ("claim",),
    "commands": ("cancel", "delete", "find_model_id", "retry", "stop"),
    "config": (
        "ChoiceOrRange",
        "JobSettings",
        "Name",
        "SweepSettings",
        "Tag",
        "TuneSettings",
    ),
    "create": ("Plan", "create_job", "estimate_job", "notify_of", "plan_job"),
    "events": ("EventRead", "hub"),
    "facts": ("read_facts",),
    "failures": ("describe_failure",),
    "moves": ("NewEvent",),
    "naming": ("rename_model",),
    "pace": ("MAX_SECONDS", "describe_seconds"),
    "parents": ("begin_parent", "follow", "list_open", "reconcile"),
    "planning": ("count_runs", "read_cells"),
    "predictions": (
        "Fault",
        "MAX_FAULTS",
        "PredictionPlan",
        "create_prediction",
        "delete_result",
        "drop_answers",
        "find_result",
        "finish_part",
        "list_answers",
    ),
    "promote": ("promote_run", "prune_model"),
    "queue": ("get_celery", "notify"),
    "states": (
        "drop_checkpoint",
        "drop_old_checkpoints",
        "end_cancelled",
        "fail",
        "finish",
        "finish_measured",
        "heartbeat",
        "keep_checkpoint",
        "lose",
        "read_status",
        "release",
        "report_progress",
        "requeue_stalled",
        "set_settings",
    ),
    "tune": (
        "Finalist",
        "find_finalists",
        "find_networks",
        "find_refit",
        "find_winner",
        "list_trials",
        "read_children",
        "read_space",
    ),
    "waiting": ("Waiting", "find_waiting", "list_waiting"),
    "weights": ("drop_weights", "is_worth_keeping"),
    "gauges": ("read_gauges",),
    "workers": (
        "ALONE",
        "Share",
        "count_workers",
        "find_share",
        "find_training_bytes",
        "find_training_threads",
        "forget_dead_workers",
        "forget_worker",
        "has_queued",
        "heartbeat_worker",
        "list_workers",
    ),
}
_FOUND = {name: (module, name) for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_MODULES, *_FOUND])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"app.jobs.{name}")
    if name not in _FOUND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _FOUND[name]
    found = getattr(import_module(f"app.jobs.{module}"), attribute)
    globals()[name] = found
    return found
