"""A SQLite database of its own for each test, and a supervisor that does not wait."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.jobs import queue, search
from app.settings import get_settings
from app.storage import db
from worker import health, supervise
from worker.identity import stopping


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "lometab.db"
    engine = db.make_engine(f"sqlite:///{path}")
    db.migrate(engine)
    engine.dispose()
    return path


@pytest.fixture
def sqlite(
    migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """The database of this process, with real commits."""
    shutil.copy(migrated, tmp_path / "lometab.db")
    monkeypatch.setenv("LOMETAB_DATA_DIR", str(tmp_path))
    caches = (get_settings, queue.get_celery, search.get_storage)
    for cached in caches:
        cached.cache_clear()
    engine = db.make_engine(f"sqlite:///{tmp_path}/lometab.db")
    monkeypatch.setattr(db, "get_engine", lambda: engine)
    yield engine
    engine.dispose()
    for cached in caches:
        cached.cache_clear()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PROGRESS_SECONDS", "REQUEST_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(supervise, name, 0.0)
    monkeypatch.setattr(health, "FIRST_PAUSE", 0.0)
    yield
    stopping.clear()
