"""Limits on connections, on a real server on loopback."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from app.cli.service import list_options
from app.protocol import Protocol
from app.settings import Settings
from tests.support.servers import wait_until

MEGABYTE = 2**20


class App:
    """Reads what comes, counts it, and answers with as many bytes as it is told to."""

    def __init__(self) -> None:
        self.n_open = 0
        self.ends: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.n_open += 1
        try:
            self.ends.append(await self.answer(scope, receive, send))
        finally:
            self.n_open -= 1

    async def answer(self, scope: Any, receive: Any, send: Any) -> str:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return "gone"
            more = message["more_body"]
        gone = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(int(scope["path"].strip("/") or 0)):
            await send(
                {
                    "type": "http.response.body",
                    "body": b"x" * MEGABYTE,
                    "more_body": True,
                }
            )
            if gone.done():
                return "gone"
        await send({"type": "http.response.body", "body": b""})
        return "whole"


class Server:
    """uvicorn in a thread of this process."""

    def __init__(self) -> None:
        self.app = App()
        config = uvicorn.Config(
            self.app,
            port=0,
            http=Protocol,
            lifespan="off",
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.socket = config.bind_socket()
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        wait_until(lambda: self.server.started, seconds=30, what="it listens")

    def connect(self, content: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        client.sendall(content)
        return client

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        self.socket.close()


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(**settings: Any) -> Server:
        limits = Settings(**settings)
        monkeypatch.setattr("app.protocol.get_settings", lambda: limits)
        servers.append(Server())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def read_all(client: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    found = b""
    with client:
        try:
            while content := client.recv(65536):
                found += content
        except ConnectionError:
            pass
    return found


HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "piece",
    [b"x" * 65536, b"a: b\r\n" * 10_000],
    ids=["one header", "many headers"],
)
def test_headers_without_end(start: Callable[..., Server], piece: bytes) -> None:
    client = start().connect(HEAD + b"X-Long: ")
    n_sent = 0
    try:
        while n_sent < 64 * MEGABYTE:
            client.sendall(piece)
            n_sent += len(piece)
    except ConnectionError:
        pass
    client.close()
    assert n_sent < 16 * MEGABYTE  # what the system holds between the two


def test_too_many_header_bytes_are_told(start: Callable[..., Server]) -> None:
    client = start().connect(HEAD)
    for _ in range(9):
        time.sleep(0.01)
        client.sendall(b"X-Long: " + b"x" * 4096 + b"\r\n")
    answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"headers_too_large"' in answer


def test_trailers_without_end(start: Callable[..., Server]) -> None:
    server = start()
    client = server.connect(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\nX-Long: "
    )
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            client.sendall(b"x" * 65536)
    client.close()


def test_small_chunks_and_pipelining_are_fine(start: Callable[..., Server]) -> None:
    body = b"".join(b"1\r\nx\r\n" for _ in range(50_000)) + b"0\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    last = request + b"Connection: close\r\n\r\n" + body
    answer = read_all(start().connect(request + b"\r\n" + body + last))
    assert answer.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", HEAD], ids=["nothing", "half a head"])
def test_heads_that_do_not_come(start: Callable[..., Server], sent: bytes) -> None:
    server = start(header_seconds=0.5)
    started_at = time.monotonic()
    clients = [server.connect(sent) for _ in range(300)]
    with server.connect(HEAD + b"Connection: close\r\n\r\n") as other:
        assert other.recv(100).startswith(b"HTTP/1.1 200 OK")
    for client in clients:
        assert read_all(client) == b""
    assert 0.4 < time.monotonic() - started_at < 20


@pytest.mark.slow
@pytest.mark.parametrize("is_slow", [False, True], ids=["nothing", "a byte at a time"])
def test_bodies_that_do_not_come(start: Callable[..., Server], is_slow: bool) -> None:
    server = start(body_seconds=0.5)
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc"
    client = server.connect(request)

    def has_gone() -> bool:
        if is_slow:
            try:
                client.sendall(b"x")
            except ConnectionError:
                pass
        return server.app.ends == ["gone"]

    wait_until(has_gone, seconds=20, what="the connection ends")
    client.close()


def test_answers_that_are_not_taken(start: Callable[..., Server]) -> None:
    server = start(send_seconds=0.5)
    client = server.connect(b"GET /1000 HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_until(lambda: server.app.n_open == 1, seconds=20, what="it answers")
    wait_until(lambda: server.app.ends == ["gone"], seconds=30, what="it gives up")
    client.close()


@pytest.mark.slow
def test_a_slow_reader_gets_its_answer(start: Callable[..., Server]) -> None:
    server = start(send_seconds=2)
    client = server.connect(b"GET /24 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    n_bytes = 0
    started_at = time.monotonic()
    while content := client.recv(2 * MEGABYTE):
        n_bytes += len(content)
        time.sleep(0.1)
    client.close()
    assert n_bytes > 24 * MEGABYTE
    assert time.monotonic() - started_at > 1
    assert server.app.ends == ["whole"]


def test_too_many_connections(start: Callable[..., Server]) -> None:
    server = start(max_connections=5)
    held = [server.connect(HEAD) for _ in range(5)]
    wait_until(
        lambda: len(server.server.server_state.connections) == 5,
        seconds=20,
        what="all are there",
    )
    answer = read_all(server.connect(HEAD + b"\r\n"))
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"overloaded"' in answer
    for client in held:
        client.close()
    wait_until(
        lambda: not server.server.server_state.connections,
        seconds=20,
        what="all are gone",
    )
    with server.connect(HEAD + b"\r\n") as client:
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_idle_connections_make_room(start: Callable[..., Server]) -> None:
    server = start(max_connections=5)
    busy = [server.connect(HEAD) for _ in range(3)]
    kept = [server.connect(HEAD + b"\r\n") for _ in range(2)]
    for client in kept:
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    for _ in kept:
        with server.connect(HEAD + b"\r\n") as client:
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    for client in busy:
        client.sendall(b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
        client.close()
    for client in kept:
        read_all(client)  # the server has ended it


def test_a_connection_is_kept_while_nothing_is_asked() -> None:
    """Longer than httpx, aiohttp and the usual proxies do."""
    assert list_options(Settings())["timeout_keep_alive"] > 60
    chosen = Settings(keep_alive_seconds=3)
    assert list_options(chosen)["timeout_keep_alive"] == 3
