"""API keys: made, listed, rotated and revoked; which of them are active."""

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, get_args

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.storage import db
from app.storage.tables import ApiKey, new_id

Scope = Literal["read", "write", "predict"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

IS_ACTIVE: sa.ColumnElement[bool] = sa.and_(
    ApiKey.revoked_at.is_(None),
    sa.or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > sa.func.now()),
)
"""Whether a key gives access: the one rule, which every lookup uses."""


def hash_key(key: str) -> str:
    """Keys are 256 random bits, so a plain hash cannot be searched backwards."""
    return hashlib.sha256(key.encode()).hexdigest()


def create_key(
    session: Session,
    *,
    workspace_id: str,
    name: str,
    scopes: Collection[Scope],
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
    max_concurrent: int | None = None,
    rotated_from: str | None = None,
) -> tuple[ApiKey, str]:
    """Make a key; the second value is the key itself, which is kept nowhere."""
    secret = f"lmt_{secrets.token_urlsafe(32)}"
    row = ApiKey(
        id=new_id("key"),
        workspace_id=workspace_id,
        name=name,
        sha256=hash_key(secret),
        hint=secret[-4:],
        scopes=sorted(scopes),
        created_at=db.now(session),
        expires_at=expires_at,
        requests_per_minute=requests_per_minute,
        max_concurrent=max_concurrent,
        rotated_from=rotated_from,
    )
    session.add(row)
    return row, secret


def list_keys(session: Session) -> Sequence[tuple[ApiKey, bool]]:
    """All keys, and whether each is active."""
    rows = session.execute(sa.select(ApiKey, IS_ACTIVE).order_by(ApiKey.created_at))
    return [(key, bool(is_active)) for key, is_active in rows]


def revoke_key(session: Session, id_: str) -> ApiKey | None:
    """The key, if there was such a one and it was active."""
    key = _find_active(session, id_)
    if key is not None:
        key.revoked_at = db.now(session)
    return key


def rotate_key(
    session: Session, id_: str, grace: timedelta
) -> tuple[ApiKey, str] | None:
    """A key that takes the place of another, which stays active for a while: with the
    same name, scopes and limits, and for as long as the other was made for."""
    old = _find_active(session, id_)
    if old is None:
        return None
    now = db.now(session)
    lifetime = old.expires_at - old.created_at if old.expires_at else None
    made = create_key(
        session,
        workspace_id=old.workspace_id,
        name=old.name,
        scopes=old.scopes,
        expires_at=now + lifetime if lifetime else None,
        requests_per_minute=old.requests_per_minute,
        max_concurrent=old.max_concurrent,
        rotated_from=old.id,
    )
    old.expires_at = min(old.expires_at or now + grace, now + grace)
    return made


def _find_active(session: Session, id_: str) -> ApiKey | None:
    statement = sa.select(ApiKey).where(ApiKey.id == id_, IS_ACTIVE)
    return session.scalar(statement.with_for_update())


def has_keys(session: Session) -> bool:
    return session.scalar(sa.select(ApiKey.id).where(IS_ACTIVE).limit(1)) is not None


def write_uses(session: Session, used_at: Mapping[str, datetime]) -> None:
    """When keys were last used, by their ids."""
    for id_, moment in used_at.items():
        session.execute(
            sa.update(ApiKey)
            .where(
                ApiKey.id == id_,
                sa.or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < moment),
            )
            .values(last_used_at=moment)
        )
