"""The scikit-learn face: `LoMETabClassifier` and `LoMETabRegressor`.

Read top to bottom: what both share, the classifier, the regressor, how arrays and
frames become the columns that `lometab.table` reads, and small parts.
"""

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from lometab.answering import Answering, AnsweringClasses, AnsweringNumbers
from lometab.config import (
    PRESET_SEEDS,
    BinEdges,
    Preset,
    Task,
    TrainConfig,
    Variant,
    from_preset,
    with_seeds,
)
from lometab.cost import Widths, guess_epoch
from lometab.ensemble import Ensemble, Prepared, answer, prepare
from lometab.errors import (
    ConfigError,
    DataError,
    LoMETabError,
    nearest,
    suggest,
)
from lometab.estimator_file import load_estimator, save_estimator
from lometab.evaluation import Calibrator, Run, make_reports
from lometab.explain import Rows, examine, fit_naive
from lometab.holdout import check_train_part, hold_out
from lometab.machine import count_cpus, count_useful_threads
from lometab.progress_bar import show_progress
from lometab.table import (
    BY_CALLER,
    ColumnKind,
    Float,
    Label,
    Parts,
    Schema,
    count_levels,
    describe_rare,
    features,
    infer_schema,
    judge_columns,
    read_column,
    to_array,
)
from lometab.train import Progress, choose_device, use_threads
from lometab.weights import weigh_classes

Array = NDArray[Any]
Columns = dict[str, Array]
Kinds = dict[str, ColumnKind]

SETTINGS = tuple(f.name for f in fields(TrainConfig) if f.name != "seed")
"""The parameters that the preset decides where the caller does not."""

_MAX_ROWS = 2**14  # answered at once: more takes memory and is no faster


class _LoMETabEstimator(Answering, BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share."""

    def __init__(
        self,
        *,
        preset: Preset = "default",
        variant: Variant | None = None,
        k: int | None = None,
        rank: int | None = None,
        sigma_init: float | None = None,
        n_blocks: int | None = None,
        d_block: int | None = None,
        dropout: float | None = None,
        n_bins: int | None = None,
        bin_edges: BinEdges | None = None,
        d_embedding: int | None = None,
        weight_init: Literal["linear", "he"] | None = None,
        mask_init: Literal["column", "feature"] | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        patience: float | None = None,
        share_batches: bool | None = None,
        ema: float | None = None,
        lr_patience: float | None = None,
        stop_on: Literal["score", "nll"] | None = None,
        decay_masks: bool | None = None,
        n_seeds: int | None = None,
        validation_fraction: float = 0.2,
        refit: bool = False,
        columns: Mapping[str | int, ColumnKind] | None = None,
        min_frequency: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        """
        Args:
            preset: `fast`, `default`, `best` or `paper`; see `lometab.config.PRESETS`.
                It decides each of the settings below that is None.
            variant: `lometab`, or one of the baselines `additive`, `tabm`,
                `deep-ensemble` and `mlp`.
            k: members of the ensemble.
            rank: rank of each member's mask.
            sigma_init: standard deviation with which masks start; more gives more
                diverse members.
            n_blocks: hidden layers.
            d_block: width of a hidden layer.
            dropout: share of hidden units dropped in training.
            n_bins: bins of the piecewise-linear embedding of a numeric feature.
            bin_edges: `quantile`, as many rows in each bin, or `refined`, where bins
                that are missing because many rows share a value set frequent values
                apart.
            d_embedding: width of that embedding.
            weight_init: start of the shared weight: `linear`, as `nn.Linear`, or `he`,
                with 6 times the variance.
            mask_init: start of B in the first layer: one number for each input `column`
                or for each `feature`.
            lr: learning rate of AdamW.
            weight_decay: weight decay of AdamW.
            batch_size: rows in an optimiser step.
            max_epochs: epochs at most.
            patience: epochs without a better validation score before training stops;
                `math.inf`: never.
            share_batches: whether all members see the same batches.
            ema: decay per step of the average of the weights that is validated and
                kept; 0: the weights themselves.
            lr_patience: epochs without a better score before the learning rate is
                multiplied by 0.3; `math.inf`: never.
            stop_on: what chooses the epoch: `score`, or for classes `nll`, the
                negative log-likelihood.
            decay_masks: whether masks decay as the other weights do.
            n_seeds: so many networks, each with its seed, whose members are one
                ensemble; None: as the preset has it, one but for `best`.
            validation_fraction: share of the rows that `fit` sets aside to choose the
                epoch by, unless it is given validation rows.
            refit: train again on all rows, validation included, for as many epochs as
                were best. Intervals, sets and temperature stay those of the first
                training, whose validation rows were not learned from.
            columns: kinds of columns where the guess is wrong: `numeric`,
                `categorical`, `datetime` or `ignore`, by name or by position. Without
                it, the columns of a frame are used as those of a file that is uploaded
                to the service: identifiers, constants, free texts and copies of other
                columns are not, as a warning tells. In an array all numbers are used.
            min_frequency: categories in fewer training rows than this share one input;
                1: each has its own, as in the paper. None: a tenth of the root of the
                number of rows.
            random_state: seed of the split, the initial weights, batches and dropout.
            device: `auto` (a GPU if there is one), `cpu` or `cuda`. A fitted model
                always answers on the CPU.
            n_jobs: threads of torch while it trains. None: as many as help with this
                table, which is one unless an epoch takes long; -1: one for each CPU
                that this process may use, -2: one less.
            verbose: 1 shows a progress bar.
        """
        self.preset = preset
        self.variant = variant
        self.k = k
        self.rank = rank
        self.sigma_init = sigma_init
        self.n_blocks = n_blocks
        self.d_block = d_block
        self.dropout = dropout
        self.n_bins = n_bins
        self.bin_edges = bin_edges
        self.d_embedding = d_embedding
        self.weight_init = weight_init
        self.mask_init = mask_init
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.share_batches = share_batches
        self.ema = ema
        self.lr_patience = lr_patience
        self.stop_on = stop_on
        self.decay_masks = decay_masks
        self.n_seeds = n_seeds
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.columns = columns
        self.min_frequency = min_frequency
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    # Fitting

    def fit(
        self,
        X: Any,
        y: Any,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight: Any = None,
        on_epoch: Callable[[Progress], bool | None] | None = None,
    ) -> Self:
        """Train on the rows, and keep the epoch that is best on validation rows.

        Args:
            X: (N, n_features), an array or a frame with named columns.
            y: (N,), the labels or the numbers to predict.
            X_val, y_val: the validation rows. None: `validation_fraction` of X and y
                is set aside, of each class the same share.
            sample_weight: (N,), how much each row of X counts, in the loss and in the
                score that chooses the epoch. Given validation rows count alike.
            on_epoch: called after each epoch; True stops, and the best epoch is kept.
        """
        config = self._config()
        self._forget_predictor()
        table, kinds = self._read(X, reset=True)
        target = self._learn_target(y)
        _check_lengths(table, target, "X", "y")
        if (X_val is None) != (y_val is None):
            raise DataError("X_val and y_val must be given together, however one is")
        if X_val is None:
            parts = hold_out(
                target, self.validation_fraction, labels=self._labels, seed=config.seed
            )
        else:
            table, target, parts = self._append(table, target, X_val, y_val)
        weight = self._weigh(sample_weight, target, parts)
        check_train_part(target[parts["train"]], self._labels)
        schema = self._schema(table, kinds, target, getattr(y, "name", None))
        whole = {**table, schema.target: target}
        n_seeds = PRESET_SEEDS[self.preset] if self.n_seeds is None else self.n_seeds
        configs = with_seeds(config, n_seeds)
        self.ensemble_ = self._train(whole, schema, parts, configs, weight, on_epoch)
        self.train_variance_ = float(np.var(target[parts["train"]]))
        val = {name: column[parts["val"]] for name, column in table.items()}
        self.calibrator_ = Calibrator.fit(target[parts["val"]], *self._answer(val))
        train = parts["train"]
        known = {name: column[train] for name, column in table.items()}
        self.naive_ = fit_naive(
            self._rows(known), target[train], schema.task, self._labels
        )
        if self.refit:
            rows = np.sort(np.concatenate([parts["train"], parts["val"]]))
            again = [
                replace(each, max_epochs=fit.best_epoch, patience=None)
                for each, fit in zip(configs, self.ensemble_.fits, strict=False)
            ]
            both: Parts = {"train": rows, "val": parts["val"]}
            self.ensemble_ = self._train(whole, schema, both, again, weight, on_epoch)
        return self

    def _train(
        self,
        table: Columns,
        schema: Schema,
        parts: Parts,
        configs: Sequence[TrainConfig],
        weight: Float | None,
        on_epoch: Callable[[Progress], bool | None] | None,
    ) -> Ensemble:
        prepared = prepare(table, schema, parts, weight=weight)
        n_threads = _count_threads(self.n_jobs, prepared, configs[0])
        with show_progress(self.verbose, configs[0]) as show, use_threads(n_threads):
            ensemble = prepared.train_ensemble(
                configs,
                device=choose_device(self.device),
                on_epoch=_both(show, on_epoch),
            )
        if self._labels is not None:
            ensemble = replace(ensemble, schema=replace(schema, classes=self._labels))
        return ensemble

    def _weigh(self, sample_weight: Any, target: Array, parts: Parts) -> Float | None:
        """How much each row counts; None if all count alike."""
        if sample_weight is None:
            return None
        with _as_data_errors():
            given = np.asarray(sample_weight, dtype=np.float64)
            assert_all_finite(given, input_name="sample_weight")
        n_rows = len(target)
        n_given = n_rows if given.shape == (n_rows,) else len(parts["train"])
        if given.shape != (n_given,):
            raise DataError(
                f"sample_weight must have a number for each of the {n_given} rows, "
                f"however its shape is {given.shape}"
            )
        weight = np.ones(n_rows)
        weight[:n_given] = given
        if (weight < 0).any() or not weight[parts["train"]].any():
            raise DataError("sample_weight must not be negative, nor zero everywhere")
        return weight

    @property
    def conformity_(self) -> Float:
        """The conformal score of each validation row."""
        return self.calibrator_.conformity

    @property
    def temperature_(self) -> float | None:
        """Classification: at which validation rows have the least log-loss."""
        return self.calibrator_.temperature

    @property
    def history_(self) -> list[Progress]:
        """What each epoch of training came to; of several networks, of the first."""
        history: list[Progress] = self.ensemble_.fit.history
        return history

    @property
    def _classes(self) -> Array | None:
        return getattr(self, "classes_", None)

    @property
    def _labels(self) -> tuple[Label, ...] | None:
        """The classes as the ONNX file and messages have them."""
        if self._classes is None:
            return None
        return tuple(_to_label(label) for label in self._classes)

    def _config(self) -> TrainConfig:
        settings = {name: getattr(self, name) for name in SETTINGS}
        given = {name: value for name, value in settings.items() if value is not None}
        for name in ("patience", "lr_patience"):
            if given.get(name) == math.inf:
                given[name] = None
        state = self.random_state
        if isinstance(state, Integral) and 0 <= state < 2**31:
            seed = int(state)
        else:
            seed = int(check_random_state(state).randint(2**31))
        return from_preset(self.preset, seed=seed, **given)

    def _append(
        self, table: Columns, target: Array, X_val: Any, y_val: Any
    ) -> tuple[Columns, Array, Parts]:
        """Training rows, then the given validation rows, and which are which."""
        table_val, _ = self._read(X_val, reset=False)
        target_val = self._encode_target(y_val, "y_val")
        _check_lengths(table_val, target_val, "X_val", "y_val")
        rows = np.arange(len(target) + len(target_val))
        return (
            {name: _join(table[name], table_val[name]) for name in table},
            np.concatenate([target, target_val]),
            {"train": rows[: len(target)], "val": rows[len(target) :]},
        )

    def _schema(
        self, table: Columns, kinds: Kinds, target: Array, name: object
    ) -> Schema:
        """Kinds of columns are the caller's, else the dtype's, else the values'."""
        names = [*table]
        for key, kind in (self.columns or {}).items():
            if kind not in get_args(ColumnKind):
                raise ConfigError(
                    f"columns must give one of {[*get_args(ColumnKind)]} for {key!r}, "
                    f"however: {kind!r}"
                )
            is_position = isinstance(key, Integral) and 0 <= key < len(names)
            kinds[names[int(key)] if is_position else str(key)] = kind
        name = name if isinstance(name, str) and name else "target"
        while name in table:
            name += "_"
        is_frame = hasattr(self, "feature_names_in_")
        task: Task = "regression"
        if self._classes is not None:
            task = "binary" if len(self._classes) == 2 else "multiclass"
        schema = infer_schema(
            {**table, name: target},
            target=name,
            task=task,
            columns=kinds,
            verdicts=judge_columns(table) if is_frame else None,
            min_frequency=self.min_frequency,
        )
        self.warnings_ = [*self._explain_choices(table, schema, is_frame)]
        if self.warnings_:
            warnings.warn("; ".join(self.warnings_), stacklevel=3)
        return schema

    def _explain_choices(
        self, table: Columns, schema: Schema, is_frame: bool
    ) -> Iterator[str]:
        """What was decided without having been told."""
        unused = {
            column: reason
            for column, reason in schema.ignored.items()
            if reason != BY_CALLER and (is_frame or "looks like" in reason)
        }
        for column, reason in unused.items():
            yield f"column {column!r} is ignored: {reason}"
        if unused:
            first = next(iter(unused))
            yield (
                "to use a column, set its kind, as in "
                f"columns={{{first!r}: 'categorical'}}"
            )
        yield from describe_rare(count_levels(table, schema), schema)

    # Answers

    def predict_members(self, X: Any) -> Float:
        """Every member's own answer: (N, K) numbers, or (N, K, C) probabilities."""
        return self._answer(self._read_new(X))[1]

    def report(
        self, X: Any, y: Any, *, groups: Sequence[Sequence[str]] | None = None
    ) -> "ReportDict":
        """The reports `diversity`, `calibration` and `report` on these rows.

        Fit for JSON, in the form that the service gives; a notebook shows summary and
        figures. Intervals and sets are conformal by the validation rows of `fit`.

        Args:
            groups: columns whose importance is measured as one; None: those that are
                found to go together.
        """
        table = self._read_new(X)
        target = self._encode_target(y, "y")
        _check_lengths(table, target, "X", "y")
        ensemble, seed = self.ensemble_, self.ensemble_.config.seed
        run = Run(
            task=ensemble.schema.task,
            targets={"test": target},
            answers={"test": self._answer(table)},
            train_variance=self.train_variance_,
            calibrator=self.calibrator_,
            config=ensemble.config,
            history=self.history_,
            warnings=getattr(self, "warnings_", ()),
            classes=ensemble.schema.classes,
            n_parameters=ensemble.n_parameters,
            training=ensemble.training,
            seeds={"split": seed, "training": seed},
        )
        naive = getattr(self, "naive_", None)  # not in files of before
        if naive is not None:
            run = examine(run, self._run, self._rows(table), naive, groups=groups)
        return ReportDict(make_reports(run).to_json())

    def _mean(self, X: Any) -> Float:
        """The ensemble's answer, (N,) or (N, C); a part of the rows at a time."""
        table = self._read_new(X)
        n_rows = len(next(iter(table.values())))
        means = []
        for start in range(0, n_rows, _MAX_ROWS):
            rows = slice(start, start + _MAX_ROWS)
            part = {name: column[rows] for name, column in table.items()}
            means.append(self._answer(part)[0])
        return np.concatenate(means)

    def _answer(self, table: Columns) -> tuple[Float, Float]:
        return answer(self.ensemble_, *features(table, self.ensemble_.schema))

    def _run(self, x_num: Float, x_cat: Array) -> tuple[Float, Float]:
        return answer(self.ensemble_, x_num, x_cat)

    def _rows(self, table: Columns) -> Rows:
        schema = self.ensemble_.schema
        x_num, x_cat = features(table, schema)
        return Rows(schema.numeric, schema.categorical, x_num, x_cat, schema.datetime)

    def _read_new(self, X: Any) -> Columns:
        check_is_fitted(self)
        return self._read(X, reset=False)[0]

    def _read(self, X: Any, *, reset: bool) -> tuple[Columns, Kinds]:
        """The columns by name, and the kinds of those whose dtype tells it.

        Args:
            reset: whether names and number of the columns are learned or checked.
        """
        # pyarrow has names in one attribute and columns in the other.
        has_names = hasattr(type(X), "column_names")
        labels = X.column_names if has_names else getattr(X, "columns", None)
        if labels is None:
            with _as_data_errors():
                X = validate_data(
                    self, X, reset=reset, dtype=None, ensure_all_finite=False
                )
            columns = [*X.T]
        else:
            chosen = self._choose_labels([*labels], reset=reset)
            if chosen != [*labels]:
                X = X.select(chosen) if has_names else X[chosen]
            labels = chosen
            with _as_data_errors(lambda: self._explain_names([*labels])):
                validate_data(self, _named(X), reset=reset, skip_check_array=True)
            columns = [X[label] for label in labels]
            if not columns or not len(columns[0]):
                raise DataError(
                    f"X must have rows and columns, however: {len(columns)} feature(s)"
                )
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{i}" for i in range(len(columns))]
        table: Columns = {}
        kinds: Kinds = {}
        for name, column in zip(names, columns, strict=True):
            values, kind = read_column(column, name)
            table[name] = to_array(values, name)
            # A frame's numbers may be identifiers; its categories are the caller's.
            is_told = kind == "categorical" and table[name].dtype.kind != "b"
            if kind is not None and (is_told or labels is None):
                kinds[name] = kind
        return table, kinds

    def _choose_labels(self, labels: list[Any], *, reset: bool) -> list[Any]:
        """At predict the columns of `fit`, in their order, if all of them are there;
        others are not used, as the service does it."""
        known = [*getattr(self, "feature_names_in_", [])]
        if reset or not known or not {*known} <= {*labels}:
            return labels
        extra = [label for label in labels if label not in {*known}]
        if extra:
            warnings.warn(f"columns not used: {extra[:20]}", stacklevel=5)
        return known

    def _explain_names(self, names: Collection[str]) -> str:
        """What unknown names at predict may have been meant to be."""
        known = [*getattr(self, "feature_names_in_", [])]
        given, learned = {*names}, {*known}
        missing = [name for name in known if name not in given]
        unknown = [n for n in names if isinstance(n, str) and n not in learned][:20]
        hints = [
            f"{name!r} is unknown{suggest(name, missing)}"
            for name in unknown
            if nearest(name, missing)
        ]
        return "; ".join(hints[:5])

    def _learn_target(self, y: Any) -> Array:
        raise NotImplementedError

    def _encode_target(self, y: Any, name: str) -> Array:
        raise NotImplementedError

    # Files

    def export_onnx(self, path: str | Path) -> None:
        """Write one ONNX file: raw rows in, mean and members out; see docs/onnx.md.

        The file has been run against torch in float64 when it is there.

        Raises:
            ExportMismatch: it does not answer as torch does.
        """
        Path(path).write_bytes(self._export())

    def _export(self) -> bytes:
        from lometab.export import export
        from lometab.parity import example_rows

        check_is_fitted(self)
        rows = example_rows(self.ensemble_)
        content: bytes = export(
            self.ensemble_, *rows, calibrate=lambda _: self.calibrator_
        )
        return content

    def save(self, directory: str | Path) -> None:
        """Write the fitted estimator: weights as safetensors, all else as JSON."""
        check_is_fitted(self)
        save_estimator(self, Path(directory))

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read what `save` wrote; FileNotFoundError where there is nothing."""
        return load_estimator(cls, Path(directory))


class ReportDict(dict[str, dict[str, Any]]):
    """Reports by their names; a notebook shows them in words and figures."""

    def _repr_html_(self) -> str:
        from lometab.card import to_fragment

        return to_fragment(self)


class LoMETabClassifier(AnsweringClasses, ClassifierMixin, _LoMETabEstimator):  # type: ignore[misc]
    """Classification by a LoMETab ensemble, in the manners of scikit-learn.

    Takes arrays and frames (pandas, polars, pyarrow) of numbers, texts, categories,
    booleans, dates and missing values; nothing needs to be encoded or scaled.

    Attributes:
        classes_: the labels, sorted.
        ensemble_: the schema, the preprocessing, the settings and the network.
        history_: what each epoch of training came to.
        warnings_: what was decided about the columns without being told.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    **Examples**

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=False)
    >>> model = LoMETabClassifier(preset="fast", max_epochs=5, random_state=0)
    >>> model.fit(X, y).predict_members(X).shape
    (150, 8, 3)
    """

    classes_: Array

    def __init__(
        self,
        *,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        preset: Preset = "default",
        variant: Variant | None = None,
        k: int | None = None,
        rank: int | None = None,
        sigma_init: float | None = None,
        n_blocks: int | None = None,
        d_block: int | None = None,
        dropout: float | None = None,
        n_bins: int | None = None,
        bin_edges: BinEdges | None = None,
        d_embedding: int | None = None,
        weight_init: Literal["linear", "he"] | None = None,
        mask_init: Literal["column", "feature"] | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        patience: float | None = None,
        share_batches: bool | None = None,
        ema: float | None = None,
        lr_patience: float | None = None,
        stop_on: Literal["score", "nll"] | None = None,
        decay_masks: bool | None = None,
        n_seeds: int | None = None,
        validation_fraction: float = 0.2,
        refit: bool = False,
        columns: Mapping[str | int, ColumnKind] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        """
        Args:
            class_weight: how much a row of each class counts, in the loss and in the
                score that chooses the epoch: numbers by class, or `balanced`, by which
                each class counts alike.

        All others are those of `LoMETabRegressor`.
        """
        super().__init__(
            preset=preset,
            variant=variant,
            k=k,
            rank=rank,
            sigma_init=sigma_init,
            n_blocks=n_blocks,
            d_block=d_block,
            dropout=dropout,
            n_bins=n_bins,
            bin_edges=bin_edges,
            d_embedding=d_embedding,
            weight_init=weight_init,
            mask_init=mask_init,
            lr=lr,
            weight_decay=weight_decay,
            batch_size=batch_size,
            max_epochs=max_epochs,
            patience=patience,
            share_batches=share_batches,
            ema=ema,
            lr_patience=lr_patience,
            stop_on=stop_on,
            decay_masks=decay_masks,
            n_seeds=n_seeds,
            validation_fraction=validation_fraction,
            refit=refit,
            columns=columns,
            random_state=random_state,
            device=device,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def predict(self, X: Any) -> Array:
        """The most probable label of each row, (N,)."""
        labels: Array = self.predict_proba(X).argmax(axis=1)
        return self.classes_[labels]

    def predict_proba(self, X: Any, *, calibrated: bool = False) -> Float:
        """The mean of the members' probabilities, (N, C), in the order of classes_.

        Args:
            calibrated: at the temperature that was fitted on the validation rows.
        """
        if calibrated:
            mean: Float = self._describe(X, calibrated=True).mean.astype(np.float64)
            return mean
        return self._mean(X)

    def _weigh(self, sample_weight: Any, target: Array, parts: Parts) -> Float | None:
        weight = super()._weigh(sample_weight, target, parts)
        if self.class_weight is None:
            return weight
        by_class = self._weigh_classes(target[parts["train"]])[target]
        return by_class if weight is None else weight * by_class

    def _weigh_classes(self, target: Array) -> Float:
        """How much a row of each class counts."""
        names = [str(label) for label in self.classes_.tolist()]
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return weigh_classes("balanced", names, target)
        if not isinstance(self.class_weight, Mapping):
            raise ConfigError(
                "class_weight must be None, 'balanced' or a number for each class, "
                f"however: {self.class_weight!r}"
            )
        given = {str(label): number for label, number in self.class_weight.items()}
        return weigh_classes(given, names, target)

    def _learn_target(self, y: Any) -> Array:
        y = _read_target(y, "y")
        try:
            self.classes_, target = np.unique(y, return_inverse=True)
        except TypeError:
            kinds = sorted({type(label).__name__ for label in y})
            raise DataError(
                f"the labels in y must be all of one kind, however: {kinds}"
            ) from None
        with _as_data_errors():
            check_classification_targets(y)
        if len(self.classes_) < 2:
            raise DataError(
                f"y has only one class, {_to_label(self.classes_[0])!r}; there is "
                "nothing to learn: two or more classes are needed"
            )
        return np.asarray(target, dtype=np.int64)

    def _encode_target(self, y: Any, name: str) -> Array:
        y = _read_target(y, name)
        index = {label: i for i, label in enumerate(self.classes_.tolist())}
        target = np.array([index.get(label, -1) for label in y.tolist()])
        if (target < 0).any():
            label = _to_label(y[int(np.flatnonzero(target < 0)[0])])
            raise DataError(
                f"{name} holds {label!r}, which is none of the classes "
                f"{[_to_label(each) for each in self.classes_[:20]]}"
            )
        return target


class LoMETabRegressor(AnsweringNumbers, RegressorMixin, _LoMETabEstimator):  # type: ignore[misc]
    """Regression by a LoMETab ensemble, in the manners of scikit-learn.

    Takes arrays and frames (pandas, polars, pyarrow) of numbers, texts, categories,
    booleans, dates and missing values; nothing needs to be encoded or scaled.

    Attributes:
        ensemble_: the schema, the preprocessing, the settings and the network.
        history_: what each epoch of training came to.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    **Examples**

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LoMETabRegressor(preset="fast", max_epochs=5, random_state=0)
    >>> model.fit(X, y).predict_members(X).shape
    (442, 8)
    """

    def predict(
        self, X: Any, return_std: bool = False, return_members: bool = False
    ) -> Any:
        """The mean of the members' predictions, (N,).

        Args:
            return_std: also the members' standard deviation, (N,). It is no error bar:
                members agree more than they are right. `predict_interval` gives one.
            return_members: also every member's own prediction, (N, K).

        Returns:
            The mean, or a tuple that begins with it.
        """
        if not return_std and not return_members:
            return self._mean(X)
        members = self.predict_members(X)
        answers = [members.mean(axis=1)]
        if return_std:
            answers.append(members.std(axis=1))
        if return_members:
            answers.append(members)
        return tuple(answers)

    def _learn_target(self, y: Any) -> Array:
        return self._encode_target(y, "y")

    def _encode_target(self, y: Any, name: str) -> Array:
        y = _read_target(y, name)
        with _as_data_errors():
            numbers = np.asarray(y, dtype=np.float64)
            assert_all_finite(numbers, input_name=name)
        return numbers


# ----------------------------------------------------------------------------
# Columns and targets


def _read_target(y: Any, name: str) -> Array:
    """The target as an array of one dimension with no value missing."""
    if y is None:
        raise DataError(f"fit requires y to be passed, but the target {name} is None")
    if hasattr(y, "notna") and np.ndim(y) == 1:
        y = to_array(read_column(y, name)[0], name)
    with _as_data_errors():
        values: Array = column_or_1d(y, warn=True)
        if values.dtype.kind == "O":
            missing = np.flatnonzero([v is None or v != v for v in values.tolist()])
            if len(missing):
                raise DataError(
                    f"{name} is missing in {len(missing)} rows, the first of them row "
                    f"{missing[0] + 1}; fill or remove them"
                )
        assert_all_finite(values, input_name=name)
    return values


def _join(values: Array, more: Array) -> Array:
    if values.dtype.kind != more.dtype.kind:  # NumPy would turn numbers into texts
        values, more = values.astype(object), more.astype(object)
    return np.concatenate([values, more])


def _check_lengths(
    table: Columns, target: Array, table_name: str, target_name: str
) -> None:
    n_rows = len(next(iter(table.values())))
    if n_rows != len(target):
        raise DataError(
            f"{table_name} and {target_name} must have as many rows, however: "
            f"{table_name} has {n_rows} and {target_name} {len(target)}"
        )


def _both(
    show: Callable[[Progress], None] | None,
    on_epoch: Callable[[Progress], bool | None] | None,
) -> Callable[[Progress], bool | None]:
    """What the bar shows, and what the caller says."""

    def call(progress: Progress) -> bool | None:
        if show is not None:
            show(progress)
        return on_epoch(progress) if on_epoch is not None else None

    return call


def _named(frame: Any) -> Any:
    """What scikit-learn reads the names of a frame from. Older versions do not know
    those of polars, which has left the interchange protocol; those of Arrow they do."""
    is_known = hasattr(frame, "iloc") or hasattr(frame, "__dataframe__")
    if is_known or not hasattr(frame, "to_arrow"):
        return frame
    return frame.head(0).to_arrow()


@contextmanager
def _as_data_errors(explain: Callable[[], str] = str) -> Iterator[None]:
    """Turn the ValueErrors of scikit-learn's checks into ours.

    Args:
        explain: gives what is to be added to the message.
    """
    try:
        yield
    except LoMETabError:
        raise
    except ValueError as error:
        message = "\n".join(filter(None, [str(error).rstrip(), explain()]))
        raise DataError(message) from error


# ----------------------------------------------------------------------------
# Small parts


def _count_threads(n_jobs: int | None, prepared: Prepared, config: TrainConfig) -> int:
    """Threads to train with: those asked for, or as many as help."""
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    n_cpus = count_cpus()
    if n_jobs is not None:
        return max(1, min(n_cpus, n_cpus + 1 + n_jobs))
    schema, train = prepared.schema, prepared.parts["train"]
    widths = Widths(
        n_numeric=train.x_num.shape[1],
        cardinalities=tuple(prepared.preprocessor.cardinalities_),
        d_out=len(schema.classes or ()) if schema.task == "multiclass" else 1,
    )
    n_val = len(prepared.parts["val"].y)
    seconds = guess_epoch(widths, len(train.y), n_val, config)
    return count_useful_threads(n_cpus, seconds)


def _to_label(label: Any) -> Label:
    """A label as the ONNX file and messages have it: a text, whole number or bool."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, float) and label.is_integer():
        return int(label)
    return label if isinstance(label, str | int) else str(label)
