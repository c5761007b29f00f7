"""Follow README and Start as somebody does who has nothing but the repository.

    python -m scripts.follow_clone              # all of it
    python -m scripts.follow_clone readme command
    python -m scripts.follow_clone --tests      # with `make test`, as README says it

In an empty directory, with a clone of what is committed:

- readme: its two commands, then its other blocks beside the service that `make serve`
  has started. `make test` takes as long as all of this, so it is run if asked for.
- library, command, service: the lines of that section of the page Install, pip among
  them, in an environment of their own; then the pages that the section goes on to, in
  an empty directory, so that what they import is what pip has installed. A page with
  lines for pip gets an environment of its own as well.
- compose: there need be no engine. Its lines before `docker` are run; every file that
  docker-compose.yml mounts has to be there then, and its schema has to hold. Each of
  its services is started by its own command in tests/deploy/test_compose.py.

pip is kept to the versions of constraints.txt, by its variable PIP_CONSTRAINT: nothing
else is changed about the lines, but that the service takes a free port.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from scripts import follow_docs
from scripts.follow_docs import Block, read_blocks, say

ROOT = Path(__file__).resolve().parents[1]
SERVE = re.compile(r"^(?:make|lometab) serve\b", re.MULTILINE)
"""A line that does not end by itself."""
NO_URL = "http://127.0.0.1:9"
"""For pages that ask no service."""
SECTIONS = {
    "library": "The library",
    "command": "The command",
    "service": "The service on one machine",
}
SECONDS = 3600


class Walk:
    """One way through README and Start, in an empty directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "lometab"
        self.is_right = True
        self.n_environments = 0
        command = ["git", "clone", "--quiet", str(ROOT), str(self.clone)]
        subprocess.run(command, check=True)

    # Places

    def make_environment(self) -> Path:
        """A clean one; its Python."""
        self.n_environments += 1
        folder = self.folder / f"environment-{self.n_environments}"
        venv.create(folder, with_pip=True)
        return folder / "bin" / "python"

    def list_variables(self, python: Path | None = None) -> dict[str, str]:
        left_out = ("LOMETAB_", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        if python is not None:
            kept["PATH"] = f"{python.parent}{os.pathsep}{kept['PATH']}"
        return {
            **kept,
            "PIP_CONSTRAINT": str(self.clone / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "LOMETAB_DATA_DIR": str(self.folder / "data"),
            "LOMETAB_PORT": "0",
            "LOMETAB_TRAINING_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }

    # Lines

    def run(self, code: str, python: Path | None = None) -> None:
        """Lines of a block, in the clone, until they end."""
        say("".join(f"  $ {line}\n" for line in code.strip().splitlines()).rstrip())
        start = time.monotonic()
        done = subprocess.run(
            ["bash", "-eu", "-c", code],
            cwd=self.clone,
            env=self.list_variables(python),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        say(f"    {time.monotonic() - start:.0f} s")
        if done.returncode:
            raise SystemExit(f"exit {done.returncode}\n{done.stdout[-6000:]}")

    @contextlib.contextmanager
    def serve(self, code: str, python: Path | None = None) -> Iterator[str]:
        """The line that starts the service; its address."""
        say(f"  $ {code.strip()}")
        log = self.folder / "service.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-eu", "-c", code],
                cwd=self.clone,
                env=self.list_variables(python),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            yield follow_docs.read_address(process, log)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=120)

    def follow(self, page: Path, url: str, python: Path, folder: Path) -> None:
        """The blocks of a page that are run in any case, and what they print."""
        start = time.monotonic()
        blocks = follow_docs.follow_apart(page, url, folder, python)
        seconds = time.monotonic() - start
        for block in blocks:  # they were run here
            block.reason = None if is_ours(block) else block.reason
        self.is_right &= follow_docs.report(page, blocks, seconds)

    # Parts

    def readme(self, with_tests: bool = False) -> None:
        page = self.clone / "README.md"
        lines, serve = part(list_lines(page.read_text(encoding="utf-8")))
        self.run(lines)
        if with_tests:
            self.run("make test")
        python = self.clone / ".venv" / "bin" / "python"
        with self.serve(serve) as url:
            self.follow(page, url, python, self.clone)

    def section(self, name: str) -> None:
        """A way of the page Install, and the pages after it."""
        install = self.clone / "docs" / "start" / "install.md"
        text = cut(install.read_text(encoding="utf-8"), SECTIONS[name])
        page = self.folder / f"install-{name}.md"
        page.write_text(text, encoding="utf-8")
        python = self.make_environment()
        lines, serve = part(list_lines(text))
        self.run(lines, python)
        with contextlib.ExitStack() as stack:
            url = stack.enter_context(self.serve(serve, python)) if serve else NO_URL
            self.follow(page, url, python, self.folder / f"empty-install-{name}")
            for each in list_next(text):
                self.page(install.with_name(each), url, python)
        shutil.rmtree(python.parents[1])

    def page(self, page: Path, url: str, python: Path) -> None:
        lines = list_lines(page.read_text(encoding="utf-8"))
        if lines:
            python = self.make_environment()
            self.run(lines, python)
        self.follow(page, url, python, self.folder / f"empty-{page.stem}")

    def compose(self) -> None:
        install = self.clone / "docs" / "start" / "install.md"
        text = cut(install.read_text(encoding="utf-8"), "Compose")
        (block,) = read_blocks(text)
        self.run(block.code.partition("docker ")[0])
        compose = (self.clone / "docker-compose.yml").read_text(encoding="utf-8")
        files = re.findall(r"(?:file: |- \")(\./[\w./-]+)", compose)
        missing = [name for name in files if not (self.clone / name).exists()]
        checker = Path(sys.executable).with_name("check-jsonschema")
        schema = "--builtin-schema vendor.compose-spec docker-compose.yml"
        self.run(f"{checker} {schema}")
        say(f"{len(files)} files of docker-compose.yml, missing: {missing or 'none'}")
        say("  `docker compose` was not run: tests/deploy/test_compose.py starts each")
        self.is_right &= bool(files) and not missing


def is_ours(block: Block) -> bool:
    """Whether a block is left out elsewhere because this script runs it."""
    return "make follow-clone" in (block.reason or "")


def list_lines(text: str) -> str:
    """Those of a page that only this script runs."""
    return "".join(block.code for block in read_blocks(text) if is_ours(block))


def list_next(text: str) -> list[str]:
    """The pages that a section goes on to."""
    return re.findall(r"\]\((\w+\.md)\)", text.partition("Next: ")[2])


def cut(text: str, title: str) -> str:
    """The section of a page under a title."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise LookupError(f"there is no section {title!r}")
    return found[1]


def part(code: str) -> tuple[str, str]:
    """The lines before the one that serves, and that one."""
    found = SERVE.search(code)
    return (code[: found.start()], code[found.start() :]) if found else (code, "")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("readme", *SECTIONS, "compose")
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(parts))
    parser.add_argument("--tests", action="store_true", help="run `make test` as well")
    asked = parser.parse_args()
    if unknown := {*asked.parts} - {*parts}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="lometab-clone-") as name:
        walk = Walk(Path(name))
        for each in asked.parts or parts:
            say(f"# {each}")
            if each in SECTIONS:
                walk.section(each)
            elif each == "readme":
                walk.readme(asked.tests)
            else:
                walk.compose()
    return 0 if walk.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
