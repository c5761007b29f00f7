"""Cursor paging: newest first, stable while rows are added."""

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import sqlalchemy as sa
from fastapi import Query, Request
from pydantic import BeforeValidator
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from app.errors import BadCursor, Invalid
from app.settings import get_settings
from app.storage.tables import AuditRecord, Dataset, Delivery, Job, TrainedModel

Row = TypeVar("Row", Job, TrainedModel, Dataset, AuditRecord, Delivery)

Limit = Annotated[int, Query(ge=1, le=100, description="Rows on a page.")]
Cursor = Annotated[
    str | None,
    Query(
        pattern="^[A-Za-z0-9_-]+$",
        description="`next_cursor` of the page before this one.",
    ),
]


def _refuse_numbers(value: object) -> object:
    """Pydantic would take them for seconds since 1970."""
    if isinstance(value, str) and not re.match(r"\d{4}-\d\d-\d\d", value):
        raise ValueError("a time is written like 2026-01-31T12:00:00Z")
    return value


Time = Annotated[datetime, BeforeValidator(_refuse_numbers)]
After = Annotated[
    Time | None, Query(description="Only those created at this time or later.")
]
Before = Annotated[
    Time | None, Query(description="Only those created before this time.")
]


def link_next(request: Request, cursor: str | None) -> dict[str, str]:
    """The header that leads to the next page, if there is one (RFC 8288)."""
    if cursor is None:
        return {}
    url = request.url.include_query_params(cursor=cursor)
    path = get_settings().root_path + request.scope["path"].removeprefix(
        request.scope.get("root_path", "")
    )
    return {"Link": f'<{path}?{url.query}>; rel="next"'}


def has_tag(
    session: Session, column: "sa.orm.InstrumentedAttribute[list[Any]]", tag: str
) -> "sa.ColumnElement[bool]":
    """Whether a JSON list of tags has one."""
    if session.get_bind().dialect.name == "postgresql":
        return sa.cast(column, JSONB).contains([tag])
    each = sa.func.json_each(column).table_valued("value")
    return sa.exists(sa.select(1).select_from(each).where(each.c.value == tag))


def read_page(
    session: Session,
    statement: "sa.Select[*tuple[Any, ...]]",
    table: type[Row],
    *,
    limit: int,
    cursor: str | None,
    created_after: datetime | None,
    created_before: datetime | None,
) -> tuple[list[Any], str | None]:
    """The rows of one page, and the cursor of the next if there is one."""
    if created_after is not None:
        statement = statement.where(table.created_at >= _with_zone(created_after))
    if created_before is not None:
        statement = statement.where(table.created_at < _with_zone(created_before))
    if cursor is not None:
        moment, id_ = _decode(cursor)
        statement = statement.where(
            sa.tuple_(table.created_at, table.id) < sa.tuple_(moment, id_)
        )
    rows = session.execute(
        statement.order_by(table.created_at.desc(), table.id.desc()).limit(limit + 1)
    ).all()
    if len(rows) <= limit:
        return list(rows), None
    last = rows[limit - 1][0]
    return list(rows[:limit]), _encode(last.created_at, last.id)


def _with_zone(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise Invalid(f"a time must carry a zone, such as {moment.isoformat()}Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid("a time must lie in the years 1 to 9999 of UTC") from None


def _encode(moment: datetime, id_: str) -> str:
    text = json.dumps([moment.isoformat(), id_])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime, str]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        moment, id_ = json.loads(
            base64.b64decode(padded, altchars=b"-_", validate=True)
        )
        if not re.fullmatch(r"\w+", id_, re.ASCII):
            raise ValueError(f"not an id: {id_!r}")
        return _with_zone(datetime.fromisoformat(moment)), id_
    except (ValueError, TypeError, RecursionError, binascii.Error, Invalid):
        raise BadCursor("the cursor is not one that this service gave") from None
