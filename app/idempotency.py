"""`Idempotency-Key`: the same request twice is done once and answered alike.

The key's row is written before the work begins, with a lock that expires; the answer is
written to it in the same commit as the work. So a client may always try again: after a
lost answer it gets the first one, after a crash the work is done anew.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Header
from sqlalchemy.orm import Session

from app import db
from app.errors import IdempotencyKeyReused, RequestInProgress
from app.models import IdempotencyKey

LOCK_SECONDS = 60
KEPT = timedelta(hours=24)

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[ -~]+$",
        description="Any text that is new for each new request; kept for 24 hours.",
    ),
]


def fingerprint(config: Mapping[str, Any], sha256: str) -> str:
    """What makes two requests the same: their settings and the bytes of their file."""
    text = json.dumps([config, sha256], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def begin(
    session: Session, workspace_id: str, key: str, request: str
) -> dict[str, Any] | None:
    """Take the key for this request; the first answer if there is one already."""
    moment = db.now(session)
    lock = moment + timedelta(seconds=LOCK_SECONDS)
    is_new = db.insert_unless_exists(
        session,
        IdempotencyKey,
        workspace_id=workspace_id,
        key=key,
        fingerprint=request,
        locked_until=lock,
        created_at=moment,
    )
    session.commit()
    if is_new:
        _forget_old(session)
        return None
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
        .values(
            locked_until=lock, fingerprint=request, response=None, created_at=moment
        )
        .execution_options(synchronize_session=False)
    )
    session.commit()
    if not taken.rowcount:  # type: ignore[attr-defined]
        raise RequestInProgress(headers={"Retry-After": "2"})
    return None


def keep(
    session: Session, workspace_id: str, key: str, response: dict[str, Any]
) -> None:
    """Write the answer; the caller commits it together with the work."""
    session.execute(
        sa.update(IdempotencyKey)
        .where(IdempotencyKey.workspace_id == workspace_id, IdempotencyKey.key == key)
        .values(response=response)
        .execution_options(synchronize_session=False)
    )


def abandon(session: Session, workspace_id: str, key: str) -> None:
    """Give the key back: the request was refused and may be mended and sent again."""
    session.execute(
        sa.delete(IdempotencyKey).where(
            IdempotencyKey.workspace_id == workspace_id,
            IdempotencyKey.key == key,
            IdempotencyKey.response.is_(None),
        )
    )
    session.commit()


def _forget_old(session: Session) -> None:
    session.execute(
        sa.delete(IdempotencyKey).where(
            IdempotencyKey.created_at < db.now(session) - KEPT
        )
    )
    session.commit()
