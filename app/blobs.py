"""Content-addressed bytes in the database, in chunks, one short transaction each."""

import hashlib
import io
from collections.abc import Iterator
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db
from app.models import CHUNK_BYTES, Blob, BlobChunk, Dataset, Job, TrainedModel


def store(workspace_id: str, file: IO[bytes]) -> str:
    """Keep a file's bytes from its current position on; returns their sha256.

    Until the blob's own row exists nobody sees the chunks, so a crash in the middle
    leaves nothing but chunks that the next try finds in place.
    """
    start = file.tell()
    digest = hashlib.sha256()
    for content in _pieces(file):
        digest.update(content)
    sha256, size = digest.hexdigest(), file.tell() - start
    key = {"workspace_id": workspace_id, "sha256": sha256}
    with db.reading() as session:
        if session.get(Blob, (workspace_id, sha256)) is not None:
            return sha256
    file.seek(start)
    for index, content in enumerate(_pieces(file)):
        with db.writing() as session:
            db.insert_unless_exists(
                session, BlobChunk, **key, index=index, content=content
            )
            session.commit()
    with db.writing() as session:
        db.insert_unless_exists(
            session, Blob, **key, size=size, created_at=db.now(session)
        )
        session.commit()
    return sha256


def store_bytes(workspace_id: str, content: bytes) -> str:
    return store(workspace_id, io.BytesIO(content))


def chunks(workspace_id: str, sha256: str) -> Iterator[bytes]:
    """The bytes of a blob, chunk by chunk."""
    size = _find_size(workspace_id, sha256)
    for index in range(-(-size // CHUNK_BYTES)):
        yield _read_chunk(workspace_id, sha256, index)


class BlobFile(io.RawIOBase):
    """A blob to be read from any place; no more of it is fetched than is asked for."""

    def __init__(self, workspace_id: str, sha256: str) -> None:
        self._key = (workspace_id, sha256)
        self._size = _find_size(*self._key)
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
                self._chunk, self._index = _read_chunk(*self._key, index), index
            part = self._chunk[offset : offset + len(view) - n_read]
            view[n_read : n_read + len(part)] = part
            n_read += len(part)
            self._position += len(part)
        return n_read


def _find_size(workspace_id: str, sha256: str) -> int:
    with db.reading() as session:
        blob = session.get(Blob, (workspace_id, sha256))
    if blob is None:
        raise KeyError(f"no blob {sha256} in workspace {workspace_id!r}")
    return blob.size


def _read_chunk(workspace_id: str, sha256: str, index: int) -> bytes:
    with db.reading() as session:
        content = session.scalar(
            sa.select(BlobChunk.content).where(
                BlobChunk.workspace_id == workspace_id,
                BlobChunk.sha256 == sha256,
                BlobChunk.index == index,
            )
        )
    if content is None:
        raise KeyError(f"blob {sha256} was deleted while it was read")
    return content


def read(workspace_id: str, sha256: str) -> bytes:
    return b"".join(chunks(workspace_id, sha256))


def remove_unused(session: Session, workspace_id: str, sha256: str) -> bool:
    """Remove a blob that nothing refers to any more; whether it was removed.

    The caller commits. Whoever stores the same bytes at this moment is told by the
    foreign key, and stores them again.
    """
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
    for table in (Blob, BlobChunk):
        session.execute(
            sa.delete(table).where(
                table.workspace_id == workspace_id, table.sha256 == sha256
            )
        )
    return True


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(CHUNK_BYTES), b"")
