"""The paper's parameter counts against those of this model.

    python benchmarks/parameters.py

The paper prints K, rank, d_block, n_blocks and the number of parameters of each tuned
LoMETab, but neither the bins nor the width of the embedding. A row is met if some pair
of them within the paper's search space gives the printed count, to its last digit.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from record import ROOT, table, write_section

from lometab.config import ModelConfig
from lometab.nn import BatchEnsembleLinear, LoMETab, MemberLinear

PAPER = ROOT.parent / "shared" / "paper" / "selected_hyperparameters.csv"
D_EMBEDDING = range(8, 33, 4)
N_BINS = range(2, 129)


@dataclass(frozen=True)
class Widths:
    """The inputs of a data set: numeric features, one-hot columns, the output."""

    numeric: int
    one_hot: int = 0
    d_out: int = 1
    is_binary: bool = False


# From tables in ../shared: paper/tabm_protocol.md (section 1) and data/README.md.
KNOWN = {
    "AD": Widths(6, 102, is_binary=True),
    "BL": Widths(4, 19),
    "CA": Widths(8),
    "CH": Widths(7, 9, is_binary=True),
    "CO": Widths(10, 48, d_out=7),
    "DI": Widths(6, 20),
    "HI": Widths(28, is_binary=True),
    "MI": Widths(131, 10),
    "OT": Widths(93, d_out=9),
    "bank-marketing": Widths(7, is_binary=True),
    "phoneme": Widths(5, is_binary=True),
    "wine": Widths(11, is_binary=True),
    "wine_quality": Widths(11),
}
# The other data sets whose score is an accuracy (section 7 there); all are binary.
BINARY = {
    "KDDCup09_upsel…",
    "MagicTelescope",
    "MiniBooNE",
    "credit",
    "jannis",
    "kdd_ipums_la",
    "road-safety",
}
MAX_WIDTH = 1000


@dataclass(frozen=True)
class Row:
    """A line of the paper's table."""

    dataset: str
    fold: str
    k: int
    rank: int | None
    d_block: int
    n_blocks: int
    printed: str

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest count that rounds to what is printed."""
        unit = {"K": 1000, "M": 1_000_000}[self.printed[-1]]
        digits = Decimal(self.printed[:-1])
        half = Decimal(1).scaleb(int(digits.as_tuple().exponent)) / 2
        return float((digits - half) * unit), float((digits + half) * unit)


def read_rows() -> tuple[list[Row], list[Row]]:
    """The rows of LoMETab and those of TabM."""
    if not PAPER.exists():
        raise SystemExit(
            "selected_hyperparameters.csv is not there: the benchmarks read the "
            "paper's tables from ../shared/paper, beside the repository"
        )
    rows: dict[str, list[Row]] = {"LoMETab": [], "TabM": []}
    with PAPER.open() as file:
        for line in csv.DictReader(file):
            row = Row(
                line["dataset"],
                line["fold"],
                int(line["K"]),
                int(line["rank"]) if line["rank"] else None,
                int(line["d_block"]),
                int(line["n_blocks"]),
                line["params"],
            )
            rows[line["model"]].append(row)
    return rows["LoMETab"], rows["TabM"]


@cache
def count_embedding() -> NDArray[np.int64]:
    """Of one numeric feature's embedding, for each d_embedding and number of bins."""

    def count(d_embedding: int, n_bins: int) -> int:
        edges = torch.linspace(0, 1, n_bins + 1)
        config = ModelConfig(d_embedding=d_embedding)
        model = LoMETab(bins=[edges], cardinalities=[], d_out=1, config=config)
        assert model.embedding is not None
        return sum(p.numel() for p in model.embedding.parameters())

    return np.array([[count(d, n_bins) for n_bins in N_BINS] for d in D_EMBEDDING])


@cache
def count_backbone(row: Row, d_out: int) -> tuple[int, int]:
    """Of all but the embedding, with one input column; and what each further adds."""
    assert row.rank is not None
    config = ModelConfig(
        k=row.k, rank=row.rank, d_block=row.d_block, n_blocks=row.n_blocks
    )

    def count(width: int) -> int:
        with torch.device("meta"):  # shapes without memory
            model = LoMETab(bins=[], cardinalities=[width], d_out=d_out, config=config)
        return model.n_parameters

    return count(1), count(2) - count(1)


def n_settings_that_meet(row: Row, widths: Widths, extra: int = 0) -> int:
    """How many pairs of d_embedding and bins give the row's count, less `extra`."""
    first, step = count_backbone(row, widths.d_out)
    n_columns = widths.one_hot + widths.numeric * np.array(D_EMBEDDING)[:, None]
    counts = first + (n_columns - 1) * step + widths.numeric * count_embedding() + extra
    low, high = row.bounds
    return int(((counts >= low) & (counts <= high)).sum())


def count_tabm(row: Row, width: int, d_out: int) -> int:
    """Of TabM without embeddings, which is what the paper's rows of TabM are."""
    with torch.device("meta"):
        layers: list[Any] = [
            BatchEnsembleLinear(width if i == 0 else row.d_block, row.d_block, k=row.k)
            for i in range(row.n_blocks)
        ]
        layers.append(MemberLinear(row.d_block, d_out, k=row.k))
    return sum(p.numel() for layer in layers for p in layer.parameters())


def widths_by_tabm(rows: Iterable[Row], is_binary: bool) -> list[int]:
    """The input widths that all of the data set's TabM rows allow."""
    widths = set(range(1, MAX_WIDTH))
    for row in rows:
        one, two = (count_tabm(row, w, 2 if is_binary else 1) for w in (1, 2))
        low, high = row.bounds
        widths &= {w for w in widths if low <= one + (w - 1) * (two - one) <= high}
    return sorted(widths)


RULES: dict[str, Callable[[Row, Widths], int]] = {
    "this model": lambda row, widths: 0,
    "one bias for all members": lambda row, widths: (
        -(row.k - 1) * row.d_block * row.n_blocks
    ),
    "two logits for binary tasks": lambda row, widths: (
        row.k * (row.d_block + 1) if widths.is_binary else 0
    ),
}


def options(dataset: str, tabm: Iterable[Row]) -> tuple[str, list[Widths]]:
    """Whether the widths are known, and those there may be."""
    if dataset in KNOWN:
        return "known", [KNOWN[dataset]]
    is_binary = dataset in BINARY
    same = [row for row in tabm if row.dataset == dataset]
    widths = widths_by_tabm(same, is_binary)
    return "solved", [Widths(width, is_binary=is_binary) for width in widths]


def mixed_widths(rows: Sequence[Row], found: Iterable[Widths]) -> list[Widths]:
    """Splits into numeric and one-hot columns with which all rows are met."""
    splits = [
        replace(widths, numeric=n, one_hot=widths.numeric - n)
        for widths in found
        for n in range(1, widths.numeric)
    ]
    return [
        split for split in splits if all(n_settings_that_meet(r, split) for r in rows)
    ]


def main() -> None:
    lometab, tabm = read_rows()
    met = {rule: {"known": 0, "solved": 0} for rule in RULES}
    totals = {"known": 0, "solved": 0}
    lines, skipped = [], []
    unmet: dict[str, list[Row]] = {}
    for row in lometab:
        source, found = options(row.dataset, tabm)
        if not found:
            skipped.append(f"{row.dataset} {row.fold}")
            continue
        totals[source] += 1
        for rule, extra in RULES.items():
            is_met = any(n_settings_that_meet(row, w, extra(row, w)) for w in found)
            met[rule][source] += is_met
        n_pairs = sum(n_settings_that_meet(row, w) for w in found)
        if n_pairs == 0:
            unmet.setdefault(row.dataset, []).append(row)
        lines.append([row.dataset, row.fold, row.printed, source, len(found), n_pairs])
    rules = [
        [rule, *(f"{n} of {totals[source]}" for source, n in by_source.items())]
        for rule, by_source in met.items()
    ]
    mixed = []
    for dataset, rows in unmet.items():
        source, found = options(dataset, tabm)
        same = [row for row in lometab if row.dataset == dataset]
        splits = mixed_widths(same, found) if source == "solved" else []
        shown = ", ".join(f"{w.numeric} + {w.one_hot}" for w in splits[:4])
        more = f" and {len(splits) - 4} more" if len(splits) > 4 else ""
        folds = " ".join(row.fold for row in rows)
        mixed.append([dataset, source, folds, len(same), (shown or "none") + more])
    text = (
        "## Parameter counts of the paper\n\n"
        "`make bench-parameters`. The paper prints the number of parameters of its "
        f"{len(lometab)} tuned LoMETab models, but neither bins nor d_embedding. A row "
        "is met if some pair of its search space (2 to 128 bins; d_embedding 8 to 32 "
        "in steps of 4) gives the printed count to its last digit. *Known*: the "
        "widths of the data set are known. *Solved*: the input width comes from the "
        "counts of the TabM rows of the same data set, and all features are taken to "
        "be numeric. Other ways to count are shown beside this model's.\n\n"
        + table(["count", "rows met, known", "rows met, solved"], rules)
        + "\nRows that are not met, and the splits of the width into numeric and "
        "one-hot columns with which all rows of the data set would be:\n\n"
        + table(["data set", "widths", "folds not met", "folds", "splits"], mixed)
        + (f"\nNo width fits all TabM rows of: {', '.join(skipped)}.\n" * bool(skipped))
        + "\n<details><summary>Row by row</summary>\n\n"
        + table(
            ["data set", "fold", "printed", "widths", "widths tried", "pairs that fit"],
            lines,
        )
        + "\n</details>\n"
    )
    print(text)
    write_section("parameters", text)


if __name__ == "__main__":
    main()
