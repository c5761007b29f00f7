"""Files of the embedded database are for the user that runs the service alone."""

import os
from pathlib import Path


def protect_files(folder: Path, database: Path) -> None:
    """Make the data directory and the database, or take others' rights from them.

    A folder that holds more than ours is left as it is, and the database is closed.
    """
    is_ours = not folder.exists() or database.exists()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if is_ours:
        _close(folder, 0o700)
    # SQLite gives the files beside it the rights of the database.
    os.close(os.open(database, os.O_CREAT | os.O_RDWR, 0o600))
    for path in (database, *(Path(f"{database}{end}") for end in ("-wal", "-shm"))):
        if path.exists():
            _close(path, 0o600)


def _close(path: Path, mode: int) -> None:
    stat = path.stat()
    if stat.st_uid == os.geteuid() and stat.st_mode & 0o777 & ~mode:
        path.chmod(mode)
