"""`lometab datasets`."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.connection import DataDir, Key, Url, open_client
from app.cli.output import (
    AsJson,
    print_done,
    print_json,
    print_rows,
    refuse_options,
)

group = typer.Typer(help="Datasets: list, upload, delete.")

Id = Annotated[str, typer.Argument(metavar="DATASET", help="A dataset's id.")]


@group.callback(invoke_without_command=True)
def list_datasets(
    context: typer.Context,
    n: Annotated[int, typer.Option("-n", min=1, max=100, help="How many.")] = 20,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """The newest datasets; see the commands below for one of them."""
    if context.invoked_subcommand is not None:
        refuse_options(context)
        return
    with open_client(url, key, data_dir) as client:
        rows = client.datasets.first(n)
    if as_json:
        print_json(rows)
        return
    columns = {
        "dataset": "id",
        "file": "filename",
        "rows": "n_rows",
        "columns": "n_columns",
        "bytes": "size",
        "created": "created_at",
    }
    print_rows(
        rows,
        columns,
        "no dataset yet: lometab datasets upload FILE",
        spare=("created",),
    )


@group.command()
def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Keep a table, to train on it again and again."""
    from app.cli.profile import print_profile

    with open_client(url, key, data_dir) as client:
        found = client.datasets.upload(file)
    if as_json:
        print_json(found.info)
        return
    print_profile(found.info, id_=found.id)


@group.command()
def show(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """How a file was read, and what is in it."""
    from app.cli.profile import print_profile

    with open_client(url, key, data_dir) as client:
        found = client.datasets[id_].refresh()
    if as_json:
        print_json(found.info)
    else:
        print_profile(found.info, id_=found.id)


@group.command()
def delete(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete a dataset that no job uses."""
    with open_client(url, key, data_dir) as client:
        client.datasets[id_].delete()
    print_done({"id": id_, "deleted": True}, f"{id_} is deleted", as_json=as_json)
