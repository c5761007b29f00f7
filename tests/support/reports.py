"""Reports of made-up answers, with every part that figures are drawn from."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from lometab.config import TrainConfig
from lometab.evaluation import Calibrator, Run, make_reports

HISTORY = [
    SimpleNamespace(
        epoch=epoch,
        train_loss=1 / epoch,
        val_score=1 - 0.5 / epoch,
        member_score=1 - 0.6 / epoch,
        diversity=0.01 * epoch,
    )
    for epoch in (1, 2, 3)
]


def make_run(task: str, k: int = 4, n: int = 80, **more: Any) -> Run:
    rng = np.random.default_rng(3)
    n_classes = {"binary": 2, "multiclass": 3}.get(task, 0)
    if n_classes:
        y = np.arange(n) % n_classes
        logits = rng.normal(size=(n, k, n_classes)) + 2 * np.eye(n_classes)[y][:, None]
        members = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
        conformity = 1 - members.mean(axis=1)[np.arange(n), y]
    else:
        y = rng.normal(size=n)
        members = y[:, None] + 0.3 * rng.normal(size=(n, k))
        conformity = np.abs(y - members.mean(axis=1))
    answer = (members.mean(axis=1), members)
    return Run(
        **{
            "task": task,
            "targets": dict.fromkeys(("train", "val", "test"), y),
            "answers": dict.fromkeys(("train", "val", "test"), answer),
            "train_variance": 1.0,
            "calibrator": Calibrator(
                conformity=conformity, temperature=1.5 if n_classes else None
            ),
            "config": TrainConfig(k=k),
            "history": HISTORY,
            **more,
        }
    )


@cache
def sample(task: str, k: int = 4) -> dict[str, Any]:
    """As JSON. Whoever changes it copies it first."""
    return make_reports(make_run(task, k)).to_json()
