"""Who may import whom: `lometab <- app <- worker`, as code."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import lometab.table

ROOT = Path(__file__).parents[1]

WITHOUT_TORCH = [
    "lometab",
    "lometab.table",
    "lometab.table.values",
    "lometab.table.frames",
    "lometab.config",
    "lometab.table.schema",
    "lometab.errors",
    "lometab.cost",
    "lometab.evaluation",
    "lometab.onnx_file",
    "lometab.predictor",
    "lometab.session",
    "lometab.table.preprocessing",
    "lometab.table.profile",
    "lometab.table.reading",
    "lometab.table.scan",
    "lometab.space",
    "lometab.table.splits",
    "lometab.table.parquet",
    "app.main",
    "app.cli",
    "worker.tasks",
    "worker.predict",
    "worker.train",  # until it is given something to train
]

OURS_IN_WORKER = {
    "answering",
    "lifeline",
    "settings",
    "observe",
    "jobs",
    "monitor",
    "retention",
    "storage",
    "webhooks",
}


@cache
def imports_of(path: Path) -> set[str]:
    """Every module that a file imports anywhere, functions included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def packages_of(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports_of(path)}


IMPORT_EACH = """
import sys
from importlib import import_module

for name in sys.argv[1:]:
    import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{name} loads torch")
"""


@pytest.mark.processes
def test_process_never_loads_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT_EACH, *WITHOUT_TORCH]
    environment = {"LOMETAB_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


UNLOADED = {
    "app.main": {"alembic", "celery", "duckdb", "kombu", "optuna", "sklearn"},
    "worker.tasks": {"alembic", "duckdb", "fastapi", "numpy", "pyarrow", "sklearn"},
    "app.cli": {"fastapi", "numpy", "pyarrow", "sqlalchemy"},
}
"""What takes long to load, and is loaded by what needs it alone."""


@pytest.mark.parametrize("module", UNLOADED)
@pytest.mark.processes
def test_a_start_loads_what_it_needs(module: str, tmp_path: Path) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    environment = {"LOMETAB_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert not {*done.stdout.decode().split()} & UNLOADED[module]


TRAIN = """
import sys
import numpy as np
import lometab.export
from lometab.config import TrainConfig
from lometab.train import Part, fit

rng = np.random.default_rng(0)
part = Part(rng.normal(size=(40, 2)), np.zeros((40, 0), int), rng.normal(size=40))
config = TrainConfig(k=2, d_block=8, max_epochs=1)
fit(part, part, task="regression", cardinalities=[], config=config)
sys.exit(", ".join({"sklearn", "torch._dynamo"} & {*sys.modules}) or None)
"""


@pytest.mark.processes
def test_training_loads_neither_scikit_learn_nor_a_compiler() -> None:
    """Each takes as long as torch to load, and each job starts a process."""
    done = subprocess.run(
        [sys.executable, "-c", TRAIN], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


WITHOUT_PANDAS = """
import sys
import pyarrow
from lometab.table import leave_out_pandas

leave_out_pandas()
pyarrow.array(["a"])
sys.exit("pandas" in sys.modules)
"""


@pytest.mark.processes
def test_pyarrow_does_without_pandas() -> None:
    command = [sys.executable, "-c", WITHOUT_PANDAS]
    assert subprocess.run(command, check=False).returncode == 0


def test_library_knows_no_service() -> None:
    for path in (ROOT / "lometab").rglob("*.py"):
        forbidden = {"app", "worker", "migrations", "fastapi", "sqlalchemy", "celery"}
        if path.name not in ("estimator.py", "holdout.py"):
            forbidden |= {"sklearn"}
        if ROOT / "lometab" / "client" not in path.parents:
            forbidden |= {"httpx"}
        if path.name != "column_facts.py":
            forbidden |= {"duckdb"}
        if path.parent.name != "table":
            forbidden |= {"pyarrow"}
        assert not packages_of(path) & forbidden, path


def test_nobody_reaches_past_the_surface_of_tables() -> None:
    """Modules of `lometab.table` are for that package; its names are for others."""
    for folder in ("lometab", "app", "worker", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.parent == ROOT / "lometab" / "table":
                continue
            inside = [m for m in imports_of(path) if m.startswith("lometab.table.")]
            names = {m.removeprefix("lometab.table.") for m in inside}
            assert names <= {*lometab.table.__all__}, path


def test_the_surface_of_tables_is_there() -> None:
    assert lometab.table.__all__
    for name in lometab.table.__all__:
        assert getattr(lometab.table, name) is not None, name


def test_service_knows_no_worker() -> None:
    for path in (ROOT / "app").rglob("*.py"):
        assert not packages_of(path) & {"worker", "torch"}, path
        if path.name != "settings.py":
            assert "os.environ" not in path.read_text(encoding="utf-8"), path


def test_worker_knows_no_routes() -> None:
    for path in (ROOT / "worker").glob("*.py"):
        assert not packages_of(path) & {"torch", "fastapi"} or path.name == "train.py"
        of_app = {
            name.split(".")[1] for name in imports_of(path) if name.startswith("app.")
        }
        assert of_app <= OURS_IN_WORKER, path


def test_a_room_is_entered_by_its_door() -> None:
    """Whoever is outside app.jobs uses what its `__init__` names, and app.jobs knows
    nothing of HTTP routes and their bodies."""
    from app import jobs

    for package in ("app", "worker"):
        for path in sorted((ROOT / package).rglob("*.py")):
            names = imports_of(path)
            if path.is_relative_to(ROOT / "app" / "jobs"):
                assert not {n for n in names if n.startswith("app.api")}, path
                continue
            of_jobs = {n.split(".")[2] for n in names if n.startswith("app.jobs.")}
            assert of_jobs <= set(jobs.__all__), path


def test_every_name_of_jobs_is_there() -> None:
    from app import jobs

    for name in jobs.__all__:
        assert getattr(jobs, name) is not None
    with pytest.raises(AttributeError):
        _ = jobs.nothing


@pytest.mark.processes
def test_optuna_is_loaded_by_whoever_searches_alone(tmp_path: Path) -> None:
    code = "import sys, app.main, worker.tasks; sys.exit('optuna' in sys.modules)"
    environment = {"LOMETAB_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == 0


def test_training_process_knows_no_service() -> None:
    for name in ("train.py", "lifeline.py", "messages.py", "faults.py"):
        path = ROOT / "worker" / name
        assert not packages_of(path) & {"app", "sqlalchemy", "celery", "fastapi"}


def test_migrations_know_the_tables_only() -> None:
    for path in (ROOT / "migrations").rglob("*.py"):
        ours = {
            name
            for name in imports_of(path)
            if name.split(".")[0] in {"app", "worker", "lometab"}
        }
        assert all(
            name.startswith(("app.storage.tables", "app.settings")) for name in ours
        ), path


@pytest.mark.slow
def test_tests_share_by_support_alone() -> None:
    """What two test modules need is in `tests/support`."""
    for path in (ROOT / "tests").rglob("*.py"):
        shared = {name for name in imports_of(path) if name.split(".")[0] == "tests"}
        shared -= {"tests", "tests.support"}
        assert all(name.startswith("tests.support.") for name in shared), path
        assert "conftest" not in packages_of(path), path
