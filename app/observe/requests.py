"""Every request has an id: in the answer's `X-Request-ID` and in the log."""

import asyncio
import logging
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.observe import metrics, traces
from app.observe.context import set_ids
from app.observe.logs import FIELDS, escape

log = logging.getLogger(__name__)

HEADER = "X-Request-ID"
_ID_HEADER = HEADER.lower().encode()
ENDLESS = "lometab.endless"
"""Of a scope: the answer has no end of its own, and need not be waited for."""
ROUTE = "lometab.route"
"""Of a scope: the template of its path, if FastAPI does not set one."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
GONE = 499
"""The client went before there was an answer: no fault of ours, so not a 500."""
WHOSE = "lometab.whose"
"""Of a scope: the ids of the key and the workspace, once they are known."""
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
        set_ids({"request_id": request_id})
        id_header = (_ID_HEADER, request_id.encode())
        status, is_begun = 500, False

        async def send_with_id(message: Message) -> None:
            nonlocal status, is_begun
            if message["type"] == "http.response.start":
                status, is_begun = message["status"], True
                headers = message.get("headers", ())
                if _EVENT_STREAM in headers:
                    scope[ENDLESS] = True
                message["headers"] = [*headers, id_header]
            await send(message)

        async def answer() -> None:
            nonlocal status
            await self.app(scope, receive, send_with_id)
            if not is_begun:
                status = GONE

        try:
            if traces.is_on() and (given := _find_trace(scope)) is not None:
                with _traced(scope, given, lambda: status):
                    await answer()
            else:
                await answer()
        finally:
            milliseconds = (perf_counter() - started_at) * 1000
            _count(scope, status, milliseconds)
            _lines.add(_Line(scope, status, milliseconds, request_id))


class _Trace(NamedTuple):
    """How a request is to be traced."""

    traceparent: str | None
    """As the caller sent it."""
    is_predict: bool


def _find_trace(scope: Scope) -> _Trace | None:
    """None: not at all."""
    traceparent = None
    for name, value in scope["headers"]:
        if name == b"traceparent":
            traceparent = str(value, "latin-1")
    is_predict = scope["method"] == "POST" and scope["path"].endswith(_PREDICTS)
    if is_predict and not traces.is_chosen(traceparent):
        return None
    return _Trace(traceparent, is_predict)


_PREDICTS = ("/predict", "/infer", "/invocations")
"""How paths end that are asked all day."""


@contextmanager
def _traced(
    scope: Scope, trace: _Trace, read_status: Callable[[], int]
) -> Iterator[None]:
    """A span around the request; what is inside, FastAPI's own too, is below it."""
    method = _name_method(scope)
    with traces.request_span(
        method, trace.traceparent, is_leaf=trace.is_predict
    ) as span:
        if not trace.is_predict:
            others = [each for each in scope["headers"] if each[0] != b"traceparent"]
            ours = (b"traceparent", span.traceparent.encode())
            scope["headers"] = [*others, ours]
        trace_id = scope["trace_id"] = traces.read_trace_id(span.traceparent)
        set_ids({"request_id": scope["request_id"], "trace_id": trace_id})
        try:
            yield
        finally:
            span.end(method, _name_route(scope), read_status())


def _name_route(scope: Scope) -> str:
    return str(scope.get(ROUTE) or getattr(scope.get("route"), "path", "other"))


def _name_method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"


def _count(scope: Scope, status: int, milliseconds: float) -> None:
    """By the route's template: there are few of them."""
    route, method = _name_route(scope), _name_method(scope)
    metrics.HTTP.add(method, route, str(status))
    if not scope.get(ENDLESS, False):
        metrics.HTTP_SECONDS.observe(milliseconds / 1000, route)


class _Line(NamedTuple):
    """How a request ended."""

    scope: Scope
    status: int
    milliseconds: float
    request_id: str

    def to_fields(self) -> dict[str, object]:
        """For a line of JSON: whose request it was, too."""
        return {
            "method": self.scope["method"],
            "path": self.scope["path"],
            "status": self.status,
            "milliseconds": round(self.milliseconds, 1),
            "request_id": self.request_id,
            **(
                {"trace_id": self.scope["trace_id"]} if "trace_id" in self.scope else {}
            ),
            **self.scope.get(WHOSE, {}),
        }


class _Lines:
    """Lines on how requests ended. Those of a moment are written together, after their
    answers: to write one by itself takes a tenth of the time of a small model's answer.
    """

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, line: _Line) -> None:
        self._lines.append(line)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(_MOMENT, self.write)

    def write(self) -> None:
        lines, self._lines, self._loop = self._lines, [], None
        if not log.isEnabledFor(logging.INFO):
            return
        for line in lines:
            scope, status, milliseconds, id_ = line
            log.info(
                "%s %s %s %.1f ms %s",
                *(scope["method"], escape(scope["path"]), status, milliseconds, id_),
                extra={FIELDS: line.to_fields()},
            )


_lines = _Lines()
write_lines = _lines.write


def _find_id(scope: Scope) -> str:
    """The caller's id if it is a fine one, else a new one."""
    for name, value in scope["headers"]:
        if name == _ID_HEADER and _IS_ID.fullmatch(value):
            return str(value, "ascii")
    return f"{random.getrandbits(64):016x}"  # no secret
