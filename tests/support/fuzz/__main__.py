"""Coverage-guided fuzzing of all readers of bytes, one after the other.

    python -m tests.support.fuzz [--seconds 900] [--keep 40] [TARGET ...]

Each goes on from the inputs in tests/corpus. Of what it finds, the smallest that
reached other lines of ours are kept there. The exit code is 1 if an input broke a
reader; it is kept too, so that the tests fail until the reader is mended.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.support.fuzz.seeds import make_seeds
from tests.support.fuzz.targets import TARGETS, read_corpus, write_corpus

LIMITS = ("-max_len=4096", "-timeout=20", "-rss_limit_mb=3072")


class Outcome(NamedTuple):
    target: str
    n_runs: int
    coverage: int
    """Edges of our code that were reached."""
    crashes: list[bytes]
    exit_code: int

    @property
    def is_broken(self) -> bool:
        """By an input, or in a way that left none."""
        return bool(self.crashes) or self.exit_code != 0


def fuzz(name: str, seconds: float, keep: int, folder: Path) -> Outcome:
    found, seeds, crashes = (folder / kind for kind in ("found", "seeds", "crash"))
    for path in (found, seeds, crashes):
        path.mkdir()
    _write(seeds, [*read_corpus(name), *make_seeds(name)])
    printed, exit_code = _run(
        name,
        *LIMITS,
        f"-max_total_time={seconds:.0f}",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
        *(str(found), str(seeds)),
    )
    broken = [path.read_bytes() for path in crashes.iterdir()]
    if broken or exit_code != 0:
        Console().print(f"{name}: exit code {exit_code}")
        Console().print(printed[-4000:], highlight=False, markup=False)
    # What it added to the folder reached something new when it was found.
    reached = sorted((path.read_bytes() for path in found.iterdir()), key=len)
    write_corpus(name, [*read_corpus(name), *reached[:keep], *broken])
    return Outcome(
        name,
        _find(r"number_of_executed_units:\s*(\d+)", printed),
        _find(r"cov: (\d+)", printed),
        broken,
        exit_code,
    )


def _run(name: str, *options: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fuzz.one", name, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.stdout, done.returncode


def _write(folder: Path, inputs: Iterable[bytes]) -> None:
    for content in inputs:
        (folder / sha256(content).hexdigest()).write_bytes(content)


def _find(pattern: str, printed: str) -> int:
    """The last number of this kind."""
    found = re.findall(pattern, printed)
    return int(found[-1]) if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=900.0, help="of all together")
    parser.add_argument("--keep", type=int, default=40, help="inputs of each target")
    options = parser.parse_args()
    names = options.targets or [*TARGETS]
    table = Table("reader", "inputs", "edges", "broke it", title="Fuzzing")
    n_broken = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="lometab-fuzz-") as folder:
            share = options.seconds / len(names)
            outcome = fuzz(name, share, options.keep, Path(folder))
        n_broken += outcome.is_broken
        ended = f"{len(outcome.crashes)} inputs" if outcome.is_broken else "nothing"
        table.add_row(name, f"{outcome.n_runs}", f"{outcome.coverage}", ended)
    Console().print(table)
    return 1 if n_broken else 0


if __name__ == "__main__":
    sys.exit(main())
