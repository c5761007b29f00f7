"""Live streams: many of them, few queries."""

import asyncio

import sqlalchemy as sa

from app import db, jobs
from app.events import Hub
from tests.app.test_jobs import CLAIM, make_job


def test_200_streams_cost_no_200_queries(engine: sa.Engine) -> None:
    with db.writing() as session:
        job_ids = [make_job(session).id for _ in range(4)]
    n_queries = 0

    @sa.event.listens_for(engine, "before_cursor_execute")
    def count(*_: object) -> None:
        nonlocal n_queries
        n_queries += 1

    def happen() -> None:
        with db.writing() as session:
            while job := jobs.claim(session, **CLAIM):
                epochs: list[jobs.Happening] = [("epoch", {"epoch": i}) for i in (1, 2)]
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
    for events in received:
        assert [e.split(b"\n")[0].decode() for e in events] == [
            f"event: {kind}" for kind in kinds
        ]
    assert n_queries < 100
