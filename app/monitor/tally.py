"""What is counted of rows that were predicted: aggregates, never rows."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from lometab.drift import count_numbers
from lometab.notes import NOVEL
from lometab.prediction import Answered
from lometab.predictor import Predictor

Counts = dict[str, Any]
"""Numbers by name, and lists of them: two of one model can be added."""

N_STEPS = 20
"""Steps of trust and novelty, each of 5 %."""


def count_rows(
    predictor: Predictor, x_num: Any, x_cat: Any, answered: Answered
) -> Counts:
    """The counts of some rows, all of one model."""
    reference = predictor.metadata.get("reference", {}).get("columns", {})
    counts: Counts = {"n_rows": len(x_num), "columns": {}}
    beyond = predictor.count_beyond(x_num)
    for i, name in enumerate(predictor.numeric):
        if name in reference:
            edges = np.array(reference[name]["edges"])
            bins = count_numbers(x_num[:, i], edges)
            counts["columns"][name] = {
                "bins": bins.tolist(),
                "missing": int(bins[-1]),
                "out_of_range": beyond[i],
            }
    for i, name in enumerate(predictor.categorical):
        if name in reference:
            counts["columns"][name] = _count_texts(
                Counter(x_cat[:, i].tolist()),
                reference[name]["levels"],
                predictor.known_levels(i),
            )
    trust = predictor.find_trust(answered.mean, answered.members)
    if trust is not None:
        counts["trust"] = _steps(trust)
        counts["trust_sum"] = float(trust.sum())
    if answered.novelty is not None:
        novelty = answered.novelty[:, 0]
        counts["novelty"] = _steps(novelty)
        counts["n_novel"] = int((novelty >= NOVEL).sum())
    if predictor.classes is not None:
        labels = answered.mean.argmax(axis=1)
        n_classes = len(predictor.classes)
        counts["labels"] = np.bincount(labels, minlength=n_classes).tolist()
    else:
        mean = answered.mean.astype(np.float64)
        counts["mean_sum"] = float(mean.sum())
    return counts


def _count_texts(
    found: Counter[str], levels: list[str], known: frozenset[str]
) -> Counts:
    bins = [found.get(level, 0) for level in levels]
    n_rows = found.total()
    return {
        "bins": [*bins, n_rows - sum(bins)],
        "missing": found.get("", 0),
        "unseen": sum(n for text, n in found.items() if text and text not in known),
    }


def _steps(shares: Any) -> list[int]:
    steps = np.minimum((shares * N_STEPS).astype(np.intp), N_STEPS - 1)
    counted: list[int] = np.bincount(steps, minlength=N_STEPS).tolist()
    return counted


def add(one: Mapping[str, Any], other: Mapping[str, Any]) -> Counts:
    """Both together, name by name."""
    total: Counts = dict(one)
    for name, value in other.items():
        before = total.get(name)
        if before is None:
            total[name] = value
        elif isinstance(value, Mapping):
            total[name] = add(before, value)
        elif isinstance(value, list):
            total[name] = [a + b for a, b in zip(before, value, strict=True)]
        else:
            total[name] = before + value
    return total
