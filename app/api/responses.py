"""What the OpenAPI document says of errors, once for all routes."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Header
from pydantic import BaseModel, TypeAdapter

from app.errors import ERRORS

IfNoneMatch = Annotated[str | None, Header(description="An `ETag` got before.")]

_DESCRIPTIONS = {
    400: "The body cannot be read as JSON.",
    401: "An API key is needed, or the one sent is unknown, expired or revoked.",
    403: "The API key lacks the scope, or the request comes from a foreign page.",
    404: "There is no such resource in the caller's workspace.",
    406: "No media type that `Accept` allows can be given.",
    409: "The state of the resource does not allow this; `detail` names the state.",
    410: "It was kept for some time, and is gone.",
    412: "It is not what `If-Match` or `If-None-Match` says.",
    413: "The request is larger than this service takes.",
    415: "The content type is not one this route reads.",
    416: "The range lies beyond the end of the file.",
    422: "The request cannot be used as it is; `detail` says what to do.",
    429: "There is a limit on this; ask again after `Retry-After` seconds.",
    431: "The address and the headers are too large together.",
    503: "Out of reach or busy; ask again after `Retry-After` seconds.",
    507: "There is too little space left on disk to keep more.",
}
_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    406: "not_acceptable",
    409: "conflict",
    410: "result_gone",
    412: "precondition_failed",
    413: "too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
    422: "invalid_request",
    429: "too_many_requests",
    431: "headers_too_large",
    503: "unavailable",
    507: "disk_full",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, beside those that every route has."""
    return {
        status: {
            "description": _DESCRIPTIONS[status],
            "content": {
                "application/problem+json": {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "example": {
                        "type": f"{ERRORS}#{_CODES[status]}",
                        "title": HTTPStatus(status).phrase,
                        "status": status,
                        "detail": _DESCRIPTIONS[status],
                        "code": _CODES[status],
                    },
                }
            },
        }
        for status in sorted({401, 403, 429, 431, 503, *statuses})
    }


def matches(etag: str, if_none_match: str | None) -> bool:
    """Whether a client that has one of these tags has this answer."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags


def path_parameter(name: str, kind: Any) -> dict[str, Any]:
    """A part of the path as the OpenAPI document has it."""
    schema = TypeAdapter(kind).json_schema()
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": schema.pop("description"),
        "schema": schema,
    }


def query_parameters(options: type[BaseModel]) -> list[dict[str, Any]]:
    """The fields of a body as the OpenAPI document has query parameters."""
    schema = options.model_json_schema(ref_template="#/components/schemas/{model}")
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": field.pop("description"),
            "schema": _without_null(field),
        }
        for name, field in schema["properties"].items()
    ]


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is left out where a body would have a null."""
    kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
    if not kinds:
        return field
    return {**kinds[0], "title": field["title"]}
