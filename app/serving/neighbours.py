"""Other protocols for predict: each turns its request into one of ours, and our answer
into one of its own.

The rows of both go through `PredictApp`: the same model, limits, keys and errors.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar
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
from lometab.errors import DataError

Found = TypeVar("Found")
_MAX_ANSWER = 2**27
"""Bytes of predict's own answer, which is parsed as a whole."""
_MAX_OPTION = 1000
_CELLS = 2**16
"""Values that are written at a time: no thread holds the others up for long."""


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
        is_large = _is_large(check_length(scope))
        with ExitStack() as places:
            if is_large:
                asked = await _ask_large(scope, receive, headers, neighbour, places)
            else:
                body = await bodies.read_body(receive)
                asked = await run_in_threadpool(neighbour.read, body, headers)
            found = await _predict(scope, receive, reference, asked)
            answered = await _run(
                lambda: neighbour.write(orjson.loads(found)), is_large
            )
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


async def _ask_large(
    scope: Scope,
    receive: Receive,
    headers: Mapping[bytes, bytes],
    neighbour: Neighbour,
    places: ExitStack,
) -> Asked:
    """It takes a place once its body is there, which is gone when this returns."""
    predict, secret = get_predict(), scope["state"]["secret"]
    limit = get_settings().max_json_bytes
    async with predict.spools.take(secret, receive, limit) as path:
        places.enter_context(_take_place())
        return await predict.run_large(
            lambda: neighbour.read(path.read_bytes(), headers)
        )


def _is_large(length: int | None) -> bool:
    return length is None or length > BATCHED_BYTES


async def _run(function: Callable[[], Found], is_large: bool) -> Found:
    """In a thread. Few large bodies are read at a time, as few tables are."""
    if is_large:
        return await get_predict().run_large(function)
    return await run_in_threadpool(function)


_n_large = 0
"""Large bodies that are held at this moment."""


@contextmanager
def _take_place() -> Iterator[None]:
    """A large body holds memory until its answer is made, as a table does."""
    global _n_large
    if _n_large >= get_settings().table_queue:
        raise Overloaded("many large tables are being answered; ask again later")
    _n_large += 1
    try:
        yield
    finally:
        _n_large -= 1


async def _predict(
    scope: Scope, receive: Receive, reference: str, asked: Asked
) -> bytes:
    """The answer, in JSON."""
    inner: Scope = {
        **scope,
        "path": f"/models/{reference}/predict",
        "query_string": make_query(asked.options).encode(),
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
    n_bytes = 0

    async def keep(message: Message) -> None:
        nonlocal n_bytes
        pieces.append(message.get("body", b""))
        n_bytes += len(pieces[-1])
        if n_bytes > _MAX_ANSWER:
            raise TooLarge(
                f"the answer is larger than {_MAX_ANSWER >> 20} MiB; send the rows in "
                "parts, or ask for fewer outputs"
            )

    await get_predict()(inner, receive_again, keep, reference)
    return b"".join(pieces)


def make_query(options: Mapping[str, Any]) -> str:
    pairs = [(name, _to_query(name, value)) for name, value in options.items()]
    return "&".join(f"{name}={text}" for name, text in pairs)


def _to_query(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        if not all(isinstance(each, str) for each in value):
            raise DataError(f"{name} must be a list of texts")
        value = ",".join(value)
    if isinstance(value, dict):
        raise DataError(f"{name} may not be an object")
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > _MAX_OPTION:
        raise DataError(f"{name} has more than {_MAX_OPTION} characters")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise DataError(f"{name} is no text of Unicode") from None


# ----------------------------------------------------------------------------
# Rows in our JSON


def write_json(found: Any) -> bytes:
    try:
        return orjson.dumps(found)
    except TypeError as error:  # not all that Python's own reader takes
        raise DataError(
            f"a value is nested too deeply, or cannot be read: {error}"
        ) from None


def write_columns(
    columns: Mapping[str, Any], cut: Callable[[Any, int, int], Sequence[Any]]
) -> bytes:
    """A body of `columns` and `data`, some rows at a time.

    Args:
        columns: their values, as many of each.
        cut: gives the values of a column from one row to another.
    """
    n_rows = len(next(iter(columns.values()), ()))
    check_rows(n_rows)
    limit = get_settings().max_json_bytes
    pieces = bytearray(b'{"columns":' + write_json([*columns]) + b',"data":[')
    size = max(1, _CELLS // max(1, len(columns)))
    for start in range(0, n_rows, size):
        stop = min(start + size, n_rows)
        parts = [cut(values, start, stop) for values in columns.values()]
        pieces += b"," if start else b""
        pieces += write_json([*zip(*parts, strict=True)])[1:-1]
        if len(pieces) > limit:
            raise TooLarge(
                f"the rows take more than the limit of {limit} bytes as JSON; send "
                "them in parts"
            )
    return bytes(pieces + b"]}")


def check_rows(n_rows: int) -> None:
    most = get_settings().max_predict_rows
    if n_rows > most:
        raise TooLarge(
            f"{n_rows} rows are beyond the limit of {most} in one request; send them "
            "in parts"
        )
