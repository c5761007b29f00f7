"""Figures of what a model uses and where it fails."""

from collections.abc import Mapping
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
    show_text,
    titled,
)
from lometab.plots.theme import Spec

MAX_BARS = 20
MAX_EFFECTS = 8
_TICKS = {"type": "tick", "style": "member", "orient": "horizontal", "opacity": 0.6}
_OLD = "the report is from before this was measured; train the model again"


def importance(reports: Reports) -> Spec:
    """How much worse the model is without each column."""
    body = require(reports["report"].get("importance"), _OLD)
    shown = require(body["columns"][:MAX_BARS], "no column was measured")
    names = distinct_texts([each["column"] for each in shown])
    bars = [
        {
            "column": name,
            "mean": each["mean"],
            "lower": each["mean"] - each["std"],
            "upper": each["mean"] + each["std"],
        }
        for name, each in zip(names, shown, strict=True)
    ]
    ticks = [
        {"column": name, "member": value}
        for name, each in zip(names, shown, strict=True)
        for value in each["members"]
    ]
    note = [
        f"each column shuffled {body['n_repeats']} times on {body['n_rows']} test rows",
        "bar: ensemble; line: deviation; ticks: members",
    ]
    if len(body["columns"]) > MAX_BARS:
        note[0] += f"; the first {MAX_BARS} of {len(body['columns'])} columns"
    title = f"increase of the {MEASURES[body['metric']]} when shuffled"
    y = category("column")
    return {
        "title": titled("What the model uses", note),
        "width": 420,
        "height": {"step": 22},
        "layer": [
            {
                "data": data(bars),
                "mark": mark("bar", "main", height=12),
                "encoding": {"y": y, "x": number("mean", title)},
            },
            {
                "data": data(ticks),
                "mark": mark("tick", "member", height=16, opacity=0.7),
                "encoding": {"y": y, "x": number("member", title)},
            },
            {
                "data": data(bars),
                "mark": mark("rule", "error"),
                "encoding": {
                    "y": y,
                    "x": number("lower", title),
                    "x2": {"field": "upper"},
                },
            },
        ],
    }


def effects(reports: Reports) -> Spec:
    """How the answer moves with each of the most important columns."""
    body = require(reports["report"].get("effects"), _OLD)
    columns = require(body["columns"][:MAX_EFFECTS], "no effect was measured")
    return {
        "title": titled(
            "How the answer moves with a column, all else as it is",
            "thick: ensemble; thin: each member",
        ),
        "concat": [draw_effect(each) for each in columns],
        "columns": 2,
    }


def draw_effect(effect: Mapping[str, Any]) -> Spec:
    """One column's curve, with those of the members; for several classes the last one
    that the effect tells of."""
    output = effect["outputs"][-1]
    is_number = all(isinstance(value, int | float) for value in effect["grid"])
    grid = effect["grid"] if is_number else distinct_texts(effect["grid"])
    name = show_text(effect["column"])
    if effect.get("part"):
        name += f" ({effect['part']})"
    title = "mean answer"
    if output.get("label") is not None:
        title = f"probability of {show_text(output['label'])}"
    x = loose("at", name) if is_number else category("at", name)
    x["axis"] = {"labelLimit": 80} | ({} if is_number else {"labelAngle": -40})
    is_ordered = effect["kind"] != "categorical"
    member_mark = mark("line", "member-line") if is_ordered else _TICKS
    main_mark = mark("point", "main", filled=True, size=50)
    if is_ordered:
        main_mark = mark("line", "main-line", point=not is_number)
    members = [
        {"at": at, "value": value, "member": str(k)}
        for k, curve in enumerate(output["members"])
        for at, value in zip(grid, curve, strict=True)
    ]
    mean = [{"at": at, "value": v} for at, v in zip(grid, output["mean"], strict=True)]
    y = loose("value", title)
    return {
        "width": 260,
        "height": 170,
        "layer": [
            {
                "data": data(members),
                "mark": member_mark,
                "encoding": {"x": x, "y": y, "detail": {"field": "member"}},
            },
            {
                "data": data(mean),
                "mark": main_mark,
                "encoding": {"x": x, "y": y},
            },
        ],
    }


def slices(reports: Reports) -> Spec:
    """Where the error is largest."""
    body = require(reports["report"].get("slices"), _OLD)
    worst = require(body["worst"][:MAX_BARS], "no part of the rows is worse")
    names = distinct_texts([f"{each['column']}: {each['rows']}" for each in worst])
    rows = [
        {
            "slice": name,
            "loss": each["loss"],
            "lower": each["lower"],
            "upper": each["upper"],
            "is": "surely worse" if each["is_worse"] else "perhaps chance",
            "n": each["n_rows"],
        }
        for name, each in zip(names, worst, strict=True)
    ]
    y = category("slice")
    title = {"wrong class": "share that is wrong"}.get(body["loss"], body["loss"])
    colour = field(
        "is", "nominal", sort=["surely worse", "perhaps chance"], legend={"title": None}
    )
    return {
        "title": titled(
            "Where it is wrong most",
            f"dashed: all test rows; {body['n_tested']} slices were looked at, and the "
            "intervals allow for that",
        ),
        "width": 420,
        "height": {"step": 24},
        "layer": [
            {
                "data": data(rows),
                "mark": mark("rule"),
                "encoding": {
                    "y": y,
                    "x": number("lower", title),
                    "x2": {"field": "upper"},
                    "color": colour,
                },
            },
            {
                "data": data(rows),
                "mark": mark("point", filled=True, size=60),
                "encoding": {
                    "y": y,
                    "x": number("loss", title),
                    "color": colour,
                    "tooltip": [y, number("loss", title), number("n", "rows")],
                },
            },
            {
                "data": data([{"overall": body["overall"]}]),
                "mark": mark("rule", "reference"),
                "encoding": {"x": number("overall", title)},
            },
        ],
    }
