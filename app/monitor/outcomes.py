"""Answers that wait for the truth, and what it says of them.

Of an answer only its mean, its members' spread and a hash of its id are kept, packed
by the thousand; never the row.
"""

import hashlib
import io
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from app.monitor.tally import Counts
from lometab.evaluation import Conformal, metrics
from lometab.prediction import Answered
from lometab.table import category

COVERAGE = 0.9


def hash_id(model_id: str, value: Any) -> int:
    """Of an id, whose text is that of a category: `1`, `1.0` and `"1"` are one. 0 is
    none, of null and of the empty text."""
    is_plain = value is None or isinstance(value, str | bool | int | float)
    text = category(value if is_plain else str(value), missing=())
    if not text:
        return 0
    content = f"{model_id}\0{text}".encode(errors="surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def pack(hashes: Sequence[int], answered: Answered) -> bytes:
    """The answers of these ids as bytes, without those of none."""
    spread = None
    if answered.mean.ndim == 1:
        spread = metrics.member_std(answered.members)
    if spread is None:
        spread = np.zeros(len(hashes))
    known = np.array(hashes, np.uint64)
    has_id = known != 0
    file = io.BytesIO()
    np.savez(
        file,
        hashes=known[has_id],
        mean=answered.mean[has_id].astype(np.float32),
        spread=spread[has_id].astype(np.float32),
    )
    return file.getvalue()


def match(content: bytes, wanted: Collection[int]) -> tuple[list[int], Any, Any, bytes]:
    """Of packed answers those that are wanted, in their order: hashes, means, spreads;
    and the rest."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in ("hashes", "mean", "spread")}
    is_found = np.isin(arrays["hashes"], np.array([*wanted], np.uint64))
    found = {name: each[is_found] for name, each in arrays.items()}
    rest = io.BytesIO()
    np.savez(rest, **{name: each[~is_found] for name, each in arrays.items()})
    hashes = [int(each) for each in found["hashes"]]
    return hashes, found["mean"], found["spread"], rest.getvalue()


def count_outcomes(facts: Mapping[str, Any], y: Any, mean: Any, spread: Any) -> Counts:
    """What the truth says of these answers, as sums."""
    counts: Counts = {"n": len(y)}
    conformal = Conformal(facts) if "conformity" in facts else None
    has_groups = conformal is not None and conformal.by is not None
    if mean.ndim == 1:
        errors = y - mean.astype(np.float64)
        counts |= {
            "squared_error": float(np.square(errors).sum()),
            "absolute_error": float(np.abs(errors).sum()),
            "error": float(errors.sum()),
        }
        if conformal is not None and not has_groups:
            choice = conformal.choose(COVERAGE)
            lower, upper = conformal.interval(mean, spread, choice).T
            counts["n_covered"] = int(((lower <= y) & (y <= upper)).sum())
        return counts
    bins = metrics.reliability_bins(y, mean)
    counts |= {
        "n_right": int((mean.argmax(axis=1) == y).sum()),
        "brier": float(metrics.brier(y, mean) * len(y)),
        "nll": float(metrics.nll(y, mean) * len(y)),
        "bins": [each["count"] for each in bins],
        "confidence": [each["count"] * (each["confidence"] or 0.0) for each in bins],
        "accuracy": [each["count"] * (each["accuracy"] or 0.0) for each in bins],
    }
    if conformal is not None and (not has_groups or conformal.is_by_class):
        sets = conformal.sets(mean, conformal.choose(COVERAGE))
        counts["n_covered"] = int(sets[np.arange(len(y)), y].sum())
    return counts


def describe_outcomes(counts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Accuracy, calibration and coverage of live answers; None without outcomes."""
    n = counts.get("n", 0)
    if not n:
        return None
    covered = counts.get("n_covered")
    found: dict[str, Any] = {
        "n": n,
        "coverage": COVERAGE,
        "measured_coverage": None if covered is None else covered / n,
    }
    if "squared_error" in counts:
        return found | {
            "rmse": math.sqrt(counts["squared_error"] / n),
            "mae": counts["absolute_error"] / n,
            "bias": counts["error"] / n,
        }
    gaps = zip(counts["confidence"], counts["accuracy"], strict=True)
    return found | {
        "accuracy": counts["n_right"] / n,
        "brier": counts["brier"] / n,
        "nll": counts["nll"] / n,
        "ece": sum(abs(c - a) for c, a in gaps) / n,
    }
