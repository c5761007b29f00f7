"""Short training runs on made-up rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lometab.checkpoint import Checkpoint, Progress
from lometab.config import TrainConfig
from lometab.errors import TrainingCancelled
from lometab.train import Fit, Part, fit

VARIANTS = ["lometab", "additive", "tabm", "deep-ensemble", "mlp"]
TASKS = ["regression", "binary", "multiclass"]


def make_part(n: int, task: str, *, seed: int, noise: float = 0.1) -> Part:
    """Rows whose target depends on two numbers, their product and a category."""
    rng = np.random.default_rng(seed)
    x_num = rng.normal(size=(n, 3)).astype(np.float32)
    x_cat = rng.integers(0, 3, size=(n, 1))
    signal = np.sin(2 * x_num[:, 0]) + x_num[:, 0] * x_num[:, 1] + x_cat[:, 0] - 1
    z = (signal + noise * rng.normal(size=n)) / 1.6
    if task == "regression":
        return Part(x_num, x_cat, z.astype(np.float32))
    edges = [0.0] if task == "binary" else [-0.5, 0.5]
    return Part(x_num, x_cat, np.digitize(z, edges))


def run(task: str = "regression", *, noise: float = 0.1, **options: Any) -> Fit:
    """A short training run; what is not an argument of `fit` goes to its config."""
    settings = {"k": 3, "rank": 2, "d_block": 16, "n_bins": 8, "d_embedding": 4}
    settings |= {"batch_size": 64, "max_epochs": 6, "lr": 3e-3}
    arguments = {}
    for name, value in options.items():
        is_setting = name in TrainConfig.__dataclass_fields__
        (settings if is_setting else arguments)[name] = value
    return fit(
        make_part(300, task, seed=0, noise=noise),
        make_part(150, task, seed=1, noise=noise),
        task=task,
        cardinalities=[3],
        n_classes=3,
        config=TrainConfig(**settings),
        **arguments,
    )


def assert_same(one: Fit, other: Fit) -> None:
    """Bit by bit, all but the time it took."""
    weights, others = one.model.state_dict(), other.model.state_dict()
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, others[name]), name
    assert [replace(p, seconds=0) for p in one.history] == [
        replace(p, seconds=0) for p in other.history
    ]


def interrupt_after(
    epoch: int, directory: Any, task: str, **options: Any
) -> Checkpoint:
    """Train with a checkpoint at each epoch, and fall over during the next one."""

    def crash(progress: Progress) -> None:
        if progress.epoch == epoch + 1:
            raise TrainingCancelled

    with pytest.raises(TrainingCancelled):
        run(
            task,
            on_epoch=crash,
            on_checkpoint=lambda checkpoint: checkpoint.save(directory),
            checkpoint_seconds=0,
            **options,
        )
    return Checkpoint.load(directory)
