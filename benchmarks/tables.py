"""The data sets of the benchmarks, from `../shared/data` beside the repository."""

import gzip
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from record import ROOT

from lometab.ensemble import Ensemble
from lometab.table import (
    MISSING,
    ColumnKind,
    Parts,
    Schema,
    Split,
    Table,
    features,
    infer_schema,
    read_csv,
    split_rows,
    target,
)
from lometab.train import predict

DATA = ROOT.parent / "shared" / "data"

TARGETS = {
    "california": "MedHouseVal",
    "adult": "income",
    "churn": "Exited",
    "diamonds": "price",
}
KINDS: dict[str, dict[str, ColumnKind]] = {
    "churn": {
        "RowNumber": "ignore",
        "CustomerId": "ignore",
        "Surname": "ignore",
        "HasCrCard": "categorical",
        "IsActiveMember": "categorical",
    }
}
# Where TabM's split is not known: one of the same sizes.
RANDOM_SPLITS = {"diamonds": Split(val=8631 / 53940, test=10788 / 53940, seed=0)}


@dataclass(frozen=True, eq=False)
class Data:
    """A data set with its schema, its parts and its target."""

    name: str
    table: Table
    schema: Schema
    parts: Parts
    y: NDArray[Any]

    @property
    def target_scale(self) -> float:
        """What RMSEs are divided by: 1, or the price's deviation for diamonds."""
        return float(np.std(self.y, ddof=1)) if self.name == "diamonds" else 1.0


@cache
def load(name: str, missing: tuple[str, ...] = ()) -> Data:
    """The data set; texts in `missing` are missing values beside the usual ones."""
    table = dict(_read(name))
    split = RANDOM_SPLITS.get(name, Split(kind="column", column="part"))
    if split.column is not None:
        table["part"] = _read(f"splits/{name}")["part"]
    schema = infer_schema(
        table,
        target=TARGETS[name],
        columns=KINDS.get(name),
        reserved=[split.column] if split.column else [],
        missing=(*MISSING, *missing),
    )
    parts = split_rows(table, schema, split)
    return Data(name, table, schema, parts, target(table, schema))


def _read(name: str) -> Table:
    for path in (DATA / f"{name}.csv.gz", DATA / f"{name}.csv"):
        if path.exists():
            content = path.read_bytes()
            return read_csv(
                gzip.decompress(content) if path.suffix == ".gz" else content
            )
    sys.exit(
        f"{name}.csv is not there: the benchmarks read the shared data sets from "
        "../shared/data, beside the repository"
    )


def answers(ensemble: Ensemble, data: Data, part: str) -> NDArray[np.float64]:
    """Members' answers on a part: targets (N, K), or probabilities (N, K, C)."""
    x_num, x_cat = features(data.table, data.schema)
    rows = data.parts[part]
    scores, codes = ensemble.preprocessor.transform(x_num[rows], x_cat[rows])
    outputs = predict(
        ensemble.fit.model, torch.from_numpy(scores), torch.from_numpy(codes)
    ).double()
    if data.schema.task == "regression":
        scaler = ensemble.preprocessor
        return outputs.squeeze(-1).numpy() * scaler.y_std_ + scaler.y_mean_
    if data.schema.task == "multiclass":
        return outputs.softmax(-1).numpy()
    p = outputs.sigmoid()
    return torch.cat([1 - p, p], dim=-1).numpy()
