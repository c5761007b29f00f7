"""Jobs that are made once, however often they are asked for."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Header, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

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
        data: what the file is known by, and how it is read.
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


def _accepted(job: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    location = {"Location": job["links"]["self"]}
    return JSONResponse(job, 202, headers={**location, **(headers or {})})
