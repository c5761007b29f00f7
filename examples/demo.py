"""From a CSV to predictions with uncertainty, over REST, on a service of its own.

Starts the service in a temporary directory, posts wine_quality.csv, follows the job,
shows the reports and three predictions, and stops the service. Run by `make demo`.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

DATA = Path(__file__).with_name("wine_quality.csv")
CONFIG = {
    "target": "quality",
    "preset": "fast",
    "hyperparameters": {"k": 16, "rank": 8, "max_epochs": 40},
}

console = Console(highlight=False)


def main() -> int:
    try:
        with service() as client:
            job = train(client)
            if job["status"] != "succeeded":
                console.print(f"The job {job['status']}: {job['error']['detail']}")
                return 1
            show_reports(client, job)
            show_predictions(client, job)
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    return 0


@contextmanager
def service() -> Iterator[httpx.Client]:
    """The service on a free port of this machine; it ends with this process."""
    with (
        tempfile.TemporaryDirectory(prefix="lometab-demo-") as folder,
        (Path(folder) / "service.log").open("w+") as log,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
            env={
                **os.environ,
                "LOMETAB_DATA_DIR": folder,
                "TMPDIR": folder,
                "LOMETAB_EXIT_WITH_PARENT": "true",
            },
            stdin=subprocess.PIPE,  # closed when we end, whatever the reason
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            text=True,
        )
        try:
            assert process.stdout is not None
            found = (re.search(r"http://\S+", line) for line in process.stdout)
            address = next((each for each in found if each), None)
            if address is None:
                log.seek(0)
                raise RuntimeError(f"the service did not start: {log.read()}")
            console.print(f"The service listens on [bold]{address[0]}[/bold].")
            with httpx.Client(base_url=address[0], timeout=60) as client:
                yield client
        finally:
            process.terminate()
            process.wait()


def train(client: httpx.Client) -> dict:
    console.print(f"POST /jobs with {DATA.name}: {json.dumps(CONFIG)}")
    with DATA.open("rb") as file:
        response = client.post(
            "/jobs", files={"file": file}, data={"config": json.dumps(CONFIG)}
        )
    response.raise_for_status()
    job = response.json()
    settings = job["config"]["hyperparameters"]
    console.print(
        f"{response.status_code} {job['id']}: {job['config']['task']} on "
        f"{len(job['columns'])} columns, {settings['k']} members of rank "
        f"{settings['rank']}, sigma_init {settings['sigma_init']}"
    )
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(
            "epoch {task.completed}/{task.total}  best RMSE {task.fields[best]}"
        ),
        TimeElapsedColumn(),
        console=console,
    ) as bar:
        line = bar.add_task("queued", total=settings["max_epochs"], best="-")
        while job["status"] in ("queued", "running"):
            time.sleep(0.3)
            job = client.get(f"/jobs/{job['id']}").raise_for_status().json()
            best = job["progress"]["best_score"]
            bar.update(
                line,
                description=job["phase"] or job["status"],
                completed=job["progress"]["epoch"],
                best="-" if best is None else f"{best:.4f}",
            )
    return job


def show_reports(client: httpx.Client, job: dict) -> None:
    diversity = client.get(job["links"]["diversity"]).raise_for_status().json()
    ambiguity = diversity["ambiguity"]
    console.print(
        f"\nDiversity of the {diversity['k']} members on {diversity['n_rows']} test "
        f"rows: ambiguity {ambiguity['mean']:.4f}, normalized "
        f"{ambiguity['normalized']:.4f} ({diversity['advice']})"
    )
    report = client.get(job["links"]["report"]).raise_for_status().json()
    scores = report["scores"]["test"]
    members = scores["members"]["rmse"]
    console.print(
        f"Test RMSE {scores['ensemble']['rmse']:.4f}; its members alone from "
        f"{min(members):.4f} to {max(members):.4f}"
    )
    calibration = client.get(job["links"]["calibration"]).raise_for_status().json()
    table = Table("interval", "asked for", "covered", "mean width")
    table.title = "Calibration on the test rows"
    for kind in ("conformal_intervals", "member_intervals"):
        for each in calibration[kind]:
            table.add_row(
                kind.split("_")[0],
                f"{each['coverage']:.0%}",
                f"{each['measured']:.1%}",
                f"{each['mean_width']:.2f}",
            )
    console.print(table)


def show_predictions(client: httpx.Client, job: dict) -> None:
    with DATA.open(newline="") as file:
        rows = [row for _, row in zip(range(3), csv.DictReader(file), strict=False)]
    truth = [row.pop("quality") for row in rows]
    model_id = job["model_id"]
    answer = client.post(f"/models/{model_id}/predict", json={"rows": rows})
    answer.raise_for_status()
    table = Table(
        "true",
        "mean",
        "member_std",
        "members",
        title=f"POST /models/{model_id}/predict",
    )
    for true, each in zip(truth, answer.json()["predictions"], strict=True):
        members = " ".join(f"{member:.2f}" for member in each["members"])
        table.add_row(true, f"{each['mean']:.3f}", f"{each['member_std']:.3f}", members)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
