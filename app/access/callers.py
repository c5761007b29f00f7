"""Who is calling: an API key gives a workspace and what may be done in it.

The guard finds the caller of every request but predict's, which finds caller and model
by one query; both build it with `select_caller` and read it with `read_caller`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.access.cookies import read_cookie
from app.access.keys import IS_ACTIVE, SCOPES, Scope, hash_key
from app.access.peers import Headers, Peer, refuse_strangers
from app.errors import Forbidden, Unauthorized
from app.settings import Settings
from app.storage import db
from app.storage.tables import DEFAULT_WORKSPACE, ApiKey

bearer = HTTPBearer(
    auto_error=False,
    description="An API key, made by `lometab keys create`. Not needed on loopback.",
)


@dataclass(frozen=True)
class Caller:
    """The workspace a request acts in, and what it may do there."""

    workspace_id: str
    scopes: frozenset[str]
    key_id: str | None = None
    requests_per_minute: int | None = None
    """Null: as the settings have it for all keys; so below."""
    max_concurrent: int | None = None


LOCAL = Caller(DEFAULT_WORKSPACE, frozenset(SCOPES))
"""Who calls without a key, where that is allowed."""

_COLUMNS = (
    ApiKey.workspace_id,
    ApiKey.scopes,
    ApiKey.id,
    ApiKey.requests_per_minute,
    ApiKey.max_concurrent,
)


def select_caller(*more: Any) -> sa.Select[*tuple[Any, ...]]:
    """The query by which an active key is found, with parameter `sha256`.

    Args:
        more: columns of what the caller joins to the key.
    """
    return sa.select(*_COLUMNS, *more).where(
        ApiKey.sha256 == sa.bindparam("sha256"), IS_ACTIVE
    )


def read_caller(row: Sequence[Any] | None) -> tuple[Caller, Sequence[Any]]:
    """The caller in the first columns of what `select_caller` found, and the rest."""
    if row is None:
        raise Unauthorized("the API key is unknown, has expired or was revoked")
    workspace_id, scopes, *others = row[: len(_COLUMNS)]
    return Caller(workspace_id, frozenset(scopes), *others), row[len(_COLUMNS) :]


_SELECT_CALLER = select_caller()


def find_caller(secret: str) -> Caller:
    """The caller with a key."""
    with db.reading() as session:
        row = session.execute(_SELECT_CALLER, {"sha256": hash_key(secret)}).first()
    return read_caller(row)[0]


def read_secret(headers: Headers, peer: Peer, settings: Settings) -> str | None:
    """The key that a request carries; None if it has none and may do without."""
    authorization = headers.get(b"authorization", b"").decode("latin-1")
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() == "bearer" and secret.strip():
        return secret.strip()
    if settings.keys_required:
        # Without need of a key, one that was kept for another service means nothing.
        kept = read_cookie(headers)
        if kept is not None:
            return kept
        raise Unauthorized("send an API key: `Authorization: Bearer lmt_...`")
    refuse_strangers(headers, peer)
    return None


def get_caller(
    request: Request,
    _: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> Caller:
    """A dependency: whom the guard found. The other one is for the document."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


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


Anybody = Annotated[Caller, Depends(get_caller)]
"""Whoever has a valid key, or needs none."""
Reader = Annotated[Caller, Depends(RequireScope("read"))]
Writer = Annotated[Caller, Depends(RequireScope("write"))]
