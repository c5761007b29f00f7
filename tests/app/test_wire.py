"""Head and body in one piece, and a head that is not kept waiting."""

import asyncio
from typing import Any

from app.wire import HeldHead

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Sink:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, content: bytes) -> None:
        self.written.append(content)

    def close(self) -> None:
        self.is_closed = True

    def get_extra_info(self, name: str) -> str:
        return name


def run(*steps: bytes | None) -> list[bytes]:
    """What goes out if these are written; None: the loop has other things to do."""

    async def write() -> Sink:
        sink: Any = Sink()
        transport = HeldHead(sink)
        for content in steps:
            if content is None:
                await asyncio.sleep(0)
            else:
                transport.write(content)
        transport.close()
        assert sink.is_closed and transport.get_extra_info("peername") == "peername"
        found: Sink = sink
        return found

    return asyncio.run(write()).written


def test_head_and_body_are_one_piece() -> None:
    assert run(HEAD, b"ok", HEAD, b"no") == [HEAD + b"ok", HEAD + b"no"]
    assert run(HEAD, b"") == [HEAD]


def test_a_head_does_not_wait_for_a_body_that_is_long_in_coming() -> None:
    assert run(HEAD, None, b"ok") == [HEAD, b"ok"]
    assert run(b"HTTP/1.1 100 Continue\r\n\r\n", None, HEAD, b"ok")[0].endswith(
        b"Continue\r\n\r\n"
    )
    assert run(HEAD) == [HEAD]  # closed before it came


def test_a_large_body_is_not_copied() -> None:
    large = bytes(2**17)
    assert run(HEAD, large) == [HEAD, large]
