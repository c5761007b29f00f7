"""Runs whose findings are known, for the words and cards that are made of them."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import Answer, Run, metrics
from lometab.explain import Rows, examine, fit_naive
from tests.support.reports import make_run


def make_examined(task: str, strength: float = 3.0, n: int = 400) -> Run:
    """A run of a model that knows how its target was made, as far as it is strong."""
    rng = np.random.default_rng(0)
    x_num = rng.normal(size=(n, 3))
    x_cat = rng.choice(["x", "y"], size=(n, 1)).astype(object)
    rows = Rows(["first", "second", "third"], ["kind"], x_num, x_cat)
    n_classes = {"binary": 2, "multiclass": 3}.get(task, 0)

    def model(x_num: NDArray[Any], x_cat: NDArray[Any]) -> Answer:
        z = strength * (x_num[:, 0] + 0.3 * x_num[:, 1] + (x_cat[:, 0] == "x"))
        members = np.stack([z, z + 0.3 * x_num[:, 1]], axis=1)
        if not n_classes:
            return members.mean(axis=1), members
        logits = members[:, :, None] * (np.arange(n_classes) - (n_classes - 1) / 2)
        p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
        return p.mean(axis=1), p

    known = model(x_num, x_cat)
    z = x_num[:, 0] + 0.3 * x_num[:, 1] + (x_cat[:, 0] == "x")
    y: NDArray[Any] = 3 * z + rng.normal(size=n)
    if n_classes:
        y = np.digitize(z, np.quantile(z, np.arange(1, n_classes) / n_classes))
    classes = [f"c{i}" for i in range(n_classes)] or None
    naive = fit_naive(rows, y, task, classes)
    parts = ("train", "val", "test")
    run = make_run(
        task,
        k=2,
        n=n,
        targets=dict.fromkeys(parts, y),
        answers=dict.fromkeys(parts, known),
        classes=classes,
    )
    scores = metrics.conformal_scores(y, known[0])
    run = replace(run, calibrator=replace(run.calibrator, conformity=scores))
    return examine(run, model, rows, naive)
