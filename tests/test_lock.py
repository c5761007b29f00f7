"""requirements.lock: the packages of the API, as they were tried."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def read_pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return {canonicalize_name(package): pin for package, pin in PIN.findall(text)}


def list_needed() -> list[Requirement]:
    """What the API's image needs by pyproject.toml, extras of ours followed: traces
    too, which docker-compose.yml offers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    todo = [*project["dependencies"], *extras["serve"], *extras["otel"]]
    needed = []
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.name == "lometab":
            todo += [each for extra in requirement.extras for each in extras[extra]]
        elif requirement.marker is None or requirement.marker.evaluate():
            needed.append(requirement)
    return needed


def test_the_lock_has_the_versions_that_were_tried() -> None:
    locked, tried = read_pins("requirements.lock"), read_pins("constraints.txt")
    assert {name: tried.get(name, pin) for name, pin in locked.items()} == locked


def test_the_lock_has_all_that_the_api_needs() -> None:
    locked = read_pins("requirements.lock")
    for requirement in list_needed():
        pin = locked.get(canonicalize_name(requirement.name), "none")
        is_there = pin != "none" and requirement.specifier.contains(pin)
        assert is_there, f"{requirement}, and {pin} is locked: run `make lock`"


def test_each_package_of_the_lock_has_its_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=\S)", text.split("\n", 1)[1].rstrip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "torch" not in read_pins("requirements.lock")
    assert "://" not in text


@pytest.mark.parametrize("kind", ["", "-worker", "-gpu"])
def test_older_pythons_have_what_redis_needs_there(kind: str) -> None:
    """`make lock` runs on a newer one, which needs it not: put it in again by hand."""
    text = (ROOT / f"requirements{kind}.lock").read_text(encoding="utf-8")
    assert 'async-timeout==5.0.1 ; python_full_version < "3.11.3"' in text


@pytest.mark.parametrize("kind", ["worker", "gpu"])
def test_the_locks_of_workers_go_on_from_that_of_the_api(kind: str) -> None:
    api, locked = read_pins("requirements.lock"), read_pins(f"requirements-{kind}.lock")
    tried = read_pins("constraints.txt")
    if kind == "gpu":
        assert "onnxruntime" not in locked  # both have the same files
        assert locked.pop("onnxruntime-gpu") == api.pop("onnxruntime")
    assert api.items() <= locked.items()
    assert {name: tried.get(name, pin) for name, pin in locked.items()} == locked
    assert {"onnx", "safetensors", "scikit-learn", "sympy"} <= locked.keys()
    assert "torch" not in locked  # each image has its own build of it
    text = (ROOT / f"requirements-{kind}.lock").read_text(encoding="utf-8")
    for entry in re.split(r"\n(?=[a-z])", text):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry) or entry[0] == "#"
    assert "://" not in text
