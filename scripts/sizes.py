"""Sizes of files and functions at commits, beside each other.

    python scripts/sizes.py COMMIT [COMMIT ...]

Python outside of tests and benchmarks, and the tests by themselves, in lines.
"""

import argparse
import ast
import subprocess
from collections.abc import Iterator
from statistics import median

MOST_LINES = 500
GROUPS = {
    "the product": ("app/", "lometab/", "worker/", "migrations/"),
    "tests": ("tests/",),
}


def read_files(commit: str, folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each Python file's path and text."""
    names = _git("ls-tree", "-r", "--name-only", commit).splitlines()
    for name in names:
        if name.startswith(folders) and name.endswith(".py"):
            yield name, _git("show", f"{commit}:{name}")


def measure_functions(text: str) -> list[int]:
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def describe(commit: str, group: str) -> str:
    files = dict(read_files(commit, GROUPS[group]))
    lengths = {name: text.count("\n") for name, text in files.items()}
    functions = sorted(n for text in files.values() for n in measure_functions(text))
    if not functions:
        return f"{commit}, {group}: nothing"
    large = sorted(
        (name for name, n in lengths.items() if n > MOST_LINES),
        key=lengths.__getitem__,
        reverse=True,
    )
    return (
        f"{commit}, {group}: {len(files)} files, {sum(lengths.values())} lines, "
        f"median {median(lengths.values()):.0f}; {len(functions)} functions, "
        f"median {median(functions):.0f}, 95 % at most "
        f"{functions[int(0.95 * len(functions))]}, longest {functions[-1]}, "
        f"over 50 lines: {sum(n > 50 for n in functions)}\n"
        f"  files over {MOST_LINES} lines: {len(large)}"
        + "".join(f"\n    {lengths[name]} {name}" for name in large)
    )


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs="+")
    for commit in parser.parse_args().commits:
        for group in GROUPS:
            print(describe(commit, group))  # noqa: T201
