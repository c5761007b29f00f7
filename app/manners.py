"""What HTTP expects of everybody: pages of other origins, HEAD, and packed answers."""

import zlib
from typing import Protocol

import pyarrow as pa
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.settings import get_settings

MIN_BYTES = 1400
"""A smaller answer fits into a packet as it is."""
PACKED = ("application/json", "application/problem+json", "text/")
"""How the media types begin that are worth it. A model's file is not, nor are Arrow and
Parquet: numbers hardly pack, and trying takes a sixth of a large answer's time."""
EXPOSED = (
    *("ETag", "Idempotent-Replayed", "Link", "Location", "Lometab-Head", "Repr-Digest"),
    *("RateLimit", "RateLimit-Policy", "Retry-After", "Server-Timing", "X-Request-ID"),
)
"""Headers of answers that a page of another origin may read."""


class Manners:
    """An ASGI app around another one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._cors: tuple[tuple[str, ...], ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        origins = get_settings().cors_origins
        if origins:
            await self._find_cors(tuple(origins))(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    def _find_cors(self, origins: tuple[str, ...]) -> ASGIApp:
        if self._cors is None or self._cors[0] != origins:
            self._cors = origins, _allow(self._answer, origins)
        return self._cors[1]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        packer = _choose(scope)
        if packer is not None:
            send = Packing(send, *packer)
        if scope["method"] == "HEAD":
            head = Head(receive, send)
            await self._app({**scope, "method": "GET"}, head.receive, head.send)
            return
        await self._app(scope, receive, send)


def _allow(app: ASGIApp, origins: tuple[str, ...]) -> ASGIApp:
    """Keys come in a header, never in a cookie: nothing is sent on a visitor's behalf
    that the page does not have itself."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("*",),
        expose_headers=EXPOSED,
        max_age=600,
    )


class Head:
    """The head of an answer, as GET has it. Whoever answers is told to end."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._is_over = False

    async def receive(self) -> Message:
        return {"type": "http.disconnect"} if self._is_over else await self._receive()

    async def send(self, message: Message) -> None:
        if self._is_over:
            return
        await self._send(message)
        if message["type"] == "http.response.start":
            self._is_over = True
            await self._send({"type": "http.response.body", "body": b""})


# ----------------------------------------------------------------------------
# Packed answers


class Packer(Protocol):
    """Packs what it is given, piece by piece."""

    def pack(self, piece: bytes) -> bytes: ...

    def end(self) -> bytes: ...


class Gzip:
    def __init__(self) -> None:
        self._packer = zlib.compressobj(4, zlib.DEFLATED, 31)

    def pack(self, piece: bytes) -> bytes:
        packed = self._packer.compress(piece)
        return packed + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._packer.flush()


class Zstd:
    """By Arrow, which is here anyway. Each piece is a frame: one after the other is a
    whole."""

    def __init__(self) -> None:
        self._codec = pa.Codec("zstd", compression_level=3)

    def pack(self, piece: bytes) -> bytes:
        return bytes(self._codec.compress(piece, asbytes=True)) if piece else b""

    def end(self) -> bytes:
        return b""


PACKERS: dict[str, type[Packer]] = {"zstd": Zstd, "gzip": Gzip}
"""The first is preferred where a client takes both as gladly."""


def _choose(scope: Scope) -> tuple[str, type[Packer]] | None:
    """The encoding that the client likes best, if it wants any."""
    given = [v for n, v in scope["headers"] if n == b"accept-encoding"]
    if not given:
        return None
    weights = {}
    for part in b",".join(given).decode("latin-1").lower().split(","):
        name, _, weight = part.partition(";")
        try:
            weights[name.strip()] = float(weight.strip().removeprefix("q=") or 1)
        except ValueError:
            weights[name.strip()] = 0.0
    found = max(PACKERS, key=lambda name: weights.get(name, 0.0))
    return (found, PACKERS[found]) if weights.get(found, 0.0) > 0 else None


class Packing:
    """Packs an answer if it is large enough and of a kind that packs well."""

    def __init__(self, send: Send, name: str, packer: type[Packer]) -> None:
        self._send, self._name, self._make = send, name, packer
        self._start: Message | None = None
        self._packer: Packer | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message  # it is sent once the first piece is there
        elif message["type"] == "http.response.body":
            await self._pack(message)
        else:
            await self._send(message)

    async def _pack(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            if _is_worth(start, body, more):
                self._packer = self._make()
                start = _rename(start, self._name)
            await self._send(start)
        if self._packer is not None:
            body = self._packer.pack(body)
            if not more:
                body += self._packer.end()
        await self._send({**message, "body": body})


def _is_worth(start: Message, body: bytes, more: bool) -> bool:
    headers = {name.lower(): value for name, value in start.get("headers", ())}
    kind = headers.get(b"content-type", b"").decode("latin-1")
    return (
        (more or len(body) >= MIN_BYTES)
        and (kind.startswith(PACKED) or kind.partition(";")[0].endswith("+json"))
        and not kind.startswith("text/event-stream")
        and b"content-encoding" not in headers
        and b"accept-ranges" not in headers  # they are of the answer as it is
        and start["status"] not in (204, 304)
    )


def _rename(start: Message, encoding: str) -> Message:
    """The packed answer is another representation: its tag is weak, its length new."""
    headers = []
    for name, value in start["headers"]:
        lowered = name.lower()
        if lowered in (b"content-length", b"repr-digest"):
            continue
        if lowered == b"etag" and not value.startswith(b"W/"):
            value = b"W/" + value
        headers.append((name, value))
    headers += [
        (b"content-encoding", encoding.encode()),
        (b"vary", b"Accept-Encoding"),
    ]
    return {**start, "headers": headers}
