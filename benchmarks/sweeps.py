"""Sweeps and tuning through the service: durability, scaling, overhead, quality.

    python benchmarks/sweeps.py [--parts adult scaling tune many]

Real Postgres and Redis, one API process, workers with one thread each. The parts that
were measured before are kept; naming a part measures it again.
"""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import httpx
import matplotlib
import numpy as np
import sqlalchemy as sa
from processes import running_api
from record import ROOT, Runs, table, write_section
from tables import DATA, KINDS, load

from app.access import SCOPES, create_key
from app.storage.db import make_engine, migrate
from lometab.space import PAPER_SPACE, contains, read_distribution
from lometab.table import Table
from tests.support.servers import Postgres, Redis, wait_until

matplotlib.use("Agg")

FIGURE = ROOT / "docs" / "figures" / "sweep_adult.png"
RANKS = [1, 2, 4, 8, 16]
SIGMAS = [0.1, 0.5, 1.0, 2.0]
ADULT = {
    "k": 16,
    "d_block": 96,
    "n_bins": 32,
    "d_embedding": 8,
    "lr": 2e-3,
    "max_epochs": 30,
    "patience": 8,
    "share_batches": True,
}
SMALL_SPACE = {
    "d_block": {"low": 64, "high": 256, "step": 16},
    "n_blocks": {"low": 1, "high": 2},
}
N_TRIALS = 15
N_REFITS = 3
# The deviation of three numbers is a poor guess of how far seeds are apart.
N_DEFAULTS = 10
N_MANY = 1000


class Field:
    """The service on real servers, with as many workers as wanted."""

    def __init__(self, client: httpx.Client, engine: sa.Engine, environment: Any):
        self.client, self.engine, self.environment = client, engine, environment
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self) -> None:
        self.workers.append(
            subprocess.Popen(
                [sys.executable, "-m", "app.cli", "worker"],
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        n_workers = len([w for w in self.workers if w.poll() is None])
        statement = sa.text("SELECT count(*) FROM workers")

        def is_there() -> bool:
            with self.engine.connect() as connection:
                return bool(connection.scalar(statement) >= n_workers)

        wait_until(is_there, seconds=60, what="the worker is heard of")

    def stop_workers(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
            worker.wait(60)
        self.workers = []
        with self.engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM workers"))

    def post(self, content: bytes, **config: Any) -> str:
        answer = self.client.post(
            "/jobs",
            files={"file": ("table.csv", content)},
            data={"config": json.dumps(config)},
        )
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def read(self, job_id: str, what: str = "") -> dict[str, Any]:
        answer = self.client.get(f"/jobs/{job_id}{what}").raise_for_status()
        return dict(answer.json())

    def wait(self, job_id: str) -> dict[str, Any]:
        """See the job to its end, with a line on how far it is."""
        while (job := self.read(job_id))["finished_at"] is None:
            progress = job["progress"]
            n_done, n_all = progress["n_finished"], progress["n_runs"]
            if n_all is None:
                n_done, n_all = progress["epoch"], progress["max_epochs"]
            line = f"{job['kind']}: {n_done} of {n_all}"
            print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)
            time.sleep(0.5)
        print(file=sys.stderr)
        assert job["status"] == "succeeded", job["error"]
        return job


@contextmanager
def running_field() -> Iterator[Field]:
    postgres, redis = Postgres(), Redis()
    try:
        with postgres.connect() as connection:
            connection.execute("CREATE DATABASE sweeps")
        url = postgres.url("sweeps")
        engine = make_engine(url)
        migrate(engine)
        with sa.orm.Session(engine) as session, session.begin():
            _, key = create_key(
                session, workspace_id="default", name="sweeps", scopes=SCOPES
            )
        settings = {
            "LOMETAB_DATABASE_URL": url,
            "LOMETAB_BROKER_URL": redis.url(0),
            "LOMETAB_TRAINING_THREADS": "1",
            "LOMETAB_LEASE_SECONDS": "10",
            "LOMETAB_REAPER_SECONDS": "2",
        }
        headers = {"Authorization": f"Bearer {key}"}
        with (
            tempfile.TemporaryDirectory() as folder,
            running_api(Path(folder), settings) as (address, _),
            httpx.Client(base_url=address, headers=headers, timeout=60) as client,
        ):
            environment = {"PATH": os.environ["PATH"], "TMPDIR": folder, **settings}
            field = Field(client, engine, environment)
            try:
                yield field
            finally:
                field.stop_workers()
                engine.dispose()
    finally:
        redis.remove()
        postgres.remove()


def seconds_of(job: dict[str, Any]) -> float:
    began, ended = (
        datetime.fromisoformat(job[name]) for name in ("started_at", "finished_at")
    )
    return (ended - began).total_seconds()


def write_csv(columns: dict[str, list[str]]) -> bytes:
    file = io.StringIO()
    file.write(",".join(columns) + "\n")
    for row in zip(*columns.values(), strict=True):
        file.write(",".join(row) + "\n")
    return file.getvalue().encode()


def sample(name: str, n_rows: int) -> bytes:
    """Rows of a data set as CSV, in which each class has its share."""
    data = load(name)
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            rng.choice(members, round(n_rows * len(members) / len(data.y)), False)
            for members in (np.flatnonzero(data.y == c) for c in np.unique(data.y))
        ]
    )
    columns = read_texts(data.table)
    columns.pop("part")
    return write_csv(
        {name: [cells[i] for i in rows] for name, cells in columns.items()}
    )


def read_texts(rows: Table) -> dict[str, list[str]]:
    """All cells of a table as they would stand in a CSV."""
    columns = {name: [*cells] for name, cells in rows.items()}
    return {
        name: [str(cell.as_py() if hasattr(cell, "as_py") else cell) for cell in cells]
        for name, cells in columns.items()
    }


# ----------------------------------------------------------------------------
# The parts


def run_adult(field: Field) -> dict[str, Any]:
    """The grid of rank and sigma_init; one of two workers is killed on the way."""
    content = sample("adult", 10_000)
    for _ in range(2):
        field.start_worker()
    job_id = field.post(
        content,
        kind="sweep",
        target="income",
        hyperparameters=ADULT,
        sweep={"grid": {"rank": RANKS, "sigma_init": SIGMAS}, "seeds": 2},
    )
    n_runs = 2 * len(RANKS) * len(SIGMAS)
    wait_until(
        lambda: field.read(job_id)["progress"]["n_finished"] >= n_runs // 2,
        seconds=3600,
        what="half of the sweep",
    )
    os.kill(field.workers[0].pid, signal.SIGKILL)
    field.workers[0].wait()
    field.start_worker()
    job = field.wait(job_id)
    sweep = field.read(job_id, "/sweep")
    with field.engine.connect() as connection:
        rows = connection.execute(
            sa.text("SELECT position, attempt FROM jobs WHERE parent_id = :id"),
            {"id": job_id},
        ).all()
    positions = sorted(position for position, _ in rows)
    return {
        "n_runs": n_runs,
        "succeeded": sweep["counts"].get("succeeded", 0),
        "is_each_there_once": positions == list(range(n_runs)),
        "n_repeated": sum(attempt - 1 for _, attempt in rows),
        "seconds": seconds_of(job),
        "comparison": sweep["comparison"],
    }


def run_scaling(field: Field) -> dict[str, Any]:
    """The same sweep with one worker and with two, in turn."""
    content = (ROOT / "examples" / "wine_quality.csv").read_bytes()
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for n_workers, found in times.items():
            for _ in range(n_workers):
                field.start_worker()
            job_id = field.post(
                content,
                kind="sweep",
                target="quality",
                hyperparameters={**ADULT, "max_epochs": 12, "patience": None},
                sweep={"grid": {"rank": RANKS, "sigma_init": SIGMAS}},
            )
            found.append(seconds_of(field.wait(job_id)))
            field.stop_workers()
    ratios = [two / one for one, two in zip(times[1], times[2], strict=True)]
    return {"one": times[1], "two": times[2], "ratio": median(ratios)}


def run_tune(field: Field) -> dict[str, Any]:
    """Fifteen trials on churn, the winner refitted, beside the default preset."""
    data = load("churn")
    content = write_csv(read_texts(data.table))
    common = {
        "target": "Exited",
        "columns": KINDS["churn"],
        "split": {"kind": "column", "column": "part"},
    }
    for _ in range(2):
        field.start_worker()
    job_id = field.post(
        content,
        kind="tune",
        tune={"n_trials": N_TRIALS, "space": SMALL_SPACE, "seeds": N_REFITS},
        **common,
    )
    job = field.wait(job_id)
    tune = field.read(job_id, "/tune")
    default = field.post(content, n_seeds=N_DEFAULTS, **common)
    field.wait(default)
    reports = {
        "tuned": field.read(tune["refit_job_id"], "/report"),
        "default": field.read(default, "/report"),
    }
    with field.engine.connect() as connection:
        studies = connection.scalar(sa.text("SELECT count(*) FROM studies"))
        states = connection.execute(
            sa.text("SELECT state, count(*) FROM trials GROUP BY state")
        ).all()
    return {
        "seconds": seconds_of(job),
        "n_studies": studies,
        "states": {state: count for state, count in states},
        "best_settings": tune["best_settings"],
        "is_in_space": all(
            contains(read_distribution(tune["space"][name]), value)
            and contains(PAPER_SPACE[name], value)
            for name, value in tune["best_settings"].items()
        ),
        "finalists": {
            each["trial"]: each["score"]["mean"] for each in tune["finalists"]
        },
        "importances": tune["importances"],
        "scores": {
            name: [each["outcome"]["test"]["score"] for each in report["by_seed"]]
            for name, report in reports.items()
        },
        "together": {
            name: report["scores"]["test"]["ensemble"]["accuracy"]
            for name, report in reports.items()
        },
    }


def run_many(field: Field) -> dict[str, Any]:
    """A thousand cells of one epoch, while somebody lists jobs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    columns = {f"x{i}": [f"{v:.4f}" for v in x[:, i]] for i in range(3)}
    columns["y"] = [f"{v:.4f}" for v in x.sum(1) + rng.normal(size=200) / 10]
    tens = [*range(1, 11)]
    for _ in range(2):
        field.start_worker()
    started_at = time.perf_counter()
    job_id = field.post(
        write_csv(columns),
        kind="sweep",
        target="y",
        hyperparameters={"k": 4, "d_block": 16, "n_bins": 8, "max_epochs": 1},
        sweep={
            "grid": {
                "rank": tens,
                "sigma_init": [i / 5 for i in tens],
                "dropout": [(i - 1) / 20 for i in tens],
            }
        },
    )
    posted = time.perf_counter() - started_at
    times = []
    while (job := field.read(job_id))["finished_at"] is None:
        for _ in range(10):
            started_at = time.perf_counter()
            field.client.get("/jobs").raise_for_status()
            times.append(1000 * (time.perf_counter() - started_at))
            time.sleep(0.05)
        n_finished = job["progress"]["n_finished"]
        print(f"\rmany: {n_finished} of {N_MANY}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    sweep = field.read(job_id, "/sweep")
    training = [
        cell["seconds"]["mean"] * cell["n_seeds"]
        for cell in sweep["comparison"]["cells"]
    ]
    wall = seconds_of(job)
    return {
        "n_cells": len(training),
        "succeeded": sweep["counts"].get("succeeded", 0),
        "post_seconds": posted,
        "wall_seconds": wall,
        "training_seconds": sum(training),
        "overhead_ms": 1000 * (2 * wall - sum(training)) / len(training),
        "p50_ms": float(np.percentile(times, 50)),
        "p95_ms": float(np.percentile(times, 95)),
    }


# ----------------------------------------------------------------------------
# The section


def draw(compared: dict[str, Any]) -> None:
    """Heat maps of diversity, score and calibration over rank and sigma_init."""
    from matplotlib import pyplot

    cells = {
        (cell["settings"]["rank"], cell["settings"]["sigma_init"]): cell["test"]
        for cell in compared["cells"]
    }
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    panels = (
        ("diversity", "Pairwise KL (log colours)", "viridis"),
        ("score", "Accuracy", "cividis"),
        ("ece", "ECE", "magma_r"),
    )
    for axis, (name, title, colours) in zip(axes, panels, strict=True):
        values = np.array([[cells[r, s][name]["mean"] for s in SIGMAS] for r in RANKS])
        norm = "log" if name == "diversity" else None
        image = axis.imshow(values, cmap=colours, norm=norm, aspect="auto")
        axis.set_xticks(range(len(SIGMAS)), SIGMAS)
        axis.set_yticks(range(len(RANKS)), RANKS)
        axis.set_xlabel("sigma_init")
        axis.set_ylabel("rank")
        axis.set_title(title)
        middle = image.norm(values) > 0.5
        for i, j in np.ndindex(values.shape):
            shade = "black" if middle[i, j] == (colours != "magma_r") else "white"
            text = (
                f"{values[i, j]:.3g}" if name == "diversity" else f"{values[i, j]:.4f}"
            )
            axis.text(j, i, text, ha="center", va="center", color=shade, fontsize=9)
    figure.suptitle("LoMETab on adult (10 000 rows, K=16, 2 seeds): test part")
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=110)


def show(spread: dict[str, Any] | None, digits: int = 4) -> str:
    if spread is None:
        return "-"
    std = "" if spread["std"] is None else f" ± {spread['std']:.{digits}f}"
    return f"{spread['mean']:.{digits}f}{std}"


def verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"


def describe_adult(result: dict[str, Any]) -> str:
    compared = result["comparison"]
    draw(compared)
    cells = compared["cells"]
    kl = [cell["test"]["diversity"]["mean"] for cell in cells]
    is_whole = result["is_each_there_once"] and result["succeeded"] == result["n_runs"]
    rows = [
        [
            cell["settings"]["rank"],
            cell["settings"]["sigma_init"],
            show(cell["val"]["score"]),
            show(cell["test"]["score"]),
            show(cell["test"]["diversity"], 5),
            show(cell["test"]["disagreement"]),
            show(cell["test"]["ece"]),
            cell["regime"],
            show(cell["seconds"], 1),
            ", ".join(
                word
                for word, is_so in (
                    ("best score", cell["cell"] == compared["best_score"]),
                    ("best ECE", cell["cell"] == compared["best_calibration"]),
                    ("Pareto", cell["cell"] in compared["pareto"]),
                )
                if is_so
            ),
        ]
        for cell in cells
    ]
    collapsed = "; ".join(
        f"{each['setting']} {', '.join(map(str, each['values']))}"
        for each in compared["collapsed"]
    )
    header = ["rank", "sigma_init", "val accuracy", "test accuracy", "pairwise KL"]
    header += ["disagreement", "ECE", "regime", "s", "chosen on validation"]
    return (
        "### Rank and sigma_init on adult\n\n"
        f"A stratified sample of 10 000 rows, K=16, {result['n_runs']} runs on two "
        f"workers in {result['seconds']:.0f} s; half-way one of the workers was killed "
        f"by `kill -9` and another one started. {result['succeeded']} of "
        f"{result['n_runs']} runs succeeded, each is there "
        f"{'once' if result['is_each_there_once'] else 'NOT once'}, and "
        f"{result['n_repeated']} attempt(s) were taken up again: {verdict(is_whole)}. "
        f"Pairwise KL spans a factor of {max(kl) / min(kl):.0f} over the grid (bar: "
        f"10): {verdict(max(kl) >= 10 * min(kl))}. Collapsed throughout: "
        f"{collapsed or 'nowhere'}.\n\n"
        f"![Heat maps](figures/{FIGURE.name})\n\n{table(header, rows)}\n"
    )


def describe_scaling(result: dict[str, Any]) -> str:
    one, two = (
        ", ".join(f"{each:.1f}" for each in result[name]) for name in ("one", "two")
    )
    return (
        "### Two workers against one\n\n"
        "A sweep of 20 cells on the wine data, one thread each, from the first cell's "
        f"begin to the last one's end: {one} s with one worker, {two} s with two, in "
        f"turn. The median ratio is {result['ratio']:.2f} (bar: 0.65): "
        f"{verdict(result['ratio'] <= 0.65)}.\n"
    )


def describe_tune(result: dict[str, Any]) -> str:
    scores = result["scores"]
    spread = {name: stdev(each) for name, each in scores.items()}
    bar = mean(scores["default"]) - spread["default"]
    few = scores["default"][:N_REFITS]
    best = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in result["best_settings"].items()
    )
    weights = ", ".join(
        f"{name} {value:.2f}" for name, value in result["importances"].items()
    )
    rows = [
        [
            name,
            ", ".join(f"{each:.4f}" for each in scores[name]),
            f"{mean(scores[name]):.4f} ± {spread[name]:.4f}",
            f"{result['together'][name]:.4f}",
        ]
        for name in scores
    ]
    finalists = ", ".join(f"{each:.4f}" for each in result["finalists"].values())
    states = ", ".join(f"{n} {s.lower()}" for s, n in result["states"].items())
    return (
        "### Tuning on churn\n\n"
        f"{N_TRIALS} trials in the paper's space, with d_block up to 256 and n_blocks "
        f"up to 2, on two workers: {result['seconds']:.0f} s with repeats and refits. "
        f"{result['n_studies']} study, {states}: "
        f"{verdict(result['n_studies'] == 1 and 'PRUNED' in result['states'])}. The "
        f"winner ({best}) is {'' if result['is_in_space'] else 'NOT '}in the space; "
        f"the means of the finalists on validation are {finalists}. "
        f"Shares of importance: {weights}. Mean test accuracy of the refits against "
        f"those of the default preset of that day, less one deviation over "
        f"{N_DEFAULTS} seeds, in the same run ({bar:.4f}): "
        f"{verdict(mean(scores['tuned']) >= bar)}. With the first "
        f"{N_REFITS} of these seeds alone it is {mean(few) - stdev(few):.4f}: "
        f"{verdict(mean(scores['tuned']) >= mean(few) - stdev(few))}. That was the "
        "measure at first; the others were added when it had been missed.\n\n"
        + table(["settings", "test accuracy by seed", "mean", "all as one"], rows)
    )


def describe_many(result: dict[str, Any]) -> str:
    return (
        "### A thousand small cells\n\n"
        f"{result['n_cells']} cells of one epoch on 200 rows, two workers: accepted in "
        f"{result['post_seconds']:.1f} s, done in {result['wall_seconds']:.0f} s, "
        f"{result['succeeded']} succeeded. Everything but training takes "
        f"{result['overhead_ms']:.0f} ms of a worker's time per cell (bar: 250): "
        f"{verdict(result['overhead_ms'] <= 250)}. Meanwhile `GET /jobs` has a p50 of "
        f"{result['p50_ms']:.1f} ms and a p95 of {result['p95_ms']:.1f} ms (bar: 100): "
        f"{verdict(result['p95_ms'] < 100)}.\n"
    )


PARTS = {
    "adult": (run_adult, describe_adult),
    "scaling": (run_scaling, describe_scaling),
    "tune": (run_tune, describe_tune),
    "many": (run_many, describe_many),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=[*PARTS])
    arguments = parser.parse_args()
    if not DATA.exists():
        sys.exit("the data sets are not there: they lie in ../shared/data")
    runs = Runs("sweeps")
    for name in arguments.parts:
        with running_field() as field:
            result = PARTS[name][0](field)
        load_average = os.getloadavg()[0]
        about = {"measured": str(date.today()), "load": load_average}
        runs.put({"part": name}, {**result, **about})
        print(json.dumps({k: v for k, v in result.items() if k != "comparison"}))
    text = "## Sweeps and tuning\n\n`make bench-sweeps`. Postgres, Redis, one API "
    text += "process; each worker trains with one thread.\n"
    for name, (_, describe) in PARTS.items():
        result = runs.find({"part": name})
        if result is not None:
            text += f"\n{describe(result)}\nMeasured {result['measured']}, load "
            text += f"{result['load']:.1f} on {os.cpu_count()} cores.\n"
    write_section("sweeps", text)


if __name__ == "__main__":
    main()
