"""From settings and a dataset to a job: everything that can be checked is checked."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from app import datasets
from app.jobs import parents
from app.jobs.budget import reserve
from app.jobs.config import JobSettings
from app.jobs.make import make_job
from app.jobs.needs import Needs
from app.jobs.pace import MAX_SECONDS, Pace, Work, describe_seconds, read_pace
from app.jobs.planning import make_children
from app.jobs.queue import notify
from app.jobs.workers import (
    check_room,
    count_workers,
    find_largest_memory,
    find_training_bytes,
)
from app.settings import Settings
from app.storage.enums import PARENTS, SEARCHES, JobKind, JobRole, Queue
from app.storage.tables import Dataset, Job
from lometab.errors import DataError, suggest
from lometab.evaluation import CHOSEN_BY_THE_SAME
from lometab.table import (
    BY_CALLER,
    BY_SPLIT,
    HELD_ROWS,
    ParquetTable,
    PartName,
    Parts,
    Schema,
    Table,
    count_levels,
    describe_rare,
    features,
    find_duplicates,
    find_leaks,
    infer_schema,
    pick_rows,
    split_rows,
    target,
)
from lometab.weights import weigh_rows

MAX_NOTIFIED = 8
"""How many workers are notified of a parent at once; the reaper tells the others."""
MAX_WARNINGS = 100
"""About one job; of more their number is told."""


@dataclass(frozen=True)
class Plan:
    """Settings that were checked against the data."""

    body: JobSettings
    dataset: Dataset
    schema: Schema
    parts: dict[PartName, int]
    """Rows of each part that are used."""
    needs: Needs
    work: list[Work]
    """All networks that are to be trained, each for one seed."""
    warnings: list[str]

    def choose_storage(self, limit: float, whose: str) -> dict[str, Any]:
        """What it takes, with the rows where they fit in so much memory."""
        return self.needs.choose(sum(self.parts.values()), limit, whose)


def plan_job(body: JobSettings, dataset: Dataset) -> Plan:
    """Check the settings against the data. It may take seconds, and writes nothing."""
    table = datasets.open_table(dataset)
    schema = infer_schema(
        table,
        target=body.target,
        task=body.task,
        columns=body.columns,
        reserved=[
            name for name in (body.split.column, body.weight_column) if name is not None
        ],
        missing=datasets.read_options(dataset).missing,
        verdicts=datasets.read_verdicts(dataset),
        drop_missing_target=body.drop_missing_target,
        min_frequency=body.min_frequency,
        max_rows=body.max_rows,
        describe_rows=partial(datasets.describe_rows, dataset),
    )
    _refuse_infinite(table, schema, dataset)
    _check_groups(body.calibrate_by, schema)
    _check_importance_groups(body.importance_groups or [], schema)
    parts = split_rows(table, schema, body.split, max_rows=body.max_rows)
    weigh_rows(table, schema, body.weights, parts["train"])
    used, used_parts = _take_used(table, parts, body)
    levels = count_levels(used, schema)
    warnings = [
        *_warn(schema, dataset, parts, body),
        *_warn_of_classes(table, schema, parts),
        *find_leaks(table, schema),
        *find_duplicates(used, schema, used_parts),
        *describe_rare(levels, schema),
    ]
    if len(warnings) > MAX_WARNINGS:
        n_more = len(warnings) - MAX_WARNINGS
        warnings[MAX_WARNINGS:] = [f"and {n_more} more warnings"]
    needs = Needs(
        body, schema, dataset.n_rows, [each.width for each in levels.values()]
    )
    sizes = {name: len(rows) for name, rows in parts.items()}
    work = needs.list_work(sum(sizes.values()))
    return Plan(body, dataset, schema, sizes, needs, work, warnings)


def _take_used(
    table: ParquetTable, parts: Parts, body: JobSettings
) -> tuple[Table, Parts]:
    """The rows that are used, as a table of their own if they are not all."""
    n_used = sum(map(len, parts.values()))
    if body.max_rows is None or n_used < body.max_rows:
        return table, parts
    return pick_rows(table, parts)


def estimate_job(
    session: Session, plan: Plan, settings: Settings
) -> tuple[Queue, dict[str, Any], list[str]]:
    """Where a plan would run, what it would take, and all that there is to warn of."""
    queue = _choose_queue(session, plan.body.device, settings)
    limit, whose = _find_memory(session, queue, settings)
    expected = plan.choose_storage(limit, whose)
    seconds = _estimate_seconds(session, plan, queue, settings)
    warnings = [
        *plan.warnings,
        *_warn_of_storage(plan, expected),
        *_warn_of_seconds(seconds["max_seconds"]),
    ]
    return queue, {**expected, **seconds}, warnings


def create_job(session: Session, plan: Plan, settings: Settings) -> Job:
    """The job of a plan, with its children if it has any."""
    body = plan.body
    queue, estimate, warnings = estimate_job(session, plan, settings)
    job = make_job(
        role=JobRole(body.kind),
        config={**_resolve(body, plan.schema), "storage": estimate["storage"]},
        workspace_id=plan.dataset.workspace_id,
        dataset_id=plan.dataset.id,
        queue=queue,
        schema=plan.schema.to_dict(),
        estimate=estimate,
        warnings=warnings,
        name=body.name,
        tags=body.tags,
    )
    children = make_children(job, body) if job.kind in PARENTS else []
    check_room(session, job.workspace_id, len(children) or 1, settings)
    parents.add(session, job, children)
    return job


def _find_memory(
    session: Session, queue: Queue, settings: Settings
) -> tuple[float, str]:
    """What training may take, and who says so: the settings, the largest worker, or if
    there is none this machine."""
    allowed = settings.max_training_bytes or math.inf
    if queue != Queue.CPU:  # of a GPU's own memory we know nothing
        return allowed, "the service allows"
    heard_within = 2 * settings.reaper_seconds
    largest = find_largest_memory(session, queue, heard_within=heard_within)
    if largest is None:
        return find_training_bytes(settings), "this machine has"
    if allowed < largest:
        return allowed, "the service allows"
    return largest, "the largest worker has"


def notify_of(job: Job) -> None:
    """Tell workers of a job that was created or is tried again, once committed."""
    if job.kind not in PARENTS:
        notify(job.id, job.queue)
        return
    for _ in range(min(job.progress["n_runs"], MAX_NOTIFIED)):
        notify(None, job.queue)


def _refuse_infinite(table: Table, schema: Schema, dataset: Dataset) -> None:
    """Read the columns that may hold infinite numbers; whoever finds one tells."""
    known = {c["name"] for c in dataset.profile["columns"] if c["range"] is not None}
    doubtful = [name for name in schema.numeric if name not in known]
    features(table, replace(schema, numeric=tuple(doubtful), categorical=()))


def _check_groups(by: str | None, schema: Schema) -> None:
    """What is calibrated apart has to be a column of categories, or classes."""
    if by is None or by in schema.categorical:
        return
    if by == schema.target and schema.classes is not None:
        return
    is_known = by in schema.numeric or by == schema.target
    what = "holds numbers" if is_known else "is no column that the model takes"
    raise DataError(
        f"calibrate_by takes a categorical column or the target of a classification, "
        f"and {by!r} {what}{'' if is_known else suggest(by, schema.categorical)}",
        column=by,
    )


def _check_importance_groups(groups: list[list[str]], schema: Schema) -> None:
    known = [*schema.numeric, *schema.categorical]
    for name in (name for group in groups for name in group):
        if name not in known:
            raise DataError(
                f"importance_groups names {name!r}, which is no column that the model "
                f"takes{suggest(name, known)}",
                column=name,
            )


def _warn(
    schema: Schema, dataset: Dataset, parts: Parts, body: JobSettings
) -> Iterator[str]:
    """What we decided without having been told to."""
    yield from dataset.reading["warnings"]
    for name, why in schema.ignored.items():
        if why not in (BY_CALLER, BY_SPLIT):
            yield f"column {name!r} is not used: {why}"
    n_used = sum(map(len, parts.values()))
    if n_used == body.max_rows and n_used < dataset.n_rows:
        sizes = ", ".join(f"{len(rows):,} {name}" for name, rows in parts.items())
        yield (
            f"trained on {n_used:,} of {dataset.n_rows:,} rows, drawn by lot "
            f"(`max_rows`): {sizes}"
        )
    elif n_used < dataset.n_rows:
        yield f"{dataset.n_rows - n_used} rows without a target are left out"
    if "calibration" in parts:
        return
    if body.members != "all":
        yield CHOSEN_BY_THE_SAME
    elif body.kind in PARENTS:
        yield (
            "the rows that choose among the runs also calibrate the model, so its "
            "intervals or sets may cover less than their name says; let the split have "
            "a part `calibration`"
        )


def _warn_of_classes(table: Table, schema: Schema, parts: Parts) -> Iterator[str]:
    """Classes that a given split leaves out of a part, which then says nothing of
    them."""
    if schema.classes is None:
        return
    y = target(table, schema)
    for name in ("val", "test"):
        absent = set(range(len(schema.classes))) - set(y[parts[name]].tolist())
        if absent:
            classes = ", ".join(repr(schema.classes[i]) for i in sorted(absent)[:5])
            more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
            yield f"the part {name} has no row of the class {classes}{more}"


def _estimate_seconds(
    session: Session, plan: Plan, queue: Queue, settings: Settings
) -> dict[str, Any]:
    """How long it takes, by the pace of the workers that live. The figures of an epoch
    are those of the model itself, or of the longest run of a sweep or tune job."""
    body, heard_within = plan.body, 2 * settings.reaper_seconds
    pace = read_pace(session, queue, heard_within=heard_within)
    seconds = [pace.seconds_per_epoch(work) for work in plan.work]
    first = 0 if body.kind == JobKind.TRAIN else seconds.index(max(seconds))
    totals = [
        each * work.max_epochs for each, work in zip(seconds, plan.work, strict=True)
    ]
    if body.tune is not None:
        total = max(totals) * (body.tune.n_trials + body.tune.seeds)
    else:
        total = sum(totals) * (body.sweep.seeds if body.sweep else body.n_seeds)
    n_workers = count_workers(session, queue, heard_within=heard_within)
    if body.kind != JobKind.TRAIN:
        total /= max(1, n_workers)
    limit = body.max_runtime_seconds or body.time_budget_seconds or math.inf
    return {
        **_reserve_seconds(plan, pace),
        "flops_per_epoch": plan.work[first].flops_per_epoch,
        "steps_per_epoch": plan.work[first].steps_per_epoch,
        "seconds_per_epoch": round(seconds[first], 4),
        "max_seconds": round(min(total, limit), 1),
        "basis": "workers" if pace.measured else "assumed",
    }


def _reserve_seconds(plan: Plan, pace: Pace) -> dict[str, float]:
    """What a budget of time leaves for the model, by the settings that were given: the
    longest run of the search would take all of it."""
    budget = plan.body.time_budget_seconds
    if budget is None:
        return {}
    n_rows = sum(plan.parts.values())
    work = plan.needs.find_work(plan.body.hyperparameters, n_rows)
    return {"reserve_seconds": round(reserve(budget, pace.seconds_per_epoch(work)), 1)}


def _warn_of_storage(plan: Plan, expected: dict[str, Any]) -> Iterator[str]:
    """What is not as it would be in memory."""
    if expected["storage"] == "memory":
        return
    held = ", ".join(
        f"{min(n, HELD_ROWS):,} of {n:,} {name} rows"
        for name, n in plan.parts.items()
        if n > HELD_ROWS
    )
    why = "as asked" if plan.body.storage == "file" else "to fit in memory"
    yield (
        f"training reads its rows from a file, {why}, in an order drawn by lot from "
        "block to block"
        + (f"; the reports are of {held}, drawn by lot" if held else "")
    )


def _warn_of_seconds(seconds: float) -> Iterator[str]:
    if seconds > MAX_SECONDS:
        yield (
            f"training may take up to {describe_seconds(seconds)} if it does not stop "
            "early; see `estimate`, and set `max_runtime_seconds`, a faster preset or "
            "fewer `max_epochs` if that is too long"
        )


def _choose_queue(session: Session, device: str, settings: Settings) -> Queue:
    if device != "auto":
        return Queue(device)
    heard_within = 2 * settings.reaper_seconds
    has_gpu = count_workers(session, Queue.GPU, heard_within=heard_within) > 0
    return Queue.GPU if has_gpu else Queue.CPU


def _resolve(body: JobSettings, schema: Schema) -> dict[str, Any]:
    """The config with every preset and guess spelled out."""
    apart = {"dataset_id", "read_options", "name", "tags"}
    apart |= {kind.value for kind in SEARCHES} - {body.kind}
    config = body.model_dump(mode="json", exclude=apart)
    if body.tune is not None:
        # Spelled out: another version may have another space as its default.
        full = {name: asdict(each) for name, each in body.tune.full_space.items()}
        config["tune"]["space"] |= full
    return {
        **config,
        "task": schema.task,
        "min_frequency": schema.min_frequency,
        "split": asdict(body.split),
        "hyperparameters": asdict(body.hyperparameters),
    }
