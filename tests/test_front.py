"""The service as it runs: what strangers send takes no memory."""

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.stacks import Service, Stack

MEGABYTE = 2**20
CHUNK = b"100000\r\n" + b" " * MEGABYTE + b"\r\n"


@pytest.mark.slow
def test_bodies_and_headers_of_strangers_take_no_memory(
    stack: Stack, start_service: Callable[..., Service]
) -> None:
    stack.environment["LOMETAB_REQUIRE_KEYS"] = "true"
    service = start_service("api")
    assert service.client.get("/healthz").status_code == 200
    address = urlsplit(service.address)
    process = psutil.Process(service.process.pid)
    before = most = process.memory_info().rss
    for head, piece, status in (
        (
            b"PUT /models/a/aliases/b HTTP/1.1\r\nHost: a\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            CHUNK,
            b" 401 ",
        ),
        (b"GET /healthz HTTP/1.1\r\nX-Long: ", b"x" * MEGABYTE, b" 431 "),
    ):
        with socket.create_connection((address.hostname, address.port or 80)) as client:
            client.settimeout(60)
            client.sendall(head)
            answer = b""
            try:
                for _ in range(200):
                    client.sendall(piece)
                    most = max(most, process.memory_info().rss)
                answer = client.recv(65536)
            except ConnectionError:
                pass  # it was ended while we sent; the answer may be lost by that
            assert not answer or status in answer.split(b"\r\n")[0]
    assert most - before < 50 * MEGABYTE
    assert service.client.get("/healthz").status_code == 200
