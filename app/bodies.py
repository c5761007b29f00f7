"""Bodies of predict requests as they arrive: of which type, and not too large."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from app.errors import NotAcceptable, TooLarge, UnsupportedMediaType
from app.rows import KINDS, Kind

ANSWERS = ("application/json", "text/csv", "application/vnd.apache.arrow.stream")
"""Media types in which predictions are given; the first is preferred."""
_PIECE = 2**20


@lru_cache(maxsize=100)
def read_content_type(content_type: str, encoding: bytes) -> tuple[Kind, str]:
    """What the body is, and in which character set."""
    name, _, parameters = content_type.partition(";")
    kind = KINDS.get(name.strip().lower())
    if kind is None or encoding != b"identity":
        raise UnsupportedMediaType(f"send one of {', '.join(KINDS)}, not packed")
    charset = "utf-8"
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"')
    return kind, charset


def choose_answer(accept: str) -> str:
    """The media type of the answer, by the header `Accept`."""
    if accept in ("*/*", "application/json"):
        return "application/json"
    weights: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        weights[name] = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weights[name] = float(parameter[2:])
                except ValueError:
                    weights[name] = 0.0

    def weigh(media_type: str) -> float:
        anything = f"{media_type.split('/')[0]}/*"
        names = (media_type, anything, "*/*")
        return next((weights[name] for name in names if name in weights), 0.0)

    best = max(ANSWERS, key=weigh)
    if weigh(best) <= 0:
        raise NotAcceptable(f"the answer can be one of {', '.join(ANSWERS)}")
    return best


def check_length(given: bytes | None, most: int) -> int | None:
    """How long the body will be, if its client tells."""
    if given is None:
        return None
    length = int(given)
    if length > most:
        raise _too_large(most)
    return length


async def read_body(receive: Receive) -> bytes:
    """A body that was found to be small."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return body


@asynccontextmanager
async def spool(request: Request, most: int) -> AsyncIterator[Path]:
    """The body in a file, which is gone afterwards. A slow client holds no thread."""
    loop = asyncio.get_running_loop()
    with NamedTemporaryFile(prefix="lometab-predict-") as file:
        n_bytes = 0
        pieces: list[bytes] = []
        async for content in request.stream():
            n_bytes += len(content)
            if n_bytes > most:
                raise _too_large(most)
            pieces.append(content)
            if sum(map(len, pieces)) >= _PIECE:
                await loop.run_in_executor(None, file.write, b"".join(pieces))
                pieces = []
        await loop.run_in_executor(None, file.write, b"".join(pieces))
        file.flush()
        yield Path(file.name)


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than the {most} bytes taken here; send the rows in parts, "
        "or as CSV, Arrow or Parquet"
    )
