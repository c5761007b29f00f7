"""What this process may use of its machine: CPUs and memory, its control group's limits
included. A container's limits are in its control group; the machine's own figures say
nothing of them."""

import hashlib
import math
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path("/")
FLOPS_PER_SECOND = 2e10
"""What one core does of the products of a large network."""
STEP_SECONDS = 4e-3
"""What a step takes besides: most of it, where a network is small."""
_SECONDS_PER_THREAD = 0.25  # of an epoch on one core, for each thread


def count_cpus(root: Path = ROOT) -> int:
    """CPUs that this process may keep busy: by affinity, and by the quotas of its
    control group and of those above it."""
    counts: list[float] = [count_machine().cpus]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    for folder in _list_groups(root, "cpu"):
        quota, period = _read_quota(folder)
        if quota > 0 and period > 0:
            counts.append(math.ceil(quota / period))
    return max(1, int(min(counts)))


def guess_seconds(flops: float, steps: float) -> float:
    """Of one core, for so much arithmetic in so many steps of the optimiser."""
    return flops / FLOPS_PER_SECOND + steps * STEP_SECONDS


def count_useful_threads(n_cpus: int, seconds_per_epoch: float) -> int:
    """Threads of training that help, of as many as there are CPUs for them.

    Args:
        seconds_per_epoch: of one core, by the estimate. A second thread makes a short
            epoch slower, where others want the CPU by a factor.
    """
    return max(1, min(n_cpus, int(seconds_per_epoch / _SECONDS_PER_THREAD)))


def count_memory(root: Path = ROOT) -> int:
    """Bytes of memory that this process may take at most."""
    limits = [count_machine().memory]
    for folder in _list_groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _read_words(folder / name)
            if words and words[0].isdecimal() and int(words[0]) > 0:
                limits.append(int(words[0]))
    return min(limits)


class Machine(NamedTuple):
    """All that there is, whoever may use it."""

    cpus: int
    memory: int


def count_machine() -> Machine:
    return Machine(os.cpu_count() or 1, int(psutil.virtual_memory().total))


def find_machine(root: Path = ROOT) -> str:
    """A word for this machine, until it starts anew: all its containers see the same.

    The kernel's own is hashed, so that it tells nothing where it is shown.
    """
    boot_id = _read_text(root / "proc/sys/kernel/random/boot_id").strip()
    return hashlib.sha256((boot_id or socket.gethostname()).encode()).hexdigest()[:16]


def count_oom_kills(root: Path = ROOT) -> int:
    """How often the kernel has killed for memory in our control group."""
    for folder in _list_groups(root, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            words = _read_words(folder / name)
            counts = dict(zip(words[::2], words[1::2], strict=False))
            if counts.get("oom_kill", "").isdecimal():
                return int(counts["oom_kill"])
    return 0


def _list_groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of our control group and of those above it, of both versions."""
    top = root / "sys/fs/cgroup"
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            start = top
        elif controller in controllers.split(","):
            start = top / controller
        else:
            continue
        folder = start / path.lstrip("/")
        yield folder
        yield from (each for each in folder.parents if each.is_relative_to(start))


def _read_quota(folder: Path) -> tuple[float, float]:
    """Microseconds of CPU time in each period of so many; 0 if there is no limit."""
    words = _read_words(folder / "cpu.max")
    if not words:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [word for name in names for word in _read_words(folder / name)]
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return 0, 0  # `max`, or -1
    return float(words[0]), float(words[1])


def _read_words(path: Path) -> list[str]:
    return _read_text(path).split()


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
