"""A trained ensemble, and the way from a table to one."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lometab.config import TrainConfig
from lometab.data import Float, Schema, features, target
from lometab.errors import DataError
from lometab.preprocessing import Preprocessor
from lometab.splits import Parts
from lometab.tables import Table
from lometab.train import Checkpoint, Fit, Part, Progress, fit, predict


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
    checkpoint_seconds: float = 30.0,
    is_checkpoint_wanted: Callable[[], bool] | None = None,
    resume: Checkpoint | None = None,
) -> Ensemble:
    """Fit the preprocessing on the train part, then the network on it and val."""
    x_num, x_cat = features(table, schema)
    y = target(table, schema)
    preprocessor = Preprocessor().fit(
        x_num,
        x_cat,
        y,
        task=schema.task,
        datetime=[schema.numeric.index(name) for name in schema.datetime],
        rows=parts["train"],
    )
    if not preprocessor.features_ and not preprocessor.cardinalities_:
        raise DataError(
            "no column is left to learn from: every one is the same in all training "
            "rows; give columns or rows that differ"
        )
    ready = {}
    for part in ("train", "val"):
        rows = parts[part]
        scores, codes = preprocessor.transform(x_num, x_cat, rows=rows)
        scaled = preprocessor.scale_target(y[rows], schema.task)
        ready[part] = Part(scores, codes, scaled)
    del x_num, x_cat, y  # not needed while the network is trained
    fitted = fit(
        ready["train"],
        ready["val"],
        task=schema.task,
        cardinalities=preprocessor.cardinalities_,
        n_classes=len(schema.classes) if schema.classes else None,
        y_std=preprocessor.y_std_,
        config=config,
        device=device,
        on_epoch=on_epoch,
        on_checkpoint=on_checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        is_checkpoint_wanted=is_checkpoint_wanted,
        resume=resume,
    )
    return Ensemble(schema, preprocessor, config, fitted)


def answer(
    ensemble: Ensemble, x_num: Float, x_cat: NDArray[np.object_]
) -> tuple[Float, Float]:
    """`mean` and `members` of raw rows, as `features` gives them, by torch.

    The network computes in float64, so that a row's answer does not depend on the rows
    beside it.

    Shape: (N, n_num), (N, n_cat) -> (N,) and (N, K), or (N, C) and (N, K, C)
    """
    preprocessor, task = ensemble.preprocessor, ensemble.schema.task
    scores, codes = preprocessor.transform(x_num, x_cat)
    model = copy.deepcopy(ensemble.fit.model).double()
    outputs = predict(model, torch.from_numpy(scores).double(), torch.from_numpy(codes))
    if task == "regression":
        members = outputs.squeeze(2) * preprocessor.y_std_ + preprocessor.y_mean_
    elif task == "binary":
        members = torch.cat([-outputs, outputs], dim=2).sigmoid()
    else:
        members = outputs.softmax(dim=2)
    return members.mean(dim=1).numpy(), members.numpy()
