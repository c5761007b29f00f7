"""Why a job failed, in words that its caller may read."""

from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from app.storage.enums import FailureCode

MAX_DETAIL = 300


def describe_failure(error: BaseException) -> dict[str, Any]:
    """A job's `error` for an exception of the worker itself: its first line.

    An error of the database carries its statement and the values in it, and so may what
    it caused: these are for the log alone.
    """
    kind = type(error).__name__
    lines = str(error).strip().splitlines()
    if _is_from_database(error):
        detail = f"the database failed ({kind}); the worker's log has the rest"
    else:
        detail = f"{kind}: {lines[0][:MAX_DETAIL]}" if lines else kind
    return {"code": FailureCode.INTERNAL, "detail": detail}


def _is_from_database(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, SQLAlchemyError):
            return True
        error = error.__cause__ or error.__context__
    return False
