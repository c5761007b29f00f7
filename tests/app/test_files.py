"""Files of the embedded database: nobody else on the machine may read them."""

import os
from pathlib import Path

import pytest

from app.storage.files import protect_files


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def usual_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_what_is_made_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "data"
    protect_files(folder, folder / "lometab.db")
    assert rights(folder) == 0o700
    assert rights(folder / "lometab.db") == 0o600


def test_what_was_made_by_an_older_version_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    names = ("lometab.db", "lometab.db-wal", "lometab.db-shm")
    for name in names:
        (folder / name).write_bytes(b"")
    assert rights(folder) == 0o755
    protect_files(folder, folder / "lometab.db")
    assert rights(folder) == 0o700
    assert [rights(folder / name) for name in names] == [0o600] * 3


def test_a_folder_of_somebody_else_stays_open(tmp_path: Path) -> None:
    """Such as one's home, given as the data directory."""
    (tmp_path / "other").write_text("")
    tmp_path.chmod(0o755)
    protect_files(tmp_path, tmp_path / "lometab.db")
    assert rights(tmp_path) == 0o755
    assert rights(tmp_path / "lometab.db") == 0o600
    assert rights(tmp_path / "other") == 0o644


def test_stricter_rights_stay(tmp_path: Path) -> None:
    database = tmp_path / "lometab.db"
    database.write_bytes(b"")
    database.chmod(0o600)
    tmp_path.chmod(0o500)
    try:
        protect_files(tmp_path, database)
        assert rights(tmp_path) == 0o500
    finally:
        tmp_path.chmod(0o700)
