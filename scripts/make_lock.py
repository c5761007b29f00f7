"""Write a lock of a worker: the API's packages and those that training needs.

    python scripts/make_lock.py worker|gpu < requirements.lock > ...lock

The set is what is installed here for `lometab[serve,train]`, at those versions; the
hashes are the index's own. torch is left out: each image takes its own build (decision
23). In `gpu`, onnxruntime-gpu stands in for onnxruntime.
"""

import re
import sys
import urllib.request
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

INDEX = "https://pypi.org"
ROOT = Path(__file__).parents[1]


def main() -> None:
    kind = sys.argv[1]
    kept = _read_lock(sys.stdin.read())
    wanted = {canonicalize_name(each) for each in _list_needed("lometab", "train")}
    pins = _read_constraints()
    missing = wanted - {"lometab", "torch"} - kept.keys()
    more = {name: pins.get(name) or distribution(name).version for name in missing}
    if kind == "gpu":
        kept.pop("onnxruntime", None)
        more.pop("onnxruntime", None)
        more["onnxruntime-gpu"] = pins["onnxruntime"]
    entries = kept | {name: _describe(name, more[name]) for name in more}
    print(f"# Packages of the image {kind!r} with the hashes of their files.")  # noqa: T201
    print("# `make lock` writes it.")  # noqa: T201
    for name in sorted(entries):
        print(entries[name])  # noqa: T201


def _read_lock(text: str) -> dict[str, str]:
    """The entries of a lock, by their names."""
    entries: dict[str, str] = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", "\n" + text):
        found = re.match(r"\n?([A-Za-z0-9._-]+)==", entry)
        if found:
            lines = [ln for ln in entry.splitlines() if not ln.startswith("#")]
            entries[canonicalize_name(found[1])] = "\n".join(lines).strip("\n")
    return entries


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


def _describe(name: str, version: str) -> str:
    with urllib.request.urlopen(f"{INDEX}/simple/{name}/", timeout=60) as got:
        page = got.read().decode()
    files = re.findall(r'/([^/"#]+)#sha256=([0-9a-f]{64})', page)
    hashes = sorted({sha256 for file, sha256 in files if _is_of(file, version)})
    if not hashes:
        sys.exit(f"the index has no files of {name} {version}")
    lines = [f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in hashes)]
    return " \\\n".join(lines)


def _is_of(filename: str, version: str) -> bool:
    if filename.endswith(".whl"):
        return filename.split("-")[1] == version
    return filename.endswith(f"-{version}.tar.gz")


if __name__ == "__main__":
    main()
