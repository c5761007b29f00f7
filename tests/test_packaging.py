"""The wheel and the sdist: what is in them, and that they work where other people have
packages of our names. `tests/support/packages.py` is the long form, with pip."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from lometab.extras import EXTRAS
from tests.support.packages import HOSTILE, build, make_hostile_folder
from tests.support.servers import wait_until

pytestmark = pytest.mark.xdist_group("packages")  # they share what was built

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """The wheel, unpacked."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(built / "site")
    return built / "site"


@pytest.mark.processes
def test_a_wheel_has_one_import_root(installed: Path) -> None:
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {"lometab"}
    service = installed / "lometab" / "_service"
    for name in ("app/cli", "worker/tasks", "migrations/env"):
        found = service / name
        assert found.with_suffix(".py").exists() or (found / "__init__.py").exists()
    assert (service / "migrations" / "script.py.mako").exists()
    assert (installed / "lometab" / "py.typed").exists()
    assert (service / "examples" / "wine_quality.csv").exists()
    page = {path.relative_to(ROOT) for path in (ROOT / "app" / "page").rglob("*.*s")}
    assert len(page) > 20 and all((service / path).exists() for path in page)
    assert not [*installed.rglob("__pycache__")]
    ours = {path.relative_to(ROOT) for path in (ROOT / "migrations").rglob("*.py")}
    assert all((service / path).exists() for path in ours)


@pytest.mark.processes
def test_the_sdist_is_complete(built: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    tracked = {name for name in listed.stdout.split("\n") if (ROOT / name).is_file()}
    assert {*tracked} - names <= {""}
    assert "PKG-INFO" in names


def run(
    folder: Path, site: Path, *command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")}
    return subprocess.run(
        [sys.executable, "-P", *command],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.processes
def test_in_a_hostile_folder_the_service_is_ours(
    installed: Path, tmp_path: Path
) -> None:
    """API, worker and migrations, from the wheel."""
    folder = make_hostile_folder(tmp_path / "theirs")
    data = tmp_path / "data"
    log = tmp_path / "log"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lometab", "serve", "--port", "0"],
            cwd=folder,
            env={
                **kept,
                "PYTHONPATH": str(installed),
                "LOMETAB_DATA_DIR": str(data),
                "LOMETAB_REAPER_SECONDS": "0.2",
                "LOMETAB_EXIT_WITH_PARENT": "true",
            },
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
    assert process.stdin is not None

    def has_worker() -> bool:
        assert process.poll() is None, log.read_text()
        if not re.search(r"http://[\d.]+:\d+", log.read_text()):
            return False
        with sqlite3.connect(data / "lometab.db") as connection:
            (n,) = connection.execute("SELECT count(*) FROM workers").fetchone()
            return int(n) == 1

    try:
        wait_until(has_worker, seconds=90, what=f"the service\n{log.read_text()}")
    finally:
        process.stdin.close()
        process.wait(60)
    assert not (folder / HOSTILE).exists(), (folder / HOSTILE).read_text()


@pytest.mark.processes
def test_the_base_needs_no_extra(installed: Path, tmp_path: Path) -> None:
    """With every package of the extras out of reach, as in a small installation."""
    blocked = sorted({name for names in EXTRAS.values() for name in names})
    code = f"""
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
import lometab
assert "_service" not in sys.path[0]
from lometab import Predictor, TrainConfig, from_preset
for name in ("LoMETabClassifier", "LoMETabRegressor"):
    try:
        getattr(lometab, name)
    except ImportError as error:
        assert isinstance(error, lometab.LoMETabError)
        assert str(error).endswith("pip install 'lometab[train]'"), error
    else:
        raise SystemExit("torch is not needed?")
from lometab.client import Client, show
try:
    with show.open_bar(True, {{}}):
        raise SystemExit("rich is not needed?")
except lometab.LoMETabError as error:
    assert str(error).endswith("pip install 'lometab[cli]'"), error
"""
    done = run(tmp_path, installed, "-c", code)
    assert done.returncode == 0, done.stderr


def test_each_requirement_of_an_extra_is_known_by_its_module() -> None:
    exporter = "opentelemetry.exporter.otlp.proto.http"
    modules = {
        "psycopg[binary]": "psycopg",
        "celery[redis]": "celery",
        "scikit-learn": "sklearn",
        "mlflow-skinny": "mlflow",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "opentelemetry-exporter-otlp-proto-http": exporter,
        "vl-convert-python": "vl_convert",
    }
    extras = PROJECT["optional-dependencies"]
    for extra, known in EXTRAS.items():
        names = [re.split(r"[<>=;]", each)[0].strip() for each in extras[extra]]
        needed = {
            modules.get(name, name).replace("-", "_")
            for name in names
            if not name.startswith("lometab[")
        }
        assert needed <= {*known}, extra
    assert {*extras} == {*EXTRAS, "all", "dev", "gpu"}
    (all_,) = extras["all"]
    assert all_ == "lometab[train,serve,mlflow,otel]"


def test_names_of_the_base_are_few() -> None:
    names = {re.split(r"[<>=;]", each)[0] for each in PROJECT["dependencies"]}
    heavy = {"torch", "pyarrow", "duckdb", "scikit-learn", "scipy", "pandas", "fastapi"}
    assert not names & heavy
    assert json.dumps(sorted(names)).count(",") < 9
