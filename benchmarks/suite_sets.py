"""The ten data sets of the suite, and how much of them a stage sees."""

import gzip
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from contenders import Rows
from numpy.typing import NDArray
from tables import KINDS

from lometab.ensemble import prepare
from lometab.table import (
    ColumnKind,
    Schema,
    Split,
    Table,
    features,
    infer_schema,
    read_csv,
    split_rows,
)

StageName = Literal["tiny", "small", "large", "full"]


@dataclass(frozen=True)
class Stage:
    """How much of a set a run sees."""

    n_train: int | None = None
    """Training rows at most; None: no limit."""
    share: float = 1.0
    """Share of the training rows at most; the rest decides, 1: nothing does."""
    n_val: int | None = None
    k: int | None = None
    """Members, in place of the contender's own; None: as the contender has it."""


STAGES: dict[StageName, Stage] = {
    "tiny": Stage(n_train=2000, share=0.75, n_val=1000, k=8),
    "small": Stage(n_train=5000, share=0.75, n_val=1500, k=8),
    "large": Stage(n_train=10_000, share=0.8),
    "full": Stage(),
}
_MAX_DECISION_ROWS = 5000

# The cheapest sets first: their rows times what a row of theirs costs.
TARGETS = {
    "titanic": "Survived",
    "phoneme": "Class",
    "wine_quality": "quality",
    "churn": "Exited",
    "magic_telescope": "class",
    "california": "MedHouseVal",
    "bike_sharing_hour": "cnt",
    "bank_marketing": "y",
    "adult": "income",
    "diamonds": "price",
}
REGRESSION = {"wine_quality", "california", "bike_sharing_hour", "diamonds"}
COLUMNS: dict[str, dict[str, ColumnKind]] = {
    "churn": KINDS["churn"],
    "titanic": {
        "PassengerId": "ignore",
        "Name": "ignore",
        "Ticket": "ignore",
        "Cabin": "ignore",
        "Pclass": "categorical",
    },
    "bike_sharing_hour": {
        **dict.fromkeys(("instant", "dteday", "casual", "registered"), "ignore"),
        **dict.fromkeys(("season", "yr", "holiday", "weekday"), "categorical"),
        **dict.fromkeys(("workingday", "weathersit"), "categorical"),
    },
}

# Data


def read_set(name: str, data: Path) -> Table:
    """All rows, and in the column `part` which part each belongs to."""
    contents = read_csv(_content(data, name))
    return {**contents, "part": read_csv(_content(data / "splits", name))["part"]}


@cache
def load(name: str, data: Path) -> tuple[Table, Schema]:
    contents = read_set(name, data)
    schema = infer_schema(
        contents,
        target=TARGETS[name],
        task="regression" if name in REGRESSION else "binary",
        columns=COLUMNS.get(name),
        reserved=["part"],
    )
    return contents, schema


def _content(directory: Path, name: str) -> bytes:
    for path in (directory / f"{name}.csv.gz", directory / f"{name}.csv"):
        if path.exists():
            content = path.read_bytes()
            return gzip.decompress(content) if path.suffix == ".gz" else content
    sys.exit(
        f"{directory / name}.csv is not there: the suite reads the shared data sets "
        "from ../shared/data, beside the repository; give another place with --data"
    )


@cache
def load_rows(name: str, stage: StageName, data: Path) -> Rows:
    """The rows of a stage, the same ones for every contender and seed."""
    contents, schema = load(name, data)
    given = split_rows(contents, schema, Split(kind="column", column="part"))
    parts: dict[Any, NDArray[np.intp]] = {**given}
    limits = STAGES[stage]
    if limits.share < 1:
        del parts["test"]
        rng = np.random.default_rng(0)
        order = _shuffle_groups(contents, schema, parts["train"], rng)
        n_train = round(limits.share * len(order))
        n_train = min(limits.n_train or n_train, n_train)
        parts["train"] = np.sort(order[:n_train])
        parts["decision"] = np.sort(_apart(contents, schema, order, n_train))
        parts["val"] = np.sort(rng.permutation(parts["val"])[: limits.n_val])
    prepared = prepare(contents, schema, parts, [*parts])
    return Rows(contents, parts, prepared)


def _shuffle_groups(
    contents: Table, schema: Schema, rows: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    """The rows in random order, rows with the same features side by side."""
    group = _groups(contents, schema)[rows]
    rank = rng.permutation(group.max() + 1)
    return rows[np.argsort(rank[group], kind="stable")]


def _apart(
    contents: Table, schema: Schema, order: NDArray[np.intp], n_train: int
) -> NDArray[np.intp]:
    """Rows after the first `n_train` whose features are not those of one of them."""
    group = _groups(contents, schema)
    rest = order[n_train:]
    is_new = ~np.isin(group[rest], group[order[:n_train]])
    return rest[is_new][:_MAX_DECISION_ROWS]


def _groups(contents: Table, schema: Schema) -> NDArray[np.intp]:
    """A number for each row; equal features have the same."""
    x_num, x_cat = features(contents, schema)
    ids: dict[bytes, int] = {}
    texts = ["\0".join(row).encode() for row in x_cat.astype(str)]
    keys = (n.tobytes() + t for n, t in zip(x_num, texts, strict=True))
    return np.array([ids.setdefault(key, len(ids)) for key in keys])
