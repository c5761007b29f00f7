"""Other models on the same rows, the same split and the same seed, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from lometab import metrics
from lometab.config import BaselineName, TrainConfig
from lometab.data import Schema, features, target
from lometab.ensemble import Ensemble, answer, train_ensemble
from lometab.report import Baseline
from lometab.splits import Parts
from lometab.tables import Table
from lometab.train import Progress


def compare(
    ensemble: Ensemble,
    names: Sequence[BaselineName],
    table: Table,
    parts: Parts,
    *,
    device: str = "cpu",
    on_epoch: Callable[[Progress], bool | None] | None = None,
) -> list[Baseline]:
    """The ensemble and each baseline on the test part; the ensemble comes first.

    A baseline is trained with the settings of the ensemble, but for its variant.
    """
    rows = [_measure(ensemble, table, parts)]
    for name in names:
        config: TrainConfig = replace(ensemble.config, variant=name)
        other = train_ensemble(
            table,
            ensemble.schema,
            parts,
            config,
            device=device,
            on_epoch=on_epoch,
        )
        rows.append(_measure(other, table, parts, reference=rows[0].score))
    return rows


def _measure(
    ensemble: Ensemble, table: Table, parts: Parts, reference: float | None = None
) -> Baseline:
    schema, rows = ensemble.schema, parts["test"]
    x_num, x_cat = features(table, schema)
    y = target(table, schema)[rows]
    mean, members = answer(ensemble, x_num[rows], x_cat[rows])
    is_regression = schema.classes is None
    score = metrics.rmse(y, mean) if is_regression else metrics.accuracy(y, mean)
    return Baseline(
        name=ensemble.config.variant,
        k=members.shape[1],
        n_parameters=ensemble.fit.model.n_parameters,
        seconds=ensemble.fit.seconds,
        n_seeds=1,
        metric="rmse" if is_regression else "accuracy",
        score=score,
        std=None,
        delta_percent=delta_percent(score, reference, is_regression),
        ece=None if is_regression else metrics.ece(y, mean),
        diversity=_diversity(members, schema),
    )


def delta_percent(
    score: float, reference: float | None, is_regression: bool
) -> float | None:
    """By how many percent a score is better than the reference; less is worse.

    >>> delta_percent(0.9, 1.0, is_regression=True)
    10.0
    """
    if not reference:
        return None
    change = 100 * (score - reference) / abs(reference)
    return round(-change if is_regression else change, 10)


def _diversity(members: NDArray[Any], schema: Schema) -> float | None:
    if members.shape[1] == 1:
        return None
    if schema.classes is None:
        return metrics.ambiguity(members)
    return metrics.mean_over_pairs(metrics.pairwise_kl(members))
