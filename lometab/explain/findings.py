"""All that rows tell of a model: naive guesses, importance, effects, slices."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.evaluation import Answer, Findings, Run, metrics
from lometab.explain.effects import Label, measure_effects
from lometab.explain.importance import MAX_COLUMNS, measure_importance, plan_importance
from lometab.explain.naive import Naive
from lometab.explain.rows import Model, Rows
from lometab.explain.slices import find_slices

N_EFFECTS = 6
"""Columns whose effects are in the report: the most important ones."""
MAX_EFFECT_ROWS = 50
SHARE = 0.2
"""Model rows for all of it, relative to the rows that a report is made from anyway."""
MIN_BUDGET, MAX_BUDGET = 10_000, 200_000


def find_all(
    model: Model,
    rows: Rows,
    y: NDArray[Any],
    answer: Answer,
    naive: Naive,
    *,
    classes: Sequence[Label] | None,
    interval: tuple[NDArray[Any], NDArray[Any]] | None = None,
    n_answered: int = 0,
    shows_rows: bool = True,
    groups: Sequence[Sequence[str]] | None = None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Findings:
    """What the test rows tell of a model.

    Args:
        rows, y, answer: of the test part.
        n_answered: rows that were answered for the report; the number of those that
            are answered for its findings is bounded by it.
        shows_rows: whether the report may show single rows.
        groups: columns to shuffle as one; None: those found to go together.
        on_step: is told how much is done of how much.
    """
    n_effects = min(N_EFFECTS, len(rows.columns))
    n_steps = min(MAX_COLUMNS, len(rows.columns)) + n_effects

    def step(done: int) -> None:
        on_step(min(done, n_steps), n_steps)

    budget = int(np.clip(SHARE * n_answered, MIN_BUDGET, MAX_BUDGET))
    n_effect_rows = min(MAX_EFFECT_ROWS, len(rows))
    for_effects = n_effects * n_effect_rows * 12
    measured = min(MAX_COLUMNS, len(rows.columns))
    plan = plan_importance(measured, len(rows), max(budget - for_effects, budget // 2))
    importance = measure_importance(
        model,
        rows,
        y,
        answer,
        plan=plan,
        columns=naive.ranking or None,
        groups=groups,
        on_step=lambda done, _: step(done),
    )
    sample = np.random.default_rng(1).permutation(len(rows))[:n_effect_rows]
    effects = measure_effects(
        model,
        rows.take(sample),
        [each.column for each in importance.columns[:n_effects]],
        classes,
        shows_rows=shows_rows,
        on_step=lambda done, _: step(measured + done),
    )
    return Findings(
        naive=naive.measure(rows, y),
        importance=importance,
        effects=effects,
        slices=find_slices(rows, y, answer, interval),
    )


def examine(
    run: Run,
    model: Model,
    rows: Rows,
    naive: Naive,
    *,
    groups: Sequence[Sequence[str]] | None = None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Run:
    """The run with its findings.

    Args:
        rows: of the test part.
        naive: fitted on training rows.
        groups: columns whose importance is measured as one; None: those found.
    """
    interval = None
    quantile = metrics.conformal_quantile(run.calibrator.conformity, 0.1)
    if run.task == "regression" and np.isfinite(quantile):
        interval = metrics.conformal_interval(run.answers["test"][0], quantile)
    findings = find_all(
        model,
        rows,
        run.targets["test"],
        run.answers["test"],
        naive,
        classes=run.classes,
        interval=interval,
        n_answered=sum(len(each) for each in run.targets.values()),
        shows_rows=run.shows_rows,
        groups=groups,
        on_step=on_step,
    )
    return replace(run, findings=findings)
