"""`lometab jobs`."""

from typing import Annotated

import typer

from app.cli.connection import DataDir, Key, Url, open_client
from app.cli.output import AsJson, print_facts, print_json, print_lines, print_rows
from lometab.client import Job

group = typer.Typer(help="Jobs: list, watch, stop, cancel, retry.")

Id = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]


@group.callback(invoke_without_command=True)
def list_jobs(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="Only those.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with it.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, max=100, help="How many.")] = 20,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """The newest jobs; see the commands below for one of them."""
    if context.invoked_subcommand is not None:
        return
    with open_client(url, key, data_dir) as client:
        rows = client.jobs.first(n, status=status, tag=tag)
    if as_json:
        print_json(rows)
        return
    print_rows(
        rows,
        {
            "job": "id",
            "kind": "kind",
            "status": "status",
            "phase": "phase",
            "best": "progress.best_score",
            "name": "name",
            "target": "config.target",
            "model": "model_id",
            "created": "created_at",
        },
        "no job yet: lometab train FILE --target COLUMN",
    )


@group.command()
def show(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """A job as it is now."""
    with open_client(url, key, data_dir) as client:
        _show(client.jobs.read(id_), as_json)


@group.command()
def watch(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Follow a job until it has ended; exit code 1 if it failed.

    Ctrl-C ends the watching, not the job.
    """
    with open_client(url, key, data_dir) as client:
        job = client.jobs.read(id_)
        if as_json:
            for event in job.events():
                print_json(event)
            job.refresh().check()
            return
        job.wait(progress=True)
        _show(job, as_json=False)


@group.command()
def cancel(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """End a job and keep nothing."""
    with open_client(url, key, data_dir) as client:
        _show(client.jobs[id_].cancel(), as_json)


@group.command()
def stop(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Stop training and keep the best epoch so far."""
    with open_client(url, key, data_dir) as client:
        _show(client.jobs[id_].stop(), as_json)


@group.command()
def retry(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a failed or cancelled job again; without a service, here and now."""
    from app.cli.train import follow

    with open_client(url, key, data_dir, workers=1) as client:
        job = client.jobs[id_].retry()
        if url is None:
            follow(job)
            job.check()
        _show(job, as_json)


@group.command()
def promote(
    id_: Id,
    cell: Annotated[int | None, typer.Option(help="Of a sweep.")] = None,
    trial: Annotated[int | None, typer.Option(help="Of a tune job.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the model.")] = None,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a model of a cell of a sweep, or of a trial."""
    from app.cli.train import follow

    with open_client(url, key, data_dir, workers=1) as client:
        job = client.jobs[id_].promote(cell=cell, trial=trial, name=name)
        follow(job)
        _show(job.check(), as_json)


def _show(job: Job, as_json: bool) -> None:
    info = job.info
    if as_json:
        print_json(info)
        return
    progress = info.get("progress") or {}
    print_facts(
        {
            "job": info["id"],
            "kind": info["kind"],
            "status": info["status"],
            "phase": info["phase"],
            "epoch": progress.get("epoch"),
            "best score": progress.get("best_score"),
            "model": info["model_id"],
            "name": info["name"],
            "tags": info["tags"],
            "attempt": info["attempt"],
            "created": info["created_at"],
        }
    )
    if info.get("notice"):
        print_lines(info["notice"])
    if info.get("error"):
        print_lines(f"{info['error']['code']}: {info['error']['detail']}")
