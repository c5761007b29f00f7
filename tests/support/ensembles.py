"""A table with columns of every kind, and small ensembles trained on it."""

from dataclasses import replace
from typing import Any

import numpy as np

from lometab.config import TrainConfig
from lometab.ensemble import Ensemble, train_ensemble
from lometab.table import infer_schema

CONFIG = TrainConfig(k=4, rank=2, d_block=16, n_bins=4, d_embedding=3, max_epochs=1)

N = 400


def make_table(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    size = rng.normal(size=N)
    size[::9] = np.nan
    days = rng.integers(0, 900, size=N)
    table: dict[str, Any] = {
        "size": size.tolist(),
        "since": [str(np.datetime64("2023-01-01") + int(day)) for day in days],
        "zone": rng.integers(1, 5, size=N).tolist(),
        "colour": rng.choice(["red", "green", ""], size=N).tolist(),
    }
    score = np.nan_to_num(size) + (np.array(table["zone"]) == 3)
    table["price"] = (100 + 10 * score).tolist()
    table["sold"] = (score > 0.3).tolist()
    table["grade"] = np.digitize(score, [-0.5, 0.5]).tolist()
    return table


TABLE = make_table()


def train(target: str, **overrides: Any) -> Ensemble:
    others = {"price", "sold", "grade"} - {target}
    schema = infer_schema(
        TABLE,
        target=target,
        columns={"zone": "categorical", **dict.fromkeys(others, "ignore")},
        missing=overrides.pop("missing", ("", "NA", "None", "nan")),
    )
    parts = {"train": np.arange(300), "val": np.arange(300, N)}
    return train_ensemble(TABLE, schema, parts, replace(CONFIG, **overrides))


def rows_of(table: dict[str, Any], n: int = N) -> list[dict[str, Any]]:
    cells = zip(*(column[:n] for column in table.values()), strict=True)
    return [dict(zip(table, row, strict=True)) for row in cells]


ROW = {"size": 0.5, "since": "2024-01-01", "zone": 3, "colour": "red"}
