"""What novelty and monitoring cost, and how soon drift is told.

    python benchmarks/watching.py [--turns 20] [--alarms-only]

One client asks three servers in turn, for one row and for a table: rows are watched and
counted, not counted, and not even looked at for novelty (a model file without it).
Processor time of the servers, so that other work on the machine matters less. Each
run of it is kept and shown. Streams of synthetic rows tell within how many rows a shift
is an alarm, and how often there is one without any; beside it how often there would be
by a plain rule: each level by itself, counted in the rows that it was chosen by, and
a growing day judged at every look as if it were the only one.
"""

import argparse
import csv
import io
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
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
N_RARE = 200
"""Rows of training where levels are rare."""
N_DAYS = 1000
DAY_ROWS = 1000
EVERY = 5
"""Rows of a day between two looks that there could be."""
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


def draw_rare(n_rows: int, rng: np.random.Generator) -> Any:
    """Ten columns of forty levels, the most frequent first and most of them rare."""
    shares = 1 / np.arange(1, 41) ** 1.5
    levels = np.array([f"level {i}" for i in range(40)], object)
    return rng.choice(levels, p=shares / shares.sum(), size=(n_rows, 10))


Judge = Callable[[dict[str, Any], list[int], int], bool]


def is_drifted(
    own: dict[str, Any],
    counts: list[int],
    n_columns: int,
    rate: float = drift.FALSE_ALARM_RATE,
) -> bool:
    return bool(drift.judge_column(own, counts, n_columns, rate)["is_drifted"])


def is_drifted_plainly(own: dict[str, Any], counts: list[int], n_columns: int) -> bool:
    """By the quantile of chi-squared, whatever is known of PSI's tails."""
    pairs = [(p, q) for p, q in zip(own["counts"], counts, strict=True) if p or q]
    before, now = ([*each] for each in zip(*pairs, strict=True))
    rate = drift.FALSE_ALARM_RATE / n_columns
    level = drift.chi2_quantile(1 - rate, len(pairs) - 1)
    level *= 1 / sum(before) + 1 / sum(now)
    return drift.psi(before, now) > max(drift.FLOOR, level)


def is_alarm(reference: dict[str, Any], x: Any, judge: Judge = is_drifted) -> bool:
    columns = [*reference["columns"].values()]
    return any(
        judge(own, count(own, x[:, i]), len(columns)) for i, own in enumerate(columns)
    )


def count(own: dict[str, Any], x: Any) -> list[int]:
    if "edges" in own:
        return drift.count_numbers(x, np.array(own["edges"])).tolist()
    found = [int((x == level).sum()) for level in own["levels"]]
    return [*found, len(x) - sum(found)]


def refer_numbers(n_rows: int, rng: np.random.Generator) -> dict[str, Any]:
    names = [f"x{i}" for i in range(4)]
    empty = np.empty((n_rows, 0), object)
    return drift.make_reference(names, [], draw(n_rows, rng), empty)


def refer_texts(x: Any) -> dict[str, Any]:
    names = [f"c{i}" for i in range(x.shape[1])]
    return drift.make_reference([], names, np.empty((len(x), 0)), x)


def refer_texts_plainly(x: Any) -> dict[str, Any]:
    """The most frequent levels, counted in the rows that they were chosen by."""
    columns = {}
    for i in range(x.shape[1]):
        levels, counts = np.unique(x[:, i].astype(str), return_counts=True)
        order = np.argsort(-counts, kind="stable")[: drift.MAX_LEVELS]
        own: dict[str, Any] = {"levels": levels[order].tolist()}
        columns[f"c{i}"] = own | {"counts": count(own, x[:, i])}
    return {"columns": columns}


def count_rare_alarms(n_rows: int, rng: np.random.Generator) -> list[int]:
    """Of windows with rare levels, each with training rows of its own: by the plain
    rule, and by ours."""
    n_plain = n_ours = 0
    for _ in range(N_WINDOWS):
        known, asked = draw_rare(N_RARE, rng), draw_rare(n_rows, rng)
        n_plain += is_alarm(refer_texts_plainly(known), asked, is_drifted_plainly)
        n_ours += is_alarm(refer_texts(known), asked)
    return [n_plain, n_ours]


def count_alarmed_days(
    reference: dict[str, Any], rng: np.random.Generator
) -> list[int]:
    """Of days that grow: by a plain rule at every look, and by ours."""
    days = [draw(DAY_ROWS, rng) for _ in range(N_DAYS)]
    looks = range(drift.FIRST_LOOK, DAY_ROWS + 1, EVERY)
    n_plain = sum(
        any(is_alarm(reference, x[:n], is_drifted_plainly) for n in looks) for x in days
    )
    return [n_plain, sum(is_day_alarm(reference, x) for x in days)]


def is_day_alarm(reference: dict[str, Any], x: Any) -> bool:
    n_looked_at = number = 0
    for n in range(EVERY, len(x) + 1, EVERY):
        if drift.is_look_due(n, n_looked_at):
            n_looked_at, number = n, number + 1
            rate = drift.rate_of_look(number)
            if is_alarm(reference, x[:n], partial(is_drifted, rate=rate)):
                return True
    return False


def measure_alarms() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    reference = refer_numbers(4000, rng)
    return {
        "false per 1000 windows": {
            str(n): sum(is_alarm(reference, draw(n, rng)) for _ in range(N_WINDOWS))
            for n in WINDOWS
        },
        "rare levels": {str(n): count_rare_alarms(n, rng) for n in WINDOWS},
        "days": count_alarmed_days(reference, rng),
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
        + f"\nTen columns of forty levels, most of them rare, and {N_RARE} rows of "
        "training, others for each window. Plainly: each level is counted in the rows "
        "that it was chosen by.\n\n"
        + table(
            ["rows of a window without drift", *alarms["rare levels"]],
            [
                [f"alarms in {N_WINDOWS} windows, {way}", *numbers]
                for way, numbers in zip(
                    ("plainly", "as it is"),
                    zip(*alarms["rare levels"].values(), strict=True),
                    strict=True,
                )
            ],
        )
        + f"\nDays of {DAY_ROWS} rows without drift that are looked at as they grow. "
        f"Plainly: after every {EVERY} rows, as if it were the only look.\n\n"
        + table(
            ["", "plainly", "as it is"],
            [[f"alarms on {N_DAYS} days", *alarms["days"]]],
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
    parser.add_argument("--alarms-only", action="store_true")
    arguments = parser.parse_args()
    runs = Runs("watching")
    n_before = sum(key["what"] == "costs" for key, _ in runs)
    if not arguments.alarms_only:
        runs.put({"what": "costs", "run": n_before}, measure_costs(arguments.turns))
    runs.put({"what": "alarms"}, measure_alarms())
    costs = [result for key, result in runs if key["what"] == "costs"]
    alarms = runs.find({"what": "alarms"})
    assert alarms is not None
    write_section("watching", section(costs, alarms))


if __name__ == "__main__":
    main()
