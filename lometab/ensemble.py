"""A trained ensemble, and the way from a table to one."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lometab.config import TrainConfig
from lometab.errors import DataError
from lometab.evaluation import Answer, Measures, Outcome, Training, measure_part
from lometab.nn import LoMETab
from lometab.row_file import BUFFER_BYTES, Arrays, RowFile, record_of, write_rows
from lometab.table import (
    Float,
    ParquetTable,
    PartName,
    Parts,
    Preprocessor,
    Schema,
    SomeRows,
    Table,
    features,
    read_feature,
    target,
)
from lometab.train import Fit, Part, fit, predict


@dataclass(frozen=True)
class Origin:
    """Where a member of an ensemble comes from."""

    network: int
    """The number of its network in the ensemble."""
    member: int
    """Its number in that network as it was trained."""


@dataclass(frozen=True)
class Ensemble:
    """Everything that answers a raw row: what to read, how to scale it, the network."""

    schema: Schema
    preprocessor: Preprocessor
    config: TrainConfig
    fit: Fit
    others: tuple[Fit, ...] = ()
    """Further networks whose members are members too: the same settings with other
    seeds, or other trials of a search."""

    @property
    def fits(self) -> tuple[Fit, ...]:
        return (self.fit, *self.others)

    @property
    def models(self) -> list[LoMETab]:
        return [fit.model for fit in self.fits]

    @property
    def k(self) -> int:
        """Members of all networks."""
        return sum(fit.k for fit in self.fits)

    @property
    def origins(self) -> list[Origin]:
        """Of each member, in the order of the answers."""
        return [
            Origin(network, member)
            for network, fit in enumerate(self.fits)
            for member in fit.members or range(fit.k)
        ]

    @property
    def training(self) -> Training:
        """How all networks were trained; epochs and scores are the first's."""
        return Training(
            best_epoch=self.fit.best_epoch,
            best_score=self.fit.best_score,
            epochs=len(self.fit.history),
            seconds=sum(fit.seconds for fit in self.fits),
            stopped_early=any(fit.stopped_early for fit in self.fits),
        )

    @property
    def n_parameters(self) -> int:
        return sum(model.n_parameters for model in self.models)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A table ready to train on, with whatever settings and as often as one likes."""

    schema: Schema
    preprocessor: Preprocessor
    parts: dict[PartName, Part]
    """Train, val and, if wanted, test."""
    targets: dict[PartName, NDArray[Any]]
    """The same parts' targets as they are in the table."""
    file: RowFile | None = None
    """The rows to train on, if they are no part but in a file."""

    def fit(self, config: TrainConfig, **options: Any) -> Fit:
        """`lometab.train.fit` on these rows."""
        return fit(
            self.file or self.parts["train"],
            self.parts["val"],
            task=self.schema.task,
            cardinalities=self.preprocessor.cardinalities_,
            n_classes=len(self.schema.classes) if self.schema.classes else None,
            y_std=self.preprocessor.y_std_,
            config=config,
            **options,
        )

    def train_ensemble(
        self, configs: Sequence[TrainConfig], **options: Any
    ) -> Ensemble:
        """A network with each of the settings, the members of all as one ensemble.

        If training is stopped, no further network begins, and one that was at it is
        left out unless it is the first: a member that has hardly been trained is none.
        """
        first = self.fit(configs[0], **options)
        others: list[Fit] = []
        for config in configs[1:]:
            if first.stopped_early:
                break
            fit = self.fit(config, **options)
            if fit.stopped_early:
                break
            others.append(fit)
        return Ensemble(
            self.schema, self.preprocessor, configs[0], first, tuple(others)
        )


def prepare(
    table: Table,
    schema: Schema,
    parts: Parts,
    names: Sequence[PartName] = ("train", "val"),
    *,
    weight: Float | None = None,
) -> Prepared:
    """Fit the preprocessing on the train part, and apply it to the parts named.

    Args:
        weight: how much each row of the table counts; None: all alike.
    """
    x_num, x_cat = features(table, schema)
    y = target(table, schema)
    preprocessor = Preprocessor().fit(
        x_num,
        x_cat,
        y,
        task=schema.task,
        datetime=[schema.numeric.index(name) for name in schema.datetime],
        min_frequency=schema.min_frequency,
        rows=parts["train"],
    )
    _check_columns(preprocessor)
    ready = {}
    for name in names:
        rows = parts[name]
        scores, codes = preprocessor.transform(x_num, x_cat, rows=rows)
        scaled = preprocessor.scale_target(y[rows], schema.task)
        counts = None if weight is None else weight[rows]
        ready[name] = Part(scores, codes, scaled, counts)
    targets = {name: y[parts[name]] for name in names}
    return Prepared(schema, preprocessor, ready, targets)


def prepare_file(
    table: ParquetTable,
    schema: Schema,
    parts: Parts,
    names: Sequence[PartName],
    path: Path,
    *,
    weight: Float | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> Prepared:
    """The same with the training rows in a file: of the table a column is in memory at
    a time, or some rows. What is fitted on them is fitted on all of them.

    Args:
        names: parts that are wanted in memory, besides the one to train on.
        path: where the rows go that are trained on.
    """
    y = target(table, schema)
    train = parts["train"]
    preprocessor = Preprocessor().fit_columns(
        (read_feature(table, schema, name)[train] for name in schema.numeric),
        (read_feature(table, schema, name)[train] for name in schema.categorical),
        y[train],
        task=schema.task,
        datetime=[schema.numeric.index(name) for name in schema.datetime],
        min_frequency=schema.min_frequency,
    )
    _check_columns(preprocessor)
    scaled = preprocessor.scale_target(y[train], schema.task)
    counts = None
    if weight is not None and weight[train].any():
        counts = weight[train] / weight[train].mean()
    record = record_of(
        len(preprocessor.features_),
        len(preprocessor.cardinalities_),
        is_regression=schema.classes is None,
        has_weight=counts is not None,
    )
    file = write_rows(
        path,
        record,
        len(train),
        _transform_batches(table, schema, preprocessor, train, scaled, counts),
        y_variance=float(np.var(scaled)) if schema.classes is None else 1.0,
        buffer_bytes=buffer_bytes,
    )
    ready = {}
    for name in names:
        held = SomeRows(table, parts[name])
        scores, codes = preprocessor.transform(*features(held, schema))
        own = None if weight is None else weight[parts[name]]
        of_part = preprocessor.scale_target(y[parts[name]], schema.task)
        ready[name] = Part(scores, codes, of_part, own)
    targets: dict[PartName, NDArray[Any]] = {
        name: y[parts[name]] for name in ("train", *names)
    }
    return Prepared(schema, preprocessor, ready, targets, file)


def _transform_batches(
    table: ParquetTable,
    schema: Schema,
    preprocessor: Preprocessor,
    train: NDArray[np.intp],
    y: NDArray[Any],
    weight: Float | None,
) -> Iterator[Arrays]:
    """The training rows of the table, some at a time."""
    names = [*schema.numeric, *schema.categorical]
    # As many numbers at a time, whatever the width.
    size = max(1000, 2**20 // max(1, len(names)))
    start = first = 0
    for chunk in table.chunks(size, names):
        n_rows = len(next(iter(chunk.values())))
        last = int(np.searchsorted(train, start + n_rows))
        x_num, x_cat = features(chunk, schema)
        mine = slice(first, last)
        scores, codes = preprocessor.transform(x_num, x_cat, rows=train[mine] - start)
        yield scores, codes, y[mine], None if weight is None else weight[mine]
        start, first = start + n_rows, last


def _check_columns(preprocessor: Preprocessor) -> None:
    if not preprocessor.features_ and not preprocessor.cardinalities_:
        raise DataError(
            "no column is left to learn from: every one is the same in all training "
            "rows; give columns or rows that differ"
        )


def train_ensemble(
    table: Table,
    schema: Schema,
    parts: Parts,
    config: TrainConfig,
    *,
    weight: Float | None = None,
    **options: Any,
) -> Ensemble:
    """Fit the preprocessing on the train part, then the network on it and val.

    Args:
        weight: how much each row counts.
        options: those of `lometab.train.fit`: `device`, `on_epoch`, `resume` and more.
    """
    prepared = prepare(table, schema, parts, weight=weight)
    return prepared.train_ensemble([config], **options)


def answer(
    ensemble: Ensemble, x_num: Float, x_cat: NDArray[np.object_]
) -> tuple[Float, Float]:
    """`mean` and `members` of raw rows, as `features` gives them, by torch.

    The network computes in float64, so that a row's answer does not depend on the rows
    beside it.

    Shape: (N, n_num), (N, n_cat) -> (N,) and (N, K), or (N, C) and (N, K, C)
    """
    scores, codes = ensemble.preprocessor.transform(x_num, x_cat)
    models = [copy.deepcopy(model).double() for model in ensemble.models]
    return answer_scores(ensemble, models, scores.astype(np.float64), codes)


def answer_scores(
    ensemble: Ensemble,
    models: Sequence[LoMETab],
    scores: NDArray[Any],
    codes: NDArray[np.int64],
) -> Answer:
    """The same of rows that are transformed, in the precision of the models given."""
    preprocessor, task = ensemble.preprocessor, ensemble.schema.task
    x_num, x_cat = torch.from_numpy(scores), torch.from_numpy(codes)
    outputs = torch.cat([predict(model, x_num, x_cat) for model in models], dim=1)
    if task == "regression":
        members = outputs.squeeze(2) * preprocessor.y_std_ + preprocessor.y_mean_
    elif task == "binary":
        members = torch.cat([-outputs, outputs], dim=2).sigmoid()
    else:
        members = outputs.softmax(dim=2)
    return members.mean(dim=1).numpy(), members.numpy()


def answer_parts(prepared: Prepared, ensemble: Ensemble) -> dict[PartName, Answer]:
    """The answers to val and test of an ensemble trained on what was prepared."""
    models = [copy.deepcopy(model).double() for model in ensemble.models]
    return {
        name: answer_scores(
            ensemble,
            models,
            prepared.parts[name].x_num.astype(np.float64),
            prepared.parts[name].x_cat,
        )
        for name in ("val", "test")
    }


def measure(
    prepared: Prepared,
    ensemble: Ensemble,
    answers: dict[PartName, Answer] | None = None,
) -> Outcome:
    """The outcome of an ensemble that was trained on what was prepared, by torch.

    Args:
        answers: what `answer_parts` gave, if that has been asked.
    """
    answers = answers or answer_parts(prepared, ensemble)
    variance = float(np.var(prepared.targets["train"].astype(np.float64)))

    def measured(name: PartName) -> Measures:
        return measure_part(prepared.targets[name], *answers[name], variance)

    is_regression = ensemble.schema.classes is None
    return Outcome(
        metric="rmse" if is_regression else "accuracy",
        val=measured("val"),
        test=measured("test"),
        k=ensemble.k,
        n_parameters=ensemble.n_parameters,
        best_epoch=ensemble.fit.best_epoch,
        epochs=len(ensemble.fit.history),
        seconds=round(ensemble.fit.seconds, 3),
    )
