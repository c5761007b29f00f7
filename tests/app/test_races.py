"""Moves that race for the same job: one wins, and what is kept matches it."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import jobs
from app.storage import blobs, db
from app.storage.tables import Event, Job, Report, TrainedModel
from tests.support.jobs import CLAIM, REPORTS, make_job

pytestmark = pytest.mark.both_databases

N_RACES = 200


def race(*moves: Callable[[], Any]) -> None:
    """Let the moves go at once, each after a random blink."""
    start = threading.Barrier(len(moves))

    def run(move: Callable[[], Any]) -> None:
        start.wait()
        time.sleep(random.random() * 0.004)
        move()

    threads = [threading.Thread(target=run, args=(move,)) for move in moves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def with_session(move: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with db.transaction() as session:
        return move(session, *args, **kwargs)


@pytest.mark.slow
def test_cancel_against_finish_and_stop(engine: sa.Engine) -> None:
    outcomes: Counter[str] = Counter()
    sha256 = blobs.store_bytes("default", b"model")
    for _ in range(N_RACES):
        with db.transaction() as session:
            make_job(session)
            held = jobs.claim(session, **CLAIM)
            assert held is not None

        def work(held: Job = held) -> None:
            if not with_session(
                jobs.finish, held, onnx_sha256=sha256, reports=REPORTS, progress={}
            ):
                assert with_session(jobs.end_cancelled, held)

        race(
            work,
            lambda held=held: with_session(jobs.cancel, held),
            lambda held=held: with_session(jobs.stop, held),
        )
        outcomes[check_end(held.id)] += 1
    assert outcomes.keys() <= {"succeeded", "cancelled"}
    assert sum(outcomes.values()) == N_RACES


def check_end(job_id: str) -> str:
    """The job has ended, and has a model and reports just if it succeeded."""
    with db.reading() as session:
        job = session.get_one(Job, job_id)
        n_models = count(session, TrainedModel, job_id)
        n_reports = count(session, Report, job_id)
        n_events = count(session, Event, job_id)
    assert (job.lease_owner, job.phase) == (None, None)
    assert n_models == (job.status == "succeeded")
    assert n_reports == len(REPORTS) * n_models
    assert n_events == job.event_seq
    return job.status


def count(session: Session, table: Any, job_id: str) -> int:
    found = session.scalar(
        sa.select(sa.func.count()).select_from(table).where(table.job_id == job_id)
    )
    return found or 0


def test_many_claims_of_few_jobs(engine: sa.Engine) -> None:
    with db.transaction() as session:
        for _ in range(30):
            make_job(session)
    claimed: list[str] = []

    def claim_all() -> None:
        while job := with_session(jobs.claim, **CLAIM):
            claimed.append(job.id)

    race(*[claim_all] * 8)
    assert len(claimed) == len(set(claimed)) == 30
