"""Flow charts of chains, written for Mermaid, as SVG that needs no script.

GitHub draws the source itself. The site would load Mermaid from another host, so it
gets a picture: each `subgraph` is a row of boxes, joined in the order of its arrows.
"""

import html
import re
import textwrap

WIDTH, HEIGHT, GAP, HEAD = 176, 66, 30, 26
PER_ROW = 4
_NODE = re.compile(r"(\w+)(?:\[([^\]]*)\])?")


def draw(source: str) -> str:
    """The SVG of a chart; what is no chain of boxes is an error."""
    parts: list[str] = []
    top = 0
    for title, body in re.findall(r"subgraph (.+?)\n(.*?)\n\s*end", source, re.DOTALL):
        boxes, labels = _read(body)
        parts.append(_title(title, top + HEAD - 8))
        parts += _row(boxes, labels, top + HEAD)
        top += HEAD + -(-len(boxes) // PER_ROW) * (HEIGHT + GAP)
    width = PER_ROW * (WIDTH + GAP)
    assert parts, "a chart needs at least one subgraph"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" '
        f'role="img" class="chart">{"".join(parts)}</svg>'
    )


def _read(body: str) -> tuple[list[str], dict[tuple[str, str], str]]:
    """Texts of the boxes in their order, and of the arrows that have one."""
    names: dict[str, str] = {}
    arrows: dict[tuple[str, str], str] = {}
    for line in body.splitlines():
        pieces = re.split(r"\s*--\s*(?:([^->]+?)\s*--)?>\s*", line.strip())
        nodes = [_NODE.fullmatch(each) for each in pieces[::2]]
        for node in nodes:
            assert node is not None, line
            names[node[1]] = names.get(node[1]) or node[2]
        for before, label, after in zip(nodes, pieces[1::2], nodes[1:], strict=False):
            assert before is not None and after is not None
            if label:
                arrows[names[before[1]], names[after[1]]] = label
    return [*names.values()], arrows


def _title(text: str, y: int) -> str:
    return f'<text x="0" y="{y}" class="chart-title">{html.escape(text)}</text>'


def _row(boxes: list[str], labels: dict[tuple[str, str], str], top: int) -> list[str]:
    parts: list[str] = []
    for i, text in enumerate(boxes):
        line, place = divmod(i, PER_ROW)
        x, y = place * (WIDTH + GAP), top + line * (HEIGHT + GAP)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
            f'class="chart-box"/>{_lines(text, x + WIDTH // 2, y + HEIGHT // 2)}'
        )
        if i + 1 < len(boxes):
            parts.append(_arrow(x, y, place, labels.get((text, boxes[i + 1]), "")))
    return parts


def _lines(text: str, x: int, middle: int) -> str:
    lines = textwrap.wrap(text, 27)
    start = middle - 8 * (len(lines) - 1) + 4
    spans = "".join(
        f'<tspan x="{x}" y="{start + 16 * i}">{html.escape(each)}</tspan>'
        for i, each in enumerate(lines)
    )
    return f'<text class="chart-text" text-anchor="middle">{spans}</text>'


def _arrow(x: int, y: int, place: int, label: str) -> str:
    """To the right, or from the end of a line to the beginning of the next one."""
    middle = y + HEIGHT // 2
    if place + 1 < PER_ROW:
        end = x + WIDTH + GAP
        path = f"M{x + WIDTH} {middle}H{end - 2}m-6 -4l6 4l-6 4"
    else:
        below = y + HEIGHT + GAP // 2
        path = (
            f"M{x + WIDTH // 2} {y + HEIGHT}V{below}H{WIDTH // 2}"
            f"V{below + GAP // 2 - 2}m-4 -6l4 6l4 -6"
        )
    note = f"<title>{html.escape(label)}</title>" if label else ""
    return f'<path d="{path}" class="chart-arrow">{note}</path>'
