"""Settings: their bounds, their presets, and what is said about a wrong one."""

import json
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest

from lometab.config import (
    PRESET_SEEDS,
    PRESETS,
    ModelConfig,
    TrainConfig,
    from_preset,
    stored_config,
    with_seeds,
)
from lometab.errors import ConfigError, LoMETabError


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_spells_out_every_setting_but_the_seed(preset: Any) -> None:
    names = {field.name for field in fields(TrainConfig)}
    assert PRESETS[preset].keys() == names - {"seed"}
    config = from_preset(preset)
    assert {**asdict(config), "seed": None} == {**PRESETS[preset], "seed": None}


def test_the_default_preset_is_what_the_defaults_say() -> None:
    assert from_preset("default") == TrainConfig()


def test_the_paper_preset_gives_each_member_its_own_batches() -> None:
    paper = from_preset("paper")
    assert (paper.k, paper.rank, paper.share_batches) == (32, 16, False)
    assert (paper.ema, paper.stop_on, paper.mask_init) == (0, "score", "column")
    assert (paper.batch_size, paper.max_epochs, paper.patience) == (256, 300, 16)


def test_what_older_versions_stored_is_as_it_was() -> None:
    stored = asdict(from_preset("fast", seed=3))
    assert stored_config(stored) == from_preset("fast", seed=3)
    del stored["bin_edges"]
    assert stored_config(stored).bin_edges == "quantile"
    assert TrainConfig(**stored).bin_edges == "refined"


def test_networks_have_seeds_of_their_own() -> None:
    last = TrainConfig(seed=2**31 - 1, k=3)
    assert [each.seed for each in with_seeds(last, 2)] == [last.seed, 0]
    assert with_seeds(last, 1) == [last]


def test_best_is_the_network_of_the_default_several_times() -> None:
    assert from_preset("best", seed=3) == from_preset("default", seed=3)
    assert {name: n for name, n in PRESET_SEEDS.items() if n > 1} == {"best": 4}
    assert PRESET_SEEDS.keys() == PRESETS.keys()


def test_overrides_take_the_place_of_the_presets_settings() -> None:
    config = from_preset("fast", k=3, patience=None, seed=7)
    assert (config.k, config.patience, config.seed) == (3, None, 7)
    assert config.d_block == PRESETS["fast"]["d_block"]


def test_an_unknown_preset_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"preset must be one of .*'huge'"):
        from_preset("huge")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("k", 0, "k must be at least 1 and at most 256, however: 0"),
        ("k", -3, "k must be at least 1"),
        ("k", 2.0, "k must be a whole number, however: 2.0"),
        ("k", True, "k must be a whole number"),
        ("k", None, "k must be a whole number"),
        ("rank", 0, "rank must be at least 1 and at most 64, however: 0"),
        ("sigma_init", -0.1, "sigma_init must be at least 0"),
        ("sigma_init", float("nan"), "sigma_init must be at least 0"),
        ("sigma_init", "1", "sigma_init must be a number, however: '1'"),
        ("lr", 0.0, "lr must be above 0 and at most 1"),
        ("lr", float("inf"), "lr must be above 0"),
        ("dropout", 1.0, "dropout must be at least 0 and at most 0.9"),
        ("n_bins", 1, "n_bins must be at least 2"),
        ("patience", 0, "patience must be at least 1"),
        ("share_batches", 1, "share_batches must be a bool, however: 1"),
        ("variant", "lora", "variant must be one of .*, however: 'lora'"),
        ("seed", -1, "seed must be at least 0"),
    ],
)
def test_a_setting_out_of_bounds_is_named(
    name: str, value: object, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        TrainConfig(**{name: value})  # type: ignore[arg-type]
    assert isinstance(caught.value, LoMETabError)
    assert isinstance(caught.value, ValueError)


def test_bounds_themselves_are_allowed() -> None:
    config = TrainConfig(k=256, rank=64, sigma_init=0, dropout=0.9, lr=1, patience=1)
    assert (config.k, config.sigma_init, config.lr) == (256, 0, 1)


def test_a_single_network_has_one_member() -> None:
    assert ModelConfig(variant="mlp", k=16).k == 1


def test_numpy_numbers_become_plain_ones() -> None:
    config = TrainConfig(
        k=np.int64(4), lr=np.float64(0.01), share_batches=np.bool_(True)
    )
    assert json.loads(json.dumps(asdict(config))) == asdict(config)
    assert type(config.k) is int and type(config.share_batches) is bool
