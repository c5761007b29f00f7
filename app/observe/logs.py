"""One format for the logs of all our processes, in which no text can forge a line."""

import json
import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType

import sqlalchemy.exc

from app.masking import mask
from app.observe.context import get_ids
from app.settings import get_settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_INDENT = "    "
_DATABASES = ("psycopg", "sqlite3")
_DATA_ERRORS = "22"
"""How the codes of Postgres begin for errors whose first line quotes a value."""


def escape(text: str) -> str:
    r"""What a client sent, as it may stand in a line: `\n` and escape codes as text."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class Formatter(logging.Formatter):
    """A message is one line, whatever is in it; lines of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escape(mask(record.message))
        return super().formatMessage(record)

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        return "" if ei[1] is None else "\n".join(_list_lines(ei[1], set()))

    def formatStack(self, stack_info: str) -> str:
        return "\n".join(_INDENT + escape(line) for line in stack_info.splitlines())


class JsonFormatter(Formatter):
    """A record is one line of JSON, with the ids of what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": mask(record.getMessage()),
            **get_ids(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


FIELDS = "fields"
"""Of a record: what a line of JSON has beside its message, by `extra`."""


def _list_lines(error: BaseException, seen: set[int]) -> list[str]:
    """Its traceback, after those of the errors that led to it."""
    if id(error) in seen:
        return []
    seen.add(id(error))
    before = error.__cause__
    if before is None and not error.__suppress_context__:
        before = error.__context__
    lines = [] if before is None else _list_lines(before, seen)
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            lines += _list_lines(each, seen)
    lines.append(f"{_INDENT}Traceback of {type(error).__name__}:")
    for entry in traceback.format_tb(error.__traceback__):
        lines += [_INDENT + escape(line) for line in entry.splitlines()]
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    lines.append(f"{_INDENT}{kind}: {escape(mask(describe_error(error)))}")
    return lines


def describe_error(error: BaseException) -> str:
    """What it says, without the values that a statement carried or met."""
    if isinstance(error, sqlalchemy.exc.DBAPIError) and error.orig is not None:
        return f"{describe_error(error.orig)} [SQL: {error.statement}]"
    if not type(error).__module__.startswith(_DATABASES):
        return str(error)
    code = getattr(error, "sqlstate", None) or ""
    if code.startswith(_DATA_ERRORS):
        return f"a value cannot be used ({code})"
    return next(iter(str(error).splitlines()), "")  # a DETAIL would quote the row


def configure_logging() -> None:
    """Libraries are heard only when it matters."""
    settings = get_settings()
    formatter = JsonFormatter() if settings.log_format == "json" else Formatter()
    logging.basicConfig(level=logging.WARNING)
    # Others may have been here before us: Celery at the root, uvicorn at its own.
    for name in ("", "uvicorn"):
        for handler in logging.getLogger(name).handlers:
            if type(handler) is logging.StreamHandler:
                handler.setFormatter(formatter)
    # No line shows these, and finding them takes longer than the rest of it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    for name in ("app", "worker"):
        logging.getLogger(name).setLevel(settings.log_level.upper())
    # It warns that a filesystem broker has no host.
    logging.getLogger("kombu.connection").setLevel(logging.ERROR)
