"""`make client`: the package lometab/client/sync out of lometab/client/aio."""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "lometab" / "client"
DOC = """\
{}

Made of `aio/{}` by `make client`: change that file instead.
"""
CHANGES = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(.*?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"\ba(close|closing|read|iter_lines|iter_bytes)\b", r"\1"),
    (r"\basyncio\b", "time"),
    (r"\bclient\.aio\b", "client.sync"),
)


def make_sync() -> dict[str, str]:
    """The name of each module, and its text."""
    return {
        path.name: _format(_translate(path), path.name)
        for path in sorted((FOLDER / "aio").glob("*.py"))
    }


def _translate(path: Path) -> str:
    _, doc, rest = path.read_text(encoding="utf-8").split('"""', 2)
    first = "The client." if path.stem == "__init__" else doc
    for pattern, new in CHANGES:
        rest = re.sub(pattern, new, rest, flags=re.DOTALL)
    return f'"""{DOC.format(first, path.name)}"""{rest}'


def _format(text: str, name: str) -> str:
    for options in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        command = [sys.executable, "-m", "ruff", *options, "--stdin-filename"]
        text = subprocess.run(
            [*command, str(FOLDER / "sync" / name), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


if __name__ == "__main__":
    (FOLDER / "sync").mkdir(exist_ok=True)
    for name, text in make_sync().items():
        (FOLDER / "sync" / name).write_text(text, encoding="utf-8")
