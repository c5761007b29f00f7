"""Errors that are no bugs of ours: a sentence that says what to do, an exit code."""

import errno
import re
from typing import NamedTuple

FAILED, USAGE, AWAY, FORBIDDEN, NOT_FOUND, INTERRUPTED = 1, 2, 3, 4, 5, 130


_NO_TABLE = re.compile(r"^no such table|^relation .* does not exist")
"""As SQLite and Postgres say it."""


class Mistake(NamedTuple):
    text: str
    code: int


def explain(error: BaseException) -> Mistake | None:
    """What to tell of an error; None if it is a bug."""
    return (
        _explain_client(error)
        or _explain_library(error)
        or _explain_service(error)
        or _explain_machine(error)
    )


def _explain_client(error: BaseException) -> Mistake | None:
    from lometab.client import (
        BadRequest,
        ClientError,
        Forbidden,
        NotFound,
        ServiceError,
        TimedOut,
        Unauthorized,
        Unreachable,
    )

    if not isinstance(error, ClientError):
        return None
    codes: tuple[tuple[type[Exception], int], ...] = (
        (Unreachable, AWAY),
        (TimedOut, AWAY),
        (Unauthorized, FORBIDDEN),
        (Forbidden, FORBIDDEN),
        (NotFound, NOT_FOUND),
        (BadRequest, USAGE),
    )
    code = next((code for kind, code in codes if isinstance(error, kind)), FAILED)
    text = str(error)
    if isinstance(error, Unauthorized):
        text += "; give one by --key or LOMETAB_KEY"
    if isinstance(error, ServiceError) and error.request_id:
        text += f" (request {error.request_id})"
    return Mistake(text, code)


def _explain_library(error: BaseException) -> Mistake | None:
    from lometab.errors import ConfigError, DataError, LoMETabError, MissingPackage
    from lometab.extras import explain_missing

    if isinstance(error, ModuleNotFoundError) and not isinstance(error, MissingPackage):
        missing = explain_missing(error)
        return None if missing is None else Mistake(str(missing), USAGE)
    if isinstance(error, DataError | ConfigError | MissingPackage):
        return Mistake(str(error), USAGE)
    return Mistake(str(error), FAILED) if isinstance(error, LoMETabError) else None


def _explain_service(error: BaseException) -> Mistake | None:
    """What only an installation with the service can meet."""
    module = type(error).__module__.partition(".")[0]
    if module == "pydantic_core":
        return _explain_settings(error)
    if module == "pydantic_settings":  # the cause quotes the value
        name = next(iter(re.findall(r'"(\w+)"', str(error))), "")
        return Mistake(f"LOMETAB_{name.upper()}: the value is no JSON", USAGE)
    if module == "sqlalchemy":
        return _explain_database(error)
    if module == "app" and type(error).__name__ == "WrongRevision":
        return Mistake(str(error), FAILED)
    return None


def _explain_settings(error: BaseException) -> Mistake | None:
    from pydantic import ValidationError

    from app.masking import HIDDEN, mask

    if not isinstance(error, ValidationError) or error.title != "Settings":
        return None
    faults = []
    for item in error.errors():
        name = str(item["loc"][0]) if item["loc"] else ""
        name = name if name.startswith("LOMETAB_") else f"LOMETAB_{name.upper()}"
        is_secret = name in ("LOMETAB_BLOB_OPTIONS", "LOMETAB_BROKER_URL")
        given = HIDDEN if is_secret else mask(repr(item["input"]))
        faults.append(f"{name}: {item['msg']}, however: {given}")
    return Mistake("; ".join(faults), USAGE)


def _explain_database(error: BaseException) -> Mistake | None:
    import sqlalchemy as sa

    from app.masking import mask
    from app.settings import get_settings

    url = get_settings().sqlalchemy_url
    if isinstance(error, sa.exc.ArgumentError | sa.exc.NoSuchModuleError):
        return Mistake(
            f"LOMETAB_DATABASE_URL cannot be used: {mask(str(error))}", USAGE
        )
    where = mask(url)
    if _NO_TABLE.search(str(getattr(error, "orig", ""))):
        return Mistake(
            f"the database {where} has no tables of ours yet: `lometab migrate` makes "
            "them; does LOMETAB_DATABASE_URL or --data-dir name the right one?",
            FAILED,
        )
    if not isinstance(error, sa.exc.OperationalError | sa.exc.TimeoutError):
        return None
    lines = str(getattr(error, "orig", error)).strip().splitlines()
    cause = mask(lines[0] if lines else str(error))
    return Mistake(
        f"the database {where} cannot be reached: {cause}; is "
        "it running, and does LOMETAB_DATABASE_URL or --data-dir name it?",
        AWAY,
    )


def _explain_machine(error: BaseException) -> Mistake | None:
    if not isinstance(error, OSError):
        return None
    if error.errno == errno.EADDRINUSE:
        return Mistake(
            "another program listens on this port already: give another one by --port "
            "or LOMETAB_PORT, 0 takes a free one",
            AWAY,
        )
    if error.errno == errno.EACCES and error.filename is None:
        return Mistake("this port is not ours to listen on: take one above 1023", USAGE)
    if error.filename is not None:
        return Mistake(f"{error.filename}: {error.strerror}", USAGE)
    return None
