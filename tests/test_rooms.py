"""The table of rooms in docs/architecture.md, held against the code.

A room is a package or a module. It imports only the rooms that its line allows, and of
a package only what its `__init__` names in `__all__`: a name, or a module of it.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OURS = ("lometab", "app", "worker", "migrations")


class Room(NamedTuple):
    name: str
    public: frozenset[str]
    """What others may use of a package; empty for a module, which shows all it has."""
    allowed: frozenset[str]
    """Rooms that it may import."""


def read_rooms() -> dict[str, Room]:
    """The lines `| room | what it does | public names | may import |`."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) == 4 and re.fullmatch(r"`[\w.]+`", parts[0]):
            name, public, allowed = (
                frozenset(re.findall(r"`([\w.]+)`", parts[i])) for i in (0, 2, 3)
            )
            (room,) = name
            rooms[room] = Room(room, public, allowed)
    return rooms


ROOMS = read_rooms()


@cache
def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/") / "__init__.py").exists()


def find_room(module: str) -> str | None:
    """The room that a module lies in: the longest name that it begins with."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in ROOMS), None)


def list_modules() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, path


def list_imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Modules of ours that a file imports anywhere but for types alone, and the name
    taken from each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found: list[tuple[str, str | None]] = [(a.name, None) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        yield from (each for each in found if each[0].split(".")[0] in OURS)


def find_faults(module: str, path: Path) -> Iterator[str]:
    home = find_room(module)
    if home is None:
        yield "is in none of the rooms"
        return
    for source, name in list_imports(path):
        full = f"{source}.{name}" if name else source
        if full in ("lometab", "lometab.__version__"):
            continue
        room = find_room(full)
        if room is None:
            yield f"imports {full}, which is in none of the rooms"
        if room is None or room == home:
            continue
        if room not in ROOMS[home].allowed:
            yield f"imports {full}: the room {home} may not import {room}"
        elif is_package(room) and not _is_public(room, full):
            yield f"imports {full}, which {room} does not name in __all__"


def _is_public(room: str, full: str) -> bool:
    inside = full.removeprefix(room).lstrip(".")
    return not inside or inside.split(".")[0] in ROOMS[room].public


def test_every_module_stays_in_its_room() -> None:
    faults = [
        f"{module} {fault}"
        for module, path in list_modules()
        if path.read_text(encoding="utf-8").strip()
        for fault in find_faults(module, path)
    ]
    assert faults == []


def test_the_table_names_what_a_package_shows() -> None:
    packages = [room for room in ROOMS.values() if is_package(room.name)]
    assert packages
    for room in packages:
        module = import_module(room.name)
        shown = sorted(getattr(module, "__all__", []))
        assert sorted(room.public) == shown, room.name


def test_no_two_rooms_need_each_other() -> None:
    """Each room's line allows only rooms of the lines above it."""
    seen: set[str] = set()
    for room in ROOMS.values():
        assert room.allowed <= seen, room.name
        seen.add(room.name)
