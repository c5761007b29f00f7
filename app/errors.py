"""Errors with a status, all rendered as RFC 9457 problem+json by one function."""

import json
import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from app.request_id import HEADER
from lometab.errors import (
    DataError,
    FileTooLarge,
    FileTypeError,
    LoMETabError,
    suggest,
)

log = logging.getLogger(__name__)


class AppError(Exception):
    """Something went wrong on our side; it was logged under the request id."""

    # Base of the errors that a client is told; a docstring is the default detail.

    status = 500
    code = "internal"

    def __init__(
        self,
        detail: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        self.detail = detail or type(self).__doc__ or ""
        super().__init__(self.detail)
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
    """There is nothing of this id in the caller's workspace."""

    status, code = 404, "not_found"


class Conflict(AppError):
    """The state of the resource does not allow this."""

    status, code = 409, "conflict"


class DatasetInUse(Conflict):
    """A dataset cannot be deleted while jobs use it."""

    code = "dataset_in_use"


class JobNotFinished(Conflict):
    """A job cannot be deleted before it has ended."""

    code = "job_not_finished"


class JobHasModel(Conflict):
    """A job cannot be deleted before the model it made."""

    code = "job_has_model"


class JobIsPart(Conflict):
    """A run of a sweep or tune job that has ended is not changed by itself."""

    code = "job_is_part"


class WrongJobKind(Conflict):
    """Jobs of this kind do not have what was asked for."""

    code = "wrong_job_kind"


class WrongJobStatus(Conflict):
    """The job's state, named in `job_status`, does not allow this."""

    code = "wrong_job_status"


class ReportNotReady(Conflict):
    """The job has not ended; ask again after `Retry-After` seconds."""

    code = "report_not_ready"


class NoReport(Conflict):
    """The job ended without a report; its `error` says why."""

    code = "no_report"


class RequestInProgress(Conflict):
    """The first request with this Idempotency-Key is under way; ask again later."""

    code = "request_in_progress"


class TooLarge(AppError):
    """The request is larger than this service takes."""

    status, code = 413, "too_large"


class NotAcceptable(AppError):
    """The answer cannot be given in a media type that `Accept` allows."""

    status, code = 406, "not_acceptable"


class UnsupportedMediaType(AppError):
    """The content type of the request is not one this route reads."""

    status, code = 415, "unsupported_media_type"


class Invalid(AppError):
    """The request does not fit its schema; `errors` has a pointer for each fault."""

    status, code = 422, "invalid_request"


class BadData(Invalid):
    """The file or the rows cannot be used; `column` and `line` say where."""

    code = "bad_data"


class TooMuchMemory(Invalid):
    """The settings need more memory for training than the service allows."""

    code = "too_much_memory"


class BadMultipart(Invalid):
    """The multipart body cannot be read, or a part of it is missing or double."""

    code = "bad_multipart"


class BadCursor(Invalid):
    """The cursor of a list is not one that this service gave."""

    code = "bad_cursor"


class IdempotencyKeyReused(Invalid):
    """The Idempotency-Key was used for another request; send a new one."""

    code = "idempotency_key_reused"


class Unavailable(AppError):
    """The database is out of reach; ask again after `Retry-After` seconds."""

    status, code = 503, "unavailable"


class Overloaded(AppError):
    """More is asked than can be answered; ask again after `Retry-After` seconds."""

    status, code = 503, "overloaded"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"Retry-After": "1"})


JOB_FAILURES = {
    "bad_data": "The data cannot be trained on; the message says what to do.",
    "diverged": "The loss stopped being a number; try a smaller learning rate.",
    "export_mismatch": "The ONNX file did not answer as the trained model does.",
    "internal": "Something went wrong on our side; it was logged.",
    "missing_package": "The worker lacks a package that was asked for.",
    "no_success": "None of the runs of a sweep or tune job succeeded.",
    "out_of_memory": "Training needed more memory than there is; try a smaller k, "
    "d_block or batch_size.",
    "worker_lost": "The training process died again and again.",
}
"""What `error.code` of a failed job can be."""


def document() -> str:
    """docs/errors.md."""
    classes = [AppError]
    for each in classes:
        classes.extend(each.__subclasses__())
    classes.sort(key=lambda each: (each.status, each.code))
    lines = [
        "# Errors",
        "",
        "Written by `make docs` from `app/errors.py`.",
        "",
        "Every error is `application/problem+json` (RFC 9457) with `type`, `title`, "
        "`status`,",
        "`detail` (a sentence that says what to do) and a `code` that stays the same. "
        "Where",
        "there is one, a `pointer`, `column` or `line` says where the fault lies.",
        "",
        "| status | code | meaning |",
        "|---|---|---|",
        *(f"| {c.status} | `{c.code}` | {_first_line(c)} |" for c in classes),
        "",
        "Other statuses of HTTP have their name as code, such as `method_not_allowed`.",
        "",
        "A job that failed has an `error` with one of these codes:",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| `{code}` | {meaning} |" for code, meaning in JOB_FAILURES.items()),
    ]
    return "\n".join(lines) + "\n"


def _first_line(error: type[AppError]) -> str:
    return (error.__doc__ or "").splitlines()[0]


FORMS = frozenset({"form: grid", "form: grids", "form: choice", "form: range"})
"""Names for the forms that a value may have, which are no part of its place."""


def from_validation(
    error: ValidationError | RequestValidationError, names: Collection[str] = ()
) -> Invalid:
    """One sentence per fault, each with a JSON pointer.

    Args:
        names: what the caller may have meant by a name that does not exist.
    """
    faults = []
    for item in error.errors():
        parts = [str(part) for part in item["loc"]]
        if isinstance(error, RequestValidationError) and parts[:1] == ["body"]:
            del parts[0]
        place = [part for part in parts if part not in FORMS]
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            hint = suggest(parts[-1], names)
            message = f"there is no setting {parts[-1]!r}{hint}"
        if item["type"] == "json_invalid" and "ctx" in item:
            message = f"Invalid JSON: {item['ctx']['error']}"
            place = []
        pointer = "/" + "/".join(map(_escape, place))
        faults.append({"pointer": pointer, "message": message})
    detail = "; ".join(
        f"{fault['pointer'].lstrip('/').replace('/', '.')}: {fault['message']}".lstrip(
            ": "
        )
        for fault in faults
    )
    return Invalid(detail, errors=faults)


def _escape(part: str) -> str:
    """A part of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        # A text may quote what the caller sent, half a surrogate pair included.
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


def problem(error: AppError) -> JSONResponse:
    return ProblemResponse(
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
    )


def _find_methods(app: FastAPI, path: str) -> list[str]:
    """All that a path takes; the framework names those of the first route alone."""
    return sorted(
        method.upper()
        for template, operations in app.openapi()["paths"].items()
        if compile_path(template)[0].match(path)
        for method in operations
    )


def add_handlers(app: FastAPI) -> None:
    @app.exception_handler(AppError)
    def handle_app_error(_: Request, error: AppError) -> JSONResponse:
        return problem(error)

    @app.exception_handler(DataError)
    def handle_data_error(_: Request, error: DataError) -> JSONResponse:
        kinds = {FileTooLarge: TooLarge, FileTypeError: UnsupportedMediaType}
        kind: type[AppError] = kinds.get(type(error), BadData)
        return problem(kind(str(error), column=error.column, line=error.line))

    @app.exception_handler(LoMETabError)
    def handle_library_error(_: Request, error: LoMETabError) -> JSONResponse:
        return problem(BadData(str(error)))

    @app.exception_handler(OperationalError)
    def handle_database(request: Request, error: OperationalError) -> JSONResponse:
        log.error("the database is out of reach: %s", error)
        return problem(Unavailable(headers={"Retry-After": "5"}))

    @app.exception_handler(RequestValidationError)
    def handle_validation(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(from_validation(error))

    @app.exception_handler(HTTPException)
    def handle_http(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_find_methods(app, request.url.path))
        wrapped = AppError(str(error.detail), headers=headers)
        wrapped.status = error.status_code
        wrapped.code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return problem(wrapped)

    @app.exception_handler(Exception)
    def handle_bug(request: Request, error: Exception) -> JSONResponse:
        request_id = request.scope.get("request_id", "-")
        log.error("request %s failed", request_id, exc_info=error)
        return problem(AppError(headers={HEADER: request_id}, request_id=request_id))
