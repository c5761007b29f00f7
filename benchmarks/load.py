"""Load for HTTP servers, light enough not to be what is measured.

Each client is one connection that sends the same bytes again and again; answers are
read just far enough to find their status and end.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def make_request(
    path: str,
    body: bytes,
    *,
    key: str | None = None,
    content_type: str = "application/json",
    accept: str = "*/*",
) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        f"Accept: {accept}",
    ]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Outcome:
    """What came of a load."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    latencies: dict[int, list[float]] = field(default_factory=dict)
    """Seconds of each answer, by status."""
    times: list[tuple[float, float]] = field(default_factory=list)
    """When each good answer came, and how long it took."""
    bodies: Counter[bytes] = field(default_factory=Counter)
    """The distinct bodies of good answers."""
    n_broken: int = 0
    """Connections that broke."""

    def rate(self, status: int = 200) -> float:
        return self.statuses[status] / self.seconds

    def percentile(self, percent: float, status: int = 200) -> float:
        """Seconds."""
        return float(np.percentile(self.latencies.get(status, [np.nan]), percent))


class _Client(asyncio.Protocol):
    """One connection; `_Closed` and `_Open` decide when it sends."""

    def __init__(self, load: "_Load") -> None:
        self.load = load
        self.buffer = b""
        self.sent_at = 0.0
        self.is_idle = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport  # uvloop's has no common base
        self.load.on_idle(self)

    def send(self, due_at: float | None = None) -> None:
        self.is_idle = False
        self.sent_at = time.perf_counter() if due_at is None else due_at
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        head_end = self.buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self.buffer[:head_end].lower()
        start = head.find(b"content-length:")
        if start >= 0:
            length = int(head[start + 15 :].split(b"\r\n", 1)[0])
            end = head_end + 4 + length
            if len(self.buffer) < end:
                return
        elif not self.buffer.endswith(b"0\r\n\r\n"):  # chunked
            return
        status = int(head[9:12])
        self.load.count(status, time.perf_counter(), self.sent_at, self.buffer)
        self.buffer = b""
        self.is_idle = True
        if b"connection: close" in head:
            self.transport.close()
            return
        self.load.on_idle(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.on_lost(self)


class _Load:
    def __init__(self, request: bytes, seconds: float) -> None:
        self.request = request
        self.outcome = Outcome()
        self.ends_at = time.perf_counter() + seconds
        self.clients: list[_Client] = []

    def count(self, status: int, now: float, sent_at: float, answer: bytes) -> None:
        outcome = self.outcome
        outcome.statuses[status] += 1
        outcome.latencies.setdefault(status, []).append(now - sent_at)
        if status == 200:
            outcome.times.append((now, now - sent_at))
            outcome.bodies[answer[answer.find(b"\r\n\r\n") + 4 :]] += 1

    def on_idle(self, client: _Client) -> None:
        """Closed: who has an answer asks again at once."""
        if time.perf_counter() < self.ends_at:
            client.send()

    def on_lost(self, client: _Client) -> None:
        if not client.is_idle:
            self.outcome.n_broken += 1


class _OpenLoad(_Load):
    """Requests are due at a fixed rate, whether or not answers have come."""

    def __init__(self, request: bytes, seconds: float) -> None:
        super().__init__(request, seconds)
        self.idle: list[_Client] = []
        self.n_unsent = 0

    def on_idle(self, client: _Client) -> None:
        self.idle.append(client)

    async def pace(self, rate: float) -> None:
        due_at = time.perf_counter()
        while (now := time.perf_counter()) < self.ends_at:
            while due_at <= now:
                if self.idle:
                    self.idle.pop().send()
                else:
                    self.n_unsent += 1
                due_at += 1 / rate
            await asyncio.sleep(0.001)


async def _connect(load: _Load, port: int, n_clients: int) -> list[Any]:
    loop = asyncio.get_running_loop()
    transports = []
    for _ in range(n_clients):
        transport, _ = await loop.create_connection(
            lambda: _Client(load), "127.0.0.1", port
        )
        transports.append(transport)
    return transports


def ask_again_and_again(
    port: int, request: bytes, *, n_clients: int, seconds: float
) -> Outcome:
    """Each client asks as soon as it was answered."""

    async def main() -> Outcome:
        load = _Load(request, seconds)
        started_at = time.perf_counter()
        transports = await _connect(load, port, n_clients)
        await asyncio.sleep(seconds)
        load.outcome.seconds = time.perf_counter() - started_at
        await asyncio.sleep(0.5)  # what is under way may end
        for transport in transports:
            transport.close()
        return load.outcome

    return asyncio.run(main())


def ask_at_rate(
    port: int, request: bytes, *, rate: float, n_clients: int, seconds: float
) -> tuple[Outcome, int]:
    """So many requests a second over so many connections; how many found none free."""

    async def main() -> tuple[Outcome, int]:
        load = _OpenLoad(request, seconds)
        transports = await _connect(load, port, n_clients)
        load.idle.reverse()
        started_at = time.perf_counter()
        load.ends_at = started_at + seconds
        await load.pace(rate)
        load.outcome.seconds = time.perf_counter() - started_at
        for _ in range(300):  # what was accepted is to be answered
            await asyncio.sleep(0.1)
            if len(load.idle) == n_clients:
                break
        for transport in transports:
            transport.close()
        return load.outcome, load.n_unsent

    return asyncio.run(main())
