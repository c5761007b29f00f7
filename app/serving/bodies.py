"""Bodies of predict requests as they arrive: of which type, and not too large."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from app.errors import (
    BadData,
    BodyTooSlow,
    NotAcceptable,
    Overloaded,
    TooLarge,
    UnsupportedMediaType,
)
from app.serving.rows import KINDS, Kind
from app.settings import Settings

MEDIA_TYPES = ("application/json", "text/csv", "application/vnd.apache.arrow.stream")
"""In which predictions are given; the first is preferred."""
_PIECE = 2**20


@lru_cache(maxsize=100)
def read_content_type(content_type: str, encoding: bytes) -> tuple[Kind, str]:
    """What the body is, and in which character set if that is told."""
    name, _, parameters = content_type.partition(";")
    kind = KINDS.get(name.strip().lower())
    if kind is None or encoding != b"identity":
        raise UnsupportedMediaType(f"send one of {', '.join(KINDS)}, not packed")
    charset = ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"')
    if charset:
        _refuse_charset(charset)
    return kind, charset


def _refuse_charset(charset: str) -> None:
    """Python has codecs that are none of texts, such as zlib."""
    try:
        b"ab".decode(charset, "replace")
    except (LookupError, ValueError):
        raise BadData(
            f"the charset {charset!r} is not known; send the rows as UTF-8"
        ) from None


def choose_media_type(accept: str, offered: Sequence[str] = MEDIA_TYPES) -> str:
    """The media type of the answer, by the header `Accept`; the first of those that it
    likes best."""
    if accept in ("*/*", offered[0]):
        return offered[0]
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

    best = max(offered, key=weigh)
    if weigh(best) <= 0:
        raise NotAcceptable(f"the answer can be one of {', '.join(offered)}")
    return best


def check_length(given: bytes | None, limit: int) -> int | None:
    """How long the body will be, if its client tells."""
    if given is None:
        return None
    length = int(given)
    if length > limit:
        raise _too_large(limit)
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


class Spools:
    """Bodies of tables as they arrive, each in a file. Who sends slowly keeps others of
    its own from being received, and nobody else's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_caller: Counter[str | None] = Counter()

    @asynccontextmanager
    async def take(
        self, secret: str | None, receive: Receive, limit: int
    ) -> AsyncIterator[Path]:
        """The whole body of one request; an AppError if there is no place for it, or
        it takes too long."""
        most = self._settings.table_queue
        if self._by_caller[secret] >= most or self._by_caller.total() >= 4 * most:
            raise Overloaded("many large tables are being received; ask again later")
        self._by_caller[secret] += 1
        seconds = self._settings.predict_body_seconds
        try:
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(seconds):
                        path = await stack.enter_async_context(spool(receive, limit))
                except TimeoutError:
                    raise BodyTooSlow(
                        f"the body took longer than {seconds:g} s; send the rows in "
                        "parts, or packed, as Parquet"
                    ) from None
                yield path
        finally:
            self._by_caller[secret] -= 1
            if not self._by_caller[secret]:
                del self._by_caller[secret]


@asynccontextmanager
async def spool(receive: Receive, limit: int) -> AsyncIterator[Path]:
    """The body in a file, which is gone afterwards. A slow client holds no thread."""
    loop = asyncio.get_running_loop()
    with NamedTemporaryFile(prefix="lometab-predict-") as file:
        n_bytes = n_held = 0
        held: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            content, more = message.get("body", b""), message.get("more_body", False)
            n_bytes += len(content)
            n_held += len(content)
            if n_bytes > limit:
                raise _too_large(limit)
            held.append(content)
            if n_held >= _PIECE or not more:
                await loop.run_in_executor(None, file.write, b"".join(held))
                held, n_held = [], 0
        file.flush()
        yield Path(file.name)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than the limit of {limit} bytes; send the rows in parts, "
        "or as CSV, Arrow or Parquet"
    )
