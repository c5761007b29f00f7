"""What each shortcut of predict is worth: one row over HTTP with and without it.

    python benchmarks/paths.py [--rounds 60]

One server for each variant, of one process, on one database (SQLite, keys on). One
client asks them in turns, on connections that are kept, so that what else goes on
on the machine hits all of them alike; what counts are ratios. Every run is kept, and
shown in docs/results.md; the figures of docs/decisions/0012-predict-paths.md are those
of the day on which it was decided.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from load import make_request
from record import ROOT, Runs, table, write_section
from serving import (
    Connection,
    Stage,
    bare_run,
    json_rows,
    make_ensemble,
    one_row,
    seconds_of,
    started,
    to_file,
)

from lometab.predictor import Predictor
from tests.support.servers import free_port

OURS = "as it is"
EMPTY, BARE = "an empty route", "a bare run"
INSIDE = "a bare run in an empty route"
VARIANTS = {
    OURS: ("", "app.protocol:Protocol"),
    "without the event loop": (
        "from app.serving import quick; quick.QuickRequests.allow = lambda *_: False",
        "app.protocol:Protocol",
    ),
    "without data_version": (
        "from app.storage import db; db.find_version = lambda: None",
        "app.protocol:Protocol",
    ),
    "without limits on connections": ("", "httptools"),
}
"""What is changed in the process before it serves, and uvicorn's protocol."""
PROGRAM = """
{change}
from app.observe import configure_logging
configure_logging()
import uvicorn
uvicorn.run("app.main:app", port={port}, http={protocol!r}, log_level="warning",
            access_log=False, timeout_keep_alive=3600)
"""
N_CALLS = 30


def serve_variant(stack: ExitStack, stage: Stage, name: str) -> int:
    change, protocol = VARIANTS[name]
    port = free_port()
    code = PROGRAM.format(change=change, port=port, protocol=protocol)
    environment = {
        **os.environ,
        "LOMETAB_DATA_DIR": str(stage.folder),
        "LOMETAB_REQUIRE_KEYS": "true",
        "PYTHONPATH": str(ROOT),
    }
    stack.enter_context(started([sys.executable, "-c", code], port, environment))
    return port


def serve_nothing(stack: ExitStack, n_bytes: int, **more: str) -> int:
    """
    Args:
        more: variables of its environment.
    """
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "nothing:app", "--port", str(port)]
    command += ["--log-level", "warning", "--no-access-log"]
    command += ["--timeout-keep-alive", "3600"]
    environment = {**os.environ, "N_BYTES": str(n_bytes), **more}
    stack.enter_context(started(command, port, environment, ROOT / "benchmarks"))
    return port


def take_rounds(
    ways: dict[str, Callable[[], object]], n_rounds: int
) -> dict[str, list[float]]:
    """For each way the median seconds of every round; each round begins elsewhere."""
    names = [*ways]
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(n_rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            ways[name]()  # the caches are someone else's
            spent = [seconds_of(ways[name]) for _ in range(N_CALLS)]
            times[name].append(median(spent))
    return times


def summarise(times: dict[str, list[float]], n_rounds: int) -> dict[str, Any]:
    """Of each way the microseconds of its fastest rounds, and the median over rounds of
    its ratio to ours."""
    base = times[OURS]
    return {
        name: {
            "us": 1e6 * median(sorted(each)[: max(1, n_rounds // 4)]),
            "ratio": median(a / b for a, b in zip(each, base, strict=True)),
        }
        for name, each in times.items()
    }


def write_results(runs: Runs) -> None:
    lines = []
    for key, found in runs:
        ours, inside = found[OURS]["us"], found[INSIDE]["us"]
        apart = found[EMPTY]["us"] + found[BARE]["us"]
        lines.append(
            [
                key["run"],
                f"{ours:.0f}",
                f"{found[EMPTY]['us']:.0f} + {found[BARE]['us']:.0f}",
                f"{inside:.0f}",
                f"{ours / apart:.2f}",
                f"{inside / apart:.2f}",
                f"{ours / inside:.2f}",
                *(f"{found[name]['ratio']:.2f}" for name in VARIANTS if name != OURS),
            ]
        )
    header = [
        "run",
        "ours",
        f"{EMPTY} + {BARE}",
        INSIDE,
        "ours over both",
        f"{INSIDE} over both",
        "ours over that",
        *(f"ours {name}" for name in VARIANTS if name != OURS),
    ]
    write_section(
        "paths",
        "## Where one row's time goes\n\nThe *small* model, one client, one server "
        "process, in microseconds, the fastest quarter of rounds; the last columns are "
        "ratios to ours, median over rounds. Bar for ours over both: at most 1.7.\n\n"
        + table(header, lines),
    )


def measure(n_rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        stage = Stage(Path(temporary))
        content = to_file(make_ensemble("small"))
        with stage.serve() as server:
            stage.publish(server.port, {"small": content})
        row = one_row("small")
        request = make_request(stage.path("small"), json_rows(row), key=stage.key)
        ways: dict[str, Callable[[], object]] = {}
        for name in VARIANTS:
            connection = Connection(serve_variant(stack, stage, name), request)
            n_bytes = len(connection.ask())
            ways[name] = connection.ask
        nothing = Connection(serve_nothing(stack, n_bytes), request)
        ways[EMPTY] = nothing.ask
        model = Path(temporary) / "small.onnx"
        model.write_bytes(content)
        port = serve_nothing(stack, n_bytes, MODEL=str(model), SHAPE="small")
        ways[INSIDE] = Connection(port, request).ask
        ways[BARE] = bare_run(
            Predictor(content), {name: [value] for name, value in row.items()}
        )
        return summarise(take_rounds(ways, n_rounds), n_rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    n_rounds = parser.parse_args().rounds
    runs = Runs("paths")
    key = {"rounds": n_rounds, "run": len([*runs]) + 1}
    runs.get(key, lambda: measure(n_rounds))
    write_results(runs)


if __name__ == "__main__":
    main()
