"""A sweep of 5000 cells is cancelled at once, and nobody else has to wait for it."""

import threading
import time
from typing import Any

import pytest
import sqlalchemy as sa

from app import jobs
from app.storage import db
from app.storage.tables import Event, Job, new_id
from tests.support.jobs import CLAIM, make_job

pytestmark = pytest.mark.both_databases

N_CELLS = 5000
MAX_SECONDS = 3.0
LEASE_SECONDS = 4.0
SCHEMA = {"numeric": [f"column {i}" for i in range(50)], "categorical": []}


def make_sweep() -> str:
    """A sweep with cells that wait, written straight into the tables."""
    with db.transaction() as session:
        progress = {"n_finished": 0, "n_runs": N_CELLS, "epoch": 0, "max_epochs": 9}
        parent = make_job(session, kind="sweep", role="sweep", progress=progress)
        shared: dict[str, Any] = {
            "workspace_id": "default",
            "dataset_id": parent.dataset_id,
            "kind": "train",
            "role": "cell",
            "parent_id": parent.id,
            "queue": "gpu",
            "repeat": 0,
            "config": {"hyperparameters": {"max_epochs": 9}},
            "schema": SCHEMA,
            "estimate": {},
            "event_seq": 1,
        }
        cells = [
            {**shared, "id": new_id("job"), "position": i, "number": i}
            for i in range(N_CELLS)
        ]
        session.execute(sa.insert(Job), cells)
        event = {"workspace_id": "default", "seq": 1, "type": "queued", "data": {}}
        session.execute(sa.insert(Event), [{"job_id": c["id"], **event} for c in cells])
        return parent.id


@pytest.mark.slow
@pytest.mark.timing
def test_cancelling_many_cells(engine: sa.Engine) -> None:
    with db.transaction() as session:
        make_job(session)
        stranger = jobs.claim(session, **{**CLAIM, "lease_seconds": LEASE_SECONDS})
    assert stranger is not None
    parent_id = make_sweep()
    is_over = threading.Event()
    kept: list[bool] = []

    def renew() -> None:
        while not is_over.wait(LEASE_SECONDS / 4):
            with db.transaction() as session:
                kept.append(bool(jobs.heartbeat(session, stranger, LEASE_SECONDS)))
            with db.transaction() as session:
                jobs.requeue_stalled(session, max_attempts=3)

    with db.transaction() as session:
        assert jobs.heartbeat(session, stranger, LEASE_SECONDS)
    thread = threading.Thread(target=renew)
    thread.start()
    cancel = jobs.cancel  # loaded by now
    try:
        began = time.perf_counter()
        with db.transaction() as session:
            assert cancel(session, session.get_one(Job, parent_id))
        seconds = time.perf_counter() - began
    finally:
        time.sleep(LEASE_SECONDS / 2)
        is_over.set()
        thread.join()
    assert seconds < MAX_SECONDS, f"{N_CELLS} cells took {seconds:.2f} s"
    assert kept and all(kept)
    check_cancelled(parent_id)
    with db.reading() as session:
        other = session.get_one(Job, stranger.id)
    assert (other.status, other.attempt) == ("running", 1)


def check_cancelled(parent_id: str) -> None:
    with db.reading() as session:
        parent = session.get_one(Job, parent_id)
        statuses = session.execute(
            sa.select(Job.status, Job.is_reported, sa.func.count())
            .where(Job.parent_id == parent_id)
            .group_by(Job.status, Job.is_reported)
        ).all()
        events = session.execute(
            sa.select(Event.seq, Event.type, Event.data)
            .where(Event.job_id == parent_id)
            .order_by(Event.seq)
        ).all()
    assert parent.status == "cancelled"
    assert parent.progress["n_finished"] == N_CELLS
    assert [tuple(row) for row in statuses] == [("cancelled", True, N_CELLS)]
    assert [seq for seq, _, _ in events] == list(range(1, parent.event_seq + 1))
    children = [data["position"] for _, type_, data in events if type_ == "child"]
    assert children == list(range(N_CELLS))
    assert events[-1].type == "cancelled"
