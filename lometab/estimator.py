"""The scikit-learn face: `LoMETabClassifier` and `LoMETabRegressor`.

Read top to bottom: what both share, the classifier, the regressor, how arrays and
frames become the columns that `lometab.data` reads, and small parts.
"""

import json
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import assert_all_finite, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from lometab import evaluation, metrics
from lometab.config import Preset, Task, TrainConfig, Variant, from_preset
from lometab.data import ColumnKind, Float, Label, Schema, features, infer_schema
from lometab.ensemble import Ensemble, answer, train_ensemble
from lometab.errors import (
    ConfigError,
    DataError,
    LoMETabError,
    ModelFileError,
    nearest,
    suggest,
)
from lometab.nn import LoMETab
from lometab.preprocessing import Preprocessor
from lometab.splits import Parts
from lometab.train import Fit, Progress

Array = NDArray[Any]
Columns = dict[str, Array]
Kinds = dict[str, ColumnKind]

SETTINGS = tuple(f.name for f in fields(TrainConfig) if f.name != "seed")
"""The parameters that the preset decides where the caller does not."""

_FORMAT_VERSION = 1
_WEIGHTS = "model.safetensors"
_STATE = "estimator.json"
_MAX_ROWS = 2**14  # answered at once: more takes memory and is no faster
_MIN_TRAIN_ROWS = 3  # bins cannot be made of less


class _LoMETabEstimator(BaseEstimator):  # type: ignore[misc]
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
        d_embedding: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        patience: float | None = None,
        share_batches: bool | None = None,
        validation_fraction: float = 0.2,
        columns: Mapping[str | int, ColumnKind] | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        """
        Args:
            preset: `fast`, `default` or `paper`; see `lometab.config.PRESETS`. It
                decides each of the settings below that is None.
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
            d_embedding: width of that embedding.
            lr: learning rate of AdamW.
            weight_decay: weight decay of AdamW.
            batch_size: rows in an optimiser step.
            max_epochs: epochs at most.
            patience: epochs without a better validation score before training stops;
                `math.inf`: never.
            share_batches: whether all members see the same batches.
            validation_fraction: share of the rows that `fit` sets aside to choose the
                epoch by, unless it is given validation rows.
            columns: kinds of columns where the guess is wrong: `numeric`,
                `categorical`, `datetime` or `ignore`, by name or by position. Without
                it numbers are numeric, booleans and categories categorical, dates
                datetime, and texts are what all of them can be read as.
            random_state: seed of the split, the initial weights, batches and dropout.
            device: `auto` (a GPU if there is one), `cpu` or `cuda`. A fitted model
                always answers on the CPU.
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
        self.d_embedding = d_embedding
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.share_batches = share_batches
        self.validation_fraction = validation_fraction
        self.columns = columns
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    # Fitting

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Self:
        """Train on the rows, and keep the epoch that is best on validation rows.

        Args:
            X: (N, n_features), an array or a frame with named columns.
            y: (N,), the labels or the numbers to predict.
            X_val, y_val: the validation rows. None: `validation_fraction` of X and y
                is set aside, of each class the same share.
        """
        config = self._config()
        table, kinds = self._read(X, reset=True)
        target = self._learn_target(y)
        _check_lengths(table, target, "X", "y")
        if (X_val is None) != (y_val is None):
            raise DataError("X_val and y_val must be given together, however one is")
        if X_val is None:
            parts = self._split(target, config.seed)
        else:
            table, target, parts = self._append(table, target, X_val, y_val)
        self._check_train_part(target[parts["train"]])
        schema = self._schema(table, kinds, target, getattr(y, "name", None))
        with _show_progress(self.verbose, config) as on_epoch:
            ensemble = train_ensemble(
                {**table, schema.target: target},
                schema,
                parts,
                config,
                device=_choose_device(self.device),
                on_epoch=on_epoch,
            )
        if self._classes is not None:
            labels = tuple(_plain(label) for label in self._classes)
            ensemble = replace(ensemble, schema=replace(schema, classes=labels))
        self.ensemble_ = ensemble
        self.train_variance_ = float(np.var(target[parts["train"]]))
        val = {name: cells[parts["val"]] for name, cells in table.items()}
        mean, _ = self._answer(val)
        self.conformity_ = metrics.conformal_scores(target[parts["val"]], mean)
        self.temperature_ = None
        if self._classes is not None:
            self.temperature_ = metrics.fit_temperature(target[parts["val"]], mean)
        return self

    @property
    def history_(self) -> list[Progress]:
        """What each epoch of training came to."""
        history: list[Progress] = self.ensemble_.fit.history
        return history

    @property
    def _classes(self) -> Array | None:
        return getattr(self, "classes_", None)

    def _config(self) -> TrainConfig:
        settings = {name: getattr(self, name) for name in SETTINGS}
        given = {name: value for name, value in settings.items() if value is not None}
        if given.get("patience") == math.inf:
            given["patience"] = None
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

    def _split(self, target: Array, seed: int) -> Parts:
        """A random part of the rows to train on and one to validate on."""
        share = self.validation_fraction
        if not isinstance(share, Real) or not 0 < share < 1:
            raise ConfigError(
                "validation_fraction must be between 0 and 1, however: "
                f"validation_fraction={share}"
            )
        n_rows = len(target)
        n_classes = 0 if self._classes is None else len(self._classes)
        min_train, min_val = max(n_classes, _MIN_TRAIN_ROWS), max(n_classes, 1)
        if n_rows < min_train + min_val:
            raise DataError(
                f"at least {min_train + min_val} rows are needed to train and to "
                f"validate, however: n_samples={n_rows}"
            )
        if self._classes is not None:
            rare = np.flatnonzero(np.bincount(target) < 2)
            if len(rare):
                raise DataError(
                    f"the class {_plain(self._classes[rare[0]])!r} has only one row, "
                    "and training and validation need one each; add rows of it, leave "
                    "it out, or give X_val and y_val"
                )
        n_val = min(max(math.ceil(share * n_rows), min_val), n_rows - min_train)
        train, val = train_test_split(
            np.arange(n_rows),
            test_size=n_val,
            random_state=seed,
            stratify=target if n_classes else None,
        )
        return {"train": np.sort(train), "val": np.sort(val)}

    def _check_train_part(self, target: Array) -> None:
        if len(target) < _MIN_TRAIN_ROWS:
            raise DataError(
                f"at least {_MIN_TRAIN_ROWS} rows are needed to train, however: "
                f"n_samples={len(target)}"
            )
        if self._classes is None:
            if (target == target[0]).all():
                raise DataError(
                    f"the target is {target[0]:g} in every training row; there is "
                    "nothing to learn"
                )
            with np.errstate(over="ignore", invalid="ignore"):
                spread = np.std(target)
            if not 0 < spread < math.inf:
                raise DataError(
                    f"the target goes from {target.min():g} to {target.max():g}, which "
                    "floating point cannot standardise; give it in another unit"
                )
            return
        absent = np.flatnonzero(np.bincount(target, minlength=len(self._classes)) == 0)
        if len(absent):
            raise DataError(
                f"the class {_plain(self._classes[absent[0]])!r} has no row in the "
                "training part; add rows of it or lower validation_fraction"
            )

    def _schema(
        self, table: Columns, kinds: Kinds, target: Array, name: object
    ) -> Schema:
        """Columns are of the kind that the caller says, else the dtype, else cells."""
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
        task: Task = "regression"
        if self._classes is not None:
            task = "binary" if len(self._classes) == 2 else "multiclass"
        schema = infer_schema(
            {**table, name: target}, target=name, task=task, columns=kinds
        )
        for column, reason in schema.ignored.items():
            if "looks like" in reason:
                warnings.warn(
                    f"column {column!r} is ignored: {reason}; to use it, say what it "
                    f"is, as in columns={{{column!r}: 'categorical'}}",
                    stacklevel=3,
                )
        return schema

    # Answers

    def predict_members(self, X: Any) -> Float:
        """Every member's own answer: (N, K) numbers, or (N, K, C) probabilities."""
        return self._answer(self._read_new(X))[1]

    def report(self, X: Any, y: Any) -> dict[str, dict[str, Any]]:
        """The reports `diversity`, `calibration` and `report` on these rows.

        Plain data, fit for JSON, in the form that the service gives. Intervals and
        sets are conformal by the validation rows of `fit`.
        """
        table = self._read_new(X)
        target = self._encode_target(y, "y")
        _check_lengths(table, target, "X", "y")
        fitted = self.ensemble_.fit
        reports = evaluation.describe(
            self.ensemble_.schema.task,
            {"test": target},
            {"test": self._answer(table)},
            train_variance=self.train_variance_,
            conformity=self.conformity_,
            config=self.ensemble_.config,
            history=[asdict(progress) for progress in fitted.history],
            classes=self.ensemble_.schema.classes,
            temperature=self.temperature_,
        )
        seed = self.ensemble_.config.seed
        reports["report"] |= {
            "n_parameters": fitted.model.n_parameters,
            "training": self._training(),
            "seeds": {"split": seed, "training": seed},
        }
        return reports

    def _training(self) -> dict[str, Any]:
        fitted = self.ensemble_.fit
        return {
            "best_epoch": fitted.best_epoch,
            "best_score": fitted.best_score,
            "epochs": len(fitted.history),
            "seconds": fitted.seconds,
            "stopped_early": fitted.stopped_early,
        }

    def _mean(self, X: Any) -> Float:
        """The ensemble's answer, (N,) or (N, C); a part of the rows at a time."""
        table = self._read_new(X)
        n_rows = len(next(iter(table.values())))
        means = []
        for start in range(0, n_rows, _MAX_ROWS):
            rows = slice(start, start + _MAX_ROWS)
            part = {name: cells[rows] for name, cells in table.items()}
            means.append(self._answer(part)[0])
        return np.concatenate(means)

    def _answer(self, table: Columns) -> tuple[Float, Float]:
        return answer(self.ensemble_, *features(table, self.ensemble_.schema))

    def _read_new(self, X: Any) -> Columns:
        check_is_fitted(self)
        return self._read(X, reset=False)[0]

    def _read(self, X: Any, *, reset: bool) -> tuple[Columns, Kinds]:
        """The columns by name, and the kinds of those whose dtype tells it.

        Args:
            reset: whether names and number of the columns are learned or checked.
        """
        # pyarrow has names in one attribute and cells in the other.
        has_names = hasattr(type(X), "column_names")
        labels = X.column_names if has_names else getattr(X, "columns", None)
        if labels is None:
            with _as_data_errors():
                X = validate_data(
                    self, X, reset=reset, dtype=None, ensure_all_finite=False
                )
            columns = [*X.T]
        else:
            with _as_data_errors(lambda: self._explain_names([*labels])):
                validate_data(self, X, reset=reset, skip_check_array=True)
            columns = [X[label] for label in labels]
            if not columns or not len(columns[0]):
                raise DataError(
                    f"X must have rows and columns, however: {len(columns)} feature(s)"
                )
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{i}" for i in range(len(columns))]
        read = [_read_column(column) for column in columns]
        table = {name: cells for name, (cells, _) in zip(names, read, strict=True)}
        kinds = {name: k for name, (_, k) in zip(names, read, strict=True) if k}
        return table, kinds

    def _explain_names(self, names: Collection[str]) -> str:
        """What unknown names at predict may have been meant to be."""
        known = getattr(self, "feature_names_in_", [])
        missing = [name for name in known if name not in names]
        hints = [
            f"{name!r} is unknown{suggest(name, missing)}"
            for name in names
            if isinstance(name, str) and name not in known and nearest(name, missing)
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
        from lometab.export import check_onnx, to_onnx

        check_is_fitted(self)
        metadata: dict[str, Any] = {
            "training": {"config": asdict(self.ensemble_.config), **self._training()},
            "conformity": evaluation.conformity_quantiles(self.conformity_),
        }
        if self.temperature_ is not None:
            metadata["temperature"] = self.temperature_
        content = to_onnx(self.ensemble_, metadata=metadata)
        check_onnx(self.ensemble_, content, *_example_rows(self.ensemble_))
        Path(path).write_bytes(content)

    def save(self, directory: str | Path) -> None:
        """Write the fitted estimator: weights as safetensors, all else as JSON."""
        check_is_fitted(self)
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        ensemble, fitted = self.ensemble_, self.ensemble_.fit
        model = fitted.model
        params = self.get_params(deep=False)
        if not isinstance(self.random_state, Integral | None):
            params["random_state"] = ensemble.config.seed
        if self.columns is not None:
            params["columns"] = [*self.columns.items()]
        state = {
            "version": _FORMAT_VERSION,
            "estimator": type(self).__name__,
            "params": params,
            "n_features_in": self.n_features_in_,
            "feature_names_in": [*getattr(self, "feature_names_in_", [])] or None,
            "classes": None
            if self._classes is None
            else [self._classes.dtype.str, self._classes.tolist()],
            "schema": ensemble.schema.to_dict(),
            "preprocessor": ensemble.preprocessor.to_dict(),
            "config": asdict(ensemble.config),
            "fit": {
                "history": [asdict(progress) for progress in fitted.history],
                "best_epoch": fitted.best_epoch,
                "best_score": fitted.best_score,
                "stopped_early": fitted.stopped_early,
                "seconds": fitted.seconds,
            },
            "train_variance": self.train_variance_,
            "temperature": self.temperature_,
        }
        text = json.dumps(state, default=_plain_number)
        tensors = {f"model.{n}": t.contiguous() for n, t in model.state_dict().items()}
        tensors |= {f"bins.{i}": edges for i, edges in enumerate(model.bins)}
        tensors["conformity"] = torch.from_numpy(self.conformity_)
        save_file(tensors, directory / _WEIGHTS)
        (directory / _STATE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read what `save` wrote; FileNotFoundError where there is nothing."""
        directory = Path(directory)
        text = (directory / _STATE).read_text(encoding="utf-8")
        try:
            state = json.loads(text)
            if state["version"] != _FORMAT_VERSION:
                raise ValueError(f"its version is {state['version']}")
            if state["estimator"] != cls.__name__:
                raise ValueError(f"it holds a {state['estimator']}")
            return cls._from_state(state, load_file(directory / _WEIGHTS))
        except (
            ValueError,
            KeyError,
            TypeError,
            RuntimeError,
            SafetensorError,
        ) as error:
            raise ModelFileError(
                f"{directory} holds no {cls.__name__} that can be loaded: {error}"
            ) from error

    @classmethod
    def _from_state(cls, state: Any, tensors: dict[str, torch.Tensor]) -> Self:
        params = state["params"]
        if params["columns"] is not None:
            params["columns"] = dict(params["columns"])
        estimator = cls(**params)
        estimator.n_features_in_ = state["n_features_in"]
        if state["feature_names_in"] is not None:
            estimator.feature_names_in_ = np.array(state["feature_names_in"], object)
        if state["classes"] is not None:
            dtype, labels = state["classes"]
            estimator.classes_ = np.array(labels, dtype=dtype)
        schema = Schema.from_dict(state["schema"])
        preprocessor = Preprocessor.from_dict(state["preprocessor"])
        config = TrainConfig(**state["config"])
        with torch.random.fork_rng([]):  # a new model draws weights, in vain
            model = LoMETab(
                bins=[tensors[f"bins.{i}"] for i in range(len(preprocessor.features_))],
                cardinalities=preprocessor.cardinalities_,
                d_out=len(schema.classes or ()) if schema.task == "multiclass" else 1,
                config=config,
            )
        model.load_state_dict(
            {
                name.removeprefix("model."): tensor
                for name, tensor in tensors.items()
                if name.startswith("model.")
            }
        )
        history = [Progress(**progress) for progress in state["fit"].pop("history")]
        fitted = Fit(model=model.eval(), history=history, **state["fit"])
        estimator.ensemble_ = Ensemble(schema, preprocessor, config, fitted)
        estimator.train_variance_ = state["train_variance"]
        estimator.temperature_ = state["temperature"]
        estimator.conformity_ = tensors["conformity"].numpy()
        return estimator


class LoMETabClassifier(ClassifierMixin, _LoMETabEstimator):  # type: ignore[misc]
    """Classification by a LoMETab ensemble, in the manners of scikit-learn.

    Takes arrays and frames (pandas, polars, pyarrow) of numbers, texts, categories,
    booleans, dates and missing cells; nothing needs to be encoded or scaled.

    Attributes:
        classes_: the labels, sorted.
        ensemble_: the schema, the preprocessing, the settings and the network.
        history_: what each epoch of training came to.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    **Examples**

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=False)
    >>> model = LoMETabClassifier(preset="fast", max_epochs=5, random_state=0)
    >>> model.fit(X, y).predict_members(X).shape
    (150, 8, 3)
    """

    classes_: Array

    def predict(self, X: Any) -> Array:
        """The most probable label of each row, (N,)."""
        labels: Array = self.predict_proba(X).argmax(axis=1)
        return self.classes_[labels]

    def predict_proba(self, X: Any) -> Float:
        """The mean of the members' probabilities, (N, C), in the order of classes_."""
        return self._mean(X)

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
                f"y has only one class, {_plain(self.classes_[0])!r}; there is nothing "
                "to learn: two or more classes are needed"
            )
        return np.asarray(target, dtype=np.int64)

    def _encode_target(self, y: Any, name: str) -> Array:
        y = _read_target(y, name)
        index = {label: i for i, label in enumerate(self.classes_.tolist())}
        target = np.array([index.get(label, -1) for label in y.tolist()])
        if (target < 0).any():
            label = _plain(y[int(np.flatnonzero(target < 0)[0])])
            raise DataError(
                f"{name} holds {label!r}, which is none of the classes "
                f"{[_plain(each) for each in self.classes_[:20]]}"
            )
        return target


class LoMETabRegressor(RegressorMixin, _LoMETabEstimator):  # type: ignore[misc]
    """Regression by a LoMETab ensemble, in the manners of scikit-learn.

    Takes arrays and frames (pandas, polars, pyarrow) of numbers, texts, categories,
    booleans, dates and missing cells; nothing needs to be encoded or scaled.

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

    def predict(self, X: Any) -> Float:
        """The mean of the members' predictions, (N,)."""
        return self._mean(X)

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


def _read_column(column: Any) -> tuple[Array, ColumnKind | None]:
    """The cells of an array's or a frame's column, and its kind if the dtype says.

    Missing cells are NaN or None; moments are datetimes, which `lometab.cells` reads.
    """
    dtype = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    if dtype.startswith("dictionary"):  # pyarrow's; an array would lose its nulls
        return np.array(column.to_pylist(), dtype=object), "categorical"
    cells = np.asarray(column)
    if cells.dtype.kind == "M":
        return cells.astype("datetime64[us]").astype(object), "datetime"
    if cells.dtype.kind == "m":
        return cells / np.timedelta64(1, "s"), "numeric"
    if cells.dtype.kind == "O" and hasattr(column, "notna"):
        # pandas has several objects that mean missing, and some cannot be compared.
        cells = cells.copy()
        cells[~np.asarray(column.notna())] = None
    if cells.dtype.kind == "b" or dtype.startswith(("bool", "categor", "enum")):
        return cells, "categorical"
    return cells, "numeric" if cells.dtype.kind in "fiu" else None


def _read_target(y: Any, name: str) -> Array:
    """The target as an array of one dimension with no cell missing."""
    if y is None:
        raise DataError(f"fit requires y to be passed, but the target {name} is None")
    if hasattr(y, "notna") and np.ndim(y) == 1:
        y = _read_column(y)[0]
    with _as_data_errors():
        cells: Array = column_or_1d(y, warn=True)
        if cells.dtype.kind == "O":
            missing = np.flatnonzero([v is None or v != v for v in cells.tolist()])
            if len(missing):
                raise DataError(
                    f"{name} is missing in {len(missing)} rows, the first of them row "
                    f"{missing[0] + 1}; fill or remove them"
                )
        assert_all_finite(cells, input_name=name)
    return cells


def _join(cells: Array, more: Array) -> Array:
    if cells.dtype.kind != more.dtype.kind:  # NumPy would turn numbers into texts
        cells, more = cells.astype(object), more.astype(object)
    return np.concatenate([cells, more])


def _check_lengths(
    table: Columns, target: Array, table_name: str, target_name: str
) -> None:
    n_rows = len(next(iter(table.values())))
    if n_rows != len(target):
        raise DataError(
            f"{table_name} and {target_name} must have as many rows, however: "
            f"{table_name} has {n_rows} and {target_name} {len(target)}"
        )


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


def _plain(label: Any) -> Label:
    """A label as the ONNX file and messages have it: a text, whole number or bool."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, float) and label.is_integer():
        return int(label)
    return label if isinstance(label, str | int) else str(label)


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not fit for JSON")


def _choose_device(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    is_known = isinstance(device, str) and device.split(":")[0] in ("cpu", "cuda")
    if not is_known:
        raise ConfigError(f"device must be auto, cpu or cuda, however: {device=}")
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"{device=} needs a GPU, and torch finds none here")
    return device


def _example_rows(ensemble: Ensemble) -> tuple[Float, NDArray[np.object_]]:
    """A thousand rows to try a file with, from what preprocessing learned."""
    rng = np.random.default_rng(0)
    schema, preprocessor = ensemble.schema, ensemble.preprocessor
    x_num = np.full((1000, len(schema.numeric)), np.nan)
    for feature, quantiles in zip(
        preprocessor.features_, preprocessor.quantiles_, strict=True
    ):
        if feature.wave is None:
            x_num[:, feature.column] = rng.choice(quantiles, size=1000)
    x_cat = np.empty((1000, len(schema.categorical)), dtype=object)
    for i, levels in enumerate(preprocessor.categories_):
        x_cat[:, i] = rng.choice(np.array(levels, dtype=object), size=1000)
    return x_num, x_cat


@contextmanager
def _show_progress(
    verbose: int, config: TrainConfig
) -> Iterator[Callable[[Progress], None] | None]:
    """A bar on standard error that counts epochs and tells the best score."""
    if not verbose:
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(
        bars.TextColumn("epoch"),
        bars.MofNCompleteColumn(),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.description}"),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("", total=config.max_epochs)

        def on_epoch(progress: Progress) -> None:
            bar.update(
                task,
                completed=progress.epoch,
                description=f"best {progress.best_score:.5g} "
                f"(epoch {progress.best_epoch}), now {progress.val_score:.5g}",
            )

        yield on_epoch
