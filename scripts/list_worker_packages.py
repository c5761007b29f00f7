"""Name the packages of a worker's image at their versions, one a line.

    python scripts/list_worker_packages.py worker|gpu

They are what is installed here for `lometab[serve,train]`. torch is left out: each
image takes its own build (decision 23). In `gpu`, onnxruntime-gpu stands in for
onnxruntime. `make lock` makes a lock of them.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def main(kind: str) -> None:
    pins = _read_constraints()
    needed = {canonicalize_name(n) for n in _list_needed("lometab", "serve", "train")}
    for name in sorted(needed - {"lometab", "torch"}):
        version = pins.get(name) or distribution(name).version
        is_runtime = name == "onnxruntime" and kind == "gpu"
        sys.stdout.write(f"{'onnxruntime-gpu' if is_runtime else name}=={version}\n")


def _read_constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


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
