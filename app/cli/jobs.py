"""`lometab jobs`."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.connection import DataDir, Key, Url, open_client
from app.cli.output import (
    AsJson,
    print_facts,
    print_json,
    print_lines,
    print_rows,
    refuse_options,
)
from lometab.client import Job
from lometab.errors import DataError

group = typer.Typer(help="Jobs: list, watch, stop, cancel, retry, download, ...")

Id = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]


@group.callback(invoke_without_command=True)
def list_jobs(
    context: typer.Context,
    kind: Annotated[
        str | None, typer.Option(help="Only train, sweep, tune or predict jobs.")
    ] = None,
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
        refuse_options(context)
        return
    with open_client(url, key, data_dir) as client:
        rows = client.jobs.first(n, kind=kind, status=status, tag=tag)
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
        spare=("phase", "target", "model", "best", "created", "name"),
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


@group.command()
def download(
    id_: Id,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where; else JOB and the format, here."),
    ] = None,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write the result of a prediction job; what breaks off goes on where it ended."""
    with open_client(url, key, data_dir) as client:
        job = client.jobs.read(id_)
        if job.info["kind"] != "predict":
            raise DataError(
                f"{id_} is a {job.info['kind']} job: only a prediction has a result to "
                "download; for a model see `lometab models export`"
            )
        job.check()
        path = job.download(output or f"{id_}.{job.info['config']['output']}")
    size = path.stat().st_size
    if as_json:
        print_json({"path": str(path), "size": size})
    else:
        print_lines(f"{path}: {size} bytes")


@group.command()
def faults(
    id_: Id,
    n: Annotated[int, typer.Option("-n", min=1, help="How many at most.")] = 20,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Rows that a prediction job left without an answer, and why."""
    with open_client(url, key, data_dir) as client:
        found = [*islice(client.jobs[id_].faults(), n)]
    if as_json:
        print_json(found)
        return
    columns = {"row": "row", "column": "column", "what is wrong": "detail"}
    print_rows(found, columns, "every row has its answer")


def _show(job: Job, as_json: bool) -> None:
    info = job.info
    if as_json:
        print_json(info)
        return
    download = f"lometab jobs download {info['id']}"
    print_facts(
        {
            "job": info["id"],
            "kind": info["kind"],
            "status": info["status"],
            "phase": info["phase"],
            **_describe_progress(info["progress"]),
            "model": info["model_id"],
            "name": info["name"],
            "tags": info["tags"],
            "attempt": info["attempt"],
            "created": info["created_at"],
            **({"result": download} if info.get("result") else {}),
        }
    )
    if info.get("notice"):
        print_lines(info["notice"])
    if info.get("error"):
        print_lines(f"{info['error']['code']}: {info['error']['detail']}")


def _describe_progress(progress: dict[str, Any]) -> dict[str, Any]:
    """What is counted: rows of a prediction, runs of a sweep, or else epochs."""
    if progress.get("n_rows") is not None:
        found = {"rows": f"{progress['rows_done'] or 0} of {progress['n_rows']}"}
        return {**found, "without an answer": progress["n_faults"] or 0}
    if progress.get("n_runs") is not None:
        found = {"runs": f"{progress['n_finished'] or 0} of {progress['n_runs']}"}
    elif progress.get("epoch") is not None:
        found = {"epoch": f"{progress['epoch']} of {progress['max_epochs']}"}
    else:
        return {}
    return {**found, "best score": progress["best_score"]}
