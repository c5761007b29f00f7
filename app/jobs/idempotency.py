"""`Idempotency-Key`: the same request twice is done once and answered alike.

The key's row is written before the work begins, with a lock that expires and that is
renewed while the work goes on; the answer is written to it in the same commit as the
work, and only by the request that still holds the lock. So a client may always try
again: after a lost answer it gets the first one, after a crash the work is done anew.
"""

import hashlib
import json
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import IdempotencyKeyReused, RequestInProgress
from app.storage import db
from app.storage.tables import IdempotencyKey

log = logging.getLogger(__name__)

LOCK_SECONDS = 60.0
KEPT = timedelta(hours=24)


class Lock(NamedTuple):
    """A key that one request holds."""

    workspace_id: str
    key: str
    owner: str

    @property
    def is_held(self) -> sa.ColumnElement[bool]:
        """The condition that it is still ours, and unanswered."""
        return sa.and_(
            IdempotencyKey.workspace_id == self.workspace_id,
            IdempotencyKey.key == self.key,
            IdempotencyKey.owner == self.owner,
            IdempotencyKey.response.is_(None),
        )


def fingerprint(config: Mapping[str, Any], *data: str) -> str:
    """What makes two requests the same: their settings, the bytes of their file and how
    it is read."""
    text = json.dumps([config, *data], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def begin(
    session: Session, workspace_id: str, key: str, request: str
) -> Lock | dict[str, Any]:
    """Take the key for this request; the first answer if there is one already."""
    lock = Lock(workspace_id, key, secrets.token_hex(16))
    moment = db.now(session)
    values = {
        "fingerprint": request,
        "owner": lock.owner,
        "locked_until": moment + timedelta(seconds=LOCK_SECONDS),
        "created_at": moment,
    }
    is_new = db.insert_unless_exists(
        session, IdempotencyKey, workspace_id=workspace_id, key=key, **values
    )
    if is_new:
        _forget_old(session)
        return lock
    row = session.get(IdempotencyKey, (workspace_id, key))
    if row is None:  # the request that held it failed just now
        return begin(session, workspace_id, key, request)
    if row.fingerprint != request and row.created_at > moment - KEPT:
        raise IdempotencyKeyReused()
    if row.response is not None and row.created_at > moment - KEPT:
        return row.response
    taken = session.execute(
        sa.update(IdempotencyKey)
        .where(
            IdempotencyKey.workspace_id == workspace_id,
            IdempotencyKey.key == key,
            IdempotencyKey.locked_until < moment,
        )
        .values(**values, response=None)
        .execution_options(synchronize_session=False)
    )
    if not taken.rowcount:  # type: ignore[attr-defined]
        raise RequestInProgress(headers={"Retry-After": "2"})
    return lock


def renew(session: Session, lock: Lock) -> bool:
    """Hold the key for longer; False if it is not held any more."""
    expires_at = db.now(session) + timedelta(seconds=LOCK_SECONDS)
    return _write(session, lock, locked_until=expires_at)


def keep(session: Session, lock: Lock, response: dict[str, Any]) -> None:
    """Write the answer, in the transaction that does the work.

    Raises:
        RequestInProgress: another request has the key by now, and the work is its.
    """
    if not _write(session, lock, response=response):
        raise RequestInProgress(headers={"Retry-After": "2"})


def _write(session: Session, lock: Lock, **values: Any) -> bool:
    result = session.execute(
        sa.update(IdempotencyKey)
        .where(lock.is_held)
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]


def abandon(session: Session, lock: Lock) -> None:
    """Give the key back: the request was refused and may be mended and sent again."""
    session.execute(sa.delete(IdempotencyKey).where(lock.is_held))


@contextmanager
def renewed(lock: Lock) -> Iterator[None]:
    """Renew the lock in a thread, in transactions of its own, while the work goes on.

    If that fails, the work goes on too: `keep` refuses whoever has lost the lock.
    """
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(LOCK_SECONDS / 4):
            try:
                with db.transaction() as session:
                    if not renew(session, lock):
                        return
            except sa.exc.SQLAlchemyError as error:
                log.warning("an idempotency key was not renewed: %s", error)

    thread = threading.Thread(target=run, name="idempotency", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _forget_old(session: Session) -> None:
    session.execute(
        sa.delete(IdempotencyKey).where(
            IdempotencyKey.created_at < db.now(session) - KEPT
        )
    )
