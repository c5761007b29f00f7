"""docs/security.md names what stops a threat and which test shows it: both exist. So
do the tests that docs/faults.md names."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


class Threat(NamedTuple):
    who: str
    what: str
    stopped: list[str]
    tests: list[str]


def read_threats() -> list[Threat]:
    found = []
    for line in TEXT.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) == 4 and "::" in parts[3]:
            stopped, tests = (re.findall("`([^`]+)`", part) for part in parts[2:])
            found.append(Threat(parts[0], parts[1], stopped, tests))
    return found


THREATS = read_threats()


@cache
def list_functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_no_line_of_the_table_is_passed_over() -> None:
    lines = [line for line in TEXT.splitlines() if line.startswith("| ")]
    assert len(THREATS) == len(lines) - 1 > 20  # but for its head


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.what[:60])
def test_what_a_threat_names_is_there(threat: Threat) -> None:
    assert threat.who and threat.what and threat.stopped and threat.tests
    for place in threat.stopped:
        module, _, name = place.partition(":")
        assert hasattr(import_module(module), name), place
    check_tests(threat.tests)


def check_tests(names: list[str]) -> None:
    for test in names:
        path, _, name = test.partition("::")
        assert name.startswith("test_"), test
        assert name in list_functions(ROOT / path), test


def test_every_fault_has_tests() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == [*range(1, 32)]
    for _, row in rows:
        before, now, tests = row.split(" | ")
        assert before.strip() and now.strip()
        names = re.findall("`(tests/[^`]+)`", tests)
        assert names
        check_tests(names)


def test_the_top_ten_are_gone_through() -> None:
    numbers = re.findall(r"^\*\*API(\d+), ", TEXT, re.MULTILINE)
    assert numbers == [str(n) for n in range(1, 11)]


def test_the_other_page_leads_here() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "(docs/security.md)" in text
    for command in re.findall(r"`lometab (keys \w+)", text):
        assert command in ("keys create", "keys rotate", "keys revoke")
