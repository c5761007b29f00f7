"""Every request has an id: in the answer's `X-Request-ID` and in the log."""

import asyncio
import logging
import random
import re
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.observe.logs import escape

log = logging.getLogger(__name__)

HEADER = "X-Request-ID"
_ID_HEADER = HEADER.lower().encode()
ENDLESS = "lometab.endless"
"""Of a scope: the answer has no end of its own, and need not be waited for."""
_EVENT_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
_MOMENT = 0.02  # seconds
_IS_ID = re.compile(rb"[A-Za-z0-9._-]{1,100}")


class Observed:
    """An app around which each request gets its id and its line in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started_at = perf_counter()
        request_id = scope["request_id"] = _find_id(scope)
        id_header = (_ID_HEADER, request_id.encode())
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.get("headers", ())
                if _EVENT_STREAM in headers:
                    scope[ENDLESS] = True
                message["headers"] = [*headers, id_header]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            milliseconds = (perf_counter() - started_at) * 1000
            line = (scope["method"], scope["path"], status, milliseconds, request_id)
            _lines.add(line)


class _Lines:
    """Lines on how requests ended. Those of a moment are written together, after their
    answers: to write one by itself takes a tenth of the time of a small model's answer.
    """

    def __init__(self) -> None:
        self._lines: list[tuple[str, str, int, float, str]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, line: tuple[str, str, int, float, str]) -> None:
        self._lines.append(line)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(_MOMENT, self.write)

    def write(self) -> None:
        lines, self._lines, self._loop = self._lines, [], None
        for method, path, status, milliseconds, id_ in lines:
            log.info(
                "%s %s %s %.1f ms %s", method, escape(path), status, milliseconds, id_
            )


_lines = _Lines()
write_lines = _lines.write


def _find_id(scope: Scope) -> str:
    """The caller's id if it is a fine one, else a new one."""
    for name, value in scope["headers"]:
        if name == _ID_HEADER and _IS_ID.fullmatch(value):
            return str(value, "ascii")
    return f"{random.getrandbits(64):016x}"  # no secret
