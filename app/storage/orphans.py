"""Stored bytes that nothing refers to: what was cut off while it was stored.

They are found by queries over the whole tables, and removed one by one under the locks
that storing takes too: whoever comes to name them at that moment wins, or stores anew.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.storage import blobs, db
from app.storage.tables import Blob, BlobChunk, Dataset, Job, TrainedModel

MIN_AGE = 3600.0
"""Seconds: whatever is younger may be about to be named."""
_AT_ONCE = 1000


class Key(NamedTuple):
    workspace_id: str
    name: str
    """The generation of chunks, or the hash of a blob."""


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


def remove_orphans(*, min_age: float = MIN_AGE) -> int:
    """Remove both, each in a transaction of its own; how many there were."""
    with db.reading() as session:
        chunks = list_orphan_chunks(session, min_age=min_age)
        unused = list_orphan_blobs(session, min_age=min_age)
    n_removed = 0
    for key in chunks:
        with db.transaction() as session:
            n_removed += blobs.remove_unnamed(session, *key)
    for key in unused:
        with db.transaction() as session:
            n_removed += blobs.remove_unused(session, *key)
    return n_removed
