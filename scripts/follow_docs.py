"""Follow pages of the documentation line by line, in an empty directory.

    python scripts/follow_docs.py                  # README, client, Start and Do
    python scripts/follow_docs.py docs/start/client.md
    python scripts/follow_docs.py --write          # put what was printed into the pages

A service of its own runs beside them, with the embedded default, and stands for the
address that pages name. Every `sh` and `python` block of a page is run in its order;
the blocks of a page share their variables. A `text` block right after one is what it
printed. Ids and times differ from run to run and are not compared; words and whole
numbers have to be the same, and a figure with decimals within 1 %, as processors round
differently and training adds it up. Before a block may stand

    <!-- not run: why -->     it is left out, and the reason is listed
    <!-- needs: node -->      it is left out where `make onnx-node` was not run
    <!-- file: name -->       it is written to that file
"""

import argparse
import contextlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "http://127.0.0.1:8000"
"""What pages call the service."""
NO_SERVICE = "<!-- follow: no service -->"
"""A page that says so works on its own data directory."""
NO_NODE = "there is no onnxruntime-node: `make onnx-node` installs it"
NODE_MODULES = ROOT / "build" / "onnx-node" / "node_modules"
_FENCE = re.compile(
    r"(?:<!-- (?P<mark>not run|needs|file): (?P<about>[^>]*?) -->\n)?"
    r"^```(?P<language>sh|python|js)\n(?P<code>.*?)^```\n"
    r"(?P<shown>\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)"
)
CLOSE = 0.01
"""How far a figure may be from the one that is shown, as a share of it."""
_KEEP = '\ndeclare -f > "$STATE"; export -p >> "$STATE"'


@dataclass
class Block:
    """One block of a page, and what came of it."""

    language: str
    code: str
    line: int
    reason: str | None = None
    file: str | None = None
    expected: str | None = None
    printed: str | None = None

    @property
    def is_as_shown(self) -> bool:
        if self.expected is None or self.printed is None:
            return True
        return is_alike(self.expected, self.printed)


def list_pages() -> list[Path]:
    """README, the client, Start and Do."""
    found = [p for part in ("start", "do") for p in (ROOT / "docs" / part).glob("*.md")]
    return [ROOT / "README.md", ROOT / "docs" / "client.md", *sorted(found)]


def name_of(page: Path) -> str:
    inside = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name
    return str(inside)


def read_blocks(text: str) -> list[Block]:
    return [
        Block(
            language=found["language"],
            code=found["code"],
            line=text.count("\n", 0, found.start("language")) + 1,
            reason=_find_reason(found["mark"], found["about"]),
            file=found["about"] if found["mark"] == "file" else None,
            expected=found["output"],
        )
        for found in _FENCE.finditer(text)
    ]


def _find_reason(mark: str | None, about: str | None) -> str | None:
    """Why a block is left out, if it is."""
    if mark == "needs":
        has_node = NODE_MODULES.is_dir() and shutil.which("node") is not None
        return None if has_node else NO_NODE
    return about if mark == "not run" else None


def is_alike(shown: str, printed: str) -> bool:
    """Whether the words and whole numbers are the same and the other numbers close."""
    numbers = [_NUMBER.findall(_mask_ids(text)) for text in (shown, printed)]
    has_same_words = list_words(shown) == list_words(printed)
    return has_same_words and all(map(_is_close, *numbers))


def list_words(text: str) -> list[str]:
    """The lines without their numbers, ids, and how wide columns and bars are."""
    text = _NUMBER.sub("#", _mask_ids(text))
    lines = (re.sub(r"[\s─━═█·|-]+", " ", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def _mask_ids(text: str) -> str:
    text = re.sub(r"\b(job|mdl|ds|key|wh|msg|whsec|req)_[\w+/=-]+", r"\1_id", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?", "(time)", text)
    return re.sub(r"\b[0-9a-f]{32,}\b", "(hash)", text)


def _is_close(shown: str, printed: str) -> bool:
    """Digits that are not shown may differ, too."""
    is_whole = "." not in shown + printed and "e" not in shown + printed
    if is_whole:
        return shown == printed
    digits = len(shown.partition("e")[0].partition(".")[2])
    unit = 0.0 if "e" in shown else 1.5 * 10.0**-digits
    values = [float(each.replace(",", "")) for each in (shown, printed)]
    return math.isclose(*values, rel_tol=CLOSE, abs_tol=unit)


def follow(page: Path, url: str, folder: Path) -> list[Block]:
    """Run the blocks of a page; the first that fails is raised with what it said."""
    text = page.read_text(encoding="utf-8")
    blocks = read_blocks(text)
    state = folder / ".state"
    state.touch()
    environment = _make_environment(folder, state)
    if NO_SERVICE not in text:
        environment["LOMETAB_URL"] = url
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks:
        if block.reason is not None:
            continue
        code = block.code.replace(ADDRESS, url)
        if block.file is not None:
            Path(block.file).write_text(code, encoding="utf-8")
            continue
        run = _run_shell if block.language == "sh" else _run_python
        try:
            printed = run(code, names)
        except BaseException as error:
            where = f"{name_of(page)}, line {block.line}"
            raise RuntimeError(f"{where}: {error}") from error
        block.printed = printed.replace(url, ADDRESS).replace(str(folder), ".")
    return blocks


def _make_environment(folder: Path, state: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LOMETAB_DATA_DIR": str(folder / ".data"),
        "LOMETAB_TRAINING_THREADS": "1",
        "NODE_PATH": str(NODE_MODULES),
        "STATE": str(state),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONWARNINGS": "ignore",
    }


def _run_shell(code: str, names: dict[str, Any]) -> str:
    script = f'. "$STATE"\nset -a\n{code}{_KEEP}'
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _run_python(code: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<page>", "exec"), names)
    return printed.getvalue()


def write_outputs(page: Path, blocks: list[Block]) -> None:
    """Put what blocks printed where the page shows it."""
    text = page.read_text(encoding="utf-8")
    places = [*_FENCE.finditer(text)]
    for found, block in reversed([*zip(places, blocks, strict=True)]):
        if found["shown"] and block.printed is not None:
            begin, end = found.span("output")
            text = text[:begin] + _trim(block.printed) + text[end:]
    page.write_text(text, encoding="utf-8")


def _trim(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The service on a free port, until the block ends; its address."""
    log = folder / "service.log"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")}
    environment |= {
        "LOMETAB_DATA_DIR": str(folder / "data"),
        "LOMETAB_TRAINING_THREADS": "1",
        "LOMETAB_WEBHOOK_NETWORKS": "127.0.0.1/32",
        "LOMETAB_WEBHOOK_POLL_SECONDS": "0.5",
        "LOMETAB_EXIT_WITH_PARENT": "true",
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
        )
    try:
        yield read_address(process, log)
    finally:
        process.terminate()
        process.wait(timeout=60)
        assert process.stdin is not None
        process.stdin.close()


def read_address(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(1200):
        said = log.read_text(errors="replace")
        found = re.search(r"http://[\d.]+:\d+", said)
        if found:
            return found[0]
        if process.poll() is not None:
            raise RuntimeError(f"the service ended\n{said}")
        time.sleep(0.1)
    raise RuntimeError("the service has not begun to listen within two minutes")


def make_empty(folder: Path) -> Path:
    """A directory with nothing in it but the example that the repository has."""
    folder.mkdir()
    (folder / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "wine_quality.csv", folder / "examples")
    return folder


def follow_apart(
    page: Path, url: str, folder: Path, python: Path = Path(sys.executable)
) -> list[Block]:
    """The same in a process of its own, so that pages do not see each other.

    Args:
        page: what is followed.
        url: of the service that stands for the one that pages name.
        folder: where its lines are run; it is made if it is not there.
        python: whose environment its lines see.
    """
    if not folder.exists():
        make_empty(folder)
    done = subprocess.run(
        [python, __file__, "--url", url, "--json", folder, page],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-6000:])
    return [Block(**each) for each in json.loads(done.stdout)]


def report(page: Path, blocks: list[Block], seconds: float) -> bool:
    """Tell of a page; whether all of it is as it says."""
    n_run = sum(block.printed is not None for block in blocks)
    n_shown = sum(block.expected is not None for block in blocks)
    say(f"{name_of(page)}: {n_run} blocks, {n_shown} outputs, {seconds:.1f} s")
    for block in blocks:
        if block.reason is not None:
            say(f"  line {block.line} was not run: {block.reason}")
        if not block.is_as_shown:
            say(f"  line {block.line} printed something else:\n{block.printed}")
    return all(block.is_as_shown for block in blocks)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="put outputs into pages")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.json:  # one page, in this process
        blocks = follow(asked.pages[0], asked.url, asked.json)
        say(json.dumps([vars(block) for block in blocks]))
        return 0
    is_right = True
    with tempfile.TemporaryDirectory(prefix="lometab-docs-") as name:
        with serve(Path(name)) as url:
            for i, page in enumerate(asked.pages or list_pages()):
                start = time.monotonic()
                blocks = follow_apart(page.resolve(), url, Path(name) / f"page-{i}")
                if asked.write:
                    write_outputs(page.resolve(), blocks)
                seconds = time.monotonic() - start
                is_right &= report(page.resolve(), blocks, seconds) or asked.write
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
