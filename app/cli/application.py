"""All commands, put together; and how each of them ends."""

import sys
from inspect import getdoc
from typing import Annotated

import typer

from app.cli import (
    backup,
    blobs,
    datasets,
    doctor,
    jobs,
    keys,
    models,
    predict,
    profile,
    reports,
    service,
    settings,
    train,
    webhooks,
)
from app.cli.mistakes import INTERRUPTED, explain
from app.cli.output import complain
from lometab import __version__

cli = typer.Typer(
    help="Train tabular ensembles, here or on a service, and have every member answer.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or data, 3 out of reach, "
    "4 not allowed, 5 not found, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(__version__)
        raise typer.Exit


@cli.callback()
def begin(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show it and end."
        ),
    ] = False,
) -> None:
    pass


@cli.command(hidden=True)
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


for part in (train, predict, profile, reports, service, backup, doctor, settings):
    part.add(cli)
for name, group in (
    ("jobs", jobs.group),
    ("models", models.group),
    ("datasets", datasets.group),
    ("webhooks", webhooks.group),
    ("keys", keys.group),
    ("blobs", blobs.group),
):
    cli.add_typer(group, name=name)


def _flow(app: typer.Typer) -> None:
    """Paragraphs of help fill the terminal, whatever the lines of the code are."""
    for command in app.registered_commands:
        paragraphs = getdoc(command.callback) or ""
        command.help = "\n\n".join(
            " ".join(each.split()) for each in paragraphs.split("\n\n")
        )
    for each in app.registered_groups:
        if each.typer_instance is not None:
            _flow(each.typer_instance)


_flow(cli)


def main() -> None:
    """Run the command. A mistake of whoever types is a sentence and an exit code; a
    traceback is a bug of ours."""
    try:
        cli(prog_name="lometab")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        mistake = explain(error)
        if mistake is None:
            raise
        complain(mistake.text)
        sys.exit(mistake.code)
