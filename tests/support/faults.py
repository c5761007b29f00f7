"""A proxy that breaks connections as it is told, for tests of what clients do then."""

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Fault:
    """What happens to one request."""

    cut_request_after: int | None = None
    """Bytes of it that come through."""
    cut_answer_after: int | None = None
    """Bytes of the answer that come through; the service has heard all of it."""
    status: int | None = None
    """The proxy answers by itself."""
    delay: float = 0.0
    """Seconds before the request is handed on."""


Choose = Callable[[str, int], Fault | None]
"""What to do to a request: `POST /jobs`, and how often it came before."""


class FaultyProxy:
    """One connection for each request, to a service that knows nothing of it."""

    def __init__(self, address: str, choose: Choose) -> None:
        where = urlsplit(address)
        assert where.hostname is not None and where.port is not None
        self._to = (where.hostname, where.port)
        self._choose = choose
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[str] = []
        self.n_faults = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(60)
            head = b""
            while b"\r\n\r\n" not in head:
                piece = client.recv(65536)
                if not piece:
                    return
                head += piece
            what = " ".join(head.split(b" ", 2)[:2][i].decode() for i in (0, 1))
            what = what.partition("?")[0]
            with self._lock:
                fault = self._choose(what, self.seen.count(what)) or Fault()
                self.seen.append(what)
                self.n_faults += fault != Fault()
            self._answer(client, head, fault)

    def _answer(self, client: socket.socket, head: bytes, fault: Fault) -> None:
        if fault.status is not None:
            text = f"HTTP/1.1 {fault.status} Busy\r\nRetry-After: 0\r\n"
            client.sendall(
                f"{text}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
            return
        self._stopping.wait(fault.delay)
        # So that the service ends the connection after its answer.
        head = re.sub(rb"\r\nconnection: [^\r]*", b"", head, count=1, flags=re.I)
        head = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        with socket.create_connection(self._to) as service:
            service.settimeout(60)
            limit = fault.cut_request_after
            if limit is not None and len(head) >= limit:
                service.sendall(head[:limit])
                return
            service.sendall(head)
            upward = threading.Thread(
                target=_pump, args=(client, service, limit and limit - len(head))
            )
            upward.start()
            _pump(service, client, fault.cut_answer_after)
            for each in (client, service):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            upward.join(60)


def _pump(source: socket.socket, target: socket.socket, limit: int | None) -> None:
    """Hand on what comes, up to so many bytes; then end both."""
    n_bytes = 0
    with suppress(OSError):
        while piece := source.recv(65536):
            if limit is not None and n_bytes + len(piece) >= limit:
                target.sendall(piece[: max(0, limit - n_bytes)])
                for each in (source, target):
                    each.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(piece)
            n_bytes += len(piece)
