"""What the counts of a model say: shares, drift, alarms, outcomes."""

from collections.abc import Mapping
from typing import Any

from app.monitor.outcomes import describe_outcomes
from app.monitor.tally import N_STEPS
from lometab.drift import judge_column

LEAST_CERTAIN = 0.05


def describe_day(facts: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    """One day, or several together, of a model.

    Args:
        facts: the metadata of its file.
    """
    n_rows = counts.get("n_rows", 0)
    reference = facts.get("reference", {}).get("columns", {})
    counted = counts.get("columns", {})
    columns = {
        name: _describe_column(each, reference[name], n_rows, len(counted))
        for name, each in counted.items()
        if name in reference
    }
    drifted = [name for name, each in columns.items() if each["is_drifted"]]
    return {
        "n_rows": n_rows,
        "n_left_out": counts.get("n_left_out", 0),
        "columns": columns,
        "drifted": drifted,
        "is_alarm": bool(drifted),
        "uncertainty": _describe_trust(counts, n_rows),
        "novel_share": _share(counts.get("n_novel"), n_rows),
        "labels": _describe_labels(facts, counts, n_rows),
        "mean": _share(counts.get("mean_sum"), n_rows),
        "outcomes": describe_outcomes(counts.get("outcomes", {})),
    }


def _describe_column(
    counts: Mapping[str, Any], reference: Mapping[str, Any], n_rows: int, n_columns: int
) -> dict[str, Any]:
    return {
        "missing": _share(counts["missing"], n_rows),
        "unseen": _share(counts.get("unseen"), n_rows),
        "out_of_range": _share(counts.get("out_of_range"), n_rows),
        **judge_column(reference, counts["bins"], n_columns),
    }


def _share(count: float | None, n_rows: int) -> float | None:
    return None if count is None or not n_rows else count / n_rows


def _describe_trust(counts: Mapping[str, Any], n_rows: int) -> dict[str, Any] | None:
    """Beside what calibration rows have: 0.5 on average, and 5 % of them."""
    steps = counts.get("trust")
    if steps is None or not n_rows:
        return None
    n_least = round(LEAST_CERTAIN * N_STEPS)
    return {
        "mean_trust": counts["trust_sum"] / n_rows,
        "expected_mean_trust": 0.5,
        "least_certain_share": sum(steps[:n_least]) / n_rows,
        "expected_least_certain_share": LEAST_CERTAIN,
    }


def _describe_labels(
    facts: Mapping[str, Any], counts: Mapping[str, Any], n_rows: int
) -> list[dict[str, Any]] | None:
    labels = counts.get("labels")
    if labels is None or not n_rows:
        return None
    expected = facts.get("label_shares") or [None] * len(labels)
    return [
        {"label": label, "share": count / n_rows, "expected": share}
        for label, count, share in zip(facts["classes"], labels, expected, strict=True)
    ]
