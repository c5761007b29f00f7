"""Bytes in the database, in chunks, one short transaction each."""

import hashlib
from collections.abc import Iterable, Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.storage import db
from app.storage.stores import Chunk, Missing
from app.storage.tables import CHUNK_BYTES, Blob, BlobChunk


class DatabaseStore:
    """The default: nothing else need be set up, backed up or reached."""

    address = None

    def write(self, blob: Blob, pieces: Iterable[bytes]) -> None:
        key = {"workspace_id": blob.workspace_id, "generation": blob.generation}
        for index, content in enumerate(pieces):
            digest = hashlib.sha256(content).hexdigest()
            with db.transaction() as session:
                session.add(
                    BlobChunk(**key, index=index, content=content, sha256=digest)
                )

    def claim(self, session: Session, blob: Blob) -> bool:
        _lock(session, blob.workspace_id, blob.generation)
        return self.is_whole(session, blob)

    def is_whole(self, session: Session, blob: Blob) -> bool:
        """By the number and lengths of the chunks; their content is not read."""
        n_chunks, size = session.execute(
            sa.select(
                sa.func.count(),
                sa.func.coalesce(sa.func.sum(sa.func.length(BlobChunk.content)), 0),
            ).where(
                BlobChunk.workspace_id == blob.workspace_id,
                BlobChunk.generation == blob.generation,
            )
        ).one()
        return bool(size == blob.size and n_chunks == -(-blob.size // CHUNK_BYTES))

    def release(self, session: Session, blob: Blob) -> None:
        _delete(session, blob.workspace_id, blob.generation)

    def read(self, blob: Blob, first: int, last: int) -> Iterator[Chunk]:
        for index in range(first, last):
            with db.reading() as session:
                row = session.execute(
                    sa.select(BlobChunk.content, BlobChunk.sha256)
                    .where(
                        BlobChunk.workspace_id == blob.workspace_id,
                        BlobChunk.generation == blob.generation,
                        BlobChunk.index == index,
                    )
                    .execution_options(**{db.BYTES_AS_THEY_ARE: True})
                ).first()
            if row is None:
                raise Missing(f"lacks its chunk {index}")
            yield row.content, row.sha256


def remove_unnamed(session: Session, workspace_id: str, generation: str) -> bool:
    """Remove chunks that no blob names; whether they were removed.

    They are locked before we ask: whoever comes to name them later finds that they are
    gone, and stores them again.
    """
    if _lock(session, workspace_id, generation):
        is_named = session.scalar(
            sa.select(Blob.sha256).where(
                Blob.workspace_id == workspace_id, Blob.generation == generation
            )
        )
        if is_named is not None:
            return False
    _delete(session, workspace_id, generation)
    return True


def _lock(session: Session, workspace_id: str, generation: str) -> bool:
    """Let nobody clear these chunks away before the transaction ends; False if there
    are none."""
    first = session.scalar(
        sa.select(BlobChunk.index)
        .where(
            BlobChunk.workspace_id == workspace_id,
            BlobChunk.generation == generation,
            BlobChunk.index == 0,
        )
        .with_for_update()
    )
    return first is not None


def _delete(session: Session, workspace_id: str, generation: str) -> None:
    session.execute(
        sa.delete(BlobChunk).where(
            BlobChunk.workspace_id == workspace_id, BlobChunk.generation == generation
        )
    )
