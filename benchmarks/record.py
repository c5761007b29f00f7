"""What benchmarks share: their stored runs, and their sections of docs/results.md.

A finished run is one JSON line in `benchmarks/results/<benchmark>.jsonl`, written at
once, so that a benchmark that was stopped goes on where it was. Its section of the
results is made from those lines alone.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lometab.config import TrainConfig
from lometab.train import Progress

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
HEADING = "# Results\n\nWritten by the scripts in `benchmarks/`; do not edit.\n"


FORMER = {
    "n_blocks": 2,
    "d_block": 192,
    "dropout": 0.1,
    "mask_init": "column",
    "bin_edges": "quantile",
    "ema": 0.0,
    "stop_on": "score",
}
"""What the default preset was until the suite found a better one."""


def former(**settings: Any) -> TrainConfig:
    """The former default with other settings: runs stored before are named by it."""
    return TrainConfig(**{**FORMER, **settings})


class Runs:
    """The stored runs of one benchmark; `key` names a run, `result` is what it gave."""

    def __init__(self, benchmark: str) -> None:
        self.path = RESULTS / f"{benchmark}.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self._runs = [_complete(json.loads(line)) for line in lines]

    def __iter__(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        return ((run["key"], run["result"]) for run in self._runs)

    def find(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result of the run with this key, or None if it has not been made."""
        wanted = json.loads(json.dumps(key))
        found = (run["result"] for run in self._runs if run["key"] == wanted)
        return next(found, None)

    def get(
        self, key: Mapping[str, Any], make: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The stored result, or that of `make`, which is stored."""
        result = self.find(key)
        if result is not None:
            return result
        run = {"key": dict(key), "result": make()}
        RESULTS.mkdir(exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(run) + "\n")
        self._runs.append(json.loads(json.dumps(run)))
        return run["result"]

    def put(self, key: Mapping[str, Any], result: dict[str, Any]) -> None:
        """Store a result in place of an earlier one with this key."""
        wanted = json.loads(json.dumps(key))
        kept = [run for run in self._runs if run["key"] != wanted]
        self._runs = [*kept, json.loads(json.dumps({"key": key, "result": result}))]
        RESULTS.mkdir(exist_ok=True)
        lines = [json.dumps(run) + "\n" for run in self._runs]
        self.path.write_text("".join(lines))


def _complete(run: dict[str, Any]) -> dict[str, Any]:
    """A run of a version that had fewer settings: it had the former defaults."""
    config = run["key"].get("config")
    if config is not None:
        run["key"]["config"] = asdict(former(**config))
    return run


def settings(config: TrainConfig) -> dict[str, Any]:
    """What tells the config from the defaults, and what tells LoMETab runs apart."""
    always = {"k", "rank", "sigma_init", "n_blocks", "d_block", "dropout", "lr"}
    default = asdict(former())
    return {
        name: value
        for name, value in asdict(config).items()
        if name in always or value != default[name]
    }


def show(config: TrainConfig, *, without: Iterable[str] = ()) -> str:
    """The settings on one line."""
    pairs = settings(config).items()
    return ", ".join(f"{name} {value}" for name, value in pairs if name not in without)


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    names = [*header]
    lines = [names, ["---"] * len(names), *([str(cell) for cell in r] for r in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_section(benchmark: str, text: str, path: Path = PAGE) -> None:
    """Put the benchmark's section in a page, in place of its earlier one."""
    begin, end = f"<!-- begin {benchmark} -->\n", f"<!-- end {benchmark} -->\n"
    page = path.read_text() if path.exists() else HEADING
    if begin not in page:
        page += f"\n{begin}{end}"
    before, rest = page.split(begin)
    after = rest.split(end)[1]
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{before}{begin}{text.strip()}\n{end}{after}")
    print(f"wrote the section {benchmark!r} of {path.relative_to(ROOT)}")


def progress_line(name: str) -> Callable[[Progress], None]:
    """For `on_epoch`: one line that is rewritten, or a line now and then in a log."""
    is_terminal = sys.stderr.isatty()

    def on_epoch(progress: Progress) -> None:
        line = (
            f"{name}: epoch {progress.epoch}, score {progress.val_score:.5f}, best "
            f"{progress.best_score:.5f} in epoch {progress.best_epoch}, "
            f"{progress.seconds:.0f} s"
        )
        if is_terminal:
            print(f"\r{line:<100}", end="", file=sys.stderr, flush=True)
        elif progress.epoch % 10 == 1:
            print(line, file=sys.stderr, flush=True)

    return on_epoch
