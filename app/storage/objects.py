"""Bytes in an object store: S3, GCS, Azure or a directory, by `obstore`."""

import hashlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import sqlalchemy as sa
from obstore.exceptions import BaseError
from obstore.store import from_url
from sqlalchemy.orm import Session

from app.errors import StoreAway
from app.storage import db
from app.storage.stores import Chunk, Missing
from app.storage.tables import CHUNK_BYTES, Blob, LooseObject

log = logging.getLogger(__name__)

PART_CHUNKS = 8
"""Chunks that are sent or fetched in one request: 8 MiB."""
TOUCH_SECONDS = 300.0
"""How often a long upload says that it goes on."""
TRIES = 3
"""Of a range whose connection breaks in the middle; requests that are refused or not
answered are tried again by the library itself."""
_DIGEST_BYTES = 32
_CLIENT = {"connect_timeout": "5s", "timeout": "60s"}
_RETRIES: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    },
}


class Stored(NamedTuple):
    """An object that is in the store."""

    name: str
    size: int
    changed_at: datetime


class ObjectStore:
    """Objects under the address, one for each generation of a blob.

    The name is the workspace, the hash and the generation: `default/<sha256>.<gen>`.
    """

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        self.address = address
        own = {k: v for k, v in options.items() if "://" not in k}
        own |= options.get(address, {})
        where = urlsplit(address)
        with _reached(address):
            if where.scheme == "file":
                _make_folder(where.path)
                self._store = from_url(address)
                return
            client = {**_CLIENT, **own.pop("client_options", {})}
            if str(own.get("endpoint", "")).startswith("http://"):
                client["allow_http"] = True
            known: dict[str, Any] = {"client_options": client, **own}
            self._store = from_url(address, retry_config=_RETRIES, **known)

    def write(self, blob: Blob, pieces: Iterable[bytes]) -> None:
        name = self.name_of(blob)
        with db.transaction() as session:
            session.add(
                LooseObject(
                    store=self.address,
                    name=name,
                    workspace_id=blob.workspace_id,
                    size=blob.size,
                    touched_at=db.now(session),
                )
            )
        digests = bytearray()
        taken = self._take(name, pieces, digests)
        with _reached(self.address):
            if blob.size <= PART_CHUNKS * CHUNK_BYTES:
                self._store.put(name, b"".join(taken), use_multipart=False)
            else:
                part = PART_CHUNKS * CHUNK_BYTES
                self._store.put(name, taken, chunk_size=part, max_concurrency=2)
        blob.digests = bytes(digests)

    def _take(
        self, name: str, pieces: Iterable[bytes], digests: bytearray
    ) -> Iterator[bytes]:
        """The pieces as they are sent: hashed, and with a word that we are at it."""
        touched = time.monotonic()
        for piece in pieces:
            digests += hashlib.sha256(piece).digest()
            if time.monotonic() - touched > TOUCH_SECONDS:
                touched = time.monotonic()
                with db.transaction() as session:
                    session.execute(
                        sa.update(LooseObject)
                        .where(*self._is(name))
                        .values(touched_at=db.now(session))
                    )
            yield piece

    def claim(self, session: Session, blob: Blob) -> bool:
        gone = session.execute(
            sa.delete(LooseObject)
            .where(*self._is(self.name_of(blob)), LooseObject.is_dropped.is_(False))
            .returning(LooseObject.name)
            .execution_options(synchronize_session=False)
        )
        return gone.first() is not None

    def is_whole(self, session: Session, blob: Blob) -> bool:
        """No request in a transaction: what has a row was whole when it got it."""
        return True

    def release(self, session: Session, blob: Blob) -> None:
        """The object stays for a while: whoever reads it now comes to its end."""
        db.insert_unless_exists(
            session,
            LooseObject,
            store=self.address,
            name=self.name_of(blob),
            workspace_id=blob.workspace_id,
            size=blob.size,
            is_dropped=False,
            touched_at=db.now(session),
        )

    def read(self, blob: Blob, first: int, last: int) -> Iterator[Chunk]:
        for index in range(first, last, PART_CHUNKS):
            stop = min(index + PART_CHUNKS, last)
            start, end = index * CHUNK_BYTES, min(stop * CHUNK_BYTES, blob.size)
            content = memoryview(self._fetch(blob, start, end))
            for i in range(index, stop):
                offset = (i - index) * CHUNK_BYTES
                yield bytes(content[offset : offset + CHUNK_BYTES]), _digest(blob, i)

    def _fetch(self, blob: Blob, start: int, end: int) -> Any:
        name = self.name_of(blob)
        for i in range(TRIES):
            try:
                return self._store.get_range(name, start=start, end=end)
            except FileNotFoundError:
                raise Missing("has no object in its store") from None
            except BaseError as error:
                self._check_size(name, blob.size)
                if i == TRIES - 1:
                    raise StoreAway() from error
                log.warning("%s: reading %s again: %s", self.address, name, _say(error))
                time.sleep(0.1 * 2**i)
        raise AssertionError("not reached")

    def _check_size(self, name: str, size: int) -> None:
        with _reached(self.address):
            try:
                found = self._store.head(name)["size"]
            except FileNotFoundError:
                raise Missing("has no object in its store") from None
        if found != size:
            raise Missing(f"has an object of {found} bytes in place of {size}")

    def remove(self, name: str) -> None:
        """Remove an object; one that is gone already is no error."""
        with _reached(self.address):
            try:
                self._store.delete(name)
            except FileNotFoundError:
                pass

    def list_objects(self) -> Iterator[list[Stored]]:
        """All that is under the address, page by page."""
        with _reached(self.address):
            for page in self._store.list():
                yield [
                    Stored(each["path"], each["size"], each["last_modified"])
                    for each in page
                ]

    def name_of(self, blob: Blob) -> str:
        workspace = quote(blob.workspace_id, safe="")
        return f"{workspace}/{blob.sha256}.{blob.generation}"

    def _is(self, name: str) -> tuple[sa.ColumnElement[bool], ...]:
        return LooseObject.store == self.address, LooseObject.name == name


def _digest(blob: Blob, index: int) -> str | None:
    found = (blob.digests or b"")[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES]
    return found.hex() or None


def _make_folder(path: str) -> None:
    """For the user that runs the service alone, as the database is."""
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o700)


def _say(error: Exception) -> str:
    """The first line; those below are for whoever mends the library."""
    return (str(error).strip() or repr(error)).splitlines()[0][:500]


@contextmanager
def _reached(address: str) -> Iterator[None]:
    """Tell errors of the store from those of whatever else is done meanwhile."""
    try:
        yield
    except BaseError as error:
        log.error("the object store %s: %s", address, _say(error))
        raise StoreAway() from error
