"""The limits that hold, as the settings and the rules of the guard have them."""

import re
from collections import defaultdict
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.access import MAX_JSON_BODY, Reader, find_rule
from app.api.deps import SettingsDep
from app.api.responses import problems
from app.errors import (
    AppError,
    BadData,
    BodyTooSlow,
    DiskFull,
    HeadersTooLarge,
    Overloaded,
    QuotaExceeded,
    TooLarge,
    TooManyModels,
    TooManyQueuedJobs,
    TooManyRequests,
    TooManyWebhooks,
    TooMuchMemory,
)
from app.settings import Settings

router = APIRouter(tags=["access"])

_IS_LIMIT = re.compile("(max|min|key)_.*|.*_(queue|seconds|rows|connections)")
_OTHER = {"worker_queue"}
"""Settings named like limits that are none."""
_ERRORS: dict[str, type[AppError]] = {
    "max_connections": Overloaded,
    "max_header_bytes": HeadersTooLarge,
    "max_upload_bytes": TooLarge,
    "max_table_bytes": TooLarge,
    "max_columns": BadData,
    "max_rows": BadData,
    "max_predict_rows": TooLarge,
    "max_predict_bytes": TooLarge,
    "max_json_bytes": TooLarge,
    "max_training_bytes": TooMuchMemory,
    "predict_queue": Overloaded,
    "table_queue": Overloaded,
    "explain_queue": Overloaded,
    "predict_body_seconds": BodyTooSlow,
    "key_requests_per_minute": TooManyRequests,
    "key_max_concurrent": TooManyRequests,
    "min_free_bytes": DiskFull,
    "max_queued_jobs": TooManyQueuedJobs,
    "max_stored_bytes": QuotaExceeded,
    "max_models": TooManyModels,
    "max_webhooks": TooManyWebhooks,
}
"""What is answered beyond a limit, if anything is: some only end a connection."""


class LimitRead(BaseModel):
    """One limit."""

    name: str
    value: float
    setting: str = Field(description="The variable by which it can be changed.")
    description: str
    status: int | None = Field(description="Of the answer to what is beyond it.")
    code: str | None = Field(description="The same, as `code` of the problem.")


class BodyLimit(BaseModel):
    """The largest body of requests."""

    routes: list[str] = Field(description="Such as `POST /jobs`.")
    max_bytes: int


class KeyLimits(BaseModel):
    """What the key of the request may do; null: any number."""

    requests_per_minute: int | None
    max_concurrent: int | None = Field(description="By process of the API.")


class LimitsRead(BaseModel):
    """All limits of the service."""

    limits: list[LimitRead]
    bodies: list[BodyLimit]
    key: KeyLimits


def list_limits(settings: Settings) -> list[LimitRead]:
    """Those that are settings."""
    return [
        _read_limit(name, getattr(settings, name), field.description or "")
        for name, field in Settings.model_fields.items()
        if _IS_LIMIT.fullmatch(name) and name not in _OTHER
    ]


def _read_limit(name: str, value: float, description: str) -> LimitRead:
    error = _ERRORS.get(name)
    return LimitRead(
        name=name,
        value=value,
        setting=f"LOMETAB_{name.upper()}",
        description=description.replace("\n", " "),
        status=error and error.status,
        code=error and error.code,
    )


def list_body_limits(document: dict[str, Any], settings: Settings) -> list[BodyLimit]:
    """Those of the guard's rules, for all routes that take a body."""
    routes: defaultdict[int, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "requestBody" in operation:
                limit = find_rule(method.upper(), path).limit
                n_bytes = MAX_JSON_BODY if limit is None else limit(settings)
                routes[n_bytes].append(f"{method.upper()} {path}")
    return [BodyLimit(routes=r, max_bytes=n) for n, r in sorted(routes.items())]


@router.get(
    "/limits",
    response_model=LimitsRead,
    summary="Every limit, its value and the setting that changes it",
    responses=problems(),
)
def read_limits(request: Request, caller: Reader, settings: SettingsDep) -> LimitsRead:
    """What is beyond a limit gets its `status` and `code`. A key may have limits of its
    own; every answer to one with a limit on requests has `RateLimit` headers."""
    rate, most = caller.requests_per_minute, caller.max_concurrent
    if caller.key_id is not None:
        rate = settings.key_requests_per_minute if rate is None else rate
        most = settings.key_max_concurrent if most is None else most
    return LimitsRead(
        limits=list_limits(settings),
        bodies=list_body_limits(request.app.openapi(), settings),
        key=KeyLimits(requests_per_minute=rate or None, max_concurrent=most or None),
    )
