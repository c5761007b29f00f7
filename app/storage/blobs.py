"""Content-addressed bytes in the database, in chunks, one short transaction each."""

import hashlib
import io
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BlobDamaged
from app.storage import db
from app.storage.tables import CHUNK_BYTES, Blob, BlobChunk, Dataset, Job, TrainedModel

log = logging.getLogger(__name__)

__all__ = [
    "BlobDamaged",
    "BlobFile",
    "chunks",
    "is_intact",
    "read",
    "remove_unnamed",
    "remove_unused",
    "store",
    "store_bytes",
]


def store(workspace_id: str, file: IO[bytes]) -> str:
    """Keep a file's bytes from its current position on; returns their sha256.

    The chunks are written under a new generation, which no removal knows of, and which
    nobody sees before the blob's row names it. So a removal of the same bytes at the
    same time takes its own chunks with it and none of ours. What refers to the blob is
    told by its foreign key if the blob is gone again by then, and stores anew.

    A blob that is damaged is mended: its row then names the new generation.
    """
    start = file.tell()
    digest = hashlib.sha256()
    for content in _pieces(file):
        digest.update(content)
    sha256, size = digest.hexdigest(), file.tell() - start
    found = _look_up(workspace_id, sha256)
    if found is not None and _find_damage(found) is None:
        return sha256
    damaged = None if found is None else found.generation
    while True:
        file.seek(start)
        generation = _new_generation()
        try:
            _write_chunks(workspace_id, generation, file)
            with db.transaction() as session:
                _name_generation(
                    session, workspace_id, sha256, generation, size, damaged
                )
        except _ChunksGone:
            continue
        except BaseException:
            with suppress(sa.exc.SQLAlchemyError), db.transaction() as session:
                if not _is_named(session, workspace_id, sha256, generation):
                    _delete_chunks(session, workspace_id, generation)
            raise
        return sha256


class _ChunksGone(Exception):
    """What we wrote was cleared away, as nobody had come to name it for long."""


def _write_chunks(workspace_id: str, generation: str, file: IO[bytes]) -> None:
    key = {"workspace_id": workspace_id, "generation": generation}
    for index, content in enumerate(_pieces(file)):
        digest = hashlib.sha256(content).hexdigest()
        with db.transaction() as session:
            session.add(BlobChunk(**key, index=index, content=content, sha256=digest))


def _is_named(
    session: Session, workspace_id: str, sha256: str, generation: str
) -> bool:
    """Whether the blob's row was written, though we were not told."""
    blob = _lock(session, workspace_id, sha256)
    return blob is not None and blob.generation == generation


def _name_generation(
    session: Session,
    workspace_id: str,
    sha256: str,
    generation: str,
    size: int,
    damaged: str | None,
) -> None:
    """Let the blob's row name our chunks, unless those of another are whole.

    Args:
        damaged: the generation that was read and found to be damaged.
    """
    ours = Blob(
        workspace_id=workspace_id, sha256=sha256, generation=generation, size=size
    )
    _lock_chunks(session, workspace_id, generation)
    if not _has_all_chunks(session, ours):
        raise _ChunksGone
    is_new = db.insert_unless_exists(
        session,
        Blob,
        workspace_id=workspace_id,
        sha256=sha256,
        generation=generation,
        size=size,
        created_at=db.now(session),
    )
    if is_new:
        return
    blob = _lock(session, workspace_id, sha256)
    if blob is None:  # the other one is removed just now
        _name_generation(session, workspace_id, sha256, generation, size, damaged)
    elif blob.generation != damaged and _has_all_chunks(session, blob):
        _delete_chunks(session, workspace_id, generation)
    else:
        log.critical("the blob %s was damaged, and is stored again", sha256)
        _delete_chunks(session, workspace_id, blob.generation)
        blob.generation, blob.size = generation, size


def is_intact(workspace_id: str, sha256: str) -> bool:
    """Whether the blob is there, byte by byte as it was stored. It is read whole."""
    blob = _look_up(workspace_id, sha256)
    return blob is not None and _find_damage(blob) is None


def _find_damage(blob: Blob) -> BlobDamaged | None:
    try:
        for _ in _chunks(blob):
            pass
    except BlobDamaged as error:
        return error
    except KeyError:  # it is removed just now
        return BlobDamaged("it is gone")
    return None


def _has_all_chunks(session: Session, blob: Blob) -> bool:
    """By their number and lengths; their content is not read."""
    n_chunks, size = session.execute(
        sa.select(
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(sa.func.length(BlobChunk.content)), 0),
        ).where(
            BlobChunk.workspace_id == blob.workspace_id,
            BlobChunk.generation == blob.generation,
        )
    ).one()
    return bool(size == blob.size and n_chunks == _count_chunks(blob.size))


def _lock_chunks(session: Session, workspace_id: str, generation: str) -> bool:
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


def _count_chunks(size: int) -> int:
    return -(-size // CHUNK_BYTES)


def _new_generation() -> str:
    """When, and a random number: what nobody came to name can be told by its age."""
    return f"{int(time.time()):010x}-{secrets.token_hex(12)}"


def _lock(session: Session, workspace_id: str, sha256: str) -> Blob | None:
    """The blob's row, for us alone until the end of the transaction."""
    return session.scalar(
        sa.select(Blob)
        .where(Blob.workspace_id == workspace_id, Blob.sha256 == sha256)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def _delete_chunks(session: Session, workspace_id: str, generation: str) -> None:
    session.execute(
        sa.delete(BlobChunk).where(
            BlobChunk.workspace_id == workspace_id, BlobChunk.generation == generation
        )
    )


def store_bytes(workspace_id: str, content: bytes) -> str:
    return store(workspace_id, io.BytesIO(content))


def chunks(workspace_id: str, sha256: str) -> Iterator[bytes]:
    """The bytes of a blob, chunk by chunk, hashed on the way.

    The last one is not given before the hash of all is right: whoever has all of them
    has what was stored.

    Raises:
        KeyError: there is no such blob.
        BlobDamaged: it is not as it was stored.
    """
    return _chunks(_find(workspace_id, sha256))


def _chunks(blob: Blob) -> Iterator[bytes]:
    digest = hashlib.sha256()
    n_chunks = _count_chunks(blob.size)
    for index in range(n_chunks):
        content, _ = _read_chunk(blob, index)
        digest.update(content)
        if index == n_chunks - 1 and digest.hexdigest() != blob.sha256:
            raise _damage(blob, "has another hash than when it was stored")
        yield content


def _damage(blob: Blob, what: str) -> BlobDamaged:
    """The error, after an alarm: nothing of ours writes such a thing."""
    log.critical(
        "STORED DATA DAMAGED: the blob %s of workspace %r %s; check the database and "
        "its disk, and upload the file again",
        blob.sha256,
        blob.workspace_id,
        what,
    )
    return BlobDamaged()


class BlobFile(io.RawIOBase):
    """A blob to be read from any place; no more of it is fetched than is asked for.

    Each chunk is held against its own hash. One from before those were kept has the
    whole blob read and hashed.
    """

    def __init__(self, workspace_id: str, sha256: str) -> None:
        self._blob = _find(workspace_id, sha256)
        self._is_checked = False
        self._size = self._blob.size
        self._position = 0
        self._index, self._chunk = -1, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        self._position = start[whence] + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """As much as was asked for, unless the blob ends before."""
        view = memoryview(buffer).cast("B")
        n_read = 0
        while n_read < len(view) and self._position < self._size:
            index, offset = divmod(self._position, CHUNK_BYTES)
            if index != self._index:
                self._chunk, self._index = self._read_chunk(index), index
            part = self._chunk[offset : offset + len(view) - n_read]
            view[n_read : n_read + len(part)] = part
            n_read += len(part)
            self._position += len(part)
        return n_read

    def _read_chunk(self, index: int) -> bytes:
        content, digest = _read_chunk(self._blob, index)
        if digest is not None:
            if hashlib.sha256(content).hexdigest() != digest:
                raise _damage(self._blob, f"has a chunk {index} with another hash")
        elif not self._is_checked:
            for _ in _chunks(self._blob):
                pass
            self._is_checked = True
        return content


def _look_up(workspace_id: str, sha256: str) -> Blob | None:
    with db.reading() as session:
        return session.get(Blob, (workspace_id, sha256))


def _find(workspace_id: str, sha256: str) -> Blob:
    blob = _look_up(workspace_id, sha256)
    if blob is None:
        raise KeyError(f"no blob {sha256} in workspace {workspace_id!r}")
    return blob


def _read_chunk(blob: Blob, index: int) -> tuple[bytes, str | None]:
    """The content, of the right length, and the hash that is kept of it."""
    with db.reading() as session:
        row = session.execute(
            sa.select(BlobChunk.content, BlobChunk.sha256).where(
                BlobChunk.workspace_id == blob.workspace_id,
                BlobChunk.generation == blob.generation,
                BlobChunk.index == index,
            )
        ).first()
        if row is None:
            now = session.get(Blob, (blob.workspace_id, blob.sha256))
            if now is None:
                raise KeyError(f"blob {blob.sha256} was deleted while it was read")
            if now.generation != blob.generation:  # stored again: the same bytes
                blob.generation = now.generation
                return _read_chunk(blob, index)
    size = min(CHUNK_BYTES, blob.size - index * CHUNK_BYTES)
    if row is None:
        raise _damage(blob, f"lacks its chunk {index}")
    if len(row.content) != size:
        raise _damage(blob, f"has a chunk {index} of another length")
    return row.content, row.sha256


def read(workspace_id: str, sha256: str) -> bytes:
    return b"".join(chunks(workspace_id, sha256))


def remove_unused(session: Session, workspace_id: str, sha256: str) -> bool:
    """Remove a blob that nothing refers to any more; whether it was removed.

    Its row is locked before we ask who refers to it: whoever came to refer to it first
    keeps it, and whoever comes later is told by the foreign key, and stores it again.
    """
    blob = _lock(session, workspace_id, sha256)
    if blob is None:
        return False
    is_used = session.scalar(
        sa.select(
            sa.or_(
                sa.exists().where(
                    Dataset.workspace_id == workspace_id,
                    Dataset.table_sha256 == sha256,
                ),
                sa.exists().where(
                    TrainedModel.workspace_id == workspace_id,
                    TrainedModel.onnx_sha256 == sha256,
                ),
                sa.exists().where(
                    Job.workspace_id == workspace_id, Job.checkpoint_sha256 == sha256
                ),
            )
        )
    )
    if is_used:
        return False
    _delete_chunks(session, workspace_id, blob.generation)
    session.delete(blob)
    session.flush()
    return True


def remove_unnamed(session: Session, workspace_id: str, generation: str) -> bool:
    """Remove chunks that no blob names; whether they were removed.

    They are locked before we ask: whoever comes to name them later finds that they are
    gone, and stores them again.
    """
    if _lock_chunks(session, workspace_id, generation):
        is_named = session.scalar(
            sa.select(Blob.sha256).where(
                Blob.workspace_id == workspace_id, Blob.generation == generation
            )
        )
        if is_named is not None:
            return False
    _delete_chunks(session, workspace_id, generation)
    return True


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")
