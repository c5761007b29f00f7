"""`lometab blobs`: where files are kept; on the database that the settings name."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from app.cli.connection import DataDir
from app.cli.output import AsJson, complain, print_done, print_json, print_rows
from app.cli.service import find_stored

group = typer.Typer(
    help="Stored files: where they are, and what nothing refers to.",
    no_args_is_help=True,
)

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
]
_AT_ONCE = 200


@group.command("list")
def list_stores(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show how many files, and how many bytes, are in which store."""
    import sqlalchemy as sa

    from app.storage import db
    from app.storage.tables import Blob

    find_stored(data_dir)
    with db.reading() as session:
        rows = session.execute(
            sa.select(Blob.store, sa.func.count(), sa.func.sum(Blob.size))
            .group_by(Blob.store)
            .order_by(Blob.store)
        ).all()
    found = [
        {"store": store or "database", "files": n, "bytes": int(size)}
        for store, n, size in rows
    ]
    if as_json:
        print_json(found)
        return
    columns = {"store": "store", "files": "files", "bytes": "bytes"}
    print_rows(found, columns, "nothing is stored yet")


@group.command("move")
def move_blobs(
    to: Annotated[
        str,
        typer.Option(help="database, s3://bucket/prefix, gs://, az:// or a path."),
    ],
    dry_run: DryRun = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Move all files to another store, one by one, while the service runs.

    Each is read whole and held against its hash; its old copy goes an hour later. It
    may be ended at any time, and goes on where it was. Set LOMETAB_BLOB_STORE first,
    so that new files go there too.
    """
    from app.settings import Settings
    from app.storage import blobs, stores

    find_stored(data_dir)
    try:
        address = Settings(blob_store=to).blob_store or None
    except ValueError:
        raise typer.BadParameter(
            f"there is no such kind of store, however: {to}"
        ) from None
    n_moved = n_bytes = n_damaged = 0
    for workspace_id, sha256, size in _list_elsewhere(address):
        try:
            where = stores.get_store(address)
            if not dry_run and not blobs.move(workspace_id, sha256, where):
                continue
        except blobs.BlobDamaged:
            complain(f"{sha256} of {workspace_id}: damaged, stays where it is")
            n_damaged += 1
            continue
        n_moved, n_bytes = n_moved + 1, n_bytes + size
    done = "would be moved" if dry_run else "moved"
    found = {"files": n_moved, "bytes": n_bytes, "damaged": n_damaged}
    print_done(found, f"{n_moved} files {done}, {n_bytes} bytes", as_json=as_json)
    raise typer.Exit(1 if n_damaged else 0)


def _list_elsewhere(address: str | None) -> Iterator[tuple[str, str, int]]:
    """Workspace, hash and size of each file in another store, page by page."""
    import sqlalchemy as sa

    from app.storage import db
    from app.storage.tables import Blob

    after = ("", "")
    while True:
        with db.reading() as session:
            rows = session.execute(
                sa.select(Blob.workspace_id, Blob.sha256, Blob.size)
                .where(
                    sa.tuple_(Blob.workspace_id, Blob.sha256) > after,
                    Blob.store.is_distinct_from(address),
                )
                .order_by(Blob.workspace_id, Blob.sha256)
                .limit(_AT_ONCE)
            ).all()
        if not rows:
            return
        yield from ((row[0], row[1], row[2]) for row in rows)
        after = (rows[-1][0], rows[-1][1])


@group.command("clean")
def clean(
    dry_run: DryRun = False,
    min_age: Annotated[
        float, typer.Option(min=0, help="Seconds: what is younger stays.")
    ] = 3600.0,
    listing: Annotated[
        bool,
        typer.Option(
            "--list",
            help="Also list the object store, for what no row knows of. Its address "
            "must be this database's alone.",
        ),
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove stored bytes that nothing refers to; workers do so every ten minutes.

    What is being uploaded stays, or is stored again by whoever uploads it.
    """
    from app.settings import get_settings
    from app.storage import orphans

    find_stored(data_dir)
    strays: list[Any] = []
    address = get_settings().blob_store
    if listing and address:
        strays = [*orphans.list_strays(address, min_age=min_age)]
    if dry_run:
        lines = [*_describe(min_age)]
        lines += [f"{s.store}/{s.name}: {s.size} bytes, of no row" for s in strays]
        text = "\n".join(lines) or "there is nothing to remove"
        print_done({"removed": 0, "would_be_removed": lines}, text, as_json=as_json)
        return
    n_removed = orphans.remove_orphans(min_age=min_age) + len(strays)
    for stray in strays:
        orphans.remove_object(stray.store, stray.name)
    print_done({"removed": n_removed}, f"{n_removed} removed", as_json=as_json)


def _describe(min_age: float) -> Iterator[str]:
    from app.storage import db, orphans

    with db.reading() as session:
        for key in orphans.list_orphan_chunks(session, min_age=min_age):
            yield f"chunks {key.name} of {key.workspace_id}: no file names them"
        for key in orphans.list_orphan_blobs(session, min_age=min_age):
            yield f"file {key.name} of {key.workspace_id}: nothing refers to it"
        for loose in orphans.list_loose_objects(session, min_age=min_age):
            yield f"{loose.store}/{loose.name}: {loose.size} bytes, no file names it"
