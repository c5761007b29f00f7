"""Errors with a status, all rendered as RFC 9457 problem+json by one function."""

import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from lometab.errors import DataError, LoMETabError, suggest

log = logging.getLogger(__name__)


class AppError(Exception):
    """Base of the errors that a client is told. The docstring is the default detail."""

    status = 500
    code = "internal"

    def __init__(
        self,
        detail: str | None = None,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        self.detail = detail or type(self).__doc__ or ""
        super().__init__(self.detail)
        self.code = code or self.code
        self.headers = headers
        self.members = {k: v for k, v in members.items() if v is not None}


class Unauthorized(AppError):
    """The request needs an API key."""

    status, code = 401, "unauthorized"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(AppError):
    """The caller may not do this."""

    status, code = 403, "forbidden"


class NotFound(AppError):
    """There is nothing at this address."""

    status, code = 404, "not_found"


class Conflict(AppError):
    """The resource is in a state that does not allow this."""

    status, code = 409, "conflict"


class TooLarge(AppError):
    """The request is larger than this service takes."""

    status, code = 413, "too_large"


class UnsupportedMediaType(AppError):
    """The content type of the request is not one this route reads."""

    status, code = 415, "unsupported_media_type"


class Invalid(AppError):
    """The request cannot be used as it is."""

    status, code = 422, "invalid"


def from_validation(
    error: ValidationError | RequestValidationError, names: Collection[str] = ()
) -> Invalid:
    """One sentence per fault, each with a JSON pointer.

    Args:
        names: what the caller may have meant by a name that does not exist.
    """
    faults = []
    for item in error.errors():
        place = [str(part) for part in item["loc"] if part != "body"]
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            hint = suggest(place[-1], names)
            message = f"there is no setting {place[-1]!r}{hint}"
        faults.append({"pointer": "/" + "/".join(place), "message": message})
    detail = "; ".join(
        f"{fault['pointer'].lstrip('/').replace('/', '.')}: {fault['message']}".lstrip(
            ": "
        )
        for fault in faults
    )
    return Invalid(detail, code="invalid_request", errors=faults)


def problem(error: AppError) -> JSONResponse:
    return JSONResponse(
        {
            "type": "about:blank",
            "title": HTTPStatus(error.status).phrase,
            "status": error.status,
            "detail": error.detail,
            "code": error.code,
            **error.members,
        },
        status_code=error.status,
        headers=dict(error.headers or {}),
        media_type="application/problem+json",
    )


def add_handlers(app: FastAPI) -> None:
    @app.exception_handler(AppError)
    def handle_app_error(_: Request, error: AppError) -> JSONResponse:
        return problem(error)

    @app.exception_handler(DataError)
    def handle_data_error(_: Request, error: DataError) -> JSONResponse:
        return problem(
            Invalid(str(error), code="bad_data", column=error.column, line=error.line)
        )

    @app.exception_handler(LoMETabError)
    def handle_library_error(_: Request, error: LoMETabError) -> JSONResponse:
        return problem(Invalid(str(error), code="bad_data"))

    @app.exception_handler(RequestValidationError)
    def handle_validation(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(from_validation(error))

    @app.exception_handler(HTTPException)
    def handle_http(_: Request, error: HTTPException) -> JSONResponse:
        wrapped = AppError(str(error.detail), headers=error.headers)
        wrapped.status = error.status_code
        wrapped.code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return problem(wrapped)

    @app.exception_handler(Exception)
    def handle_bug(request: Request, error: Exception) -> JSONResponse:
        log.exception("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(AppError("something went wrong on our side; it was logged"))
