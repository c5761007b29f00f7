"""A fitted estimator as a directory: weights as safetensors, all else as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from lometab.config import TrainConfig, stored_config
from lometab.ensemble import Ensemble
from lometab.errors import ModelFileError
from lometab.evaluation import Calibrator
from lometab.explain import Naive
from lometab.nn import LoMETab
from lometab.table import Preprocessor, Schema
from lometab.train import Fit, Progress

T = TypeVar("T")

_FORMAT_VERSION = 1
_WEIGHTS = "model.safetensors"
_STATE = "estimator.json"
_SCORES = ("conformity", "adapted", "doubt")
"""Of calibration rows; but for the first they may be absent."""


def save_estimator(estimator: Any, directory: Path) -> None:
    """Write a fitted estimator: weights as safetensors, all else as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    ensemble, fitted = estimator.ensemble_, estimator.ensemble_.fit
    model, calibrator = fitted.model, estimator.calibrator_
    classes = getattr(estimator, "classes_", None)
    params = estimator.get_params(deep=False)
    if not isinstance(estimator.random_state, Integral | None):
        params["random_state"] = ensemble.config.seed
    if estimator.columns is not None:
        params["columns"] = [*estimator.columns.items()]
    state = {
        "version": _FORMAT_VERSION,
        "estimator": type(estimator).__name__,
        "params": params,
        "n_features_in": estimator.n_features_in_,
        "feature_names_in": [*getattr(estimator, "feature_names_in_", [])] or None,
        "classes": None if classes is None else [classes.dtype.str, classes.tolist()],
        "schema": ensemble.schema.to_dict(),
        "preprocessor": ensemble.preprocessor.to_dict(),
        "config": asdict(ensemble.config),
        "fit": _describe(fitted),
        "others": [
            {"config": asdict(fit.model.config), "fit": _describe(fit)}
            for fit in ensemble.others
        ],
        "train_variance": estimator.train_variance_,
        "temperature": calibrator.temperature,
        "conformal": {
            "method": calibrator.method,
            "offset": calibrator.offset,
            "relative_width": calibrator.relative_width,
        },
        "naive": estimator.naive_.to_dict(),
    }
    text = json.dumps(state, default=_to_number)
    tensors = {
        f"{_prefix(i)}{name}": tensor.contiguous()
        for i, each in enumerate(ensemble.models)
        for name, tensor in each.state_dict().items()
    }
    tensors |= {f"bins.{i}": edges for i, edges in enumerate(model.bins)}
    for name in _SCORES:
        scores = getattr(calibrator, name)
        if scores is not None:
            tensors[name] = torch.from_numpy(scores)
    save_file(tensors, directory / _WEIGHTS)
    (directory / _STATE).write_text(text, encoding="utf-8")


def load_estimator(kind: type[T], directory: Path) -> T:
    """Read what `save_estimator` wrote; FileNotFoundError where there is nothing."""
    text = (directory / _STATE).read_text(encoding="utf-8")
    try:
        state = json.loads(text)
        if state["version"] != _FORMAT_VERSION:
            raise ValueError(f"its version is {state['version']}")
        if state["estimator"] != kind.__name__:
            raise ValueError(f"it holds a {state['estimator']}")
        return _from_state(kind, state, load_file(directory / _WEIGHTS))
    except (
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        SafetensorError,
    ) as error:
        raise ModelFileError(
            f"{directory} holds no {kind.__name__} that can be loaded: {error}"
        ) from error


def _from_state(kind: type[T], state: Any, tensors: dict[str, torch.Tensor]) -> T:
    params = state["params"]
    if params["columns"] is not None:
        params["columns"] = dict(params["columns"])
    estimator: Any = kind(**params)
    estimator.n_features_in_ = state["n_features_in"]
    if state["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(state["feature_names_in"], object)
    if state["classes"] is not None:
        dtype, labels = state["classes"]
        estimator.classes_ = np.array(labels, dtype=dtype)
    schema = Schema.from_dict(state["schema"])
    preprocessor = Preprocessor.from_dict(state["preprocessor"])
    config = stored_config(state["config"])
    stored = [state, *state.get("others", ())]
    first, *others = [
        _load_fit(schema, preprocessor, each, tensors, _prefix(i))
        for i, each in enumerate(stored)
    ]
    estimator.ensemble_ = Ensemble(schema, preprocessor, config, first, tuple(others))
    estimator.train_variance_ = state["train_variance"]
    scores: dict[str, Any] = {
        name: tensors[name].numpy() for name in _SCORES if name in tensors
    }
    estimator.calibrator_ = Calibrator(
        temperature=state["temperature"], **state.get("conformal", {}), **scores
    )
    if "naive" in state:
        estimator.naive_ = Naive.from_dict(state["naive"])
    fitted_estimator: T = estimator
    return fitted_estimator


def _describe(fit: Fit) -> dict[str, Any]:
    return {
        "history": [asdict(progress) for progress in fit.history],
        "best_epoch": fit.best_epoch,
        "best_score": fit.best_score,
        "stopped_early": fit.stopped_early,
        "seconds": fit.seconds,
    }


def _prefix(network: int) -> str:
    """Of the names of its weights; files of before have one network."""
    return f"others.{network - 1}." if network else "model."


def _load_fit(
    schema: Schema,
    preprocessor: Preprocessor,
    state: Mapping[str, Any],
    tensors: dict[str, torch.Tensor],
    prefix: str,
) -> Fit:
    config = stored_config(state["config"])
    model = _load_model(schema, preprocessor, config, tensors, prefix)
    history = [Progress(**progress) for progress in state["fit"]["history"]]
    return Fit(model=model, **{**state["fit"], "history": history})


def _load_model(
    schema: Schema,
    preprocessor: Preprocessor,
    config: TrainConfig,
    tensors: dict[str, torch.Tensor],
    prefix: str,
) -> LoMETab:
    with torch.random.fork_rng([]):  # a new model draws weights, in vain
        model = LoMETab(
            bins=[tensors[f"bins.{i}"] for i in range(len(preprocessor.features_))],
            cardinalities=preprocessor.cardinalities_,
            d_out=len(schema.classes or ()) if schema.task == "multiclass" else 1,
            config=config,
        )
    model.load_state_dict(
        {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
    )
    return model.eval()


def _to_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not fit for JSON")
