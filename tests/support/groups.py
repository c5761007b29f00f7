"""Tests of a file that share what is dear go to one worker.

pytest-xdist tells a group by a suffix of the test's name, which pytest 9.2 ignores: the
marker alone has no effect there. So the file is read for it.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

_MARK = re.compile(r"^pytestmark = .*?xdist_group\(\"([^\"]+)\"\)", re.M | re.S)


@cache
def find_group(path: Path) -> str | None:
    """The group of all tests of a file, if it has one."""
    found = _MARK.search(path.read_text(encoding="utf-8"))
    return found and found[1]


class ByGroup(LoadScopeScheduling):
    """One worker for a group; tests of no group go wherever there is room."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self.root = config.rootpath

    def _split_scope(self, nodeid: str) -> str:
        return find_group(self.root / nodeid.partition("::")[0]) or nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer
) -> Scheduling | None:
    """As `--dist=loadgroup` would have it."""
    return ByGroup(config, log) if config.getvalue("dist") == "loadgroup" else None
