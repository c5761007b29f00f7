"""Bytes go in and come out, in chunks, once."""

import io

import pytest
import sqlalchemy as sa

from app.storage import blobs
from app.storage.tables import CHUNK_BYTES

pytestmark = pytest.mark.both_databases


@pytest.mark.database_store
@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_round_trip(database: sa.Connection, size: int) -> None:
    content = bytes(i % 251 for i in range(size))
    sha256 = blobs.store_bytes("default", content)
    assert blobs.read("default", sha256) == content
    assert blobs.store("default", io.BytesIO(content)) == sha256
    n_chunks = database.scalar(sa.text("SELECT count(*) FROM blob_chunks"))
    assert n_chunks == -(-size // CHUNK_BYTES)
    largest = database.scalar(sa.text("SELECT max(length(content)) FROM blob_chunks"))
    assert (largest or 0) <= CHUNK_BYTES


def test_workspaces_are_apart(database: sa.Connection) -> None:
    sha256 = blobs.store_bytes("one", b"secret")
    with pytest.raises(KeyError):
        blobs.read("two", sha256)


@pytest.mark.database_store
def test_chunks_without_their_row_are_not_there(database: sa.Connection) -> None:
    sha256 = blobs.store_bytes("default", b"half")
    database.execute(sa.text("DELETE FROM blobs"))
    with pytest.raises(KeyError):
        blobs.read("default", sha256)
    assert blobs.store_bytes("default", b"half") == sha256
    assert blobs.read("default", sha256) == b"half"
