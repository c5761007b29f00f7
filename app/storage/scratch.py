"""A temporary folder for each process, and the removal of those that died leave theirs.

All temporary files of a process are made in its own folder, which is locked for as long
as the process lives: the kernel takes the lock back however it ends. So a folder that
nobody has locked is nobody's.
"""

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = "lometab-scratch-"
MIN_AGE = 60.0
"""Seconds; a folder is made before it is locked."""
_OLD_PREFIXES = tuple(
    f"lometab-{kind}-"
    for kind in ("upload", "job", "test", "read", "predict", "decoded")
)
"""Of what earlier versions left, which had no lock."""
_OLD_AGE = 86400.0


@contextmanager
def use_own_folder() -> Iterator[None]:
    """Make the temporary files of this process in a folder of its own, after those of
    the dead are removed. Where no folder can be made, all stays as it was."""
    base = find_base()
    remove_abandoned(base)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        lock = _lock(folder)
    except OSError as error:
        log.error("no temporary folder can be made: %s", error)
        yield
        return
    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        if tempfile.tempdir == str(folder):  # nobody set another meanwhile
            tempfile.tempdir = before if before and Path(before).is_dir() else None
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def find_base() -> Path:
    """Where the folders of processes are made."""
    folder = Path(tempfile.gettempdir())
    return folder.parent if folder.name.startswith(PREFIX) else folder


def list_abandoned(base: Path, *, min_age: float = MIN_AGE) -> Iterator[Path]:
    """What processes left in the folder that do not live any more."""
    for path in base.glob("lometab-*"):
        with suppress(OSError):  # it goes at this moment, or is not ours
            age = time.time() - path.stat().st_mtime
            if path.name.startswith(_OLD_PREFIXES) and age > _OLD_AGE:
                yield path
            elif path.name.startswith(PREFIX) and age > min_age:
                lock = _lock(path)
                if lock is not None:
                    os.close(lock)
                    yield path


def remove_abandoned(base: Path, *, min_age: float = MIN_AGE) -> int:
    """Remove what processes left that do not live any more; how much it was."""
    n_removed = 0
    for path in list_abandoned(base, min_age=min_age):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        n_removed += not path.exists()
    if n_removed:
        log.warning("%s temporary folders of dead processes were removed", n_removed)
    return n_removed


def _lock(folder: Path) -> int | None:
    """The descriptor that holds the lock; None if another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
