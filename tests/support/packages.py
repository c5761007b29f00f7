"""Wheel and sdist, built and tried.

    python -m tests.support.packages [--lowest]

is the long form: it installs the wheel with each extra into a clean environment by pip,
which needs a package index, measures the small one, and runs the command in a folder
with packages of the same names as ours. `--lowest` takes the lowest version that
pyproject.toml allows of each direct requirement, and runs the quick tests with them.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOSTILE = "imported"
"""The file that a hostile package writes when it is imported."""
MAX_BASE_BYTES = 130 * 10**6
SMOKE = {
    "": "from lometab import Predictor; import lometab.client",
    "cli": "from lometab import Predictor; import lometab.client",
    "table": "from lometab.table import read_file, profile_table",
    "train": "from lometab import LoMETabClassifier, LoMETabRegressor",
    "serve": "import sys; from lometab.__main__ import find_service; "
    "sys.path.insert(0, str(find_service())); import app.main, worker.tasks; "
    "assert 'sklearn' not in sys.modules",
    "mlflow": "import lometab.mlflow",
    "otel": "from opentelemetry.sdk.trace import TracerProvider; "
    "from opentelemetry.exporter.otlp.proto.http import trace_exporter",
}
"""What each extra is good for."""
WITH_COMMAND = ("cli", "train", "serve")


def build(folder: Path, root: Path = ROOT) -> None:
    """The wheel and the sdist of a tree, by the backend that is installed."""
    code = (
        "import sys; from hatchling.build import build_sdist, build_wheel; "
        "build_sdist(sys.argv[1]); build_wheel(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_hostile_folder(folder: Path) -> Path:
    """Packages of our names that tell when somebody imports them, and end him."""
    for name in ("app", "worker", "migrations"):
        package = folder / name
        package.mkdir(parents=True)
        for module in ("__init__", "cli", "main", "tasks", "train", "env"):
            (package / f"{module}.py").write_text(
                f"open({str(folder / HOSTILE)!r}, 'a').write({name!r})\n"
                "raise SystemExit('not ours')\n"
            )
    return folder


def install(folder: Path, what: str, *options: str) -> Path:
    """A clean environment with it; its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", *options, what]
    subprocess.run(command, check=True)
    return python


def count_bytes(folder: Path) -> int:
    """Of what was installed beside pip itself."""
    site = next((folder / "lib").glob("python*")) / "site-packages"
    own = re.compile(r"(pip|setuptools)(-.*)?|pkg_resources|_distutils_hack")
    files = (
        path
        for top in site.iterdir()
        if not own.fullmatch(top.name)
        for path in ([top] if top.is_file() else top.rglob("*"))
    )
    return sum(
        path.stat().st_size
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    )


def try_extra(folder: Path, wheel: Path, extra: str) -> None:
    what = f"lometab[{extra}]" if extra else "lometab"
    options = ["--constraint", str(ROOT / "constraints.txt")]
    python = install(folder, f"{what} @ {wheel.as_uri()}", *options)
    hostile = make_hostile_folder(folder / "theirs")
    smoke = [python, "-P", "-c", SMOKE[extra]]
    subprocess.run(smoke, cwd=hostile, check=True)
    for option in ("--version", "--help"):
        done = subprocess.run(
            [python.with_name("lometab"), option],
            cwd=hostile,
            capture_output=True,
            text=True,
        )
        if extra in WITH_COMMAND:
            assert done.returncode == 0, done.stderr
        else:
            assert done.stderr.endswith("pip install 'lometab[cli]'\n"), done.stderr
            assert done.stderr.count("\n") == 1, done.stderr
    assert not (hostile / HOSTILE).exists()
    size = count_bytes(folder)
    print(f"{what}: {size / 1e6:.0f} MB", flush=True)  # noqa: T201
    assert extra or size <= MAX_BASE_BYTES


LOWEST = ("cli", "table", "plots", "train", "serve")
"""Extras whose lowest versions are tried together."""


def list_lowest() -> list[str]:
    """The lowest version allowed of each direct requirement; torch as it is pinned,
    since each version of it is larger than all the rest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    direct = chain(project["dependencies"], *(extras[each] for each in LOWEST))
    bounds = (re.match(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)", each) for each in direct)
    found = {bound[1]: bound[2] for bound in bounds if bound is not None}
    pinned = re.search(
        r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
    assert pinned is not None
    return [f"{name}=={n}" for name, n in {**found, "torch": pinned[1]}.items()]


def try_lowest(folder: Path) -> None:
    """What starts no process, with the lowest versions; `dev` brings what is now."""
    pins = folder / "lowest.txt"
    folder.mkdir()
    pins.write_text("\n".join(list_lowest()))
    what = f"{ROOT}[train,serve,dev]"
    python = install(folder / "venv", what, "--constraint", str(pins))
    marked = "not processes and not timing"
    tests = [python, "-m", "pytest", "-q", "-m", marked, "--numprocesses=auto"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as `make test` has it
    subprocess.run(tests, cwd=ROOT, check=True, env=one_thread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lowest", action="store_true")
    parser.add_argument("extras", nargs="*", default=[*SMOKE])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.pop("PYTHONPATH", None)
        if given.lowest:
            try_lowest(folder / "lowest")
            return
        build(folder)
        (wheel,) = folder.glob("*.whl")
        for extra in given.extras:
            try_extra(folder / (extra or "base"), wheel, extra)


if __name__ == "__main__":
    main()
