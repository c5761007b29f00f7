"""`lometab keys`: on the database that the settings name."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import DataDir
from app.cli.output import AsJson, print_done, print_json, print_rows
from app.cli.service import find_settings, find_stored, has_nothing, migrate

if TYPE_CHECKING:
    from app.storage.tables import ApiKey

group = typer.Typer(help="API keys.", no_args_is_help=True)


Expires = Annotated[
    str | None,
    typer.Option(help="When it ends to be valid: 90d, 12h, or a date: 2027-01-31."),
]


@group.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for.")] = "default",
    workspace: Annotated[str, typer.Option(help="Where it acts.")] = "default",
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write or predict; all if not given.")
    ] = None,
    expires: Expires = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=0, help="0: any number; else as the settings say.")
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(min=0, help="The same for requests at a time.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown this once and kept nowhere."""
    from app import access as auth
    from app.storage import db

    unknown = set(scope or ()) - set(auth.SCOPES)
    if unknown:
        raise typer.BadParameter(
            f"a scope is one of {', '.join(auth.SCOPES)}, however: {unknown.pop()}"
        )
    expires_at = None if expires is None else _read_moment(expires)
    migrate(data_dir)
    with db.transaction() as session:
        chosen = [each for each in auth.SCOPES if not scope or each in scope]
        key, secret = auth.create_key(
            session,
            workspace_id=workspace,
            name=name,
            scopes=chosen,
            expires_at=expires_at,
            requests_per_minute=requests_per_minute,
            max_concurrent=max_concurrent,
        )
        auth.record_command(session, "keys create", key)
        made = {**_describe(key, True), "key": secret}
    print_done(made, secret, as_json=as_json)


def _read_moment(text: str) -> datetime:
    """From now on so many days or hours, or the beginning of a day in UTC."""
    found = re.fullmatch(r"(\d{1,5})([dh])", text)
    try:
        if found is None:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        else:
            unit = {"d": timedelta(days=1), "h": timedelta(hours=1)}[found[2]]
            moment = datetime.now(UTC) + int(found[1]) * unit
    except ValueError:
        raise typer.BadParameter(
            f"give 90d, 12h or a date such as 2027-01-31, however: {text}"
        ) from None
    if moment <= datetime.now(UTC):
        raise typer.BadParameter(f"the key would never be valid, however: {text}")
    return moment


@group.command("list")
def list_keys(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the keys there are, without the keys themselves."""
    from app import access as auth
    from app.storage import db

    found = []
    if not has_nothing(find_settings(data_dir=data_dir)):
        with db.reading() as session:
            found = [_describe(*each) for each in auth.list_keys(session)]
    if as_json:
        print_json(found)
        return
    columns = {
        "key": "id",
        "ends in": "hint",
        "workspace": "workspace_id",
        "name": "name",
        "scopes": "scopes",
        "state": "state",
        "last used": "last_used_at",
    }
    spare = ("workspace", "ends in", "last used")
    shown = [{**each, "state": _describe_state(each)} for each in found]
    print_rows(shown, columns, "no key yet: lometab keys create NAME", spare=spare)


def _describe_state(key: dict[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return f"revoked {key['revoked_at']:%Y-%m-%d}"
    if key["expires_at"] is not None and key["is_active"]:
        return f"until {key['expires_at']:%Y-%m-%d}"
    return "active" if key["is_active"] else "expired"


def _describe(key: "ApiKey", is_active: bool) -> dict[str, Any]:
    names = ("id", "hint", "workspace_id", "name", "scopes", "created_at")
    times = ("expires_at", "revoked_at", "last_used_at")
    return {
        **{name: getattr(key, name) for name in (*names, *times)},
        "is_active": is_active,
    }


@group.command("revoke")
def revoke_key(
    id_: Annotated[str, typer.Argument(metavar="ID")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key useless at once."""
    from app import access as auth
    from app.storage import db

    find_stored(data_dir)
    with db.transaction() as session:
        key = auth.revoke_key(session, id_)
        if key is None:
            raise typer.BadParameter(f"there is no active key {id_!r}")
        auth.record_command(session, "keys revoke", key)
    print_done({"id": id_, "revoked": True}, f"{id_} is revoked", as_json=as_json)


@group.command("rotate")
def rotate_key(
    id_: Annotated[str, typer.Argument(metavar="ID")],
    grace: Annotated[
        int, typer.Option(min=0, help="Minutes for which the old one stays valid.")
    ] = 24 * 60,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key in place of another, with the same rights, and print it."""
    from app import access as auth
    from app.storage import db

    find_stored(data_dir)
    with db.transaction() as session:
        made = auth.rotate_key(session, id_, timedelta(minutes=grace))
        if made is None:
            raise typer.BadParameter(f"there is no active key {id_!r}")
        key, secret = made
        auth.record_command(session, "keys rotate", key)
        described = {**_describe(key, True), "key": secret}
    print_done(described, secret, as_json=as_json)
