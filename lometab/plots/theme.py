"""How figures look: colours by meaning, for light and for dark pages."""

from typing import Any, Literal

Spec = dict[str, Any]
Theme = Literal["light", "dark"]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
"""All as wide as what places are measured with, in a browser and in `render`."""

COLOURS: dict[Theme, dict[str, str]] = {
    "light": {
        "page": "#ffffff",
        "text": "#1f2933",
        "faint_text": "#52606d",
        "grid": "#e4e7eb",
        "main": "#0072b2",
        "other": "#d55e00",
        "good": "#00795a",
        "member": "#7b8794",
        "low": "#eef4fa",
        "high": "#08427c",
    },
    "dark": {
        "page": "#14181d",
        "text": "#e6e9ed",
        "faint_text": "#a5b0bb",
        "grid": "#2f3740",
        "main": "#56b4e9",
        "other": "#f0a04b",
        "good": "#4bc9a0",
        "member": "#8b98a5",
        "low": "#1d2a36",
        "high": "#9ad4ff",
    },
}
"""They can be told apart by people who see red and green alike."""


def themed(spec: Spec, theme: Theme = "light") -> Spec:
    """The spec complete: with the schema's address and the colours of a theme."""
    colours = COLOURS[theme]
    return {
        "$schema": SCHEMA,
        "background": colours["page"],
        # Words are measured in Arial: where another font is wider they need the room.
        "padding": {"left": 22, "right": 18, "top": 8, "bottom": 8},
        **spec,
        "config": _make_config(colours),
    }


def _make_config(colours: dict[str, str]) -> Spec:
    text, faint = colours["text"], colours["faint_text"]
    words = {"labelColor": faint, "titleColor": text, "labelLimit": 180}
    return {
        "font": _FONT,
        "view": {"stroke": colours["grid"]},
        "axis": {
            **words,
            "gridColor": colours["grid"],
            "domainColor": colours["grid"],
            "tickColor": colours["grid"],
            "titleFontWeight": "normal",
            "titleLimit": 300,
            "labelFlush": False,  # the first and the last would run into their next
        },
        "legend": {**words, "titleFontWeight": "normal", "symbolOpacity": 1},
        "header": {"labelColor": text, "titleColor": text, "labelLimit": 220},
        "title": {
            "color": text,
            "subtitleColor": faint,
            "anchor": "start",
            "limit": 480,
        },
        "mark": {"color": colours["main"]},
        "text": {"color": text},
        "range": {
            "category": [colours[name] for name in ("main", "other", "good", "member")],
            "heatmap": [colours["low"], colours["main"], colours["high"]],
            "ramp": [colours["low"], colours["main"], colours["high"]],
        },
        "style": {
            "main": {"color": colours["main"]},
            "main-line": {"color": colours["main"], "strokeWidth": 2.5},
            "other-line": {"color": colours["other"], "strokeWidth": 1.5},
            "member": {"color": colours["member"]},
            "member-line": {
                "color": colours["member"],
                "strokeWidth": 0.8,
                "opacity": 0.5,
            },
            "reference": {"color": faint, "strokeDash": [4, 4], "strokeWidth": 1.2},
            "error": {"color": text, "strokeWidth": 1.2},
            "label": {"color": text, "fontSize": 10},
            "label-on-high": {"color": colours["page"], "fontSize": 10},
        },
    }
