"""CPUs and memory of a container are those of its control group."""

import os
from pathlib import Path

import psutil
import pytest

from lometab.machine import (
    count_cpus,
    count_memory,
    count_oom_kills,
    find_machine,
)

N_CPUS = len(os.sched_getaffinity(0))
TOTAL = psutil.virtual_memory().total


def write(root: Path, group: str, **files: str) -> None:
    folder = root / "sys/fs/cgroup" / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def enter(root: Path, *lines: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines))


def test_without_a_group_the_machine_counts(tmp_path: Path) -> None:
    assert count_cpus(tmp_path) == N_CPUS
    assert count_memory(tmp_path) == TOTAL


@pytest.mark.parametrize(("quota", "expected"), [("max", N_CPUS), ("50000", 1)])
def test_the_quota_of_the_second_version(
    tmp_path: Path, quota: str, expected: int
) -> None:
    enter(tmp_path, "0::/box")
    write(tmp_path, "box", cpu__max=f"{quota} 100000", memory__max="max")
    assert count_cpus(tmp_path) == expected
    assert count_memory(tmp_path) == TOTAL


def test_the_strictest_group_above_counts(tmp_path: Path) -> None:
    enter(tmp_path, "0::/outer/inner")
    write(tmp_path, "outer", cpu__max="100000 100000", memory__max="1000000")
    write(tmp_path, "outer/inner", cpu__max="max 100000", memory__max="2000000")
    assert count_cpus(tmp_path) == 1
    assert count_memory(tmp_path) == 1_000_000


def test_the_limits_of_the_first_version(tmp_path: Path) -> None:
    enter(tmp_path, "4:memory:/box", "3:cpu,cpuacct:/box")
    write(tmp_path, "memory/box", memory__limit_in_bytes="3000000")
    write(tmp_path, "cpu/box", **{"cpu.cfs_quota_us": "100000"})
    write(tmp_path, "cpu/box", **{"cpu.cfs_period_us": "100000"})
    assert count_memory(tmp_path) == 3_000_000
    assert count_cpus(tmp_path) == 1


def test_no_limit_of_the_first_version(tmp_path: Path) -> None:
    enter(tmp_path, "4:memory:/", "3:cpu,cpuacct:/")
    write(tmp_path, "memory", memory__limit_in_bytes="9223372036854771712")
    write(tmp_path, "cpu", **{"cpu.cfs_quota_us": "-1"})
    write(tmp_path, "cpu", **{"cpu.cfs_period_us": "100000"})
    assert count_memory(tmp_path) == TOTAL
    assert count_cpus(tmp_path) == N_CPUS


def test_an_affinity_mask_counts(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert count_cpus(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_all_containers_of_a_machine_have_one_word_for_it(tmp_path: Path) -> None:
    words = []
    for name, boot_id in (("a", "one"), ("b", "one"), ("c", "two")):
        folder = tmp_path / name / "proc/sys/kernel/random"
        folder.mkdir(parents=True)
        (folder / "boot_id").write_text(f"{boot_id}\n")
        words.append(find_machine(tmp_path / name))
    assert words[0] == words[1] != words[2]
    assert "one" not in words
    assert find_machine(tmp_path / "nothing")  # by its name then


def test_kills_are_counted_in_the_group_we_are_in(tmp_path: Path) -> None:
    assert count_oom_kills(tmp_path) == 0
    enter(tmp_path, "0::/outer/inner")
    write(tmp_path, "outer", memory__events="low 0\noom 4\noom_kill 3")
    write(tmp_path, "outer/inner", memory__events="low 0\noom 2\noom_kill 1")
    assert count_oom_kills(tmp_path) == 1


def test_kills_of_the_first_version(tmp_path: Path) -> None:
    enter(tmp_path, "4:memory:/box")
    text = "oom_kill_disable 0\nunder_oom 0\noom_kill 2"
    write(tmp_path, "memory/box", memory__oom_control=text)
    assert count_oom_kills(tmp_path) == 2
