"""`lometab webhooks`: addresses that a service tells of what happens."""

from itertools import islice
from typing import Annotated, Any

import typer

from app.cli.connection import DataDir, Key, Url, open_client
from app.cli.output import (
    AsJson,
    print_done,
    print_facts,
    print_json,
    print_lines,
    print_rows,
    refuse_options,
)
from lometab.client import Webhook

group = typer.Typer(help="Webhooks: list, create, update, rotate, delete, deliveries.")

Id = Annotated[str, typer.Argument(metavar="WEBHOOK", help="A webhook's id.")]
Events = Annotated[
    list[str] | None,
    typer.Option(
        "--event",
        help="job.succeeded, job.failed, model.promoted or monitor.alarm; again for "
        "each.",
    ),
]
Description = Annotated[str | None, typer.Option(help="For people.")]


@group.callback(invoke_without_command=True)
def list_webhooks(
    context: typer.Context,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """All webhooks of the workspace; see the commands below for one of them."""
    if context.invoked_subcommand is not None:
        refuse_options(context)
        return
    with open_client(url, key, data_dir) as client:
        rows = [each.info for each in client.webhooks.list()]
    if as_json:
        print_json(rows)
        return
    columns = {
        "webhook": "id",
        "on": "is_enabled",
        "failed": "n_failed",
        "events": "events",
        "address": "url",
        "created": "created_at",
    }
    empty = "no webhook yet: lometab webhooks create ADDRESS --event job.succeeded"
    print_rows(rows, columns, empty, spare=("created", "failed"))


@group.command()
def show(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """A webhook as it is now."""
    with open_client(url, key, data_dir) as client:
        _show(client.webhooks.read(id_), as_json)


@group.command()
def create(
    address: Annotated[
        str,
        typer.Argument(metavar="ADDRESS", help="Where messages go: https, and public."),
    ],
    events: Events = None,
    description: Description = None,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Have an address told of jobs that end, by messages that are signed.

    The secret that they are signed with is shown this once.
    """
    wanted = events or ["job.succeeded", "job.failed"]
    with open_client(url, key, data_dir) as client:
        made = client.webhooks.create(address, wanted, description=description)
    _show(made, as_json)


@group.command()
def update(
    id_: Id,
    address: Annotated[str | None, typer.Option(help="Another address.")] = None,
    events: Events = None,
    description: Description = None,
    on: Annotated[
        bool | None,
        typer.Option("--on/--off", help="While it is off, nothing is sent or kept."),
    ] = None,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Change a webhook, or turn it off or on; what is not given stays."""
    given = {
        "url": address,
        "events": events,
        "description": description,
        "is_enabled": on,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise typer.BadParameter("give what to change: --address, --event, --off ...")
    with open_client(url, key, data_dir) as client:
        _show(client.webhooks[id_].update(**changes), as_json)


@group.command()
def rotate(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Give a webhook another secret, shown this once.

    For a day messages are signed with both, so that no receiver misses one.
    """
    with open_client(url, key, data_dir) as client:
        _show(client.webhooks[id_].rotate(), as_json)


@group.command()
def delete(
    id_: Id,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete a webhook, and the messages that wait for it."""
    with open_client(url, key, data_dir) as client:
        client.webhooks[id_].delete()
    print_done({"id": id_, "deleted": True}, f"{id_} is deleted", as_json=as_json)


@group.command()
def deliveries(
    id_: Id,
    status: Annotated[
        str | None, typer.Option(help="Only pending, delivered or dead ones.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many at most.")] = 20,
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """What was sent to a webhook, newest first, and what became of it."""
    with open_client(url, key, data_dir) as client:
        rows = [*islice(client.webhooks[id_].deliveries(status), n)]
    if as_json:
        print_json(rows)
        return
    columns = {
        "message": "id",
        "event": "type",
        "status": "status",
        "attempts": "attempt",
        "last answer": "answer",
        "created": "created_at",
    }
    shown = [{**row, "answer": _describe_answer(row)} for row in rows]
    print_rows(shown, columns, "nothing was sent to it yet")


@group.command()
def redeliver(
    id_: Id,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id.")],
    url: Url = None,
    key: Key = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Send a message again, whatever became of it before: under the same id."""
    with open_client(url, key, data_dir) as client:
        found = client.webhooks[id_].redeliver(message)
    if as_json:
        print_json(found)
    else:
        print_lines(f"{found['id']} is {found['status']}: a worker sends it again")


def _describe_answer(row: dict[str, Any]) -> str | None:
    """Of the last attempt: what the receiver answered, or why nothing came."""
    if not row["attempts"]:
        return None
    last = row["attempts"][-1]
    answer = "" if last["status"] is None else str(last["status"])
    return " ".join(filter(None, (answer, last["error"])))


def _show(webhook: Webhook, as_json: bool) -> None:
    info = webhook.info
    secret = {} if webhook.secret is None else {"secret": webhook.secret}
    if as_json:
        print_json({**info, **secret})
        return
    print_facts(
        {
            "webhook": info["id"],
            "address": info["url"],
            "events": info["events"],
            "description": info["description"],
            "on": info["is_enabled"],
            "failed in a row": info["n_failed"],
            "not before": info["not_before"],
            "created": info["created_at"],
            **secret,
        }
    )
    if secret:
        print_lines("the secret is shown this once: keep it where the receiver has it")
