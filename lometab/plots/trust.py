"""Figures of how far answers can be trusted, and of what they are right about."""

from typing import Any

from lometab.plots.members import MEASURES, Reports
from lometab.plots.parts import (
    category,
    data,
    distinct_texts,
    field,
    loose,
    mark,
    number,
    require,
    titled,
)
from lometab.plots.theme import Spec

MAX_CLASSES = 30
_FLAT = {"labelAngle": 0, "labelLimit": 90}
_DIAGONAL = [{"at": 0.0}, {"at": 1.0}]


def reliability(reports: Reports) -> Spec:
    """Classification: confidence against accuracy, with the rows of each bin."""
    body = reports["calibration"]
    bins = require(body.get("bins"), "a regression has no confidence")
    used = [_bin(each, "as they are") for each in bins if each["count"]]
    calibrated = (body.get("calibrated") or {}).get("bins") or []
    used += [_bin(each, "calibrated") for each in calibrated if each["count"]]
    colour = field("which", "nominal", sort=None, legend={"title": None})
    unit = {"scale": {"domain": [0, 1]}}
    curves: Spec = {
        "width": 340,
        "height": 260,
        "layer": [
            _diagonal("", "share that is right"),
            {
                "data": data(used),
                "mark": mark("line", point=True),
                "encoding": {
                    "x": number("confidence", "", **unit),
                    "y": number("accuracy", "share that is right", **unit),
                    "color": colour,
                    "tooltip": [
                        number("confidence", "confidence"),
                        number("accuracy", "accuracy"),
                        _count(),
                    ],
                },
            },
        ],
    }
    counts: Spec = {
        "width": 340,
        "height": 70,
        "data": data([each for each in used if each["which"] == "as they are"]),
        "mark": mark("bar", "member", orient="vertical"),
        "encoding": {
            "x": number("lower", "confidence", **unit),
            "x2": {"field": "upper"},
            "y": _count(),
        },
    }
    return {
        "title": titled("When it says 80 %, is it right in 80 % of cases?"),
        "vconcat": [curves, counts],
        "spacing": 6,
    }


def _bin(each: dict[str, Any], which: str) -> dict[str, Any]:
    return {**each, "which": which}


def _count() -> Spec:
    return number("count", "rows")


def _diagonal(x: str, y: str) -> Spec:
    """Titles are those of the other layers: different ones would be joined."""
    return {
        "data": data(_DIAGONAL),
        "mark": mark("line", "reference"),
        "encoding": {"x": number("at", x), "y": number("at", y)},
    }


def coverage(reports: Reports) -> Spec:
    """How many rows the intervals or sets hold, against what was asked for."""
    body = reports["calibration"]
    names = {
        "conformal_intervals": "conformal",
        "conformal_sets": "conformal",
        "member_intervals": "between members",
    }
    rows = [
        {
            "asked": each["coverage"],
            "measured": each["measured"],
            "lower": max(0.0, each["measured"] - 2 * each["standard_error"]),
            "upper": min(1.0, each["measured"] + 2 * each["standard_error"]),
            "which": which,
        }
        for name, which in names.items()
        for each in body.get(name) or []
    ]
    require(rows, "the report has no intervals and no sets")
    unit = {"scale": {"domain": [0, 1]}}
    colour = field("which", "nominal", sort=None, legend={"title": None})
    shared = {"x": number("asked", "coverage asked for", **unit), "color": colour}
    return {
        "title": titled(
            "Do intervals or sets hold as many rows as they say?",
            "bars: two standard errors",
        ),
        "width": 340,
        "height": 260,
        "layer": [
            _diagonal("coverage asked for", "share of test rows inside"),
            {
                "data": data(rows),
                "mark": mark("rule"),
                "encoding": {
                    **shared,
                    "y": number("lower", "share of test rows inside", **unit),
                    "y2": {"field": "upper"},
                },
            },
            {
                "data": data(rows),
                "mark": mark("line", point=True),
                "encoding": {
                    **shared,
                    "y": number("measured", "share of test rows inside", **unit),
                },
            },
        ],
    }


def risk_coverage(reports: Reports) -> Spec:
    """What one gains by answering only the rows that are most certain."""
    body = require(
        reports["report"].get("risk_coverage"), "one member tells no uncertainty"
    )
    rows = [
        {"coverage": share, "risk": risk}
        for share, risk in zip(body["coverage"], body["risk"], strict=True)
    ]
    name = {"wrong class": "share that is wrong"}.get(body["loss"], body["loss"])
    return {
        "title": titled("Answering only the most certain rows"),
        "data": data(rows),
        "width": 420,
        "height": 220,
        "mark": mark("line", "main-line"),
        "encoding": {
            "x": number("coverage", "share of rows answered", axis={"format": ".0%"}),
            "y": number("risk", name),
            "tooltip": [number("coverage", "share answered"), number("risk", name)],
        },
    }


def confusion(reports: Reports) -> Spec:
    """Classification: true classes against predicted ones."""
    body = require(reports["report"].get("confusion"), "a regression has no classes")
    matrix = body["matrix"]
    kept = sorted(
        sorted(range(len(matrix)), key=lambda c: -sum(matrix[c]))[:MAX_CLASSES]
    )
    names = distinct_texts([body["classes"][c] for c in kept])
    cells = [
        {
            "true": names[i],
            "predicted": names[j],
            "rows": matrix[true][predicted],
            "share": matrix[true][predicted] / (sum(matrix[true]) or 1),
        }
        for i, true in enumerate(kept)
        for j, predicted in enumerate(kept)
    ]
    note = "shares of each true class"
    if len(kept) < len(matrix):
        note += f"; the {len(kept)} most frequent of {len(matrix)} classes"
    axes = {
        "x": field("predicted", "nominal", "predicted", sort=None, axis=_FLAT),
        "y": field("true", "nominal", "true", sort=None),
    }
    size = max(40, min(90, 420 // len(kept)))
    layers: list[Spec] = [
        {
            "mark": mark("rect"),
            "encoding": {
                **axes,
                "color": number("share", "share", scale={"domain": [0, 1]}),
                "tooltip": [axes["y"], axes["x"], number("rows", "rows")],
            },
        }
    ]
    if len(kept) <= 12:
        layers += [
            _cell_text("datum.share < 0.35", "label"),
            _cell_text("datum.share >= 0.35", "label-on-high"),
        ]
    return {
        "title": titled("Which classes are taken for which", note),
        "data": data(cells),
        "width": {"step": size},
        "height": {"step": max(24, size // 2)},
        "layer": layers,
    }


def _cell_text(where: str, style: str) -> Spec:
    return {
        "transform": [{"filter": where}],
        "mark": mark("text", style),
        "encoding": {
            "x": field("predicted", "nominal", "predicted", sort=None, axis=_FLAT),
            "y": field("true", "nominal", "true", sort=None),
            "text": number("rows", format=","),
        },
    }


def predicted(reports: Reports) -> Spec:
    """Regression: predictions against true values, with their intervals."""
    points = require(
        reports["report"].get("points"), "the report has no rows of a regression"
    )
    values = [p["true"] for p in points] + [p["mean"] for p in points]
    ends = [{"at": min(values)}, {"at": max(values)}]
    axes = {"x": loose("true", "true value"), "y": loose("mean", "predicted")}
    layers: list[Spec] = [
        {
            "mark": mark("point", "main", filled=True, size=22, opacity=0.6),
            "encoding": {**axes, "tooltip": [*axes.values()]},
        },
        {
            "data": data(ends),
            "mark": mark("line", "reference"),
            "encoding": {"x": loose("at", "true value"), "y": loose("at", "predicted")},
        },
    ]
    if all(point.get("lower") is not None for point in points):
        interval = {**axes, "y": loose("lower", "predicted"), "y2": {"field": "upper"}}
        bars = {"mark": mark("rule", "member-line"), "encoding": interval}
        layers.insert(0, bars)
    return {
        "title": titled(
            "Predicted against true values",
            f"{len(points)} test rows, with intervals of 90 %",
        ),
        "data": data(points),
        "width": 380,
        "height": 320,
        "layer": layers,
    }


def naive(reports: Reports) -> Spec:
    """The model beside guesses that need no model."""
    report = reports["report"]
    found = require(report.get("naive"), "the report is from before naive guesses")
    metric = "rmse" if report["task"] == "regression" else "accuracy"
    rows = [
        {
            "who": "this model",
            "score": report["scores"]["test"]["ensemble"][metric],
            "is": "model",
        },
        *(
            {"who": each["name"], "score": each["scores"][metric], "is": "guess"}
            for each in found
        ),
    ]
    return {
        "title": titled("Against guesses that need no model"),
        "data": data(rows),
        "width": 420,
        "height": {"step": 26},
        "mark": mark("bar"),
        "encoding": {
            "y": category("who"),
            "x": number("score", f"{MEASURES[metric]} on the test rows"),
            "color": field("is", "nominal", sort=["model", "guess"], legend=None),
        },
    }
