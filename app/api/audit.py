"""Who changed what."""

import datetime as dt
from typing import Annotated, Self

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from app.access import Writer
from app.api.bodies.common import Id, Page
from app.api.deps import ReadSessionDep
from app.api.paging import After, Before, Cursor, Limit, link_next, read_page
from app.api.responses import problems
from app.storage.tables import AuditRecord

router = APIRouter(tags=["access"])


class AuditRead(BaseModel):
    """A change that was made."""

    id: str
    key_id: str | None = Field(
        description="Whose key it was made with; null: without one, from the machine."
    )
    method: str = Field(description="Of HTTP, or `CLI`.")
    route: str = Field(description="The template of the path, or the command.")
    target_id: str | None = Field(description="What was made, changed or deleted.")
    status: int = Field(description="Of the answer; 0 of a command.")
    request_id: str | None
    created_at: dt.datetime

    @classmethod
    def of(cls, record: AuditRecord) -> Self:
        return cls.model_validate(record, from_attributes=True)


@router.get(
    "/audit",
    response_model=Page[AuditRead],
    summary="Who changed what in the workspace",
    responses=problems(422),
)
def list_audit(
    request: Request,
    response: Response,
    session: ReadSessionDep,
    caller: Writer,
    key_id: Annotated[Id | None, Query(description="Only by this key.")] = None,
    target_id: Annotated[
        str | None,
        Query(
            max_length=700,
            pattern="^[A-Za-z0-9._@/-]+$",
            description="Only of this: an id, or `name/alias`.",
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    created_after: After = None,
    created_before: Before = None,
) -> Page[AuditRead]:
    """Newest first, in pages. A change is recorded before its caller hears that it was
    made. It takes a key that may make changes to see who made them."""
    statement = sa.select(AuditRecord).where(
        AuditRecord.workspace_id == caller.workspace_id
    )
    if key_id is not None:
        statement = statement.where(AuditRecord.key_id == key_id)
    if target_id is not None:
        statement = statement.where(AuditRecord.target_id == target_id)
    rows, next_cursor = read_page(
        session,
        statement,
        AuditRecord,
        limit=limit,
        cursor=cursor,
        created_after=created_after,
        created_before=created_before,
    )
    response.headers.update(link_next(request, next_cursor))
    return Page[AuditRead](
        data=[AuditRead.of(record) for (record,) in rows], next_cursor=next_cursor
    )
