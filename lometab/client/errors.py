"""What the client raises: what the service answered, by its `code`, and what never
came to an answer."""

from typing import Any, ClassVar

from lometab.errors import LoMETabError


class ClientError(LoMETabError):
    """Base class of all that the client raises."""


class Unreachable(ClientError):
    """The service could not be reached, or broke off again and again."""


class TimedOut(ClientError, TimeoutError):
    """The service did not answer in time, or a job did not end in time."""


class ServiceError(ClientError):
    """The service refused a request: its problem document (RFC 9457).

    Args:
        status: of HTTP.
        problem: all fields of the document.

    **Examples**

    >>> error = make_error(404, {"code": "not_found", "detail": "there is no job"})
    >>> type(error).__name__, error.code, str(error)
    ('NotFound', 'not_found', 'there is no job')
    """

    by_code: ClassVar[dict[str, type["ServiceError"]]] = {}
    by_status: ClassVar[dict[int, type["ServiceError"]]] = {}

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        self.code: str = problem.get("code", "unknown")
        self.detail: str = problem.get("detail") or f"the service answered {status}"
        super().__init__(self.detail)

    @property
    def request_id(self) -> str | None:
        """Under which the service logged it."""
        return self.problem.get("request_id")

    @property
    def column(self) -> str | None:
        """Where in the data the fault lies, if it is known."""
        return self.problem.get("column")

    @property
    def line(self) -> int | None:
        """The line of the file, if it is known."""
        return self.problem.get("line")

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Each fault of a request that is not valid, with a JSON pointer."""
        found: list[dict[str, Any]] = self.problem.get("errors", [])
        return found


class BadRequest(ServiceError):
    """The request, its settings or its data cannot be used; the detail says why."""


class BadData(BadRequest):
    """The rows or the file cannot be used as they are."""


class Unauthorized(ServiceError):
    """The service needs an API key, or another one."""


class Forbidden(ServiceError):
    """The key may not do this."""


class NotFound(ServiceError):
    """There is nothing of this id."""


class Conflict(ServiceError):
    """The state of the job, model or dataset does not allow this."""


class NotReady(Conflict):
    """The job has not ended: its reports do not exist yet."""


class Changed(ServiceError):
    """Somebody else changed it meanwhile (`If-Match`)."""


class TooLarge(ServiceError):
    """The body is larger than the service takes."""


class TooMany(ServiceError):
    """There is a limit on this; try again later."""


class Busy(ServiceError):
    """The service is out of reach of its database, or has too much to do."""


class JobFailed(ClientError):
    """A job ended as failed; `code` and `detail` say why.

    Args:
        job: the job as the service shows it.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        error = job.get("error") or {}
        self.job = job
        self.code: str = error.get("code", "unknown")
        self.detail: str = error.get("detail", "")
        super().__init__(f"{job['id']} failed ({self.code}): {self.detail}")


class JobCancelled(ClientError):
    """A job was cancelled; it has no model."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        super().__init__(f"{job['id']} was cancelled")


ServiceError.by_code.update(
    {"bad_data": BadData, "report_not_ready": NotReady, "too_large": TooLarge}
)
ServiceError.by_status.update(
    {
        400: BadRequest,
        401: Unauthorized,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        412: Changed,
        413: TooLarge,
        415: BadRequest,
        422: BadRequest,
        429: TooMany,
        503: Busy,
    }
)


def make_error(status: int, problem: dict[str, Any]) -> ServiceError:
    """The exception for an answer: by its code, else by its status."""
    code = problem.get("code", "")
    kind = ServiceError.by_code.get(code) or ServiceError.by_status.get(status)
    return (kind or ServiceError)(status, problem)
