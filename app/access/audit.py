"""A record of every change: who made it, what it was, to which row, and when."""

import logging
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access.callers import Caller
from app.errors import DATABASE_ERRORS
from app.settings import get_settings
from app.storage import db
from app.storage.tables import ApiKey, AuditRecord, new_id

log = logging.getLogger(__name__)

CLEAN_SECONDS = 3600.0


def record(
    session: Session,
    caller: Caller,
    *,
    method: str,
    route: str,
    target_id: str | None,
    status: int,
    request_id: str | None,
) -> None:
    session.add(
        AuditRecord(
            id=new_id("aud"),
            workspace_id=caller.workspace_id,
            key_id=caller.key_id,
            method=method,
            route=route,
            target_id=target_id,
            status=status,
            request_id=request_id,
            created_at=db.now(session),
        )
    )


def record_change(
    caller: Caller,
    method: str,
    route: str,
    target_id: str | None,
    status: int,
    request_id: str | None,
) -> None:
    """A change that was committed, before its caller is told of it."""
    try:
        with db.transaction() as session:
            record(
                session,
                caller,
                method=method,
                route=route,
                target_id=target_id,
                status=status,
                request_id=request_id,
            )
    except DATABASE_ERRORS:  # it cannot be undone, so the log has to do
        log.exception(
            "not in the audit: %s %s %s by %s in %s, request %s",
            method,
            route,
            target_id,
            caller.key_id,
            caller.workspace_id,
            request_id,
        )


def record_command(session: Session, command: str, key: ApiKey) -> None:
    """A change of a key by the command line, in the key's workspace."""
    record(
        session,
        Caller(key.workspace_id, frozenset()),
        method="CLI",
        route=command,
        target_id=key.id,
        status=0,
        request_id=None,
    )


def remove_old() -> None:
    """Records are kept for as long as the settings say."""
    days = get_settings().audit_days
    with db.transaction() as session:
        oldest = db.now(session) - timedelta(days=days)
        session.execute(sa.delete(AuditRecord).where(AuditRecord.created_at < oldest))
