"""Who is calling: an API key gives a workspace and what may be done in it."""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

import sqlalchemy as sa
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.orm import Session

from app import db
from app.errors import Forbidden, Unauthorized
from app.models import DEFAULT_WORKSPACE, ApiKey, new_id
from app.settings import Settings, get_settings

Scope = Literal["read", "write", "predict"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

bearer = HTTPBearer(
    auto_error=False,
    description="An API key, made by `lometab keys create`. Not needed on loopback.",
)


@dataclass(frozen=True)
class Caller:
    """The workspace a request acts in, and what it may do there."""

    workspace_id: str
    scopes: frozenset[str]


def hash_key(key: str) -> str:
    """Keys are 256 random bits, so a plain hash cannot be searched backwards."""
    return hashlib.sha256(key.encode()).hexdigest()


def create_key(
    session: Session, *, workspace_id: str, name: str, scopes: Collection[Scope]
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
    )
    session.add(row)
    session.commit()
    return row, secret


def list_keys(session: Session) -> Sequence[ApiKey]:
    return session.scalars(sa.select(ApiKey).order_by(ApiKey.created_at)).all()


def revoke_key(session: Session, id_: str) -> bool:
    """Whether there was such a key that was not revoked before."""
    result = session.execute(
        sa.update(ApiKey)
        .where(ApiKey.id == id_, ApiKey.revoked_at.is_(None))
        .values(revoked_at=db.now(session))
    )
    session.commit()
    return bool(result.rowcount)  # type: ignore[attr-defined]


def has_keys(session: Session) -> bool:
    living = sa.select(ApiKey.id).where(ApiKey.revoked_at.is_(None)).limit(1)
    return session.scalar(living) is not None


def get_caller(
    request: Request,
    settings: Annotated[Settings, Depends(get_settings)],
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Caller:
    if credentials is not None:
        with db.reading() as session:  # closed before the body is read
            key = session.scalar(
                sa.select(ApiKey).where(
                    ApiKey.sha256 == hash_key(credentials.credentials),
                    ApiKey.revoked_at.is_(None),
                )
            )
        if key is None:
            raise Unauthorized(UNKNOWN_KEY)
        return Caller(key.workspace_id, frozenset(key.scopes))
    check_without_key(request, settings)
    return Caller(DEFAULT_WORKSPACE, frozenset(SCOPES))


def read_key(authorization: str) -> str | None:
    """The key in the header: what `bearer` finds."""
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


UNKNOWN_KEY = "the API key is unknown or was revoked"


def check_without_key(request: Request, settings: Settings) -> None:
    """Whether a request may come without a key."""
    if settings.keys_required:
        raise Unauthorized("send an API key: `Authorization: Bearer lmt_...`")
    _refuse_foreign_page(request)


def _refuse_foreign_page(request: Request) -> None:
    """Without keys, a web page elsewhere must not act through its visitor's browser.

    Such a request names a foreign `Origin`, or, by a name that was made to point here,
    a foreign `Host`.
    """
    for header in ("origin", "host"):
        value = request.headers.get(header)
        if value is None:
            continue
        host = urlsplit(value if "//" in value else f"//{value}").hostname or ""
        if not is_loopback(host):
            raise Forbidden(
                f"requests without an API key must come from this machine, however "
                f"their {header.title()} is {host!r}"
            )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class RequireScope:
    """A dependency: the caller, if it has the scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __call__(self, caller: Annotated[Caller, Depends(get_caller)]) -> Caller:
        check_scope(caller.scopes, self.scope)
        return caller


def check_scope(scopes: Collection[str], scope: Scope) -> None:
    if scope not in scopes:
        raise Forbidden(f"this API key lacks the scope {scope!r}")


Reader = Annotated[Caller, Depends(RequireScope("read"))]
Writer = Annotated[Caller, Depends(RequireScope("write"))]
