"""Networks and ensembles with random weights, and rows for them."""

import numpy as np
import torch
from torch import Tensor

from lometab.config import ModelConfig, TrainConfig
from lometab.embedding import compute_bins
from lometab.ensemble import Ensemble
from lometab.nn import LoMETab
from lometab.table import Preprocessor, Schema
from lometab.train import Fit

SMALL = TrainConfig(k=3, rank=2, n_blocks=2, d_block=16, n_bins=6, d_embedding=4)
INPUTS = ["numeric", "categorical", "mixed", "datetime", "missing"]


def make_rows(
    rng: np.random.Generator, n: int, inputs: str
) -> tuple[np.ndarray, np.ndarray]:
    """Raw rows; the last numeric column holds moments if `inputs` is datetime."""
    columns = [
        rng.normal(size=n),
        1e6 + rng.lognormal(sigma=2, size=n),
        rng.integers(0, 2, size=n).astype(float),
        rng.uniform(1.6e9, 1.7e9, size=n).round(),
    ]
    x_num = np.stack(columns, axis=1)[:, : 4 if inputs == "datetime" else 3]
    texts = [rng.choice(["red", "green", "3"], n), rng.choice([*"abcdefgh"], n)]
    x_cat = np.stack(texts, axis=1).astype(object)
    if inputs == "missing":
        x_num[rng.random(x_num.shape) < 0.2] = np.nan
        x_cat[rng.random(n) < 0.2, 0] = ""
    if inputs == "numeric":
        x_cat = x_cat[:, :0]
    if inputs == "categorical":
        x_num = x_num[:, :0]
    return x_num, x_cat


def make_ensemble(
    x_num: np.ndarray,
    x_cat: np.ndarray,
    *,
    n_classes: int | None = None,
    datetime: tuple[int, ...] = (),
    min_frequency: int = 1,
    config: TrainConfig = SMALL,
    y_mean: float = 5.0,
) -> Ensemble:
    """An ensemble with fitted preprocessing and random weights; None: regression."""
    task = {None: "regression", 2: "binary"}.get(n_classes, "multiclass")
    y = y_mean + 3 * np.arange(len(x_num)) / len(x_num)
    preprocessor = Preprocessor().fit(
        x_num,
        x_cat,
        y,
        task=task,
        datetime=datetime,
        min_frequency=min_frequency,
    )
    scores, _ = preprocessor.transform(x_num, x_cat)
    model = LoMETab(
        bins=compute_bins(torch.from_numpy(scores), config.n_bins),
        cardinalities=preprocessor.cardinalities_,
        d_out=1 if n_classes in (None, 2) else n_classes,
        config=config,
    ).eval()
    for parameter in model.parameters():  # some of them start at zero, or at one
        torch.nn.init.normal_(parameter, std=0.5)
    schema = Schema(
        target="y",
        task=task,
        classes=tuple(range(n_classes)) if n_classes else None,
        numeric=tuple(f"n{i}" for i in range(x_num.shape[1])),
        categorical=tuple(f"c{i}" for i in range(x_cat.shape[1])),
        datetime=tuple(f"n{i}" for i in datetime),
        min_frequency=min_frequency,
    )
    fit = Fit(
        model=model,
        history=[],
        best_epoch=1,
        best_score=0.0,
        stopped_early=False,
        seconds=0.0,
    )
    return Ensemble(schema, preprocessor, config, fit)


def make_model(
    variant: str,
    *,
    n_numeric: int = 3,
    cardinalities: tuple[int, ...] = (2, 4),
    d_out: int = 2,
    **options: object,
) -> LoMETab:
    options = {"k": 4, "rank": 2, "n_blocks": 3, "d_block": 8, "d_embedding": 5} | (
        options
    )
    x_num = torch.randn(200, n_numeric)
    return LoMETab(
        bins=compute_bins(x_num, 7),
        cardinalities=cardinalities,
        d_out=d_out,
        config=ModelConfig(variant=variant, **options),
    )


def random_rows(n: int, model: LoMETab) -> tuple[Tensor, Tensor]:
    codes = [torch.randint(c, (n, 1)) for c in model.cardinalities]
    x_cat = torch.cat(codes, dim=1) if codes else torch.empty(n, 0, dtype=torch.long)
    return torch.randn(n, len(model.bins)), x_cat
