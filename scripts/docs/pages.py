"""All pages of the site in one folder: those that were written, and the generated."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from scripts.docs import api, commands, figures, library, models, notebooks, settings
from scripts.docs.diagram import draw

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED: dict[str, Callable[[], str]] = {
    "reference/settings.md": settings.write,
    "reference/hyperparameters.md": models.write,
    "reference/commands.md": commands.write,
    "reference/api.md": api.write_api,
    "reference/reports.md": api.write_reports,
    "reference/library.md": library.write,
}
COPIED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
}
"""Files beside the documentation that are pages of the site as well."""


def list_decisions() -> list[str]:
    """Links to all decisions, by their titles."""
    paths = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    titles = (path.read_text(encoding="utf-8").splitlines()[0] for path in paths)
    return [
        f"- [{title.removeprefix('# ')}]({path.name})"
        for path, title in zip(paths, titles, strict=True)
    ]


PARTS: dict[str, Callable[[], list[str]]] = {
    "decisions": list_decisions,
    "presets": models.presets,
    "quality": figures.quality,
    "serving": figures.serving,
    "training": figures.training,
    "memory": figures.memory,
}
"""What a line `<!-- generated: name -->` of a page stands for."""


def assemble(folder: Path) -> None:
    """Write every page into a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted(DOCS.rglob("*")):
        name = path.relative_to(DOCS)
        if name.parts[0] == "site" or not path.is_file():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            _write(folder / name, path.read_text(encoding="utf-8"), path)
        elif path.suffix == ".ipynb":
            target = (folder / name).with_suffix(".md")
            target.write_text(notebooks.to_markdown(path, target.parent / "pictures"))
        else:
            shutil.copyfile(path, folder / name)
    for source, target in COPIED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        _write(folder / target, text, ROOT / source)
    for target, make in GENERATED.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(make(), encoding="utf-8")


def _write(target: Path, text: str, source: Path) -> None:
    text = re.sub(r"<!-- generated: (\w+) -->", _fill, text)
    text = re.sub(r"```mermaid\n(.*?)```", _draw, text, flags=re.DOTALL)
    text = re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", _link_from(source), text)
    target.write_text(text, encoding="utf-8")


def _draw(match: re.Match[str]) -> str:
    return f'<div class="chart-scroll">{draw(match[1])}</div>'


def _fill(match: re.Match[str]) -> str:
    return "\n".join(PARTS[match[1]]()).strip()


def _link_from(source: Path) -> Callable[[re.Match[str]], str]:
    """Links of a page to files that are not in the site become their names."""

    def link(match: re.Match[str]) -> str:
        text, address = match[1], match[2]
        name, _, anchor = address.partition("#")
        if not name or re.match(r"[a-z]+:", address):
            return match[0]
        place = _place_in_site((source.parent / name).resolve())
        if place is None:
            return text if "`" in text else f"`{text}`"
        here = _place_in_site(source) or ""
        relative = os.path.relpath(place, os.path.dirname(here) or ".")
        return f"[{text}]({relative}{'#' if anchor else ''}{anchor})"

    return link


def _place_in_site(path: Path) -> str | None:
    """Where a file of the repository is in the site, if it is there."""
    name = path.relative_to(ROOT).as_posix()
    if name in COPIED:
        return COPIED[name]
    if name == "README.md":
        return "index.md"
    inside = name.removeprefix("docs/")
    is_page = inside in GENERATED or path.is_file()
    return inside.replace(".ipynb", ".md") if inside != name and is_page else None
