"""Where the bytes of blobs are: the one interface of all places, and which there are.

A blob exists when its row does. A store keeps bytes under a generation that the row
names, and knows nothing of who refers to them.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Protocol

from sqlalchemy.orm import Session

from app.settings import get_settings
from app.storage.tables import Blob

Chunk = tuple[bytes, str | None]
"""Some of a blob's bytes, CHUNK_BYTES but for the last, and the hash kept of them."""


class Missing(Exception):
    """The store lacks bytes of a blob, or has others; the text ends a sentence."""


class Store(Protocol):
    """A place for the bytes of blobs."""

    @property
    def address(self) -> str | None:
        """What the blob's row calls it; None: the database."""

    def write(self, blob: Blob, pieces: Iterable[bytes]) -> None:
        """Keep the pieces of a blob that has no row yet; nobody sees them before."""

    def claim(self, session: Session, blob: Blob) -> bool:
        """Keep what was written from being cleared away, in the transaction in which
        the row comes to name it; False if it is gone already."""

    def is_whole(self, session: Session, blob: Blob) -> bool:
        """Whether all is there, as far as the database knows."""

    def release(self, session: Session, blob: Blob) -> None:
        """Remove it, or have it removed, once the transaction is committed."""

    def read(self, blob: Blob, first: int, last: int) -> Iterator[Chunk]:
        """The chunks from the first to before the last.

        Raises:
            Missing: they are not there.
        """


def get_store(address: str | None) -> Store:
    """The place of that address.

    Raises:
        StoreAway: this process cannot use it.
    """
    if address is None:
        return _get_database()
    return _get_objects(address, json.dumps(get_settings().store_options))


def get_default() -> Store:
    """Where new blobs go, as the settings say."""
    return get_store(get_settings().blob_store or None)


@cache
def _get_database() -> Store:
    from app.storage.chunks import DatabaseStore

    return DatabaseStore()


@cache
def _get_objects(address: str, options: str) -> Store:
    from app.storage.objects import ObjectStore

    return ObjectStore(address, json.loads(options))
