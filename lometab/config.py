"""What can be chosen about a model and its training, with bounds and presets."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Interval

from lometab.errors import ConfigError

Task = Literal["regression", "binary", "multiclass"]
Variant = Literal["lometab", "additive", "tabm", "deep-ensemble", "mlp"]
BaselineName = Literal["additive", "tabm", "deep-ensemble", "mlp", "catboost"]
Preset = Literal["fast", "default", "best", "paper"]
BinEdges = Literal["quantile", "refined"]
Storage = Literal["memory", "file"]
"""Where the rows are that are trained on."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network: how many members, how they differ, how large they are."""

    # Read by pydantic where a request body holds this class: unknown keys are errors.
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    variant: Variant = "lometab"
    """How members differ: masks on shared weights, or one of the baselines."""
    k: Annotated[int, Interval(ge=1, le=256)] = 16
    """Members of the ensemble (K)."""
    rank: Annotated[int, Interval(ge=1, le=64)] = 8
    """Rank r of each member's mask A_k B_k^T."""
    sigma_init: Annotated[float, Interval(ge=0, le=10)] = 1.0
    """Standard deviation with which A and B start: more gives more diverse members."""
    n_blocks: Annotated[int, Interval(ge=1, le=8)] = 3
    """Hidden layers."""
    d_block: Annotated[int, Interval(ge=8, le=4096)] = 128
    """Width of a hidden layer."""
    dropout: Annotated[float, Interval(ge=0, le=0.9)] = 0.0
    """Share of hidden units dropped in training."""
    n_bins: Annotated[int, Interval(ge=2, le=1024)] = 48
    """Bins of the piecewise-linear embedding of each numeric feature."""
    bin_edges: BinEdges = "refined"
    """Edges of these bins: `quantile`, as many rows in each; or `refined`, where bins
    that are missing because many rows share a value set frequent values apart."""
    d_embedding: Annotated[int, Interval(ge=1, le=128)] = 16
    """Width of the embedding of each numeric feature."""
    weight_init: Literal["linear", "he"] = "linear"
    """Start of W: as `nn.Linear`, or He's Kaiming uniform (6 times the variance)."""
    mask_init: Literal["column", "feature"] = "feature"
    """Start of B in layer 1: a number for each input column, or one for a feature."""

    def __post_init__(self) -> None:
        _check_fields(self)
        if self.variant == "mlp" and self.k != 1:
            object.__setattr__(self, "k", 1)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(ModelConfig):
    """A model and how it is trained: what a job's `hyperparameters` holds."""

    lr: Annotated[float, Interval(gt=0, le=1)] = 1e-3
    """Learning rate of AdamW."""
    weight_decay: Annotated[float, Interval(ge=0, le=1)] = 3e-4
    """Weight decay of AdamW; biases and linear embeddings are exempt."""
    batch_size: Annotated[int, Interval(ge=1, le=65536)] = 256
    """Rows in an optimiser step."""
    max_epochs: Annotated[int, Interval(ge=1, le=10000)] = 300
    """Epochs at most."""
    patience: Annotated[int, Interval(ge=1, le=10000)] | None = 16
    """Epochs without a better validation score before training stops; null: never."""
    seed: Annotated[int, Interval(ge=0, le=2**31 - 1)] = 0
    """Seed of the initial weights, the batches and the dropout."""
    share_batches: bool = False
    """All members see the same batches (true), or each its own permutation (false)."""
    ema: Annotated[float, Interval(ge=0, le=0.99999)] = 0.998
    """Decay per step of the average of weights that is validated and kept; 0: none."""
    lr_patience: Annotated[int, Interval(ge=1, le=10000)] | None = None
    """Epochs without a better score before lr is multiplied by 0.3; null: never."""
    stop_on: Literal["score", "nll"] = "nll"
    """What chooses the epoch: the score, or for classes the negative log-likelihood."""
    decay_masks: bool = True
    """Whether A and B decay as the other weights do."""


_DEFAULT: dict[str, Any] = {
    "variant": "lometab",
    "k": 16,
    "rank": 8,
    "sigma_init": 1.0,
    "n_blocks": 3,
    "d_block": 128,
    "dropout": 0.0,
    "n_bins": 48,
    "bin_edges": "refined",
    "d_embedding": 16,
    "weight_init": "linear",
    "mask_init": "feature",
    "lr": 1e-3,
    "weight_decay": 3e-4,
    "batch_size": 256,
    "max_epochs": 300,
    "patience": 16,
    "share_batches": False,
    "ema": 0.998,
    "lr_patience": None,
    "stop_on": "nll",
    "decay_masks": True,
}

PRESETS: dict[Preset, dict[str, Any]] = {
    "fast": {
        "variant": "lometab",
        "k": 8,
        "rank": 4,
        "sigma_init": 1.0,
        "n_blocks": 2,
        "d_block": 96,
        "dropout": 0.1,
        "n_bins": 32,
        "bin_edges": "quantile",
        "d_embedding": 12,
        "weight_init": "linear",
        "mask_init": "column",
        "lr": 2e-3,
        "weight_decay": 3e-4,
        "batch_size": 256,
        "max_epochs": 60,
        "patience": 8,
        "share_batches": True,
        "ema": 0.0,
        "lr_patience": None,
        "stop_on": "score",
        "decay_masks": True,
    },
    "default": _DEFAULT,
    "best": _DEFAULT,
    "paper": {
        "variant": "lometab",
        "k": 32,
        "rank": 16,
        "sigma_init": 1.0,
        "n_blocks": 2,
        "d_block": 416,
        "dropout": 0.1,
        "n_bins": 128,
        "bin_edges": "quantile",
        "d_embedding": 20,
        "weight_init": "linear",
        "mask_init": "column",
        "lr": 5e-4,
        "weight_decay": 3e-4,
        "batch_size": 256,
        "max_epochs": 300,
        "patience": 16,
        "share_batches": False,
        "ema": 0.0,
        "lr_patience": None,
        "stop_on": "score",
        "decay_masks": True,
    },
}
"""Settings that go together, every number spelled out; the seed is the caller's.

- `fast`: a first answer in seconds to a minute. A small ensemble whose members share
  their batches, so that a step costs one pass over 256 rows and not one for each
  member; a larger learning rate and a short patience end it early.
- `default`: what the suite of ten data sets chose (`docs/decisions/0034-default.md`):
  three narrow layers without dropout, masks that start equal within a feature, and an
  average of the weights that is validated and stopped by its likelihood. The last two
  are ours, not the paper's. The defaults of `TrainConfig` are the same numbers.
- `best`: the same network four times, each with its own start, as one ensemble of four
  times the members (`PRESET_SEEDS`). Errors of networks differ more than those of
  members. It costs four times as much.
- `paper`: the paper tunes each data set by itself, so there is no one setting of it.
  This is the network that it used on california (K 32, rank 16, two layers of 416; its
  1.02 M parameters fix the embedding) at the scale 1 of its grid. The paper does not
  tell the learning rate, dropout and decay that go with it; these are from the middle
  of its space. What it never varies: batches of 256, at most 300 epochs, patience 16.
  `share_batches` is false, inherited from TabM, whose published models give each member
  its own permutation of the rows.
"""

MAX_SEEDS = 16
"""Networks of one ensemble, each with its seed."""
PRESET_SEEDS: dict[Preset, int] = {"fast": 1, "default": 1, "best": 4, "paper": 1}
"""So many networks has the ensemble of each preset, unless the caller chooses."""


ALIASES: dict[str, str] = {
    **dict.fromkeys(("learning_rate", "learning_rate_init", "eta"), "lr"),
    **dict.fromkeys(("n_estimators", "n_members", "ensemble_size"), "k"),
    **dict.fromkeys(("epochs", "n_epochs", "num_epochs", "max_iter"), "max_epochs"),
    **dict.fromkeys(("n_rounds", "num_boost_round", "iterations"), "max_epochs"),
    **dict.fromkeys(("early_stopping", "early_stopping_rounds"), "patience"),
    **dict.fromkeys(("n_iter_no_change", "early_stopping_patience"), "patience"),
    **dict.fromkeys(("hidden_layer_sizes", "hidden_size", "hidden_dim"), "d_block"),
    **dict.fromkeys(("width", "d_model", "d_hidden", "n_hidden"), "d_block"),
    **dict.fromkeys(("n_layers", "num_layers", "depth", "max_depth"), "n_blocks"),
    **dict.fromkeys(("alpha", "l2", "reg_lambda", "l2_leaf_reg"), "weight_decay"),
    **dict.fromkeys(("dropout_rate", "p_dropout"), "dropout"),
    **dict.fromkeys(("arch_type", "model", "model_type"), "variant"),
    **dict.fromkeys(("random_state", "random_seed", "seed_value"), "seed"),
    **dict.fromkeys(("bins", "max_bins", "max_bin"), "n_bins"),
    **dict.fromkeys(("batch", "mini_batch_size", "train_batch_size"), "batch_size"),
    **dict.fromkeys(("r", "lora_rank"), "rank"),
    **dict.fromkeys(("sigma", "scale", "init_scale"), "sigma_init"),
}
"""What other libraries (scikit-learn, XGBoost, CatBoost, TabM) call settings."""

TRAINING_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**26),
    "OMP_WAIT_POLICY": "passive",
}
"""What a process that trains should be started with.

For glibc: memory that one step frees then is there for the next. Otherwise it goes back
to the system, which clears a page when it hands it out again: a tenth of a small step.
For OpenMP: threads that wait for each other sleep. Where a CPU is not theirs alone,
threads that spin take it from the one they wait for: two took ten times as long as one.
"""


_BEFORE: dict[str, Any] = {"bin_edges": "quantile"}
"""What a version did that did not know these settings."""


def stored_config(settings: Mapping[str, Any]) -> TrainConfig:
    """Settings that were stored, by this version or an older one."""
    return TrainConfig(**{**_BEFORE, **settings})


def with_seeds(config: TrainConfig, n_seeds: int) -> list[TrainConfig]:
    """The settings of so many networks: from the config's seed on, each has its own."""
    if not isinstance(n_seeds, Integral) or not 1 <= n_seeds <= MAX_SEEDS:
        raise ConfigError(
            f"n_seeds must be a whole number, at least 1 and at most {MAX_SEEDS}, "
            f"however: {n_seeds!r}"
        )
    return [replace(config, seed=(config.seed + i) % 2**31) for i in range(n_seeds)]


def from_preset(preset: Preset, **overrides: Any) -> TrainConfig:
    """The preset's settings with the given ones in their place."""
    if preset not in PRESETS:
        raise ConfigError(f"preset must be one of {[*PRESETS]}, however: {preset=}")
    return TrainConfig(**{**PRESETS[preset], **overrides})


def _check_fields(config: ModelConfig) -> None:
    """Raise ConfigError for the first field outside what its annotation allows."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        value = getattr(config, field.name)
        # A number of NumPy's, as from a grid: JSON takes Python's.
        if getattr(value, "ndim", None) == 0:
            value = value.item()
            object.__setattr__(config, field.name, value)
        problem = _problem(value, hints[field.name])
        if problem:
            raise ConfigError(f"{field.name} must be {problem}, however: {value!r}")


def _problem(value: object, hint: Any) -> str | None:
    if get_origin(hint) is Literal:
        return None if value in get_args(hint) else f"one of {[*get_args(hint)]}"
    if get_origin(hint) is not Annotated:
        options = get_args(hint)
        if type(None) in options:  # X | None
            return None if value is None else _problem(value, options[0])
        return None if isinstance(value, hint) else f"a {hint.__name__}"
    kind, bounds = get_args(hint)
    number = Integral if kind is int else Real
    if not isinstance(value, number) or isinstance(value, bool):
        return "a whole number" if kind is int else "a number"
    low = bounds.ge if bounds.ge is not None else bounds.gt
    is_above = value >= low if bounds.ge is not None else value > low
    if is_above and value <= bounds.le:
        return None
    word = "at least" if bounds.ge is not None else "above"
    return f"{word} {low} and at most {bounds.le}"
