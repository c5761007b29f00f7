"""Jobs that are made once, however often the request arrives."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Header
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from app import jobs
from app.access import Caller
from app.api.bodies.jobs import JobRead
from app.storage import db

Lock = jobs.idempotency.Lock

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


def create_once(
    body: BaseModel,
    data: Sequence[str],
    caller: Caller,
    key: str | None,
    create: Callable[[Lock | None], JobRead],
) -> Response:
    """Create the job, or give the answer that the same request got before.

    Args:
        data: what else makes two requests the same: the file and how it is read, or
            what the job is made of.
        create: makes the job; it writes its answer by `keep` in the same transaction.
    """
    if key is None:
        return _accepted(create(None).model_dump(mode="json"))
    config = body.model_dump(mode="json", exclude={"dataset_id"})
    request = jobs.idempotency.fingerprint(config, *data)
    with db.transaction() as session:
        lock = jobs.idempotency.begin(session, caller.workspace_id, key, request)
    if isinstance(lock, dict):  # it was answered before
        return _accepted(lock, {"Idempotent-Replayed": "true"})
    try:
        with jobs.idempotency.renewed(lock):
            return _accepted(create(lock).model_dump(mode="json"))
    except BaseException:
        with db.transaction() as session:
            jobs.idempotency.abandon(session, lock)
        raise


def keep(session: Session, lock: Lock | None, answer: JobRead) -> None:
    if lock is not None:
        jobs.idempotency.keep(session, lock, answer.model_dump(mode="json"))


def _accepted(job: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    location = {"Location": job["links"]["self"]}
    return JSONResponse(job, 202, headers={**location, **(headers or {})})
