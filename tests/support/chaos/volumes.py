"""Small disks that can be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NoVolume(Exception):
    """No disk can be mounted here: that needs root, and leave to mount."""


@contextmanager
def small_volume(path: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own at the path, in memory."""
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs"]
    try:
        subprocess.run([*command, str(path)], check=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoVolume(f"no disk can be mounted at {path}: {error}") from None
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def full(volume: Path) -> Iterator[None]:
    """The disk has no byte left, for as long as this lasts."""
    ballast = volume / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    try:
        yield
    finally:
        ballast.unlink()
