"""What novelty and monitoring cost, and how soon drift is told.

    python benchmarks/watching.py [--turns 20]

One client asks three servers in turn, for one row and for a table: rows are watched and
counted, not counted, and not even looked at for novelty (a model file without it).
Processor time of the servers, so that other work on the machine matters less. Each
run of it is kept and shown. Streams of synthetic rows tell within how many rows a shift
is an alarm, and how often there is one without any.
"""

import argparse
import csv
import io
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from load import make_request
from record import Runs, table, write_section
from serving import Connection, Server, Stage, json_rows, make_ensemble, make_table

from lometab import drift
from lometab.ensemble import Ensemble
from lometab.export import to_onnx

MODEL = "mixed"
N_ROWS = 5000
MAX_COST = 1.03  # of monitoring
CALLS = {"one row": 600, "table": 6}
N_WINDOWS = 1000
WINDOWS = (50, 200, 1000)
N_STREAM = 20_000
SHIFTS = (0.25, 0.5, 1.0)
"""In standard deviations of a column."""


# Costs


def make_files() -> dict[str, bytes]:
    """The same network with and without all that looks at rows."""
    ensemble = make_ensemble(MODEL)
    columns = make_table(8, 3000)
    names = [[*ensemble.schema.numeric], [*ensemble.schema.categorical]]
    numbers = np.column_stack([columns[name] for name in names[0]])
    texts = np.column_stack([columns[name] for name in names[1]])
    reference = drift.make_reference(*names, numbers, texts)
    watched = to_file(ensemble, {"reference": reference})
    ensemble.preprocessor.novelty_ = None
    return {"watched": watched, "plain": to_file(ensemble, {})}


def to_file(ensemble: Ensemble, metadata: dict[str, Any]) -> bytes:
    conformity = [percent / 50 for percent in range(1, 100)]
    return to_onnx(ensemble, metadata={"conformity": conformity, **metadata})


def make_bodies() -> dict[str, tuple[bytes, str]]:
    """One row of JSON, and a table of CSV."""
    columns = make_table(8, N_ROWS)
    cells = zip(*columns.values(), strict=True)
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns])
    writer.writeheader()
    writer.writerows(rows)
    return {
        "one row": (json_rows(rows[0]), "application/json"),
        "table": (text.getvalue().encode(), "text/csv"),
    }


def measure_costs(turns: int) -> dict[str, Any]:
    """Processor seconds of a request: the mean, as the clock ticks by hundredths."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stage = Stage(Path(folder))
        counted = stack.enter_context(stage.serve())
        stage.publish(counted.port, make_files())
        quiet = stack.enter_context(stage.serve(monitor=False))
        ways = {
            "counted": (counted, "watched"),
            "not counted": (quiet, "watched"),
            "no novelty": (quiet, "plain"),
        }
        return {
            what: {
                name: mean(times)
                for name, times in ask_in_turn(stage, ways, what, body, turns).items()
            }
            for what, body in make_bodies().items()
        }


def ask_in_turn(
    stage: Stage,
    ways: dict[str, tuple[Server, str]],
    what: str,
    body: tuple[bytes, str],
    turns: int,
) -> dict[str, list[float]]:
    content, kind = body
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, (server, model) in ways.items():
            path = stage.path(model)
            request = make_request(path, content, key=stage.key, content_type=kind)
            connection = Connection(server.port, request)  # idle ones are closed
            before = cpu_seconds(server)
            for _ in range(CALLS[what]):
                connection.ask()
            if turn:  # the first one warms up
                times[name].append((cpu_seconds(server) - before) / CALLS[what])
            connection.socket.close()
    return times


def cpu_seconds(server: Server) -> float:
    family = [server.process, *server.process.children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in family)


# Alarms


def draw(n_rows: int, rng: np.random.Generator, shift: float = 0.0) -> Any:
    """Four columns of numbers, one of which may move."""
    x = rng.normal(size=(n_rows, 4))
    x[:, 0] += shift
    return x


def is_alarm(reference: dict[str, Any], x: Any) -> bool:
    columns = reference["columns"]
    return any(
        drift.judge_column(
            columns[f"x{i}"],
            drift.count_numbers(x[:, i], np.array(columns[f"x{i}"]["edges"])).tolist(),
            x.shape[1],
        )["is_drifted"]
        for i in range(x.shape[1])
    )


def measure_alarms() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(4)]
    empty = np.empty((4000, 0), object)
    reference = drift.make_reference(names, [], draw(4000, rng), empty)
    return {
        "false per 1000 windows": {
            str(n): sum(is_alarm(reference, draw(n, rng)) for _ in range(N_WINDOWS))
            for n in WINDOWS
        },
        "rows until told": {
            str(shift): median(find_alarm(reference, rng, shift) for _ in range(50))
            for shift in SHIFTS
        },
    }


def find_alarm(
    reference: dict[str, Any], rng: np.random.Generator, shift: float
) -> int:
    """How many shifted rows it takes, looked at after every 25."""
    x = draw(N_STREAM, rng, shift)
    found = (n for n in range(25, len(x), 25) if is_alarm(reference, x[:n]))
    return next(found, len(x))


# The section


def section(runs: list[dict[str, Any]], alarms: dict[str, Any]) -> str:
    rows = []
    for what in CALLS:
        shares = []
        for costs in runs:
            each = costs[what]
            shares.append(each["counted"] / each["not counted"])
            novelty = each["not counted"] / each["no novelty"]
            rows.append(
                [
                    what if what == "one row" else f"{N_ROWS} rows of CSV",
                    *(f"{1e3 * seconds:.2f} ms" for seconds in each.values()),
                    f"{novelty:.3f}",
                    f"{shares[-1]:.3f}",
                    "yes" if shares[-1] <= MAX_COST else "**no**",
                ]
            )
        middle = median(shares)
        verdict = "yes" if middle <= MAX_COST else "**no**"
        rows.append(
            [f"median of {len(runs)}", "", "", "", "", f"{middle:.3f}", verdict]
        )
    header = ["request", "counted", "not counted", "no novelty", "novelty costs"]
    header += ["monitoring costs", f"at most {MAX_COST}"]
    false = alarms["false per 1000 windows"]
    told = alarms["rows until told"]
    return (
        "## Novelty and monitoring\n\n"
        "`make bench-watching`. Processor time of the servers for one request, the "
        "mean of turns in one run, and each run that was made; 16 columns, of which 8 "
        "are texts.\n\n"
        + table(header, rows)
        + "\nAlarms on synthetic rows of four columns, 4000 rows of training:\n\n"
        + table(
            ["rows of a window without drift", *false],
            [["alarms in 1000 windows", *false.values()]],
        )
        + "\n"
        + table(
            ["one column moves by so many deviations", *told],
            [["rows until the alarm (median of 50)", *map(_show_rows, told.values())]],
        )
    )


def _show_rows(n_rows: float) -> str:
    return f"{n_rows:.0f}" if n_rows < N_STREAM else f"none in {N_STREAM}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    runs = Runs("watching")
    n_before = sum(key["what"] == "costs" for key, _ in runs)
    runs.put({"what": "costs", "run": n_before}, measure_costs(arguments.turns))
    runs.put({"what": "alarms"}, measure_alarms())
    costs = [result for key, result in runs if key["what"] == "costs"]
    alarms = runs.find({"what": "alarms"})
    assert alarms is not None
    write_section("watching", section(costs, alarms))


if __name__ == "__main__":
    main()
