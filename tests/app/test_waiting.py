"""How many jobs are before one that waits, and when it begins."""

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app import jobs
from app.jobs.workers import heartbeat_worker
from app.settings import get_settings
from app.storage.tables import Job, utc_now
from tests.support.jobs import CLAIM, make_job

FIRST = utc_now() - timedelta(hours=1)


@pytest.fixture(autouse=True)
def nobody_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "reaper_seconds", 600.0)


def add(session: Session, i: int, whose: str = "default", **values: Any) -> Job:
    """The i-th job, of a hundred seconds."""
    moment = FIRST + timedelta(seconds=i)
    job = make_job(
        session, estimate={"max_seconds": 100.0}, created_at=moment, **values
    )
    job.workspace_id = whose
    session.commit()
    return job


def begin_worker(session: Session, name: str = CLAIM["owner"]) -> None:
    heartbeat_worker(session, worker_id=name, queue="cpu", workspace_id="default")
    session.commit()


def read(client: TestClient) -> dict[str, tuple[int, float | None]]:
    return {
        each["job_id"]: (each["ahead"], each["starts_in_seconds"])
        for each in client.get("/queue").json()["data"]
    }


def test_jobs_begin_in_the_order_in_which_they_are_claimed(
    client: TestClient, session: Session
) -> None:
    sweep = make_job(session, kind="sweep", role="sweep")
    cells = [
        add(session, i, parent_id=sweep.id, role="cell", position=i, number=i, repeat=0)
        for i in range(2)
    ]
    alone = [add(session, 10 + i) for i in range(3)]
    begin_worker(session)
    waiting = read(client)
    assert waiting == {job.id: (i, 100.0 * i) for i, job in enumerate([*alone, *cells])}
    claimed = []
    for _ in waiting:
        job = jobs.claim(session, **CLAIM)
        assert job is not None
        claimed.append(job.id)
    assert claimed == [*waiting]
    session.rollback()


def test_workers_share_what_waits_and_what_they_hold_counts(
    client: TestClient, session: Session
) -> None:
    alone = [add(session, i) for i in range(4)]
    begin_worker(session)
    begin_worker(session, "another")
    held = jobs.claim(session, **CLAIM)
    assert held is not None and held.id == alone[0].id
    held.progress = {"epoch": 3, "max_epochs": 9, "eta_seconds": 30.0}
    session.commit()
    starts = {alone[1].id: 0.0, alone[2].id: 30.0, alone[3].id: 100.0}
    assert {id_: start for id_, (_, start) in read(client).items()} == starts


def test_workspaces_take_turns(client: TestClient, session: Session) -> None:
    for i in range(5):
        add(session, i, "elsewhere")
    mine = [add(session, 10 + i) for i in range(2)]
    begin_worker(session)
    # Nobody was served yet, and `default` comes before `elsewhere`.
    assert read(client) == {mine[0].id: (0, 0.0), mine[1].id: (2, 200.0)}


def test_without_a_worker_nobody_can_tell(client: TestClient, session: Session) -> None:
    job = add(session, 0)
    (waiting,) = client.get("/queue").json()["data"]
    assert waiting == {
        "job_id": job.id,
        "queue": "cpu",
        "ahead": 0,
        "starts_in_seconds": None,
        "why": "no worker of the queue 'cpu' is heard of",
    }
