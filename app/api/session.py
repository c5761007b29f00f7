"""Who the caller is, and a cookie in the place of the key for the page."""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from app.access import COOKIE, SCOPES, Anybody, Scope
from app.api.deps import SettingsDep
from app.api.responses import problems

router = APIRouter(prefix="/session", tags=["access"])

MAX_AGE = 30 * 24 * 3600
"""Seconds until a browser forgets the key."""


class SessionRead(BaseModel):
    """Who the caller is, and what it may do."""

    workspace_id: str
    scopes: list[Scope]
    key_id: str | None = Field(description="Null: it came without, from this machine.")
    keys_required: bool = Field(description="Whether anybody else needs a key.")


@router.get(
    "",
    response_model=SessionRead,
    summary="Who the caller is, and what it may do",
    responses=problems(),
)
def read_session(caller: Anybody, settings: SettingsDep) -> SessionRead:
    """With any key that is valid, whatever its scopes."""
    return SessionRead(
        workspace_id=caller.workspace_id,
        scopes=[each for each in SCOPES if each in caller.scopes],
        key_id=caller.key_id,
        keys_required=settings.keys_required,
    )


@router.post(
    "",
    response_model=SessionRead,
    summary="Keep the key of this request in a cookie",
    responses=problems(),
)
def create_session(
    request: Request, response: Response, caller: Anybody, settings: SettingsDep
) -> SessionRead:
    """For a browser: scripts cannot read the cookie, and it is sent by pages of this
    service alone. Everything else takes the key in the header `Authorization`."""
    secret: str | None = request.state.secret
    if secret is not None:
        response.set_cookie(
            COOKIE,
            secret,
            max_age=MAX_AGE,
            path=request.scope.get("root_path") or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
    return read_session(caller, settings)


@router.delete("", status_code=204, summary="Forget the cookie", responses=problems())
def delete_session(request: Request, response: Response, caller: Anybody) -> None:
    """The key stays valid: to end it, revoke it."""
    response.delete_cookie(
        COOKIE,
        path=request.scope.get("root_path") or "/",
        httponly=True,
        samesite="strict",
    )
