"""`lometab config`: which settings hold, and where each comes from."""

from typing import Annotated

import typer

from app.cli.output import AsJson, print_json, print_rows


def add(cli: typer.Typer) -> None:
    cli.command("config")(show_config)


def show_config(
    changed: Annotated[
        bool, typer.Option("--changed", help="Only those that are set.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """The settings of the service, what each means, and where its value comes from.

    Passwords in addresses are not shown.
    """
    from app.cli.output import complain
    from app.settings import list_settings, list_unknown

    for warning in list_unknown():
        complain(warning)
    rows = [
        {
            "name": each.variable,
            "value": each.value,
            "from": each.source,
            "meaning": doc,
        }
        for each, doc in ((each, each.meaning) for each in list_settings())
        if each.source != "default" or not changed
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:  # nothing is set
        row["value"] = "-" if row["value"] in ("", "null") else row["value"]
    columns = {"variable": "name", "value": "value", "from": "from"}
    print_rows(rows, columns, "no setting is changed")
