"""Figures of reports, as Vega-Lite specs: pure functions from JSON to JSON.

The same spec is a picture (`render`), a figure of a page or a cell of a notebook.
"""

from lometab.plots.figures import (
    FIGURES,
    Figure,
    draw,
    list_figures,
    names_for,
)
from lometab.plots.parts import (
    NothingToDraw,
)
from lometab.plots.render import (
    MAX_SCALE,
    Format,
    RenderBusy,
    render,
)
from lometab.plots.theme import (
    COLOURS,
    Spec,
    Theme,
)

__all__ = [
    "COLOURS",
    "FIGURES",
    "MAX_SCALE",
    "Figure",
    "Format",
    "NothingToDraw",
    "RenderBusy",
    "Spec",
    "Theme",
    "draw",
    "list_figures",
    "names_for",
    "render",
]
