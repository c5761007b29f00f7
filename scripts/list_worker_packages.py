"""Name the packages of a worker's image at their versions, one a line.

    python scripts/list_worker_packages.py worker|gpu

They are those of the API's lock, and what is installed here for `lometab[train]`. torch
is left out: each image takes its own build (decision 23). In `gpu`, onnxruntime-gpu
stands in for onnxruntime. `make lock` makes a lock of them.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def main(kind: str) -> None:
    tried, locked = _read_constraints(), _read_lock()
    needed = {canonicalize_name(name) for name in _list_needed("lometab", "train")}
    pins = {
        name: tried.get(name) or distribution(name).version
        for name in needed - locked.keys() - {"lometab", "torch"}
    }
    for name, pin in sorted((locked | pins).items()):
        is_runtime = name == "onnxruntime" and kind == "gpu"
        sys.stdout.write(f"{'onnxruntime-gpu' if is_runtime else name}=={pin}\n")


def _read_constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


def _read_lock() -> dict[str, str]:
    """The versions that the API's lock has, with their markers."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pairs = re.findall(r"^([\w.-]+)==([^\\\n]+)", text, re.MULTILINE)
    return {canonicalize_name(name): pin.strip() for name, pin in pairs}


def _list_needed(name: str, *extras: str, seen: set[str] | None = None) -> set[str]:
    """The names of what a package needs, by what is installed here."""
    seen = set() if seen is None else seen
    key = f"{canonicalize_name(name)}[{','.join(sorted(extras))}]"
    if key in seen:
        return set()
    seen.add(key)
    try:
        texts = distribution(name).requires or []
    except PackageNotFoundError:  # a marker of another machine
        return set()
    found = {name}
    for text in texts:
        need = Requirement(text)
        environments = [{"extra": extra} for extra in (*extras, "")]
        if need.marker is None or any(need.marker.evaluate(e) for e in environments):
            found |= _list_needed(need.name, *need.extras, seen=seen)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
