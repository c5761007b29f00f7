"""Figures of training and of the members: how they differ, and what averaging gives."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lometab.plots.parts import (
    category,
    counted,
    data,
    field,
    loose,
    mark,
    number,
    require,
    thin,
    titled,
)
from lometab.plots.theme import Spec

Reports = Mapping[str, Mapping[str, Any]]

MAX_EPOCHS = 1000
MAX_MEMBERS = 64
MEASURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1",
    "rmse": "RMSE",
    "mae": "mean absolute error",
    "r2": "R²",
    "nll": "log loss",
    "brier": "Brier score",
    "auroc": "AUROC",
}
"""How the measures of a report are called on an axis."""


def main_metric(report: Mapping[str, Any]) -> str:
    return "rmse" if report["task"] == "regression" else "accuracy"


def training(reports: Reports) -> Spec:
    """Validation score and diversity over the epochs."""
    report = reports["report"]
    curve = require(report.get("curve"), "the report has no epochs")
    name = MEASURES[main_metric(report)]
    best = (report.get("training") or {}).get("best_epoch")
    lines = [
        {"epoch": each["epoch"], "value": each[key], "who": who}
        for each in thin(curve, MAX_EPOCHS)
        for key, who in (("val_score", "ensemble"), ("member_score", "mean member"))
        if each.get(key) is not None
    ]
    panels = [_over_epochs(lines, f"{name} on validation", best, "who")]
    diversity = [
        {"epoch": each["epoch"], "value": each["diversity"]}
        for each in thin(curve, MAX_EPOCHS)
        if each.get("diversity") is not None
    ]
    if diversity:
        kind = "ambiguity" if report["task"] == "regression" else "pairwise KL"
        panels.append(_over_epochs(diversity, f"diversity ({kind})", best, None))
    return {"title": titled("Training, epoch by epoch"), "vconcat": panels}


def _over_epochs(
    lines: list[dict[str, Any]], title: str, best: int | None, colour: str | None
) -> Spec:
    x = counted("epoch", "epoch", [each["epoch"] for each in lines])
    encoding = {"x": x, "y": loose("value", title)}
    if colour is not None:
        encoding["color"] = field(
            colour, "nominal", sort=["ensemble", "mean member"], legend={"title": None}
        )
    layers: list[Spec] = [
        {
            "data": data(lines),
            "mark": mark("line", point=len(lines) < 40),
            "encoding": encoding,
        }
    ]
    if best is not None:
        rule: Spec = {
            "data": data([{"epoch": best, "note": f"kept: epoch {best}"}]),
            "mark": mark("rule", "reference"),
            "encoding": {"x": x, "tooltip": {"field": "note"}},
        }
        layers.append(rule)
    return {"width": 480, "height": 150, "layer": layers}


def pairs(reports: Reports) -> Spec:
    """How far each pair of members differs, similar members side by side."""
    body = reports["diversity"]
    name = "squared_difference" if body["task"] == "regression" else "pairwise_kl"
    matrix = require(body[name]["matrix"], "one member has no pairs")
    distances = np.array(matrix, dtype=np.float64)
    order = thin(order_by_similarity(distances), MAX_MEMBERS)
    names = [str(member) for member in order]
    cells = [
        {"i": str(i), "j": str(j), "value": float(distances[i, j])}
        for i in order
        for j in order
    ]
    title = "squared difference" if name == "squared_difference" else "pairwise KL"
    note = "members that answer alike stand together"
    if len(order) < len(distances):
        note += f"; {len(order)} of {len(distances)} members"
    axis = {"labelOverlap": True, "labelAngle": 0}
    return {
        "title": titled("How far each pair of members differs", note),
        "data": data(cells),
        "width": 340,
        "height": 340,
        "mark": mark("rect"),
        "encoding": {
            "x": field("i", "ordinal", "member", sort=names, axis=axis),
            "y": field("j", "ordinal", "member", sort=names, axis=axis),
            "color": number("value", title),
        },
    }


def order_by_similarity(distances: NDArray[np.float64]) -> list[int]:
    """The members in an order in which those that are near each other are neighbours:
    by the second eigenvector of the Laplacian of their similarities."""
    scale = float(distances.mean()) or 1.0
    similar = np.exp(-distances / scale)
    np.fill_diagonal(similar, 0.0)
    laplacian = np.diag(similar.sum(axis=1)) - similar
    _, vectors = np.linalg.eigh(laplacian)
    second = vectors[:, min(1, len(vectors) - 1)]
    if second[np.abs(second).argmax()] < 0:  # the sign is arbitrary
        second = -second
    return [int(i) for i in np.argsort(second, kind="stable")]


def strip(reports: Reports) -> Spec:
    """Each member's own score, and the ensemble's."""
    report = reports["report"]
    metric = main_metric(report)
    scores = report["scores"]["test"]
    members = [
        {"member": str(i), "score": score}
        for i, score in enumerate(scores["members"][metric])
        if score is not None
    ]
    require(members, "no member has a score")
    axis = loose("score", f"{MEASURES[metric]} on the test rows")
    return {
        "title": titled("Each member alone, and all of them together"),
        "width": 480,
        "height": 70,
        "layer": [
            {
                "data": data(members),
                "mark": mark("tick", "member", thickness=2, height=36, opacity=0.8),
                "encoding": {"x": axis, "tooltip": [{"field": "member"}, axis]},
            },
            {
                "data": data([{"score": scores["ensemble"][metric]}]),
                "mark": mark("rule", "main-line"),
                "encoding": {"x": axis},
            },
            {
                "data": data(
                    [{"score": scores["ensemble"][metric], "text": "ensemble"}]
                ),
                "mark": mark("text", "label", align="left", dx=5, dy=-26),
                "encoding": {"x": axis, "text": {"field": "text"}},
            },
        ],
    }


def decomposition(reports: Reports) -> Spec:
    """Krogh and Vedelsby: what averaging takes off the members' error."""
    body = reports["report"]["decomposition"]
    require(body["ambiguity"], "one member has nothing to average")
    member, ensemble = body["member_error"], body["ensemble_error"]
    ends = {
        "mean member": (0.0, member),
        "taken off by averaging": (ensemble, member),
        "ensemble": (0.0, ensemble),
    }
    rows = [
        {"part": part, "from": start, "to": end, "size": end - start}
        for part, (start, end) in ends.items()
    ]
    name = "squared error" if body["loss"] == "squared error" else "Brier score"
    title = f"{name} on the test rows"
    return {
        "title": titled("What averaging the members gives"),
        "data": data(rows),
        "width": 420,
        "height": 110,
        "encoding": {"y": category("part")},
        "layer": [
            {
                "mark": mark("bar"),
                "encoding": {
                    "x": number("from", title),
                    "x2": {"field": "to"},
                    "color": category("part", legend=None),
                },
            },
            {
                "mark": mark("text", "label", align="left", dx=4),
                "encoding": {
                    "x": number("to", title),
                    "text": number("size", format=".4~g"),
                },
            },
        ],
    }
