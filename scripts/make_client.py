"""`make client`: lometab/client/sync.py out of lometab/client/aio.py."""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "lometab" / "client"
DOC = (
    '''"""The client. Made of `aio.py` by `make client`: change that file instead."""'''
)
CHANGES = (
    (r'\A""".*?"""', DOC),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(.*?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"\ba(close|closing|read|iter_lines|iter_bytes)\b", r"\1"),
    (r"\basyncio\b", "time"),
)


def make_sync(text: str) -> str:
    for pattern, new in CHANGES:
        text = re.sub(pattern, new, text, flags=re.DOTALL)
    for options in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        command = [sys.executable, "-m", "ruff", *options, "--stdin-filename"]
        text = subprocess.run(
            [*command, str(FOLDER / "sync.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


if __name__ == "__main__":
    made = make_sync((FOLDER / "aio.py").read_text(encoding="utf-8"))
    (FOLDER / "sync.py").write_text(made, encoding="utf-8")
