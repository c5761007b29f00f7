"""A trained ensemble, and the way from a table to one."""

from collections.abc import Callable
from dataclasses import dataclass

from lometab.config import TrainConfig
from lometab.data import Schema, Table, features, target
from lometab.preprocessing import Preprocessor
from lometab.splits import Parts
from lometab.train import Checkpoint, Fit, Part, Progress, fit


@dataclass(frozen=True)
class Ensemble:
    """Everything that answers a raw row: what to read, how to scale it, the network."""

    schema: Schema
    preprocessor: Preprocessor
    config: TrainConfig
    fit: Fit


def train_ensemble(
    table: Table,
    schema: Schema,
    parts: Parts,
    config: TrainConfig,
    *,
    device: str = "cpu",
    on_epoch: Callable[[Progress], bool | None] | None = None,
    on_checkpoint: Callable[[Checkpoint], None] | None = None,
    resume: Checkpoint | None = None,
) -> Ensemble:
    """Fit the preprocessing on the train part, then the network on it and val."""
    x_num, x_cat = features(table, schema)
    y = target(table, schema)
    train = parts["train"]
    preprocessor = Preprocessor().fit(
        x_num[train],
        x_cat[train],
        y[train],
        task=schema.task,
        datetime=[schema.numeric.index(name) for name in schema.datetime],
    )
    scores, codes = preprocessor.transform(x_num, x_cat)
    scaled = preprocessor.scale_target(y, schema.task)
    fitted = fit(
        Part(scores[train], codes[train], scaled[train]),
        Part(scores[parts["val"]], codes[parts["val"]], scaled[parts["val"]]),
        task=schema.task,
        cardinalities=preprocessor.cardinalities_,
        n_classes=len(schema.classes) if schema.classes else None,
        y_std=preprocessor.y_std_,
        config=config,
        device=device,
        on_epoch=on_epoch,
        on_checkpoint=on_checkpoint,
        resume=resume,
    )
    return Ensemble(schema, preprocessor, config, fitted)
