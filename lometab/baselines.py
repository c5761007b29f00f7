"""Other models on the same rows, the same split and the same seeds, side by side."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from statistics import mean
from typing import Any

import numpy as np

from lometab.config import BaselineName, TrainConfig, Variant
from lometab.ensemble import Prepared, measure
from lometab.errors import MissingPackage
from lometab.evaluation import (
    Baseline,
    Outcome,
    Spread,
    delta_percent,
    measure_part,
)
from lometab.table import Float, Parts, Schema, Table, features, target


def check_installed(names: Sequence[BaselineName]) -> None:
    """MissingPackage for a baseline that comes with a package of its own."""
    if "catboost" in names and find_spec("catboost") is None:
        raise MissingPackage(
            "the baseline catboost needs a package that the worker does not have: "
            "install lometab[catboost] there, or leave it out of `baselines`"
        )


def compare(
    own: Sequence[Outcome],
    configs: Sequence[TrainConfig],
    names: Sequence[BaselineName],
    prepared: Prepared,
    table: Table,
    parts: Parts,
    *,
    threads: int = 1,
    device: str = "cpu",
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Baseline]:
    """The ensemble and each baseline on the test part; the ensemble comes first.

    Args:
        own: what the ensemble came to with each seed.
        configs: its settings, one for each seed; a baseline has the same, but for its
            variant.
        is_stopped: asked after each epoch; True leaves out what is not trained yet.
    """
    first = _summarise(configs[0].variant, own)
    rows = [first]
    for name in names:
        outcomes = []
        for config in configs:
            if is_stopped():
                return rows
            if name == "catboost":
                outcome, _ = train_catboost(
                    prepared.schema, table, parts, config.seed, threads, is_stopped
                )
            else:
                other = prepared.train_ensemble(
                    [replace(config, variant=name)],
                    device=device,
                    on_epoch=lambda _: is_stopped(),
                )
                outcome = measure(prepared, other)
            outcomes.append(outcome)
        if is_stopped():
            return rows
        rows.append(_summarise(name, outcomes, first))
    return rows


def _summarise(
    name: Variant | BaselineName,
    outcomes: Sequence[Outcome],
    reference: Baseline | None = None,
) -> Baseline:
    score = Spread.of([each.test.score for each in outcomes])
    ece = Spread.of([each.test.ece for each in outcomes])
    diversity = Spread.of([each.test.diversity for each in outcomes])
    assert score is not None
    metric = outcomes[0].metric
    return Baseline(
        name=name,
        k=outcomes[0].k,
        n_parameters=outcomes[0].n_parameters or None,
        seconds=mean(each.seconds for each in outcomes),
        n_seeds=len(outcomes),
        metric=metric,
        score=score.mean,
        std=score.std,
        delta_percent=None
        if reference is None
        else delta_percent(score.mean, reference.score, metric == "rmse"),
        ece=ece.mean if ece else None,
        diversity=diversity.mean if diversity else None,
    )


class _Stopper:
    """Tells CatBoost after each tree whether to go on."""

    def __init__(self, is_stopped: Callable[[], bool]) -> None:
        self._is_stopped = is_stopped

    def after_iteration(self, _: object) -> bool:
        return not self._is_stopped()


def train_catboost(
    schema: Schema,
    table: Table,
    parts: Parts,
    seed: int,
    threads: int,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[Outcome, Float]:
    """CatBoost with its own defaults, stopped early on the validation rows: what it
    came to, and its answers to these."""
    import catboost  # type: ignore[import-untyped]

    x_num, x_cat = features(table, schema)
    y = target(table, schema)

    def pool(rows: Any) -> Any:
        data = catboost.FeaturesData(
            num_feature_data=np.ascontiguousarray(x_num[rows], np.float32)
            if x_num.shape[1]
            else None,
            cat_feature_data=np.array(
                [[text.encode() for text in row] for row in x_cat[rows]], object
            )
            if x_cat.shape[1]
            else None,
        )
        return catboost.Pool(data, y[rows])

    is_regression = schema.classes is None
    kind = catboost.CatBoostRegressor if is_regression else catboost.CatBoostClassifier
    model = kind(
        random_seed=seed,
        thread_count=threads,
        verbose=False,
        allow_writing_files=False,
        early_stopping_rounds=50,
    )
    started = time.perf_counter()
    model.fit(
        pool(parts["train"]),
        eval_set=pool(parts["val"]),
        callbacks=[_Stopper(is_stopped)],
    )
    seconds = time.perf_counter() - started
    variance = float(np.var(y[parts["train"]].astype(np.float64)))
    ask = model.predict if is_regression else model.predict_proba
    answers = [ask(pool(rows)) for rows in (parts["val"], parts["test"])]
    measures = [
        measure_part(y[rows], answer, answer[:, None], variance)
        for rows, answer in zip((parts["val"], parts["test"]), answers, strict=True)
    ]
    outcome = Outcome(
        metric="rmse" if is_regression else "accuracy",
        val=measures[0],
        test=measures[1],
        k=1,
        n_parameters=0,
        best_epoch=int(model.get_best_iteration() or 0) + 1,
        epochs=int(model.tree_count_),
        seconds=round(seconds, 3),
    )
    return outcome, answers[0]
