"""A service that is told to end: answers under way are sent, streams are not waited
for, and its files are closed to others."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.services import post_job
from tests.support.stacks import Service, Stack
from tests.support.tables import make_csv

pytestmark = pytest.mark.processes


def test_streams_end_with_the_service(
    start_service: Callable[[], Service], stack: Stack
) -> None:
    service = start_service()
    job = post_job(service.client, make_csv(100), device="gpu")  # it waits
    begun = threading.Event()
    ended_after: list[float] = []

    def follow() -> None:
        address = f"{service.address}/jobs/{job['id']}/events"
        headers = {"Accept": "text/event-stream"}
        try:
            with httpx.stream("GET", address, headers=headers, timeout=60) as answer:
                for _ in answer.iter_bytes():
                    begun.set()
        except httpx.RemoteProtocolError:
            pass  # an answer without an end was cut
        ended_after.append(time.monotonic())

    thread = threading.Thread(target=follow)
    thread.start()
    assert begun.wait(30)
    stopped_at = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    thread.join(20)
    assert ended_after and ended_after[0] - stopped_at < 5
    assert service.process.wait(60) == 0
    mode = stack.folder.stat().st_mode & 0o777
    assert mode == 0o700
    assert (stack.folder / "lometab.db").stat().st_mode & 0o777 == 0o600


SLOW = """
import sys
import uvicorn
from app.protocol import Protocol
from app.settings import get_settings

async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(64):
        piece = {"type": "http.response.body", "body": b"x" * 2**18, "more_body": True}
        await send(piece)
    await send({"type": "http.response.body", "body": b""})

listener = __import__("socket").socket(fileno=int(sys.argv[1]))
config = uvicorn.Config(app, http=Protocol, lifespan="off", log_config=None,
    timeout_graceful_shutdown=get_settings().shutdown_seconds)
uvicorn.Server(config).run(sockets=[listener])
"""


@pytest.mark.parametrize(("seconds", "is_whole"), [("30", True), ("1", False)])
def test_a_large_answer_is_sent_to_its_end(seconds: str, is_whole: bool) -> None:
    """To a client that needs eight seconds for it, if the setting gives them."""
    listener = socket.create_server(("127.0.0.1", 0))
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(listener.fileno())],
        env={"LOMETAB_SHUTDOWN_SECONDS": seconds, "PATH": "/usr/bin:/bin"},
        pass_fds=[listener.fileno()],
    )
    address = urlsplit(f"http://127.0.0.1:{listener.getsockname()[1]}")
    with socket.create_connection((address.hostname, address.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        content = client.recv(2**16)
        process.terminate()
        time.sleep(7)
        try:
            while piece := client.recv(2**20):
                content += piece
        except ConnectionResetError:
            pass
    listener.close()
    process.wait(60)
    assert (len(content) > 64 * 2**18) is is_whole
