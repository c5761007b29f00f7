"""Stored bytes that nothing refers to: what was cut off while it was stored.

They are found by queries over the whole tables, and removed one by one under the locks
that storing takes too: whoever comes to name them at that moment wins, or stores anew.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.storage import blobs, chunks, db, stores
from app.storage.tables import (
    Blob,
    BlobChunk,
    Dataset,
    Job,
    LooseObject,
    TrainedModel,
)

MIN_AGE = 3600.0
"""Seconds: whatever is younger may be about to be named."""
_AT_ONCE = 1000


class Key(NamedTuple):
    workspace_id: str
    name: str
    """The generation of chunks, or the hash of a blob."""


class Loose(NamedTuple):
    """An object that no blob names."""

    store: str
    name: str
    size: int


def list_orphan_chunks(session: Session, *, min_age: float = MIN_AGE) -> list[Key]:
    """Generations that no blob names. Those of earlier versions are hashes."""
    before = f"{int(time.time() - min_age):010x}"
    rows = session.execute(
        sa.select(BlobChunk.workspace_id, BlobChunk.generation)
        .where(
            sa.or_(
                BlobChunk.generation < before,
                sa.func.length(BlobChunk.generation) == 64,
            ),
            BlobChunk.generation.not_in(sa.select(Blob.generation)),
        )
        .distinct()
        .limit(_AT_ONCE)
    )
    return [Key(*row) for row in rows]


def list_orphan_blobs(session: Session, *, min_age: float = MIN_AGE) -> list[Key]:
    """Blobs that no dataset, model or job refers to."""
    before = db.now(session) - timedelta(seconds=min_age)
    kept = sa.select(Blob.workspace_id, Blob.sha256).where(Blob.created_at < before)
    used: Sequence[sa.Select[*tuple[Any, ...]]] = (
        sa.select(Dataset.workspace_id, Dataset.table_sha256),
        sa.select(TrainedModel.workspace_id, TrainedModel.onnx_sha256),
        sa.select(Job.workspace_id, Job.checkpoint_sha256).where(
            Job.checkpoint_sha256.is_not(None)
        ),
    )
    statement = sa.except_(kept, *used).limit(_AT_ONCE)
    return [Key(*row) for row in session.execute(statement).all()]


def list_loose_objects(session: Session, *, min_age: float = MIN_AGE) -> list[Loose]:
    """Objects that no blob names, of uploads that were cut off and blobs that went."""
    before = db.now(session) - timedelta(seconds=min_age)
    rows = session.execute(
        sa.select(LooseObject.store, LooseObject.name, LooseObject.size)
        .where(sa.or_(LooseObject.touched_at < before, LooseObject.is_dropped))
        .order_by(LooseObject.touched_at)
        .limit(_AT_ONCE)
    )
    return [Loose(*row) for row in rows]


def remove_loose(loose: Loose, *, min_age: float = MIN_AGE) -> bool:
    """Remove such an object, unless somebody came to name it; whether it is gone.

    Its row is marked first, in a transaction of its own: whoever comes to name it
    later is told, and stores it again. So no request is made in a transaction, and
    what is cut off here is found by the next.
    """
    is_it = (LooseObject.store == loose.store, LooseObject.name == loose.name)
    with db.transaction() as session:
        before = db.now(session) - timedelta(seconds=min_age)
        marked = session.execute(
            sa.update(LooseObject)
            .where(
                *is_it, sa.or_(LooseObject.touched_at < before, LooseObject.is_dropped)
            )
            .values(is_dropped=True)
            .returning(LooseObject.name)
            .execution_options(synchronize_session=False)
        ).first()
    if marked is None:
        return False
    remove_object(loose.store, loose.name)
    with db.transaction() as session:
        session.execute(sa.delete(LooseObject).where(*is_it))
    return True


def remove_object(address: str, name: str) -> None:
    store = stores.get_store(address)
    assert not isinstance(store, chunks.DatabaseStore)
    objects: Any = store
    objects.remove(name)


def list_strays(address: str, *, min_age: float = MIN_AGE) -> Iterator[Loose]:
    """Objects that no row knows of at all: the whole store is listed.

    There are none, unless the database was set back to an earlier state. The address
    must be this database's alone: all that others keep there is a stray to us.
    """
    objects: Any = stores.get_store(address)
    before = datetime.now(UTC) - timedelta(seconds=min_age)
    for page in objects.list_objects():
        found = {each.name: each for each in page if each.changed_at < before}
        names = {_generation_of(name): name for name in found}
        with db.reading() as session:
            known = {
                *session.scalars(
                    sa.select(Blob.generation).where(
                        Blob.store == address, Blob.generation.in_(names)
                    )
                ),
                *map(
                    _generation_of,
                    session.scalars(
                        sa.select(LooseObject.name).where(
                            LooseObject.store == address, LooseObject.name.in_(found)
                        )
                    ),
                ),
            }
        for generation, name in names.items():
            if generation not in known:
                yield Loose(address, name, found[name].size)


def _generation_of(name: str) -> str:
    return name.rpartition(".")[2]


def remove_orphans(*, min_age: float = MIN_AGE) -> int:
    """Remove all three, each in a transaction of its own; how many there were."""
    with db.reading() as session:
        unnamed = list_orphan_chunks(session, min_age=min_age)
        unused = list_orphan_blobs(session, min_age=min_age)
    n_removed = 0
    for key in unnamed:
        with db.transaction() as session:
            n_removed += chunks.remove_unnamed(session, *key)
    for key in unused:
        with db.transaction() as session:
            n_removed += blobs.remove_unused(session, *key)
    with db.reading() as session:
        loose = list_loose_objects(session, min_age=min_age)
    return n_removed + sum(remove_loose(each, min_age=min_age) for each in loose)
