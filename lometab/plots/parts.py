"""What several figures are put together from.

Texts of a user's table (names of columns, categories, classes) go into the data alone,
and the fields of the data have names of ours: no such text is ever read as a path, an
expression or a property of the chart.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lometab.plots.theme import Spec

MAX_TEXT = 60
"""Characters of a user's text in a figure."""


class NothingToDraw(Exception):
    """The figure does not apply; the message says why."""


def require(value: Any, why: str) -> Any:
    """The value, if it is there: not None, and not empty."""
    if value is None or (isinstance(value, Sequence | Mapping) and not value):
        raise NothingToDraw(why)
    return value


def data(rows: Iterable[Mapping[str, Any]]) -> Spec:
    return {"values": [dict(row) for row in rows]}


def show_text(value: Any) -> str:
    """A text of a user's, on one line and not too long."""
    text = " ".join(str(value).split()) or "(empty)"
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def distinct_texts(values: Sequence[Any]) -> list[str]:
    """Each as `show_text` has it, and no two the same."""
    seen: dict[str, int] = {}
    texts = []
    for value in values:
        text = show_text(value)
        n = seen[text] = seen.get(text, 0) + 1
        texts.append(text if n == 1 else f"{text} ({n})")
    return texts


def field(name: str, kind: str, title: str = "", **options: Any) -> Spec:
    """An encoding of a field; `kind` is quantitative, ordinal or nominal. The layers of
    a chart should give the same title: different ones are joined."""
    return {"field": name, "type": kind, "title": title, **options}


def number(name: str, title: str = "", **options: Any) -> Spec:
    return field(name, "quantitative", title, **options)


def counted(name: str, title: str, values: Sequence[int]) -> Spec:
    """A whole number: its axis has no marks between."""
    n_steps = max(1, min(10, max(values, default=0) - min(values, default=0)))
    return number(name, title, axis={"format": "d", "tickCount": n_steps})


def loose(name: str, title: str = "", **options: Any) -> Spec:
    """A number whose axis need not begin at zero."""
    scale = {"zero": False, "nice": True, **options.pop("scale", {})}
    return number(name, title, scale=scale, **options)


def category(name: str, title: str = "", **options: Any) -> Spec:
    """Categories in the order of the data."""
    return field(name, "nominal", title, **{"sort": None, **options})


def titled(text: str, subtitle: str | Sequence[str] = "") -> Spec:
    return {"text": text, **({"subtitle": subtitle} if subtitle else {})}


def mark(kind: str, style: str | None = None, **options: Any) -> Spec:
    return {"type": kind, **({"style": style} if style else {}), **options}


def thin(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of them, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return [*items]
    step = (len(items) - 1) / (most - 1)
    return [items[round(i * step)] for i in range(most)]
