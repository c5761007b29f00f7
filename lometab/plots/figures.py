"""The figures by their names, and which of them a report has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lometab.plots import drivers, members, searches, trust
from lometab.plots.parts import NothingToDraw
from lometab.plots.theme import Spec, Theme, themed

Draw = Callable[[Mapping[str, Mapping[str, Any]]], Spec]

_OF_MODELS: dict[str, Draw] = {
    "naive": trust.naive,
    "importance": drivers.importance,
    "effects": drivers.effects,
    "slices": drivers.slices,
    "reliability": trust.reliability,
    "coverage": trust.coverage,
    "confusion": trust.confusion,
    "predicted": trust.predicted,
    "risk-coverage": trust.risk_coverage,
    "members": members.strip,
    "decomposition": members.decomposition,
    "pairs": members.pairs,
    "training": members.training,
}
_OF_SWEEPS: dict[str, Draw] = {
    "sweep-score": searches.sweep_score,
    "sweep-diversity": searches.sweep_diversity,
    "pareto": searches.pareto,
}
_OF_SEARCHES: dict[str, Draw] = {
    "tune-history": searches.tune_history,
    "tune-importances": searches.tune_importances,
}
FIGURES: dict[str, Draw] = {**_OF_MODELS, **_OF_SWEEPS, **_OF_SEARCHES}
"""What draws a figure, by its name."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that there is, or the reason why there is none."""

    name: str
    about: str
    """What it shows."""
    why_absent: str | None = None
    """None: it can be drawn."""


def names_for(reports: Mapping[str, Any]) -> list[str]:
    """The figures that may be drawn of what was given: a model's `report`, `diversity`
    and `calibration`, or the first alone with nothing but its `curve`, while it is
    trained; or the answer to `sweep` or to `tune`."""
    if "sweep" in reports:
        return [*_OF_SWEEPS]
    if "tune" in reports:
        return [*_OF_SEARCHES]
    return [*_OF_MODELS] if "diversity" in reports else ["training"]


def list_figures(reports: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """Each figure of these reports, those that do not apply with the reason."""
    found = []
    for name in names_for(reports):
        about = (FIGURES[name].__doc__ or "").split("\n\n")[0]
        try:
            FIGURES[name](reports)
            why = None
        except NothingToDraw as error:
            why = str(error)
        found.append(Figure(name=name, about=" ".join(about.split()), why_absent=why))
    return found


def draw(
    name: str, reports: Mapping[str, Mapping[str, Any]], theme: Theme = "light"
) -> Spec:
    """The figure as a Vega-Lite spec, complete.

    Raises:
        KeyError: there is no figure of this name for these reports.
        NothingToDraw: it does not apply; the message says why.
    """
    if name not in names_for(reports):
        raise KeyError(name)
    return themed(FIGURES[name](reports), theme)
