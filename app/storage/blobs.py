"""Content-addressed bytes: a blob exists when its row does, wherever its bytes are."""

import hashlib
import io
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BlobDamaged, StoreAway
from app.storage import db, stores
from app.storage.tables import CHUNK_BYTES, Blob, Dataset, Job, TrainedModel

log = logging.getLogger(__name__)

__all__ = [
    "BlobDamaged",
    "BlobFile",
    "StoreAway",
    "chunks",
    "is_intact",
    "move",
    "read",
    "remove_unused",
    "store",
    "store_bytes",
]


def store(workspace_id: str, file: IO[bytes]) -> str:
    """Keep a file's bytes from its current position on; returns their sha256.

    They are written under a new generation, which no removal knows of, and which
    nobody sees before the blob's row names it. So a removal of the same bytes at the
    same time takes its own with it and none of ours. What refers to the blob is told
    by its foreign key if the blob is gone again by then, and stores anew.

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
        blob = Blob(workspace_id=workspace_id, sha256=sha256, size=size)
        try:
            with _written(stores.get_default(), blob, _pieces(file)) as session:
                _name(session, blob, damaged)
        except _Gone:
            continue
        return sha256


class _Gone(Exception):
    """What we wrote was cleared away, as nobody had come to name it for long."""


@contextmanager
def _written(
    where: stores.Store, blob: Blob, pieces: Iterator[bytes]
) -> Iterator[Session]:
    """Write bytes under a new generation, and open the transaction that names them.

    Nothing of them stays if anything fails.
    """
    blob.generation, blob.store, blob.digests = _new_generation(), where.address, None
    try:
        where.write(blob, pieces)
        with db.transaction() as session:
            if not where.claim(session, blob):
                raise _Gone
            yield session
    except _Gone:
        raise
    except BaseException:
        with suppress(sa.exc.SQLAlchemyError), db.transaction() as session:
            if not _is_named(session, blob):
                where.release(session, blob)
        raise


def _is_named(session: Session, ours: Blob) -> bool:
    """Whether the blob's row was written, though we were not told."""
    blob = _lock(session, ours.workspace_id, ours.sha256)
    return blob is not None and blob.generation == ours.generation


def _name(session: Session, ours: Blob, damaged: str | None) -> None:
    """Let the blob's row name our bytes, unless those of another are whole.

    Args:
        damaged: the generation that was read and found to be damaged.
    """
    is_new = db.insert_unless_exists(
        session,
        Blob,
        workspace_id=ours.workspace_id,
        sha256=ours.sha256,
        generation=ours.generation,
        size=ours.size,
        store=ours.store,
        digests=ours.digests,
        created_at=db.now(session),
    )
    if is_new:
        return
    blob = _lock(session, ours.workspace_id, ours.sha256)
    if blob is None:  # the other one is removed just now
        _name(session, ours, damaged)
    elif blob.generation != damaged and _where(blob).is_whole(session, blob):
        _where(ours).release(session, ours)
    else:
        log.critical("the blob %s was damaged, and is stored again", ours.sha256)
        _replace(session, blob, ours)


def _replace(session: Session, blob: Blob, ours: Blob) -> None:
    """Let the row name our bytes, and the others go."""
    _where(blob).release(session, blob)
    blob.generation, blob.size = ours.generation, ours.size
    blob.store, blob.digests = ours.store, ours.digests


def _where(blob: Blob) -> stores.Store:
    return stores.get_store(blob.store)


def move(workspace_id: str, sha256: str, where: stores.Store) -> bool:
    """Have a blob's bytes in another store; False if they are there, or are gone.

    It is read and served meanwhile: its row names the one or the other.

    Raises:
        BlobDamaged: it is not as it was stored, and stays where it is.
    """
    found = _look_up(workspace_id, sha256)
    if found is None or found.store == where.address:
        return False
    ours = Blob(workspace_id=workspace_id, sha256=sha256, size=found.size)
    try:
        with _written(where, ours, _chunks(found)) as session:
            blob = _lock(session, workspace_id, sha256)
            if blob is None or blob.store == where.address:
                where.release(session, ours)
                return False
            _replace(session, blob, ours)
    except (KeyError, _Gone):  # somebody removed it
        return False
    return True


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
    for index, (content, _) in enumerate(_read(blob, 0, n_chunks)):
        digest.update(content)
        if index == n_chunks - 1 and digest.hexdigest() != blob.sha256:
            raise _damage(blob, "has another hash than when it was stored")
        yield content


def _damage(blob: Blob, what: str) -> BlobDamaged:
    """The error, after an alarm: nothing of ours writes such a thing."""
    log.critical(
        "STORED DATA DAMAGED: the blob %s of workspace %r %s; check the store and "
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
        for chunk in self._take(min(self._position + len(view), self._size)):
            offset = self._position % CHUNK_BYTES
            part = chunk[offset : offset + len(view) - n_read]
            view[n_read : n_read + len(part)] = part
            n_read += len(part)
            self._position += len(part)
        return n_read

    def _take(self, end: int) -> Iterator[bytes]:
        """The chunks from our position to before the end; the last one is kept."""
        first = self._position // CHUNK_BYTES
        last = _count_chunks(end) if end > self._position else first
        if first == self._index and first < last:
            yield self._chunk
            first += 1
        for index, read in enumerate(_read(self._blob, first, last), start=first):
            self._check(index, *read)
            self._index, self._chunk = index, read[0]
            yield self._chunk

    def _check(self, index: int, content: bytes, digest: str | None) -> None:
        if digest is not None:
            if hashlib.sha256(content).hexdigest() != digest:
                raise _damage(self._blob, f"has a chunk {index} with another hash")
        elif not self._is_checked:
            for _ in _chunks(self._blob):
                pass
            self._is_checked = True


def _look_up(workspace_id: str, sha256: str) -> Blob | None:
    with db.reading() as session:
        return session.get(Blob, (workspace_id, sha256))


def _find(workspace_id: str, sha256: str) -> Blob:
    blob = _look_up(workspace_id, sha256)
    if blob is None:
        raise KeyError(f"no blob {sha256} in workspace {workspace_id!r}")
    return blob


def _read(blob: Blob, first: int, last: int) -> Iterator[stores.Chunk]:
    """The chunks from the first to before the last, of the right length, and the hash
    that is kept of each."""
    index = first
    while index < last:
        try:
            for content, digest in _where(blob).read(blob, index, last):
                size = min(CHUNK_BYTES, blob.size - index * CHUNK_BYTES)
                if len(content) != size:
                    raise _damage(blob, f"has a chunk {index} of another length")
                yield content, digest
                index += 1
        except stores.Missing as error:
            _follow(blob, str(error))


def _follow(blob: Blob, what: str) -> None:
    """Look where the bytes are now, as they are not where they were."""
    now = _look_up(blob.workspace_id, blob.sha256)
    if now is None:
        raise KeyError(f"blob {blob.sha256} was deleted while it was read")
    if now.generation == blob.generation:
        raise _damage(blob, what)
    blob.generation, blob.store, blob.digests = now.generation, now.store, now.digests


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
    _where(blob).release(session, blob)
    session.delete(blob)
    session.flush()
    return True


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")
