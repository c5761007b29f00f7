"""Other protocols for predict: each turns its request into one of ours, and our answer
into one of its own.

The rows of both go through `PredictApp`: the same model, limits, keys and errors.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.errors import AppError, Overloaded, TooLarge, to_app_error
from app.serving import bodies
from app.serving.asgi import get_predict
from app.serving.requests import BATCHED_BYTES
from app.settings import get_settings


class Asked(NamedTuple):
    """A request as `POST /models/{id}/predict` takes it."""

    content_type: str
    body: bytes
    options: Mapping[str, Any]


class Answered(NamedTuple):
    """What goes back to a caller of another protocol."""

    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


class Neighbour(Protocol):
    """One request of another protocol, from its reading to its answer."""

    def read(self, body: bytes, headers: Mapping[bytes, bytes]) -> Asked:
        """Raises a DataError for what cannot be read."""

    def write(self, answer: dict[str, Any]) -> Answered: ...

    def explain(self, error: AppError) -> Mapping[str, str]:
        """What an error document has besides, where its callers look for it."""


def check_length(scope: Scope) -> int | None:
    """How long the body will be, if its client tells; TooLarge if that is too much."""
    headers = dict(reversed(scope["headers"]))  # the first of each name
    limit = get_settings().max_json_bytes
    return bodies.check_length(headers.get(b"content-length"), limit)


async def answer(
    scope: Scope, receive: Receive, send: Send, reference: str, neighbour: Neighbour
) -> None:
    """Answer a request of another protocol by our own predict."""
    headers = dict(reversed(scope["headers"]))  # the first of each name
    try:
        with _take_place(check_length(scope)):
            body = await _read(receive)
            asked = await run_in_threadpool(neighbour.read, body, headers)
            found = await _predict(scope, receive, reference, asked)
            answered = await run_in_threadpool(neighbour.write, found)
    except ClientDisconnect:
        raise
    except Exception as error:
        told = to_app_error(error, scope.get("request_id", "-"))
        told.members |= neighbour.explain(told)
        raise told from error
    pairs = [
        (b"content-type", answered.content_type.encode()),
        (b"content-length", b"%d" % len(answered.body)),
        *((k.lower().encode(), v.encode()) for k, v in answered.headers.items()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": pairs})
    await send({"type": "http.response.body", "body": answered.body})


_n_large = 0
"""Large bodies that are held at this moment."""


@contextmanager
def _take_place(length: int | None) -> Iterator[None]:
    """A large body holds memory until its answer is made, as a table does."""
    global _n_large
    if length is not None and length <= BATCHED_BYTES:
        yield
        return
    if _n_large >= get_settings().table_queue:
        raise Overloaded("many large tables are being answered; ask again later")
    _n_large += 1
    try:
        yield
    finally:
        _n_large -= 1


async def _read(receive: Receive) -> bytes:
    """The whole body: these protocols have no streams."""
    limit = get_settings().max_json_bytes
    pieces: list[bytes] = []
    n_bytes, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        n_bytes += len(pieces[-1])
        if n_bytes > limit:
            raise TooLarge(f"the request is larger than the limit of {limit} bytes")
        more = message.get("more_body", False)
    return b"".join(pieces)


async def _predict(
    scope: Scope, receive: Receive, reference: str, asked: Asked
) -> dict[str, Any]:
    query = "&".join(
        f"{name}={_to_query(value)}" for name, value in asked.options.items()
    )
    inner: Scope = {
        **scope,
        "path": f"/models/{reference}/predict",
        "query_string": query.encode(),
        "headers": [
            (b"content-type", asked.content_type.encode()),
            (b"content-length", b"%d" % len(asked.body)),
            (b"accept", b"application/json"),
        ],
    }
    messages: list[Message] = [{"type": "http.request", "body": asked.body}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    pieces: list[bytes] = []

    async def keep(message: Message) -> None:
        pieces.append(message.get("body", b""))

    await get_predict()(inner, receive_again, keep, reference)
    found: dict[str, Any] = orjson.loads(b"".join(pieces))
    return found


def _to_query(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return quote(value if isinstance(value, str) else json.dumps(value), safe="")
