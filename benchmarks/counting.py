"""What counting and traces cost a predict request.

    python benchmarks/counting.py [--turns 160]

One server for each variant, of one process, on one database (SQLite, keys on). One
client asks them in turn for one row of the small model; what counts is the processor
time of the servers in the fastest quarter of turns, so that other work on the machine
matters less. Spans go to an exporter that does nothing: sending them is the collector's
matter. Every run is kept, and shown in docs/results.md; what docs/operations.md says of
it is written from the same runs.
"""

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import psutil
from load import make_request
from paths import PROGRAM
from record import ROOT, Runs, table, write_section
from serving import (
    Connection,
    Stage,
    json_rows,
    make_ensemble,
    one_row,
    started,
    to_file,
)

from app.observe import metrics
from app.observe.requests import ROUTE, _count
from tests.support.servers import free_port

OPERATIONS = ROOT / "docs" / "operations.md"
MAX_COST = 1.03
N_CALLS = 100
N_COUNTS = 200_000
PHASES = ("parse", "queue", "run", "encode")

TRACES = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from app.observe import traces
from app.settings import get_settings

class Nowhere(SpanExporter):
    def export(self, spans):
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Nowhere()))
traces.begin = lambda _: traces.use(provider)
get_settings().traces_predict_share = {share}
"""
QUIET = """
from app.observe.metrics import Family
Family.observe = Family.add = lambda *_, **__: None
"""
COUNTED, QUIETLY = "counted, no traces", "not counted"
SOME, EACH = "traces of one in a hundred", "traces of each"
VARIANTS = {
    QUIETLY: QUIET,
    COUNTED: "",
    SOME: TRACES.format(share=0.01),
    EACH: TRACES.format(share=1.0),
}
"""What is changed in the process before it serves."""
COSTS = {"counting": (COUNTED, QUIETLY), SOME: (SOME, COUNTED), EACH: (EACH, COUNTED)}
"""Of each cost what it is a ratio of."""


def count_alone() -> float:
    """Microseconds of a request's counts, without the request."""
    scope = {"method": "POST", ROUTE: "/models/{model_id}/predict"}
    began = process_time()
    for _ in range(N_COUNTS):
        for phase in PHASES:
            metrics.PREDICT_SECONDS.observe(0.0003, phase)
        metrics.PREDICT_REQUESTS.observe(1)
        metrics.PREDICT_ROWS.observe(1)
        metrics.CACHE.add("hit")
        _count(scope, 200, 0.6)
    return 1e6 * (process_time() - began) / N_COUNTS


def cpu_seconds(process: psutil.Process) -> float:
    """Of all its threads, by the scheduler's own clock: others tick by hundredths."""
    files = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in files) / 1e9


def serve(stack: ExitStack, stage: Stage, change: str) -> tuple[int, psutil.Process]:
    port = free_port()
    code = PROGRAM.format(change=change, port=port, protocol="app.protocol:Protocol")
    environment = {
        **os.environ,
        "LOMETAB_DATA_DIR": str(stage.folder),
        "LOMETAB_REQUIRE_KEYS": "true",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", code]
    return port, stack.enter_context(started(command, port, environment))


def measure(n_turns: int) -> dict[str, Any]:
    """Processor microseconds of a request by variant, and the costs as ratios."""
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stage = Stage(Path(folder))
        with stage.serve() as server:
            stage.publish(server.port, {"small": to_file(make_ensemble("small"))})
        body = json_rows(one_row("small"))
        request = make_request(stage.path("small"), body, key=stage.key)
        ports = {name: serve(stack, stage, each) for name, each in VARIANTS.items()}
        servers = {
            name: (Connection(port, request), process)
            for name, (port, process) in ports.items()
        }
        names = [*VARIANTS]
        for turn in range(n_turns + 1):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                spent = ask(*servers[name])
                if turn:  # the first one warms up
                    times[name].append(spent)
    fastest = {name: sorted(each)[: n_turns // 4] for name, each in times.items()}
    us = {name: median(each) for name, each in fastest.items()}
    return {
        "us": us,
        "ratio": {cost: us[of] / us[to] for cost, (of, to) in COSTS.items()},
        "counts_us": count_alone(),
    }


def ask(connection: Connection, process: psutil.Process) -> float:
    """Processor microseconds that the server takes for a request."""
    before = cpu_seconds(process)
    for _ in range(N_CALLS):
        connection.ask()
    return 1e6 * (cpu_seconds(process) - before) / N_CALLS


def write_results(runs: Runs) -> None:
    found = [(key, result) for key, result in runs]
    lines = [
        [
            key["run"],
            *(f"{result['us'][name]:.0f}" for name in VARIANTS),
            *(f"{result['ratio'][cost]:.3f}" for cost in COSTS),
            f"{result['counts_us']:.1f}",
        ]
        for key, result in found
    ]
    costs = {cost: median(r["ratio"][cost] for _, r in found) for cost in COSTS}
    middle = [f"{each:.3f}" for each in costs.values()]
    lines.append(
        [f"median of {len(found)}", *[""] * len(VARIANTS), *middle, ""],
    )
    header = ["run", *(f"{name}, µs" for name in VARIANTS)]
    header += [f"{cost} costs" for cost in COSTS] + ["the counts alone, µs"]
    write_section(
        "counting",
        "## Counting and traces\n\n`make bench-counting`. Processor time of the server "
        "for one row, one client, the *small* model, in the fastest quarter of turns. "
        "Traces cost over counted requests without any, and go to an exporter that "
        f"sends nothing. Bar: {MAX_COST}.\n\n" + table(header, lines),
    )
    write_section("counting", describe(costs), OPERATIONS)


def describe(costs: dict[str, float]) -> str:
    """What holds, for whoever decides what to switch on."""
    times = {cost: f"{ratio:.2f} times" for cost, ratio in costs.items()}
    kept = [cost for cost, ratio in costs.items() if ratio <= MAX_COST]
    return (
        "A predict request for one row takes, in processor time of the server, with "
        f"counting {times['counting']} what it takes without; with traces of one in a "
        f"hundred {times[SOME]}, with traces of each {times[EACH]} what it takes with "
        f"counting alone ([measured](results.md#counting-and-traces)). At most "
        f"{MAX_COST} holds for: {', '.join(kept) or 'none of them'}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=160)
    n_turns = parser.parse_args().turns
    runs = Runs("counting")
    key = {"turns": n_turns, "run": len([*runs]) + 1}
    runs.get(key, lambda: measure(n_turns))
    write_results(runs)


if __name__ == "__main__":
    main()
