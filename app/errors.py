"""Errors with a status, all rendered as RFC 9457 problem+json by one function."""

import html
import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.settings import get_settings
from lometab.errors import (
    DataError,
    FileTooLarge,
    FileTypeError,
    LoMETabError,
    nearest,
)

if TYPE_CHECKING:  # workers have errors, too, and no framework
    from fastapi.exceptions import RequestValidationError
    from starlette.types import Send

log = logging.getLogger(__name__)

ERRORS = "/docs/errors"
"""The page on which every code has its line: where a problem's `type` leads."""
DATABASE_ERRORS = (OperationalError, PoolTimeout)
"""What is raised when the database cannot be reached, or has no connection left."""


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


class BlobDamaged(AppError):
    """What we stored is damaged; upload the file again, or train the model again."""

    code = "stored_data_damaged"


class ModelUnusable(AppError):
    """The stored model cannot be loaded by this version; train it again."""

    code = "model_unusable"


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


class NoFigure(NotFound):
    """The job has no figure of this name."""

    code = "no_figure"


class Conflict(AppError):
    """The state of the resource does not allow this."""

    status, code = 409, "conflict"


class DatasetInUse(Conflict):
    """A dataset cannot be deleted while jobs use it."""

    code = "dataset_in_use"


class ModelHasAlias(Conflict):
    """A model cannot get another name while an alias of its name stands for it."""

    code = "model_has_alias"


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


class ResultNotReady(Conflict):
    """The job has no result yet, or ended without one."""

    code = "result_not_ready"


class ResultGone(AppError):
    """The result was kept as long as it is kept, and is gone; predict again."""

    status, code = 410, "result_gone"


class RangeNotSatisfiable(AppError):
    """The range lies beyond the end of the file; `Content-Range` has its size."""

    status, code = 416, "range_not_satisfiable"


class RequestInProgress(Conflict):
    """The first request with this Idempotency-Key is under way; ask again later."""

    code = "request_in_progress"


class BadRequest(AppError):
    """The request cannot be read as HTTP."""

    status, code = 400, "bad_request"


class PreconditionFailed(AppError):
    """It is not what `If-Match` or `If-None-Match` says: read it again."""

    status, code = 412, "precondition_failed"


class TooLarge(AppError):
    """The request is larger than this service takes."""

    status, code = 413, "too_large"


class HeadersTooLarge(AppError):
    """The address and the headers of the request are too large together."""

    status, code = 431, "headers_too_large"


class TooManyRequests(AppError):
    """This API key asks more than it may; ask again after `Retry-After` seconds."""

    status, code = 429, "too_many_requests"


class DiskFull(AppError):
    """There is too little space left on disk to keep more; delete what can go."""

    status, code = 507, "disk_full"


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


class TooManyQueuedJobs(AppError):
    """The workspace has as many queued jobs as it may; ask again when some have run."""

    status, code = 429, "too_many_queued_jobs"


class QuotaExceeded(AppError):
    """The workspace keeps as many bytes as it may; delete what is not needed."""

    status, code = 507, "quota_exceeded"


class TooManyModels(AppError):
    """The workspace has as many models as it may; delete one that is not needed."""

    status, code = 429, "too_many_models"


class TooManyWebhooks(AppError):
    """The workspace has as many webhooks as it may; delete one that is not needed."""

    status, code = 429, "too_many_webhooks"


class BadTarget(Invalid):
    """A webhook may not have this address; `detail` says why."""

    code = "bad_target"


class Unavailable(AppError):
    """The database is out of reach; ask again after `Retry-After` seconds."""

    status, code = 503, "unavailable"


class StoreAway(AppError):
    """The object store is out of reach; ask again after `Retry-After` seconds."""

    status, code = 503, "store_unavailable"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"Retry-After": "5"})


class BodyTooSlow(AppError):
    """The body did not arrive in time; send less of it at once."""

    status, code = 408, "body_too_slow"


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


def document_html() -> str:
    """The same for a browser, with a place for each code to lead to."""
    classes = [AppError]
    for each in classes:
        classes.extend(each.__subclasses__())
    known = {each.code: (each.status, _first_line(each)) for each in classes}
    failures = {code: ("job", text) for code, text in JOB_FAILURES.items()}
    lines = "".join(
        f"<tr id='{code}'><td>{status}</td><td><code>{code}</code></td>"
        f"<td>{html.escape(text)}</td></tr>"
        for code, (status, text) in {**failures, **known}.items()
    )
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Errors</title>"
        "<h1>Errors</h1><table><tr><th>status</th><th>code</th><th>meaning</th></tr>"
        f"{lines}</table></html>"
    )


def _first_line(error: type[AppError]) -> str:
    return (error.__doc__ or "").splitlines()[0]


FORMS = frozenset({"form: grid", "form: grids", "form: choice", "form: range"})
"""Names for the forms that a value may have, which are no part of its place."""


def from_validation(
    error: "ValidationError | RequestValidationError",
    names: Mapping[str, str] | None = None,
) -> Invalid:
    """One sentence per fault, each with a JSON pointer.

    Args:
        names: what the caller may have meant by a name that does not exist, and where
            that belongs.
    """
    faults = []
    items = error.errors()
    for item in items[:_MAX_FAULTS]:
        parts = [str(part) for part in item["loc"]]
        if not isinstance(error, ValidationError) and parts[:1] == ["body"]:
            del parts[0]
        place = [part for part in parts if part not in FORMS]
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            parents = [part for part in parts[:-1] if part not in FORMS]
            message = _explain_unknown(parts[-1], parents, names or {})
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
    if len(items) > _MAX_FAULTS:
        detail += f"; and {len(items) - _MAX_FAULTS} more"
    return Invalid(detail, errors=faults)


_MAX_FAULTS = 20


def _explain_unknown(name: str, parents: list[str], names: Mapping[str, str]) -> str:
    """What may have been meant by a name; by its path, unless it belongs there."""
    known = name if name in names else nearest(name, names)
    hint = ""
    if known is not None:
        *where, meant = names[known].split(".")
        path = meant if where == parents else ".".join([*where, meant])
        hint = f" (did you mean {path!r}?)"
        if path == name:
            hint = "; it belongs at the top level"
    return f"there is no setting {name!r} here{hint}"


def _escape(part: str) -> str:
    """A part of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


class Problem(NamedTuple):
    """An error as it is sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def problem(error: AppError) -> Problem:
    """How every error is rendered, whoever answers the request."""
    content = {
        "type": f"{get_settings().root_path}{ERRORS}#{error.code}",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        **error.members,
    }
    # A text may quote what the caller sent, half a surrogate pair included.
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    body = text.encode("utf-8", "backslashreplace")
    headers = {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        **(error.headers or {}),
    }
    return Problem(error.status, headers, body)


def tell_neighbours(error: AppError, path: str) -> AppError:
    """The Open Inference Protocol has the sentence of an error in `error`."""
    if path.removeprefix(get_settings().root_path).startswith("/v2/"):
        error.members.setdefault("error", error.detail)
    return error


def to_app_error(error: Exception, request_id: str = "-") -> AppError:
    """What a client is told of an error, whoever raised it; bugs are logged here."""
    if isinstance(error, AppError):
        return error
    if isinstance(error, DataError):
        kinds = {FileTooLarge: TooLarge, FileTypeError: UnsupportedMediaType}
        kind: type[AppError] = kinds.get(type(error), BadData)
        return kind(str(error), column=error.column, line=error.line)
    if isinstance(error, LoMETabError):
        return BadData(str(error))
    if isinstance(error, DATABASE_ERRORS):
        # Without the statement, whose parameters are nobody's business.
        log.error("the database is out of reach: %s", getattr(error, "orig", error))
        return Unavailable(headers={"Retry-After": "5"})
    log.error("request %s failed", request_id, exc_info=error)
    return AppError(request_id=request_id)


def is_expected(error: Exception) -> bool:
    """Whether it tells of the request or of the database, and not of a bug."""
    return isinstance(error, (AppError, LoMETabError, *DATABASE_ERRORS))


async def send_problem(error: AppError, send: "Send") -> None:
    """Answer an ASGI request with an error."""
    status, headers, body = problem(error)
    pairs = [(name.lower().encode(), v.encode()) for name, v in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
