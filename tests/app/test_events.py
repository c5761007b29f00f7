"""Live streams: many of them, few queries."""

import asyncio
import time

import pytest
import sqlalchemy as sa

from app import access, jobs
from app.jobs import events
from app.jobs.events import Hub, _read_news
from app.storage import db
from app.storage.tables import Event, Job
from tests.support.jobs import CLAIM, make_job

pytestmark = pytest.mark.both_databases


@pytest.mark.slow
def test_200_streams_cost_no_200_queries(engine: sa.Engine) -> None:
    with db.transaction() as session:
        job_ids = [make_job(session).id for _ in range(4)]
    n_queries = 0

    @sa.event.listens_for(engine, "before_cursor_execute")
    def count(*_: object) -> None:
        nonlocal n_queries
        n_queries += 1

    def happen() -> None:
        with db.transaction() as session:
            while job := jobs.claim(session, **CLAIM):
                epochs: list[jobs.NewEvent] = [("epoch", {"epoch": i}) for i in (1, 2)]
                jobs.report_progress(session, job, "training", {}, epochs)
                jobs.cancel(session, job)
                jobs.end_cancelled(session, job)

    async def follow(hub: Hub, job_id: str) -> list[bytes]:
        return [event async for event in hub.follow(job_id, 0)]

    async def follow_all() -> list[list[bytes]]:
        hub = Hub()
        tasks = [asyncio.create_task(follow(hub, job_ids[i % 4])) for i in range(200)]
        await asyncio.sleep(1)
        await asyncio.to_thread(happen)
        return await asyncio.wait_for(asyncio.gather(*tasks), 30)

    received = asyncio.run(follow_all())
    kinds = ["queued", "running", "epoch", "epoch", "cancelling", "cancelled"]
    for each in received:
        assert [e.split(b"\n")[0].decode() for e in each] == [
            f"event: {kind}" for kind in kinds
        ]
    assert n_queries < 100


def test_a_thousand_jobs_with_news_at_once(engine: sa.Engine) -> None:
    """Each of them is heard of, those with the largest ids too."""
    n_jobs = 1100
    with db.transaction() as session:
        first = make_job(session)
    with db.transaction() as session:
        row = dict(session.execute(sa.select(Job.__table__)).mappings().one())
        others = [f"job_{i:024x}" for i in range(1, n_jobs)]
        session.execute(sa.insert(Job), [{**row, "id": id_} for id_ in others])
        event = dict(session.execute(sa.select(Event.__table__)).mappings().one())
        session.execute(sa.insert(Event), [{**event, "job_id": id_} for id_ in others])
    started_at = time.monotonic()

    async def follow(hub: Hub, job_id: str) -> bytes:
        stream = hub.follow(job_id, 0)
        try:
            return await anext(aiter(stream))
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    async def follow_all() -> list[bytes]:
        hub = Hub()
        tasks = [follow(hub, id_) for id_ in [first.id, *others]]
        return await asyncio.wait_for(asyncio.gather(*tasks), 20)

    received = asyncio.run(follow_all())
    assert all(event.startswith(b"event: queued") for event in received)
    assert time.monotonic() - started_at < 20


def test_one_job_with_much_news_keeps_no_other_waiting(engine: sa.Engine) -> None:
    with db.transaction() as session:
        loud, quiet = sorted(make_job(session).id for _ in range(2))
        session.execute(sa.update(Job).where(Job.id == loud).values(event_seq=5000))
        moment = db.now(session)
        session.execute(
            sa.insert(Event),
            [
                {
                    "job_id": loud,
                    "workspace_id": "default",
                    "seq": seq,
                    "type": "epoch",
                    "data": {},
                    "created_at": moment,
                }
                for seq in range(2, 5001)
            ],
        )
    news, _ = _read_news({loud: 0, quiet: 0})
    assert [event.seq for event in news[quiet]] == [1]
    assert [event.seq for event in news[loud]] == [*range(1, 501)]


@pytest.mark.slow
def test_a_stream_ends_with_its_key(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEY_SECONDS", 0.2)
    with db.transaction() as session:
        job_id = make_job(session).id
        keys = [
            access.create_key(
                session, workspace_id="default", name=name, scopes=access.SCOPES
            )
            for name in ("revoked", "kept")
        ]
    (revoked, secret), (_, kept) = keys

    def revoke() -> None:
        with db.transaction() as session:
            assert access.revoke_key(session, revoked.id)

    async def follow(hub: Hub, secret: str | None) -> list[bytes]:
        return [event async for event in hub.follow(job_id, 0, secret)]

    async def run() -> list[bool]:
        hub = Hub()
        streams = [follow(hub, each) for each in (secret, kept, None)]
        tasks = [asyncio.create_task(stream) for stream in streams]
        await asyncio.sleep(1.5)
        assert not any(task.done() for task in tasks)
        await asyncio.to_thread(revoke)
        await asyncio.wait_for(tasks[0], 10)
        await asyncio.sleep(1)
        still_open = [not task.done() for task in tasks[1:]]
        for task in tasks[1:]:
            task.cancel()
        return still_open

    assert asyncio.run(run()) == [True, True]
