"""The ASGI app that answers `POST /models/{model_id}/predict`.

Small requests go through the batcher, where those of one caller for one model share
runs; larger ones are tables, answered in a stream; explaining has a thread of its own.
Parsing, running and writing happen in threads, but for requests that are over sooner
(`quick.py`). Errors are raised: the guard answers them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from time import perf_counter
from typing import TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.access import check_space
from app.errors import Overloaded
from app.serving.batcher import Batcher
from app.serving.batches import (
    Answer,
    Elsewhere,
    Result,
    SmallRequest,
    answer_together,
)
from app.serving.bodies import Spools, read_body
from app.serving.models import find_served
from app.serving.predictors import Predictors, get_predictors
from app.serving.quick import QuickRequests
from app.serving.requests import PredictRequest, find_limit, read_request
from app.serving.rows import Body
from app.serving.tables import TableAnswer, answer_table
from app.settings import Settings, get_settings

_PIECE = 2**16
_CONTENT_TYPES = {
    "application/json": b"application/json",
    "text/csv": b"text/csv; charset=utf-8",
}
Found = TypeVar("Found")


class PredictApp:
    """Answers predict requests within the limits of the settings."""

    def __init__(self, settings: Settings, predictors: Predictors) -> None:
        self._settings = settings
        self._predictors = predictors
        self._quick = QuickRequests(settings, predictors)
        self._batcher: Batcher[SmallRequest, Result] = Batcher(
            self._run,
            threads=settings.predict_threads,
            is_shared=settings.join_rows > 0,
        )
        # Seconds for a request: nobody else's predict waits for that.
        self._explaining: Batcher[SmallRequest, Result] = Batcher(
            self._explain, threads=settings.explain_threads, is_shared=False
        )
        self.spools = Spools(settings)
        self._threads = ThreadPoolExecutor(
            settings.table_threads, thread_name_prefix="tables"
        )
        self.n_small = 0
        """Small requests whose answers are not sent yet."""
        self.n_explained = 0
        """Those of them that are to be explained."""
        self.n_tables = 0
        """Tables that are computed or sent."""

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, reference: str
    ) -> None:
        if self.n_small >= self._settings.predict_queue:  # nothing is spent on it
            raise Overloaded()
        request = read_request(scope, reference, get_settings())
        if not request.is_small:
            await self._receive_table(request, scope, receive, send)
            return
        body = await read_body(receive)
        if not await self._answer_small(request, body, scope["client"], send):
            with self._take_table():
                await self._answer_table(request, body, scope, receive, send)

    def _run(self, requests: list[SmallRequest]) -> list[Result | Exception]:
        return answer_together(requests, self._predictors, self._settings.join_rows)

    def _explain(self, requests: list[SmallRequest]) -> list[Result | Exception]:
        return answer_together(requests, self._predictors, 1, explains=True)

    async def _answer_small(
        self, request: PredictRequest, body: bytes, client: object, send: Send
    ) -> bool:
        """Whether it was one: some have too many rows for their few bytes."""
        is_quick = self._quick.allow(request, body, client) and self.n_small == 0
        self.n_small += 1
        try:
            small = SmallRequest(request, body)
            if is_quick:
                (answer,) = self._run([small])
                if isinstance(answer, Exception):
                    raise answer
            else:
                # By the caller's key and the text by which it names the model: no run
                # is shared by two callers.
                key = (request.secret, request.reference)
                answer = await self._batcher.submit(key, small)
            if answer is Elsewhere.EXPLAINED:
                answer = await self._submit_explained(small)
            if isinstance(answer, Elsewhere):
                return False
            await _send_whole(answer, request.media_type, send)
            return True
        finally:
            self.n_small -= 1

    async def _submit_explained(self, small: SmallRequest) -> Result:
        if self.n_explained >= self._settings.explain_queue:
            raise Overloaded("many rows are being explained; ask again later")
        self.n_explained += 1
        try:
            return await self._explaining.submit(None, small)
        finally:
            self.n_explained -= 1

    async def _receive_table(
        self, request: PredictRequest, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._check_tables()  # before its body is sent for nothing
        # Strangers and unknown models are refused before the body is read.
        await self._in_thread(lambda: find_served(request.secret, request.reference))
        check_space(self._settings, request.length or 0)
        limit = find_limit(request.kind, self._settings)
        async with self.spools.take(request.secret, receive, limit) as path:
            with self._take_table():
                await self._answer_table(request, path, scope, receive, send)

    async def _answer_table(
        self,
        request: PredictRequest,
        body: Body,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        asked_at = perf_counter()
        answer = await self._in_thread(
            lambda: answer_table(
                request,
                body,
                asked_at,
                self._predictors,
                self._settings.max_predict_rows,
            )
        )
        response = StreamingResponse(
            self._send_pieces(answer),
            media_type=request.media_type,
            headers=answer.headers,
        )
        await response(scope, receive, send)

    async def _send_pieces(self, answer: TableAnswer) -> AsyncIterator[bytes]:
        piece = answer.first
        while piece:
            for start in range(0, len(piece), _PIECE):  # so that each is taken in time
                yield piece[start : start + _PIECE]
            piece = await self._in_thread(lambda: next(answer.others, b""))

    @contextmanager
    def _take_table(self) -> Iterator[None]:
        """A table counts until its answer is sent: it holds memory or a file."""
        self._check_tables()
        self.n_tables += 1
        try:
            yield
        finally:
            self.n_tables -= 1

    def _check_tables(self) -> None:
        if self.n_tables >= self._settings.table_queue:
            raise Overloaded("many large tables are being answered; ask again later")

    async def run_large(self, function: Callable[[], Found]) -> Found:
        """For other protocols, which read large bodies themselves."""
        return await self._in_thread(function)

    async def _in_thread(self, function: Callable[[], Found]) -> Found:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function)


async def _send_whole(answer: Answer, media_type: str, send: Send) -> None:
    content = answer.content
    headers = [
        (b"content-length", b"%d" % len(content)),
        (b"content-type", _CONTENT_TYPES.get(media_type) or media_type.encode()),
    ]
    for name, value in answer.headers.items():
        headers.append((name.lower().encode(), value.encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # A client that does not read holds its place: the server waits between pieces.
    for start in range(0, len(content) - _PIECE, _PIECE):
        piece = content[start : start + _PIECE]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    rest = content[(len(content) - 1) // _PIECE * _PIECE :]
    await send({"type": "http.response.body", "body": rest})


@cache
def get_predict() -> PredictApp:
    return PredictApp(get_settings(), get_predictors())
