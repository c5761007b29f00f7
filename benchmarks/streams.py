"""Many streams of events at once, and how late their events come."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from sqlalchemy.orm import Session

from app.jobs import moves
from app.storage.db import make_engine
from app.storage.tables import Job

PORTION = 100
"""Jobs that are written in one transaction, as so many workers would in a moment."""


class Reader:
    """A stream of one job; notes when each event came."""

    def __init__(self, lags: list[float]) -> None:
        self.lags = lags
        self.n_events = 0
        self.is_broken = False

    async def open(self, host: str, port: int, key: str, job_id: str) -> None:
        self.reader, self.writer = await asyncio.open_connection(host, port)
        self.writer.write(
            f"GET /jobs/{job_id}/events?after=1 HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {key}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        status = await self.reader.readline()
        assert b" 200 " in status, status
        while await self.reader.readline() != b"\r\n":
            pass

    async def read(self) -> None:
        while line := await self.reader.readline():
            if line.startswith(b"data: "):
                told = json.loads(line[6:])["created_at"]
                lag = datetime.now(UTC) - datetime.fromisoformat(told)
                self.lags.append(lag.total_seconds())
                self.n_events += 1
        self.is_broken = True


class Writer:
    """Events of the jobs in turn, so many a second in all."""

    def __init__(self, url: str, ids: list[str], rate: float) -> None:
        self.url, self.ids, self.rate = url, ids, rate
        self.n_written = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        engine = make_engine(self.url)
        started_at, first = time.monotonic(), 0
        while self.rate and not self.over.is_set():
            due_at = started_at + self.n_written / self.rate
            if self.over.wait(max(0.0, due_at - time.monotonic())):
                break
            chosen = self.ids[first : first + PORTION]
            event = ("epoch", {"epoch": 1, "score": 0.5})
            with Session(engine) as session, session.begin():
                self.n_written += moves.move_all(
                    session, [Job.id.in_(chosen)], event, phase="training"
                )
            first = (first + PORTION) % len(self.ids)
        engine.dispose()


def follow_many(
    address: str,
    key: str,
    ids: list[str],
    *,
    url: str,
    rate: float,
    seconds: float,
    on_open: Callable[[], None],
) -> dict[str, Any]:
    """Open a stream of each job, have events written, and see when they come."""

    async def main() -> dict[str, Any]:
        parts = urlsplit(address)
        assert parts.hostname is not None and parts.port is not None
        lags: list[float] = []
        readers = [Reader(lags) for _ in ids]
        began = time.monotonic()
        for start in range(0, len(ids), 50):
            opening = [
                readers[i].open(parts.hostname, parts.port, key, ids[i])
                for i in range(start, min(start + 50, len(ids)))
            ]
            await asyncio.gather(*opening)
        open_seconds = time.monotonic() - began
        tasks = [asyncio.create_task(reader.read()) for reader in readers]
        await asyncio.sleep(2)
        writer = Writer(url, ids, rate)
        on_open()
        writer.thread.start()
        await asyncio.sleep(seconds)
        writer.over.set()
        await asyncio.to_thread(writer.thread.join)
        await asyncio.sleep(3)
        n_broken = sum(reader.is_broken for reader in readers)
        for task in tasks:
            task.cancel()
        for reader in readers:
            reader.writer.close()
        return {
            "streams": len(ids),
            "open_seconds": round(open_seconds, 1),
            "written": writer.n_written,
            "received": len(lags),
            "broken": n_broken,
            "lag": describe(lags),
        }

    return asyncio.run(main())


def describe(lags: list[float]) -> dict[str, float]:
    if not lags:
        return {}
    p50, p95, most = np.percentile(lags, [50, 95, 100])
    return {"p50": round(p50, 3), "p95": round(p95, 3), "most": round(most, 3)}
