"""`lometab models`."""

from collections import defaultdict
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
from lometab.client import Model

N_METRICS = 3
"""That a list of models shows of each."""
group = typer.Typer(help="Models: list, promote, alias, export, prune.")

Reference = Annotated[
    str, typer.Argument(metavar="MODEL", help="An id, name@version or name@alias.")
]


@group.callback(invoke_without_command=True)
def list_models(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(help="Only its versions.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with it.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, max=100, help="How many.")] = 20,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """The newest models; see the commands below for one of them."""
    if context.invoked_subcommand is not None:
        refuse_options(context)
        return
    with open_client(url, key, data_dir) as client:
        rows = client.models.first(n, name=name, tag=tag)
    if as_json:
        print_json(rows)
        return
    for row in rows:  # the others are in `models show`
        row["metrics"] = dict(islice((row["metrics"] or {}).items(), N_METRICS))
    print_rows(
        rows,
        {
            "model": "id",
            "name": "name",
            "version": "version",
            "aliases": "aliases",
            "test": "metrics",
            "job": "job_id",
            "created": "created_at",
        },
        "no model yet: lometab train FILE --target COLUMN",
        spare=("created", "job", "aliases"),
    )


@group.command()
def show(
    reference: Reference,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """What a model takes and answers."""
    with open_client(url, key, data_dir) as client:
        _show(client.models.read(reference), as_json)


@group.command()
def promote(
    reference: Reference,
    to: Annotated[str, typer.Option(help="The alias.")] = "champion",
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let name@champion stand for this version from now on."""
    with open_client(url, key, data_dir) as client:
        _show_alias(client.models[reference].set_alias(to), to, as_json)


@group.command()
def alias(
    reference: Reference,
    alias: Annotated[str, typer.Argument(metavar="ALIAS")],
    remove: Annotated[
        bool, typer.Option("--remove", help="Take it away instead.")
    ] = False,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Point an alias at a model, or take it away."""
    with open_client(url, key, data_dir) as client:
        model = client.models.read(reference)
        if remove:
            path = f"/models/{model.info['name']}/aliases/{alias}"
            client.request("DELETE", path)
            model.refresh()
        else:
            model.set_alias(alias)
        _show_alias(model, alias, as_json)


@group.command()
def export(
    reference: Reference,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where; else NAME.onnx here.")
    ] = None,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write the self-contained ONNX file."""
    with open_client(url, key, data_dir) as client:
        path = output or Path(f"{reference.replace('@', '-')}.onnx")
        client.models[reference].download(path)
    size = path.stat().st_size
    if as_json:
        print_json({"path": str(path), "size": size})
    else:
        print_lines(f"{path}: {size} bytes")


@group.command()
def prune(
    keep: Annotated[
        int, typer.Option(min=1, help="The newest so many of each name stay.")
    ] = 3,
    name: Annotated[
        str | None, typer.Option(help="Only versions of this name.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; else it is shown.")
    ] = False,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete old versions. What has an alias or no name stays."""
    with open_client(url, key, data_dir) as client:
        versions: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in client.models.rows(name=name, limit=100):
            if row["name"] is not None:
                versions[row["name"]].append(row)
        old = [
            row
            for rows in versions.values()
            for row in sorted(rows, key=lambda r: -r["version"])[keep:]
            if not row["aliases"]
        ]
        for row in old if yes else ():
            client.models[row["id"]].delete()
    if as_json:
        print_json({"deleted": yes, "models": old})
        return
    columns = {"model": "id", "name": "name", "version": "version"}
    print_rows(old, columns, "there is nothing to prune")
    if old and not yes:
        print_lines("nothing was deleted: say --yes to delete these")


def _show_alias(model: Model, alias: str, as_json: bool) -> None:
    """What an alias stands for now."""
    info = model.info
    if as_json:
        print_json(info)
        return
    version = f"{info['name']}@{info['version']}"
    verb = "is" if alias in info["aliases"] else "is no longer"
    print_lines(f"{info['name']}@{alias} {verb} {version}, {info['id']}")


def _show(model: Model, as_json: bool) -> None:
    info = model.info
    if as_json:
        print_json(info)
        return
    print_facts(
        {
            "model": info["id"],
            "name": info["name"],
            "version": info["version"],
            "aliases": info["aliases"],
            "task": info["task"],
            "target": info["target"],
            "classes": info["classes"],
            "members": info["k"],
            "test": info["metrics"],
            "columns": [column["name"] for column in info["columns"]],
            "job": info["job_id"],
            "created": info["created_at"],
        }
    )
