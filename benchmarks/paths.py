"""What each shortcut of predict is worth: one row over HTTP with and without it.

    python benchmarks/paths.py [--rounds 60]

One server for each variant, of one process, on one database (SQLite, keys on). One
client asks them in turns, on connections that are kept, so that what else goes on
on the machine hits all of them alike; what counts are ratios. The figures are printed;
those of docs/decisions/0012-predict-paths.md come from here.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from load import make_request
from record import ROOT
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

VARIANTS = {
    "as it is": ("", "app.protocol:Protocol"),
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


def show(times: dict[str, list[float]], n_rounds: int) -> None:
    base, *_ = VARIANTS
    low = {
        name: median(sorted(each)[: max(1, n_rounds // 4)])
        for name, each in times.items()
    }
    for name, each in times.items():
        ratios = [a / b for a, b in zip(each, times[base], strict=True)]
        print(
            f"{name}: {1e6 * low[name]:.0f} us, {low[name] / low[base]:.2f} "
            f"({median(ratios):.2f}) of {base!r}"
        )
    bar = low["an empty route"] + low["a bare run"]
    print(f"over an empty route and a bare run: {low[base] / bar:.2f} (bar: 1.7)")
    inside = low["a bare run in an empty route"]
    print(
        f"a bare run in an empty route over both apart: {inside / bar:.2f}; "
        f"ours over it: {low[base] / inside:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    n_rounds = parser.parse_args().rounds
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
        ways["an empty route"] = nothing.ask
        model = Path(temporary) / "small.onnx"
        model.write_bytes(content)
        port = serve_nothing(stack, n_bytes, MODEL=str(model), SHAPE="small")
        ways["a bare run in an empty route"] = Connection(port, request).ask
        ways["a bare run"] = bare_run(
            Predictor(content), {name: [value] for name, value in row.items()}
        )
        show(take_rounds(ways, n_rounds), n_rounds)


if __name__ == "__main__":
    main()
