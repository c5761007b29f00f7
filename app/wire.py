"""How answers go onto the wire: head and body of a small one in one piece.

uvicorn writes the head of a response by itself and the body after it, each of which is
a call to the system, a packet, and a client that wakes up. Here a head is held back
until the body follows, or until the event loop is done with what it is at.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_END_OF_HEAD = b"\r\n\r\n"
_SMALL = 2**16  # to copy more costs more than it saves


class HeldHead:
    """A transport that writes a head together with what comes next."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""

    def write(self, content: bytes) -> None:
        if self._head and len(content) > _SMALL:
            self._flush()
        elif self._head:
            content, self._head = self._head + content, b""
        elif content.startswith(b"HTTP/") and content.endswith(_END_OF_HEAD):
            self._head = content
            self._loop.call_soon(self._flush)  # the body may be long in coming
            return
        self._transport.write(content)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """uvicorn's own, on such a transport."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(HeldHead(transport))  # type: ignore[arg-type]
