"""Costs: against the models themselves, torch's own count, and a measured run."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lometab.config import TrainConfig
from lometab.cost import Widths, cost_of
from lometab.embedding import compute_bins
from lometab.ensemble import Ensemble, train_ensemble
from lometab.export import to_onnx
from lometab.nn import LoMETab
from lometab.predictor import Predictor
from lometab.table import Schema, Split, infer_schema
from lometab.train import Part, fit

VARIANTS: list[Any] = ["lometab", "additive", "tabm", "deep-ensemble", "mlp"]
ROOT = Path(__file__).parents[2]


def make_config(variant: Any = "lometab", **options: Any) -> TrainConfig:
    settings = {"k": 3, "rank": 2, "n_blocks": 3, "d_block": 24, "n_bins": 6}
    settings |= {"d_embedding": 5, "batch_size": 32, "max_epochs": 1}
    return TrainConfig(**{"variant": variant, **settings, **options})


# The number of parameters is the model's own


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("n_numeric", "cardinalities", "d_out"),
    [(4, (3, 7, 1), 1), (2, (), 5), (0, (2, 9), 1)],
)
def test_parameters_are_those_of_the_model(
    variant: Any, n_numeric: int, cardinalities: tuple[int, ...], d_out: int
) -> None:
    config = make_config(variant)
    x_num = torch.randn(50, n_numeric)
    model = LoMETab(
        bins=compute_bins(x_num, config.n_bins) if n_numeric else [],
        cardinalities=cardinalities,
        d_out=d_out,
        config=config,
    )
    widths = Widths(n_numeric=n_numeric, cardinalities=cardinalities, d_out=d_out)
    assert cost_of(widths, 50, config).n_parameters == model.n_parameters


def make_table(n_rows: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 9000, size=n_rows).astype("timedelta64[h]")
    return {
        "size": np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(size=n_rows)),
        "rooms": rng.integers(1, 4, size=n_rows),  # three values: fewer bins
        "sold_at": (np.datetime64("2020-01-01T00") + hours).astype(str),
        "colour": rng.choice(np.array(["red", "green", ""], dtype=object), n_rows),
        "note": np.full(n_rows, "same"),
        "kind": rng.choice(np.array(["a", "b", "c", "d"], dtype=object), n_rows),
    }


def train(config: TrainConfig) -> Ensemble:
    table = make_table()
    schema = infer_schema(table, target="kind")
    parts: Any = {"train": np.arange(80), "val": np.arange(80, 100)}
    return train_ensemble(table, schema, parts, config)


def test_a_fitted_model_has_at_most_what_its_schema_promised() -> None:
    ensemble = train(make_config())
    model, preprocessor = ensemble.fit.model, ensemble.preprocessor
    known = Widths(
        n_numeric=len(preprocessor.features_),
        cardinalities=tuple(preprocessor.cardinalities_),
        d_out=4,
        n_bins=max(len(edges) - 1 for edges in model.bins),
    )
    exact = cost_of(known, 100, ensemble.config)
    assert exact.n_parameters == model.n_parameters
    before = Widths.of(ensemble.schema, [3, 1])
    assert replace(before, n_bins=known.n_bins) == known
    bound = cost_of(ensemble.schema, 100, ensemble.config, cardinalities=[3, 1])
    assert model.n_parameters <= bound.n_parameters <= 1.2 * model.n_parameters


def test_a_date_is_seven_numbers() -> None:
    schema = train(make_config()).schema
    assert schema.datetime == ("sold_at",)
    assert Widths.of(schema, [3]).n_numeric == 3 + 6


def test_every_categorical_column_needs_its_cardinality() -> None:
    schema = train(make_config()).schema
    for wrong in ([], [3, 1, 1, 1, 1]):
        with pytest.raises(ValueError, match="a number for each of 1 categorical"):
            cost_of(schema, 100, make_config(), cardinalities=wrong)


# Arithmetic is what torch counts


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("share_batches", [True, False])
@pytest.mark.parametrize("n_numeric", [0, 3])
def test_operations_are_those_that_torch_counts(
    variant: Any, share_batches: bool, n_numeric: int
) -> None:
    config = make_config(variant, share_batches=share_batches)
    rng = np.random.default_rng(0)
    train, val = (
        Part(
            rng.normal(size=(n, n_numeric)).astype(np.float32),
            rng.integers(0, 4, size=(n, 2)),
            rng.integers(0, 3, size=n),
        )
        for n in (120, 30)
    )
    with FlopCounterMode(display=False) as counter:
        fit(
            train,
            val,
            task="multiclass",
            n_classes=3,
            cardinalities=[4, 4],
            config=config,
        )
    widths = Widths(n_numeric=n_numeric, cardinalities=(4, 4), d_out=3)
    split = Split(val=0.2, test=1e-9)
    expected = cost_of(widths, 150, config, split=split).flops_per_epoch
    assert expected == pytest.approx(counter.get_total_flops(), rel=0.02)


# Memory


@pytest.mark.parametrize("variant", VARIANTS)
def test_folded_weights_are_what_the_file_says(variant: Any) -> None:
    ensemble = train(make_config(variant))
    predictor = Predictor(to_onnx(ensemble))
    found = cost_of(ensemble.schema, 100, ensemble.config, cardinalities=[3, 1])
    assert found.folded_bytes == predictor.folded_bytes
    assert found.serving_bytes > found.folded_bytes


def test_more_of_anything_never_takes_less() -> None:
    widths = Widths(n_numeric=8, cardinalities=(4, 20))
    config = TrainConfig(share_batches=True)
    base = cost_of(widths, 10_000, config)
    for larger in (
        cost_of(widths, 20_000, config),
        cost_of(replace(widths, n_numeric=16), 10_000, config),
        cost_of(replace(widths, cardinalities=(4, 2000)), 10_000, config),
        *(
            cost_of(widths, 10_000, replace(config, **{name: value}))
            for name, value in {
                "k": 32,
                "d_block": 512,
                "n_blocks": 4,
                "n_bins": 96,
                "d_embedding": 32,
                "batch_size": 2048,
                "share_batches": False,
            }.items()
        ),
    ):
        assert larger.training_bytes > base.training_bytes
        assert larger.job_bytes >= base.job_bytes
        assert larger.serving_bytes >= base.serving_bytes


def test_a_file_is_not_in_memory() -> None:
    widths, config = Widths(n_numeric=30), TrainConfig()
    n_rows = 1_000_000
    plain = cost_of(widths, n_rows, config)
    file = cost_of(widths, n_rows, config, is_file=True)
    saved = 8 * n_rows * 31 - 30_000_000  # what Arrow keeps
    assert plain.training_bytes - file.training_bytes == saved
    assert plain.job_bytes - file.job_bytes == saved
    assert plain.serving_bytes == file.serving_bytes


def test_raw_inputs_are_counted_where_they_are_most() -> None:
    """A small network on a long table: reading it takes more than training."""
    widths, config = Widths(n_numeric=100), make_config(share_batches=True)
    found = cost_of(widths, 3_000_000, config, is_file=True)
    raw = 8 * 100 * 3_000_000
    assert raw < found.training_bytes < 2 * raw


@pytest.mark.parametrize(("ema", "n_copies"), [(0.0, 3), (0.99, 4)])
def test_checkpoints_take_more(ema: float, n_copies: int) -> None:
    widths = Widths(n_numeric=30)
    config = TrainConfig(variant="deep-ensemble", d_block=2048, ema=ema)
    plain = cost_of(widths, 50_000, config)
    kept = cost_of(widths, 50_000, config, has_checkpoints=True)
    copies = n_copies * 4 * plain.n_parameters
    assert kept.training_bytes - plain.training_bytes == copies


def test_it_is_plain_numbers_from_almost_nothing() -> None:
    found = asdict(cost_of(Widths(n_numeric=1), 1, TrainConfig(), storage="file"))
    assert all(type(value) is int and value > 0 for value in found.values())
    schema = Schema(
        target="y", task="binary", classes=(0, 1), numeric=("x",), categorical=()
    )
    assert json.loads(json.dumps(asdict(cost_of(schema, 2, TrainConfig()))))


@pytest.mark.processes
def test_torch_is_not_loaded() -> None:
    code = "import sys, lometab.cost; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.processes
def test_training_takes_what_was_estimated() -> None:
    """A shape of the benchmark, as a job has it; it fails if one is far off."""
    script = ROOT / "benchmarks" / "estimate.py"
    done = subprocess.run(
        [sys.executable, script, "file"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
