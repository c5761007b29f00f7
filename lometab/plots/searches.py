"""Figures of sweeps and tune jobs, from what `/sweep` and `/tune` answer."""

from collections.abc import Mapping
from typing import Any

from lometab.plots.members import MEASURES
from lometab.plots.parts import (
    category,
    counted,
    data,
    field,
    loose,
    mark,
    number,
    require,
    show_text,
    titled,
)
from lometab.plots.theme import Spec

Answers = Mapping[str, Mapping[str, Any]]

_NOTHING = "no run is finished yet"
_CHART = {"width": 420, "height": 260}


def sweep_score(answers: Answers) -> Spec:
    """The score of each cell of a sweep."""
    comparison = answers["sweep"]["comparison"]
    metric = MEASURES[require(comparison["metric"], _NOTHING)]
    return _heat_map(comparison, "score", f"{metric} on validation")


def sweep_diversity(answers: Answers) -> Spec:
    """The diversity of each cell of a sweep."""
    return _heat_map(answers["sweep"]["comparison"], "diversity", "diversity")


def _heat_map(comparison: Mapping[str, Any], name: str, title: str) -> Spec:
    cells = [
        cell for cell in comparison["cells"] if (cell["val"].get(name) or {}) != {}
    ]
    require(cells, _NOTHING)
    axes = _find_axes(cells)
    rows = [
        {
            "x": _show(cell["settings"], axes[:1]),
            "y": _show(cell["settings"], axes[1:]),
            "value": cell["val"][name]["mean"],
            "best": "best" if cell["cell"] == comparison["best_score"] else "",
        }
        for cell in cells
    ]
    places = {
        "x": category("x", axes[0] if axes else "", axis={"labelAngle": 0}),
        "y": category("y", ", ".join(axes[1:])),
    }
    return {
        "title": titled(f"Each cell's {title}"),
        "data": data(rows),
        "width": {"step": 60},
        "height": {"step": 32},
        "layer": [
            {
                "mark": mark("rect"),
                "encoding": {
                    **places,
                    "color": number("value", title, scale={"zero": False}),
                    "tooltip": [places["x"], places["y"], number("value", title)],
                },
            },
            {
                "mark": mark("text", "label-on-high", fontWeight="bold"),
                "encoding": {**places, "text": {"field": "best"}},
            },
        ],
    }


def _find_axes(cells: list[Mapping[str, Any]]) -> list[str]:
    """The settings that differ between cells, the one with most values first."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for name, value in cell["settings"].items():
            values.setdefault(name, set()).add(repr(value))
    varied = [name for name, found in values.items() if len(found) > 1] or [*values]
    return sorted(varied, key=lambda name: (-len(values[name]), name))


def _show(settings: Mapping[str, Any], names: list[str]) -> str:
    if len(names) == 1:
        return show_text(settings.get(names[0], ""))
    return show_text(", ".join(f"{name}={settings.get(name, '')}" for name in names))


def pareto(answers: Answers) -> Spec:
    """Score against diversity, the cells that no other beats marked."""
    comparison = answers["sweep"]["comparison"]
    metric = MEASURES[require(comparison["metric"], _NOTHING)]
    best = {*comparison["pareto"]}
    rows = [
        {
            "score": cell["val"]["score"]["mean"],
            "diversity": cell["val"]["diversity"]["mean"],
            "settings": _show(cell["settings"], [*cell["settings"]]),
            "is": "not beaten" if cell["cell"] in best else "beaten",
        }
        for cell in comparison["cells"]
        if cell["val"]["score"] and cell["val"]["diversity"]
    ]
    require(rows, _NOTHING)
    return {
        **_CHART,
        "title": titled(
            "Score against diversity",
            "not beaten: no other cell is as good in score, calibration and diversity",
        ),
        "data": data(rows),
        "mark": mark("point", filled=True, size=70, opacity=0.9),
        "encoding": {
            "x": loose("diversity", "diversity on validation"),
            "y": loose("score", f"{metric} on validation"),
            "color": field(
                "is", "nominal", sort=["not beaten", "beaten"], legend={"title": None}
            ),
            "tooltip": [
                category("settings", "settings"),
                number("score", "score"),
                number("diversity", "diversity"),
            ],
        },
    }


def tune_history(answers: Answers) -> Spec:
    """The score of each trial, and the best so far."""
    tune = answers["tune"]
    metric = tune["metric"]
    is_better = min if metric == "rmse" else max
    rows = []
    best = None
    for trial in sorted(tune["trials"], key=lambda each: each["trial"]):
        if trial["outcome"] is None:
            continue
        score = trial["outcome"]["val"]["score"]
        if not trial["is_pruned"]:
            best = score if best is None else is_better(best, score)
        rows.append(
            {
                "trial": trial["trial"],
                "score": score,
                "best": best,
                "is": "ended early" if trial["is_pruned"] else "seen to its end",
            }
        )
    require(rows, _NOTHING)
    x = counted("trial", "trial", [each["trial"] for each in rows])
    title = f"{MEASURES[metric]} on validation"
    colour = field(
        "is",
        "nominal",
        sort=["seen to its end", "ended early"],
        legend={"title": None},
    )
    return {
        **_CHART,
        "title": titled("The search, trial by trial", "line: the best so far"),
        "data": data(rows),
        "layer": [
            {
                "mark": mark("line", "reference", interpolate="step-after"),
                "encoding": {"x": x, "y": loose("best", title)},
            },
            {
                "mark": mark("point", filled=True, size=50),
                "encoding": {"x": x, "y": loose("score", title), "color": colour},
            },
        ],
    }


def tune_importances(answers: Answers) -> Spec:
    """How much each setting mattered in a search."""
    found = require(answers["tune"]["importances"], "too few trials are finished")
    rows = [
        {"setting": show_text(name), "share": share}
        for name, share in sorted(found.items(), key=lambda each: -each[1])
    ]
    return {
        "title": titled("Which settings mattered"),
        "data": data(rows),
        "width": 420,
        "height": {"step": 24},
        "mark": mark("bar", "main"),
        "encoding": {
            "y": category("setting"),
            "x": number("share", "share of the differences in score"),
        },
    }
