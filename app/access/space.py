"""Space on disk: what is to be stored is refused while there is still some left."""

import shutil
import tempfile
from pathlib import Path
from time import monotonic

from app.errors import DiskFull
from app.settings import Settings

_HELD_SECONDS = 1.0
_free: dict[Path, tuple[float, int]] = {}
"""By folder: until when it holds, and the bytes that were free."""


def check_space(settings: Settings, n_bytes: int) -> None:
    """Raise DiskFull if storing so many bytes would leave less than is to be left."""
    for folder in list_folders(settings):
        free = find_free(folder)
        if free - n_bytes < settings.min_free_bytes:
            raise DiskFull(
                f"{free // 2**20} MiB are free on disk, and {n_bytes // 2**20} MiB "
                f"are to be stored with {settings.min_free_bytes // 2**20} MiB left; "
                "delete datasets, jobs and models that are not needed, or ask who runs "
                "the service for a larger disk"
            )


def list_folders(settings: Settings) -> list[Path]:
    """Where this process writes: files that arrive, and the embedded database."""
    spool = Path(tempfile.gettempdir())
    return [spool, settings.data_dir] if settings.is_embedded else [spool]


def find_free(folder: Path) -> int:
    """Bytes, as they were a moment ago."""
    until, free = _free.get(folder, (0.0, 0))
    if monotonic() > until:
        try:
            free = shutil.disk_usage(folder).free
        except FileNotFoundError:  # the data directory, before there is anything in it
            return find_free(folder.absolute().parent)
        _free[folder] = monotonic() + _HELD_SECONDS, free
    return free
