"""One POST to one checked address: no proxy, no redirect, and a limit on everything."""

import http.client
import socket
import ssl
import threading
import time
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from app.webhooks.targets import Target

MAX_ANSWER = 64 * 2**10
"""Bytes of an answer that are read; the rest is not waited for."""


class Answer(NamedTuple):
    """What came of an attempt."""

    status: int | None
    error: str | None
    """Null: it was delivered."""
    seconds: float


def post(
    target: Target, address: str, headers: dict[str, str], body: bytes, seconds: float
) -> Answer:
    """Send it to that address, under the name that the URL has."""
    began = time.monotonic()
    connection = _Pinned(target, address, seconds)
    watch = threading.Timer(seconds, connection.cut)
    watch.daemon = True
    watch.start()
    status, error = None, None
    try:
        connection.request("POST", target.path, body=body, headers=headers)
        response = connection.getresponse()
        status = response.status
        response.read(MAX_ANSWER)
    except TimeoutError:
        connection.is_cut = True
    except (OSError, http.client.HTTPException) as failure:
        error = f"{type(failure).__name__}: {failure}"[:300]
    finally:
        watch.cancel()
        connection.close()
    if connection.is_cut:
        error = f"no whole answer within {seconds:g} s"
    elif error is None and status is not None:
        error = _judge(status)
    return Answer(status, error, round(time.monotonic() - began, 3))


def _judge(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"it answered {status}, and redirects are not followed"
    return f"it answered {status}"


class _Pinned(http.client.HTTPConnection):
    """A connection to a given address, with the name of the host for Host and TLS."""

    def __init__(self, target: Target, address: str, seconds: float) -> None:
        super().__init__(target.host, target.port, timeout=seconds)
        self.default_port = 443 if target.scheme == "https" else 80
        self._target, self._address = target, address
        self.is_cut = False

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), self.timeout)
        self.sock = plain
        if self._target.scheme == "https":
            try:
                self.sock = _tls().wrap_socket(
                    plain, server_hostname=self._target.host.rstrip(".")
                )
            except BaseException:
                plain.close()
                raise

    def cut(self) -> None:
        """From another thread, when the time is up: however slowly it drips."""
        self.is_cut = True
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
