"""Stored bytes: who refers to them, and files that are watched as they are read."""

import io
import random
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from app.storage import blobs, db
from app.storage.tables import Dataset


class Watched(io.BytesIO):
    """A file that calls back as its chunks are read, counted over both readings."""

    def __init__(self, content: bytes, on_read: Callable[[int], None]) -> None:
        super().__init__(content)
        self.n_reads = 0
        self.on_read = on_read

    def read(self, size: int | None = -1, /) -> bytes:
        self.n_reads += 1
        self.on_read(self.n_reads)
        return super().read(size)


def refer(sha256: str) -> str:
    """A dataset row that refers to the blob."""
    id_ = f"ds_{random.randbytes(8).hex()}"
    with db.transaction() as session:
        session.add(
            Dataset(
                id=id_,
                workspace_id="default",
                sha256=random.randbytes(32).hex(),
                options_sha256="0" * 64,
                table_sha256=sha256,
                filename="t.csv",
                size=8,
                n_rows=1,
                n_columns=2,
                read_options={},
                reading={},
                profile={},
            )
        )
    return id_


def remove(id_: str) -> None:
    """What DELETE /datasets/{id} does."""
    with db.transaction() as session:
        dataset = session.get_one(Dataset, id_)
        session.delete(dataset)
        session.flush()
        blobs.remove_unused(session, "default", dataset.table_sha256)


def count(table: type[Any]) -> int:
    with db.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table)) or 0
