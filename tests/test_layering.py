"""Who may import whom: `lometab <- app <- worker`, as code."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WITHOUT_TORCH = [
    "lometab",
    "lometab.cells",
    "lometab.comparison",
    "lometab.config",
    "lometab.data",
    "lometab.errors",
    "lometab.estimate",
    "lometab.evaluation",
    "lometab.metrics",
    "lometab.outcome",
    "lometab.predictor",
    "lometab.preprocessing",
    "lometab.profile",
    "lometab.reading",
    "lometab.report",
    "lometab.scan",
    "lometab.space",
    "lometab.splits",
    "lometab.tables",
    "app.main",
    "app.cli",
    "worker.tasks",
    "worker.train",  # until it is given something to train
]

OURS_IN_WORKER_TASKS = {
    "settings",
    "db",
    "models",
    "blobs",
    "jobs",
    "queue",
    "sweeps",
    "tuning",
}


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


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_process_never_loads_torch(module: str, tmp_path: Path) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    environment = {"LOMETAB_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("path", sorted((ROOT / "lometab").glob("*.py")), ids=str)
def test_library_knows_no_service(path: Path) -> None:
    forbidden = {"app", "worker", "migrations", "fastapi", "sqlalchemy", "celery"}
    assert not packages_of(path) & forbidden
    if path.name not in ("estimator.py", "metrics.py"):
        assert "sklearn" not in packages_of(path)
    if path.name != "client.py":
        assert "httpx" not in packages_of(path)
    if path.name != "profile.py":
        assert "duckdb" not in packages_of(path)
    if path.name not in ("cells.py", "profile.py", "reading.py", "tables.py"):
        assert "pyarrow" not in packages_of(path)


@pytest.mark.parametrize("path", sorted((ROOT / "app").rglob("*.py")), ids=str)
def test_service_knows_no_worker(path: Path) -> None:
    assert not packages_of(path) & {"worker", "torch"}
    if path.name != "settings.py":
        assert "os.environ" not in path.read_text(encoding="utf-8")


def test_tasks_know_no_routes() -> None:
    path = ROOT / "worker" / "tasks.py"
    assert not packages_of(path) & {"torch", "fastapi"}
    of_app = {
        name.split(".")[1] for name in imports_of(path) if name.startswith("app.")
    }
    assert of_app <= OURS_IN_WORKER_TASKS


def test_training_process_knows_no_service() -> None:
    for name in ("train.py", "lifeline.py"):
        path = ROOT / "worker" / name
        assert not packages_of(path) & {"app", "sqlalchemy", "celery", "fastapi"}


def test_migrations_know_the_tables_only() -> None:
    for path in (ROOT / "migrations").rglob("*.py"):
        ours = {
            name
            for name in imports_of(path)
            if name.split(".")[0] in {"app", "worker", "lometab"}
        }
        assert all(name.startswith(("app.models", "app.settings")) for name in ours), (
            path
        )
