"""A job's events as they happen: one poller per process feeds every open stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import sqlalchemy as sa
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import format_sse_event

from app import db
from app.models import FINISHED, Event, Job
from app.schemas import EventRead

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
MOST_AT_ONCE = 1000


@dataclass(eq=False)
class Stream:
    """One client that follows one job."""

    job_id: str
    last_seq: int
    queue: "asyncio.Queue[Event | None]" = field(default_factory=asyncio.Queue)
    """Events to send; None: the job has ended and all was sent."""


class Hub:
    """The open streams of this process."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self._poller: asyncio.Task[None] | None = None

    async def follow(self, job_id: str, last_seq: int) -> AsyncIterator[bytes]:
        """What a client gets, from the event after `last_seq` to the job's last one."""
        stream = Stream(job_id, last_seq)
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
                yield format_sse_event(
                    id=str(event.seq),
                    event=event.type,
                    data_str=EventRead.of(event).model_dump_json(),
                )
        finally:
            self._streams.discard(stream)

    async def _poll(self) -> None:
        """Look for news while anyone listens: two queries, however many do."""
        while self._streams:
            streams = list(self._streams)
            since: dict[str, int] = {}
            for stream in streams:
                known = since.get(stream.job_id, stream.last_seq)
                since[stream.job_id] = min(known, stream.last_seq)
            try:
                events, ended = await run_in_threadpool(_read_news, since)
            except sa.exc.DBAPIError:
                events, ended = [], {}  # the database is away; we look again
            for stream in streams:
                for event in events:
                    if event.job_id == stream.job_id and event.seq > stream.last_seq:
                        stream.queue.put_nowait(event)
                        stream.last_seq = event.seq
                if stream.last_seq >= ended.get(stream.job_id, stream.last_seq + 1):
                    stream.queue.put_nowait(None)
                    self._streams.discard(stream)
            await asyncio.sleep(POLL_SECONDS)


def _read_news(since: dict[str, int]) -> tuple[list[Event], dict[str, int]]:
    """Events after each job's number, and the last number of jobs that have ended."""
    with db.reading() as session:
        rows = session.execute(
            sa.select(Job.id, Job.event_seq, Job.status).where(Job.id.in_(since))
        ).all()
        fresh = [(id_, since[id_]) for id_, seq, _ in rows if seq > since[id_]]
        events: list[Event] = []
        if fresh:
            newer = [
                sa.and_(Event.job_id == id_, Event.seq > seq) for id_, seq in fresh
            ]
            events = list(
                session.scalars(
                    sa.select(Event)
                    .where(sa.or_(*newer))
                    .order_by(Event.job_id, Event.seq)
                    .limit(MOST_AT_ONCE)
                )
            )
    ended = {id_: seq for id_, seq, status in rows if status in FINISHED}
    deleted = {id_: -1 for id_ in since.keys() - {id_ for id_, _, _ in rows}}
    return events, ended | deleted


hub = Hub()
