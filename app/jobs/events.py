"""A job's events as they happen: one poller per process feeds every open stream."""

import asyncio
import datetime as dt
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import sqlalchemy as sa
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import format_sse_event
from pydantic import BaseModel, Field

from app.access import check_scope, find_caller
from app.errors import Forbidden, Unauthorized
from app.observe import metrics
from app.storage import db
from app.storage.enums import FINISHED, EventType
from app.storage.tables import Event, Job

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
KEY_SECONDS = 2.0
"""How long a stream may outlive the key that opened it."""
MOST_AT_ONCE = 1000
"""Events that are read in one poll, if they are not of more jobs than that."""
_JOBS_AT_ONCE = 200
"""In one query: SQLite's conditions may not be nested more than 1000 deep."""


class EventRead(BaseModel):
    """Something that happened to a job."""

    seq: int = Field(description="Counted from 1, without a gap.")
    type: EventType = Field(
        description="Of a sweep or tune job also child (a run has ended), repeating "
        "and refitting."
    )
    data: dict[str, Any]
    created_at: dt.datetime

    @classmethod
    def of(cls, event: Event) -> Self:
        return cls(
            seq=event.seq,
            type=event.type,
            data=event.data,
            created_at=event.created_at,
        )


@dataclass(eq=False)
class Stream:
    """One client that follows one job."""

    job_id: str
    last_seq: int
    secret: str | None = None
    """The key that opened it."""
    queue: "asyncio.Queue[Event | None]" = field(default_factory=asyncio.Queue)
    """Events to send; None: the job has ended and all was sent, or the key is void."""


class Hub:
    """The open streams of this process."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._poller: asyncio.Task[None] | None = None

    async def follow(
        self, job_id: str, last_seq: int, secret: str | None = None
    ) -> AsyncIterator[bytes]:
        """What a client gets, from the event after `last_seq` to the job's last one.

        Args:
            secret: the client's key; once it is revoked, the stream ends.
        """
        stream = Stream(job_id, last_seq, secret)
        self._streams.add(stream)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            while True:
                try:
                    event = await asyncio.wait_for(
                        stream.queue.get(), HEARTBEAT_SECONDS
                    )
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event is None:
                    return
                lag = dt.datetime.now(dt.UTC) - event.created_at
                metrics.EVENT_LAG.observe(max(0.0, lag.total_seconds()))
                yield format_sse_event(
                    id=str(event.seq),
                    event=event.type,
                    data_str=EventRead.of(event).model_dump_json(),
                )
        finally:
            self._streams.discard(stream)

    async def _poll(self) -> None:
        """Look for news while anyone listens: few queries, however many do."""
        check_at = time.monotonic() + KEY_SECONDS
        while self._streams:
            try:
                if time.monotonic() > check_at:
                    await self._end_void()
                    check_at = time.monotonic() + KEY_SECONDS
                await self._hand_out()
            except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
                # The database is away; we look again.
                log.warning("events cannot be read: %s", getattr(error, "orig", error))
            await asyncio.sleep(POLL_SECONDS)

    async def _end_void(self) -> None:
        """End the streams of keys that give no access any more."""
        secrets = {s.secret for s in self._streams if s.secret is not None}
        if not secrets:
            return
        void = await run_in_threadpool(_find_void, secrets)
        for stream in [s for s in self._streams if s.secret in void]:
            self._end(stream)

    async def _hand_out(self) -> None:
        streams = list(self._streams)
        since: dict[str, int] = {}
        for stream in streams:
            known = since.get(stream.job_id, stream.last_seq)
            since[stream.job_id] = min(known, stream.last_seq)
        events, ended = await run_in_threadpool(_read_news, since)
        for stream in streams:
            for event in events.get(stream.job_id, ()):
                if event.seq > stream.last_seq:
                    stream.queue.put_nowait(event)
                    stream.last_seq = event.seq
            if stream.last_seq >= ended.get(stream.job_id, stream.last_seq + 1):
                self._end(stream)

    def _end(self, stream: Stream) -> None:
        stream.queue.put_nowait(None)
        self._streams.discard(stream)


def _find_void(secrets: Collection[str]) -> set[str]:
    """Those of the keys with which no job may be read now."""
    void = set()
    for secret in secrets:
        try:
            check_scope(find_caller(secret).scopes, "read")
        except (Unauthorized, Forbidden):
            void.add(secret)
    return void


def _read_news(since: dict[str, int]) -> tuple[dict[str, list[Event]], dict[str, int]]:
    """Events after each job's number, and the last number of jobs that have ended.

    A job with much news has its share of what is read at once, and the rest next time:
    none waits for another.
    """
    events: dict[str, list[Event]] = {}
    ended = dict.fromkeys(since, -1)  # what is not found was deleted
    with db.reading() as session:
        fresh: list[str] = []
        for ids in _split(list(since)):
            for id_, seq, status in session.execute(
                sa.select(Job.id, Job.event_seq, Job.status).where(Job.id.in_(ids))
            ):
                del ended[id_]
                if seq > since[id_]:
                    fresh.append(id_)
                if status in FINISHED:
                    ended[id_] = seq
        share = max(1, MOST_AT_ONCE // max(1, len(fresh)))
        for ids in _split(fresh):
            # Numbers have no gap, so that this is as many as it says.
            newer = [
                sa.and_(
                    Event.job_id == id_,
                    Event.seq.between(since[id_] + 1, since[id_] + share),
                )
                for id_ in ids
            ]
            for event in session.scalars(
                sa.select(Event).where(sa.or_(*newer)).order_by(Event.job_id, Event.seq)
            ):
                events.setdefault(event.job_id, []).append(event)
    return events, ended


def _split(ids: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _JOBS_AT_ONCE):
        yield ids[start : start + _JOBS_AT_ONCE]


hub = Hub()
