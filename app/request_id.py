"""Every request has an id: in the answer's `X-Request-ID` and in the log."""

import asyncio
import logging
import math
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

HEADER = "X-Request-ID"
_NAME = HEADER.lower().encode()
_MOMENT = 0.02
_FINE = re.compile(rb"[A-Za-z0-9._-]{1,100}")


class RequestIdMiddleware:
    """Takes the caller's id if it is a fine one, else makes one; logs how it ended."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _NAME), b"")
        request_id = given.decode() if _FINE.fullmatch(given) else secrets.token_hex(8)
        scope["request_id"] = request_id
        started_at = time.perf_counter()
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.get("headers", ())
                message["headers"] = [*headers, (_NAME, request_id.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            milliseconds = (time.perf_counter() - started_at) * 1000
            loop = asyncio.get_running_loop()
            # The lines of each moment are written together, after their answers: the
            # code that writes one is in no cache between two runs of a model.
            loop.call_at(
                math.ceil(loop.time() / _MOMENT) * _MOMENT,
                log.info,
                "%s %s %s %.1f ms %s",
                scope["method"],
                scope["path"],
                status,
                milliseconds,
                request_id,
            )
