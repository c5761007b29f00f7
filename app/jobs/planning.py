"""Which runs a sweep or a tune job consists of."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import orjson

from app.errors import Invalid
from app.jobs.config import JobSettings, SweepSettings, list_cells
from app.jobs.make import make_like
from app.storage.enums import PARENTS, JobKind, JobRole
from app.storage.tables import Job
from lometab.config import TrainConfig, stored_config
from lometab.space import Choice, settings_of

MAX_SCHEMA_BYTES = 64 * 2**20
"""What the columns of a table may take, once for each run."""
_SIZES = ("k", "rank", "d_block", "n_blocks", "n_bins", "d_embedding", "batch_size")


def list_sizes(body: JobSettings) -> Iterator[TrainConfig]:
    """Settings of which one takes as much memory as any of the job's runs."""
    base = body.hyperparameters
    if body.kind == JobKind.SWEEP:
        yield from (settings_of(base, cell) for cell in body.list_cells())
    elif body.tune is not None:
        space = body.tune.full_space
        largest: dict[str, Any] = {}
        for name, each in space.items():
            if name in _SIZES:
                ends = each.values if isinstance(each, Choice) else [each.high]
                largest[name] = max(int(end) for end in ends if end is not None)
        variants = space.get("variant", Choice([base.variant]))
        assert isinstance(variants, Choice)
        others = [name for name in body.baselines if name != "catboost"]
        for variant in [*variants.values, *others]:
            yield replace(base, **{**largest, "variant": variant})
    else:
        yield base
        for name in body.baselines:
            if name != "catboost":
                yield replace(base, variant=name)


def count_runs(body: JobSettings) -> int:
    """How many trainings a job asks for, repeats and refits aside."""
    return sum(1 for _ in _list_runs(body)) if body.kind in PARENTS else 1


def make_children(parent: Job, body: JobSettings) -> list[Job]:
    """The runs of a new sweep or tune job, in the order in which they shall begin."""
    apart = ("sweep", "tune", "max_runtime_seconds")
    shared = {
        **{name: value for name, value in parent.config.items() if name not in apart},
        "kind": JobKind.TRAIN,
        # Those of a sweep are cells; those of a search come with its winner, and a
        # worker that cannot train them is found by the first trial.
        "baselines": body.baselines if body.kind == JobKind.TUNE else [],
    }
    runs = list(_list_runs(body))
    if len(orjson.dumps(parent.schema)) * len(runs) > MAX_SCHEMA_BYTES:
        raise Invalid(
            f"{len(runs)} runs on a table with so many columns are too much for one "
            "job; set fewer cells, seeds or trials"
        )
    parent.progress = {**parent.progress, "n_finished": 0, "n_runs": len(runs)}
    return [
        make_like(
            parent,
            config={**shared, "hyperparameters": asdict(config)},
            parent_id=parent.id,
            position=i,
            **about,
        )
        for i, (config, about) in enumerate(runs)
    ]


def _list_runs(body: JobSettings) -> Iterator[tuple[TrainConfig, dict[str, Any]]]:
    """The hyperparameters of each run, and which one it is.

    All cells of a sweep come with the first seed, then all with the second: a sweep
    that is stopped has seen the whole grid rather than all seeds of a part of it.
    """
    base = body.hyperparameters
    if body.tune is not None:
        # Members of several trials become one model, so let their starts differ.
        step = 0 if body.time_budget_seconds is None else 1
        for number in range(body.tune.n_trials):
            yield (
                replace(base, seed=base.seed + step * number),
                {"role": JobRole.TRIAL, "number": number, "repeat": 0},
            )
        return
    assert body.sweep is not None
    cells = body.list_cells()
    for repeat in range(body.sweep.seeds):
        for number, cell in enumerate(cells):
            config = replace(settings_of(base, cell), seed=base.seed + repeat)
            about = {"number": number, "repeat": repeat, "settings": cell}
            yield config, {"role": JobRole.CELL, **about}


def read_cells(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of each cell of a sweep, by its config."""
    sweep = SweepSettings(**config["sweep"])
    base = stored_config(config["hyperparameters"])
    return list_cells(sweep, config["baselines"], base)
