"""`lometab backup` and `lometab restore`: all that is stored, in one file.

An embedded service is one SQLite file, blobs included: it is copied while the service
runs, by SQLite's own online backup, and checked. Files that LOMETAB_BLOB_STORE put
elsewhere are not in it: both commands say so. Postgres has a program of its own for
this, pg_dump: docs/operations.md says how.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import DataDir
from app.cli.output import AsJson, complain, print_done
from app.cli.service import find_settings

if TYPE_CHECKING:
    from app.settings import Settings

_PAGES = 4096
"""That are copied at a time; between, the service may write."""


def add(cli: typer.Typer) -> None:
    for command in (backup, restore):
        cli.command()(command)


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write it; a new file.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Copy all that is stored into one file, while the service runs."""
    database = _find_database(find_settings(data_dir=data_dir))
    if not database.exists():
        complain(f"there is nothing stored at {database}")
        raise typer.Exit(1)
    if file.exists():
        complain(f"{file} is there already: name a new file")
        raise typer.Exit(1)
    temporary = file.with_name(file.name + ".part")
    try:
        _copy(database.absolute().as_uri(), temporary)
        _check(temporary)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
    size = file.stat().st_size
    elsewhere = _list_elsewhere(file)
    found = {"path": str(file), "size": size, "elsewhere": elsewhere}
    print_done(found, f"{file}: {size} bytes, checked", as_json=as_json)
    for each in elsewhere:
        complain(
            f"the backup lacks {each['files']} files, {each['bytes']} bytes, that are "
            f"in {each['store']}: save that store too, now or later"
        )


def restore(
    file: Annotated[Path, typer.Argument(help="What `lometab backup` wrote.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of an empty data directory.

    Nothing that is there is overwritten: name another by --data-dir, or move the old
    one away. The service must not run there.
    """
    settings = find_settings(data_dir=data_dir)
    database = _find_database(settings)
    if not file.is_file():
        complain(f"there is no file {file}")
        raise typer.Exit(1)
    if database.exists():
        complain(f"{database} is there already: move it away first")
        raise typer.Exit(1)
    _check(file)
    from app.storage import db

    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = database.with_name(database.name + ".part")
    try:
        _copy(_as_it_is(file), temporary)
        os.replace(temporary, database)
    finally:
        temporary.unlink(missing_ok=True)
    db.migrate()  # of an older version's backup
    where = str(settings.data_dir)
    elsewhere = [
        {**each, "missing": _count_missing(each["store"])}
        for each in _list_elsewhere(file)
    ]
    text = f"restored to {where}; `lometab doctor --deep` reads all"
    print_done({"data_dir": where, "elsewhere": elsewhere}, text, as_json=as_json)
    for each in elsewhere:
        _complain_of_missing(**each)
    if any(each["missing"] != 0 for each in elsewhere):
        raise typer.Exit(1)


def _list_elsewhere(path: Path) -> list[dict[str, Any]]:
    """Files of a backup that are in an object store: how many, by its address."""
    with closing(sqlite3.connect(_as_it_is(path), uri=True)) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(blobs)")]
        if "store" not in columns:  # of a version that had no other stores
            return []
        rows = database.execute(
            "SELECT store, count(*), sum(size) FROM blobs WHERE store IS NOT NULL "
            "GROUP BY store ORDER BY store"
        ).fetchall()
    return [{"store": store, "files": n, "bytes": size} for store, n, size in rows]


def _count_missing(address: str) -> int | None:
    """Files that the store should have, and has not; None: it cannot be reached."""
    import sqlalchemy as sa

    from app.storage import blobs, db, stores
    from app.storage.tables import Blob

    try:
        store: Any = stores.get_store(address)
        listed = [each for page in store.list_objects() for each in page]
    except (blobs.StoreAway, OSError):
        return None
    there = {(each.name, each.size) for each in listed}
    with db.reading() as session:
        needed = session.scalars(sa.select(Blob).where(Blob.store == address))
        return sum((store.name_of(each), each.size) not in there for each in needed)


def _complain_of_missing(
    store: str, files: int, bytes: int, missing: int | None
) -> None:
    if missing == 0:
        return
    what = "cannot be reached" if missing is None else f"lacks {missing} of them"
    complain(
        f"{files} files, {bytes} bytes, are in {store}, which {what}: what needs them "
        "is answered with an error until they are there"
    )


def _find_database(settings: "Settings") -> Path:
    if not settings.is_embedded:
        complain(
            "this is for the embedded database: Postgres is saved by pg_dump and put "
            "back by pg_restore, see docs/operations.md"
        )
        raise typer.Exit(1)
    return settings.data_dir.absolute() / "lometab.db"


def _as_it_is(path: Path) -> str:
    """A file that nobody writes to: SQLite then makes no others beside it."""
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1"


def _copy(source: str, target: Path) -> None:
    """A state of the source as one transaction sees it, whoever writes meanwhile."""
    target.touch(mode=0o600)
    with (
        closing(sqlite3.connect(source, uri=True, timeout=30)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new, pages=_PAGES)
        new.execute("PRAGMA journal_mode=DELETE")  # so that it is one file


def _check(path: Path) -> None:
    """That it is a whole database of ours."""
    from app.storage.tables import VERSION_TABLE

    try:
        with closing(sqlite3.connect(_as_it_is(path), uri=True)) as database:
            (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            (revision,) = database.execute(
                f"SELECT version_num FROM {VERSION_TABLE}"
            ).fetchone()
    except (sqlite3.DatabaseError, TypeError) as error:
        complain(f"{path} is no whole backup: {error}")
        raise typer.Exit(1) from None
    if found != "ok":
        complain(f"{path} is damaged: {found}")
        raise typer.Exit(1)
    assert revision
