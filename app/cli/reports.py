"""What came of jobs: report, compare, open."""

import webbrowser
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.connection import DataDir, Key, Url, open_client
from app.cli.output import (
    AsJson,
    draw_coverage,
    draw_reliability,
    print_done,
    print_facts,
    print_json,
    print_lines,
    print_rows,
    print_text,
)
from lometab.client import Client, ClientError, Job
from lometab.client.wire import find_url

Reference = Annotated[
    str,
    typer.Argument(metavar="JOB|MODEL", help="A job's id, a model's, or name@alias."),
]


def add(cli: typer.Typer) -> None:
    cli.command()(report)
    cli.command()(compare)
    cli.command("open")(open_page)


def report(
    reference: Reference,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Scores, diversity and calibration of a model."""
    with open_client(url, key, data_dir) as client:
        job = find_job(client, reference)
        if as_json:
            print_json(read_all(job))
        else:
            print_summary(job)


def compare(
    references: Annotated[
        list[str], typer.Argument(metavar="JOB|MODEL...", help="Two or more.")
    ],
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Models side by side: their scores on the test part, and what sets them apart."""
    with open_client(url, key, data_dir) as client:
        found = [_summarise(find_job(client, each)) for each in references]
    if as_json:
        print_json(found)
        return
    datasets = {each["dataset_id"] for each in found}
    names = dict.fromkeys(name for each in found for name in each["scores"])
    columns = {"job": "job_id", "name": "name"}
    columns |= {name: f"scores.{name}" for name in names}
    columns |= {"diversity": "diversity", "differs in": "settings"}
    _keep_differences(found)
    print_rows(found, columns, "there is nothing to compare")
    if len(datasets) > 1:
        print_lines("these were trained on different datasets: scores do not compare")


def open_page(
    url: Url = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the address alone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Open the service's page in a browser."""
    address = f"{find_url(url)}/"
    if show or as_json or not webbrowser.open(address):
        print_done({"url": address}, address, as_json=as_json)


# ----------------------------------------------------------------------------


def find_job(client: Client, reference: str) -> Job:
    """The job of that id, or the one that made a model."""
    if reference.startswith("job_"):
        return client.jobs.read(reference)
    model = client.models.read(reference)
    return client.jobs.read(model.info["job_id"])


def read_all(job: Job) -> dict[str, Any]:
    """The job and all that was reported of it."""
    if job.info["kind"] in ("sweep", "tune"):
        return {"job": job.info, job.info["kind"]: job.comparison}
    return {
        "job": job.info,
        "report": job.report,
        "diversity": job.diversity,
        "calibration": job.calibration,
    }


def _summarise(job: Job) -> dict[str, Any]:
    scores = job.report["scores"]["test"]["ensemble"]
    return {
        "job_id": job.id,
        "model_id": job.info["model_id"],
        "name": job.info["name"],
        "dataset_id": job.info["dataset_id"],
        "scores": scores,
        "diversity": find_diversity(job.diversity),
        "settings": dict(job.info["config"]["hyperparameters"]),
    }


def _keep_differences(found: list[dict[str, Any]]) -> None:
    """Of the settings, those that are not the same in all."""
    names = [*found[0]["settings"]] if found else []
    same = {
        name
        for name in names
        if all(
            each["settings"].get(name) == found[0]["settings"][name] for each in found
        )
    }
    for each in found:
        each["settings"] = {
            name: value for name, value in each["settings"].items() if name not in same
        }


def find_diversity(diversity: Mapping[str, Any]) -> float | None:
    """Pairwise KL of classes, or the ambiguity relative to the target's variance."""
    if "pairwise_kl" in diversity:
        found: float | None = diversity["pairwise_kl"]["mean"]
        return found
    return (diversity.get("ambiguity") or {}).get("normalized")


def print_summary(job: Job) -> None:
    """What people want to know of a job that has ended."""
    if job.info["kind"] in ("sweep", "tune"):
        _print_comparison(job)
        return
    if job.status != "succeeded":
        job.check()
        raise ClientError(f"{job.id} is {job.status}: it has no report yet")
    report, diversity, calibration = job.report, job.diversity, job.calibration
    for sentence in report.get("summary") or []:
        print_text(sentence["text"])
    if diversity.get("advice"):
        print_text(f"Members: {diversity['advice']}.")
    print_lines("")
    training = report.get("training") or {}
    print_facts(
        {
            "job": job.id,
            "model": job.info.get("model_id"),
            "task": job.info["config"]["task"],
            "test": report["scores"]["test"]["ensemble"],
            "diversity": find_diversity(diversity),
            "epochs": training.get("epochs"),
            "best epoch": training.get("best_epoch"),
            "stopped early": job.info["stopped_early"],
            "seconds": sum(report["timings"].values()),
        }
    )
    print_lines("")
    if calibration.get("bins"):
        print_lines(*draw_reliability(calibration["bins"]))
    elif calibration.get("conformal_intervals"):
        print_lines(*draw_coverage(calibration["conformal_intervals"]))


def _describe_choice(recommended: int, tied: list[int]) -> str:
    others = [cell for cell in tied if cell != recommended]
    if not others:
        return f"cell {recommended} is the best"
    named = ", ".join(map(str, others))
    return (
        f"cell {recommended} is recommended: the smallest of the best; as good within "
        f"the noise: {named}"
    )


def _describe_baseline(cell: int, settings: dict[str, Any]) -> str:
    named = " ".join(map(str, settings.values()))
    return (
        f"cell {cell} ({named}) is ahead on validation; it is there for comparison: no "
        "model can be made of it"
    )


def _print_comparison(job: Job) -> None:
    found = job.comparison
    if job.info["kind"] == "sweep":
        compared = found["comparison"]
        print_rows(
            compared["cells"],
            {
                "cell": "cell",
                "settings": "settings",
                f"test {compared['metric'] or ''}".strip(): "test.score.mean",
                "deviation": "test.score.std",
            },
            "no cell has ended yet",
        )
        best = compared["recommended"]
        if best is not None:
            print_text(_describe_choice(best, compared["tied"]))
        first = compared["best_score"]
        if first != compared["best_model"]:
            settings = compared["cells"][first]["settings"]
            print_text(_describe_baseline(first, settings))
        cell = "N" if best is None else best
        print_lines(f"next: lometab jobs promote {job.id} --cell {cell}")
        return
    print_rows(
        found["trials"],
        {
            "trial": "trial",
            "status": "status",
            "validation": "outcome.val.score",
            "settings": "settings",
        },
        "no trial has ended yet",
    )
    if found["best"] is not None:
        print_facts({"best trial": found["best"], "model": found["model_id"]})
