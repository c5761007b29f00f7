"""What the counts of a model say: shares, drift, alarms, outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.monitor.outcomes import describe_outcomes
from app.monitor.tally import N_STEPS
from lometab.drift import FALSE_ALARM_RATE, judge_column

LEAST_CERTAIN = 0.05


def describe_day(
    facts: Mapping[str, Any],
    counts: Mapping[str, Any],
    rate: float = FALSE_ALARM_RATE,
) -> dict[str, Any]:
    """One day, or several together, of a model.

    Args:
        facts: the metadata of its file.
        rate: how often there may be an alarm by chance.
    """
    n_rows = counts.get("n_rows", 0)
    reference = facts.get("reference", {}).get("columns", {})
    counted = counts.get("columns", {})
    moments = facts.get("datetime", ())
    columns = {}
    for name, each in counted.items():
        if name in reference:
            own, bins = reference[name], each["bins"]
            if name in moments:
                own = {"counts": _join_moments(own["counts"])}
                bins = _join_moments(bins)
            judged = judge_column(own, bins, len(counted), rate)
            columns[name] = _describe_shares(each, n_rows) | judged
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


def _describe_shares(counts: Mapping[str, Any], n_rows: int) -> dict[str, Any]:
    return {
        "missing": _share(counts["missing"], n_rows),
        "unseen": _share(counts.get("unseen"), n_rows),
        "out_of_range": _share(counts.get("out_of_range"), n_rows),
    }


def _join_moments(bins: Sequence[int]) -> list[int]:
    """Those that are there, and missing ones. Live moments always come after those of
    training; models of before have histograms of them all the same."""
    return [sum(bins[:-1]), bins[-1]]


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
