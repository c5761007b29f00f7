"""Which runs a sweep or a tune job consists of."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import orjson

from app.errors import Invalid
from app.models import Job, new_id
from app.schemas import JobSettings, SweepSettings, list_cells
from lometab.config import TrainConfig
from lometab.space import Choice, settings_of

MAX_SCHEMA_BYTES = 64 * 2**20
"""What the columns of a table may take, once for each run."""
_SIZES = ("k", "rank", "d_block", "n_blocks", "n_bins", "d_embedding", "batch_size")


def list_sizes(body: JobSettings) -> Iterator[TrainConfig]:
    """Settings of which one takes as much memory as any of the job's runs."""
    base = body.hyperparameters
    if body.kind == "sweep":
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


def make_children(parent: Job, body: JobSettings) -> list[Job]:
    """The runs of a new sweep or tune job, in the order in which they shall begin.

    All cells of a sweep come with the first seed, then all with the second: a sweep
    that is stopped has seen the whole grid rather than all seeds of a part of it.
    """
    base = body.hyperparameters
    if body.kind == "sweep":
        assert body.sweep is not None
        configs = [
            (replace(settings_of(base, cell), seed=base.seed + i), {"cell": cell})
            for i in range(body.sweep.seeds)
            for cell in body.list_cells()
        ]
    else:
        assert body.tune is not None
        space = {name: asdict(each) for name, each in body.tune.full_space.items()}
        configs = [(base, {"trial_of": {"space": space}})] * body.tune.n_trials
    sizes = (len(orjson.dumps(each)) for each in (parent.schema, configs[0][1]))
    if sum(sizes) * len(configs) > MAX_SCHEMA_BYTES:
        raise Invalid(
            f"{len(configs)} runs on a table with so many columns are too much for one "
            "job; say fewer cells, seeds or trials"
        )
    parent.progress = {**parent.progress, "n_finished": 0, "n_runs": len(configs)}
    apart = ("sweep", "tune", "max_runtime_seconds")
    shared = {
        **{name: value for name, value in parent.config.items() if name not in apart},
        "kind": "train",
        # Those of a sweep are cells; those of a search come with its winner, and a
        # worker that cannot train them is found by the first trial.
        "baselines": body.baselines if body.kind == "tune" else [],
        "is_cell": True,
    }
    return [
        Job(
            id=new_id("job"),
            workspace_id=parent.workspace_id,
            dataset_id=parent.dataset_id,
            kind="train",
            parent_id=parent.id,
            position=i,
            queue=parent.queue,
            config={**shared, **more, "hyperparameters": asdict(config)},
            schema=parent.schema,
            estimate=parent.estimate,
            progress={"epoch": 0, "max_epochs": config.max_epochs},
        )
        for i, (config, more) in enumerate(configs)
    ]


def read_cells(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of each cell of a sweep, by its config."""
    sweep = SweepSettings(**config["sweep"])
    base = TrainConfig(**config["hyperparameters"])
    return list_cells(sweep, config["baselines"], base)
