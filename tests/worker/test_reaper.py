"""The reaper: what was lost or missed is seen to by whichever worker comes next."""

import threading
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from kombu.exceptions import OperationalError as BrokerError
from sqlalchemy.exc import OperationalError

from app import jobs
from app.jobs import queue, states
from app.settings import Settings
from app.storage import blobs, db
from app.storage.tables import Blob, Job, Worker, utc_now
from tests.support.fake_child import add_job, claim, read, types
from worker import reaper
from worker.hearing import MAX_UNHEARD, Hearing
from worker.identity import WORKER_ID, stopping

pytestmark = pytest.mark.usefixtures("sqlite")


class Broker:
    """Remembers what was sent, or is out of reach."""

    def __init__(self) -> None:
        self.sent: list[tuple[str | None, str]] = []
        self.is_dead = False

    def send_task(self, name: str, args: list[Any], **options: Any) -> None:
        if self.is_dead:
            raise BrokerError("connection refused")
        assert name == "train"
        self.sent.append((args[0], options["queue"]))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(queue, "get_celery", lambda: made)
    return made


def take(**values: Any) -> Job:
    """A job that a worker holds."""
    with db.transaction() as session:
        job = claim(session)
        if values:
            session.execute(sa.update(Job).where(Job.id == job.id).values(**values))
    return job


def long_ago() -> Any:
    return utc_now() - timedelta(hours=1)


def test_stalled_jobs_are_taken_back_and_announced(broker: Broker) -> None:
    add_job()
    job = take(lease_expires_at=long_ago())
    reaper.run(Settings())
    job = read(job)
    assert (job.status, job.lease_owner, job.lost_attempts) == ("queued", None, 1)
    assert types(job)[-1] == "lost"
    assert broker.sent == [(None, "cpu")]


def test_stalled_too_often_is_given_up(broker: Broker) -> None:
    add_job(lost_attempts=2)
    job = take(lease_expires_at=long_ago())
    reaper.run(Settings(max_attempts=3))
    job = read(job)
    assert job.status == "failed" and job.error is not None
    assert job.error["code"] == "worker_lost"
    assert broker.sent == []


def test_what_is_held_stays_held(broker: Broker) -> None:
    add_job()
    job = take()
    reaper.run(Settings())
    assert read(job).status == "running"
    assert broker.sent == []


def test_a_dead_broker_keeps_nothing_from_being_done(broker: Broker) -> None:
    broker.is_dead = True
    add_job()
    job = take(lease_expires_at=long_ago())
    reaper.run(Settings())
    assert read(job).status == "queued"
    with db.reading() as session:
        assert session.get(Worker, WORKER_ID) is not None
    broker.is_dead = False
    reaper.run(Settings())
    assert broker.sent == [(None, "cpu")]


def test_only_jobs_of_its_queue_are_announced(broker: Broker) -> None:
    add_job(queue="gpu")
    reaper.run(Settings())
    assert broker.sent == []
    reaper.run(Settings(worker_queue="gpu"))
    assert broker.sent == [(None, "gpu")]


def test_parents_that_nobody_told_are_ended(broker: Broker) -> None:
    parent = add_job(kind="sweep", progress={"n_finished": 0, "n_runs": 1})
    add_job(parent_id=parent.id, role="cell", position=0, number=0, repeat=0)
    child = take()
    with db.transaction() as session:
        states.fail(session, child, {"code": "diverged", "detail": "too fast"})
    assert read(parent).status == "queued"  # its worker died before it could tell
    for _ in range(2):
        reaper.run(Settings())
    ended = read(parent)
    assert ended.status == "failed" and ended.error is not None
    assert ended.error["code"] == "no_success"


def test_old_checkpoints_are_forgotten(broker: Broker) -> None:
    sha256 = blobs.store_bytes("default", b"a checkpoint")
    add_job(checkpoint_sha256=sha256)
    job = take()
    with db.transaction() as session:
        states.fail(session, job, {"code": "diverged", "detail": ""})
    reaper.run(Settings())
    assert read(job).checkpoint_sha256 == sha256
    reaper.run(Settings(checkpoint_kept_seconds=0))
    assert read(job).checkpoint_sha256 is None
    with db.reading() as session:
        assert session.get(Blob, ("default", sha256)) is None


@pytest.mark.parametrize(
    "error", [OperationalError("SELECT 1", {}, Exception("gone")), KeyError("n_runs")]
)
def test_nothing_ends_the_reaper_but_the_worker(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def fail(_: Settings) -> None:
        runs.append(1)
        if len(runs) == 3:
            stopping.set()
        raise error

    monkeypatch.setenv("LOMETAB_REAPER_SECONDS", "0.001")
    monkeypatch.setattr(reaper, "run", fail)
    reaper.get_settings.cache_clear()
    reaper.run_for_ever()
    assert len(runs) == 3


@pytest.mark.parametrize("name", ["REAPER", "PATROL"])
def test_the_old_name_of_its_setting_is_still_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LOMETAB_{name}_SECONDS", "3.5")
    settings = Settings()
    assert settings.reaper_seconds == 3.5
    assert settings.environment()["LOMETAB_REAPER_SECONDS"] == "3.5"


def test_a_worker_that_has_a_job_does_not_notify(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for the next one itself; messages that nobody takes would pile up."""
    add_job()
    busy = threading.Event()
    monkeypatch.setattr(reaper, "busy", busy)
    busy.set()
    reaper.run(Settings())
    assert broker.sent == []
    busy.clear()
    reaper.run(Settings())
    assert broker.sent == [(None, "cpu")]


def test_a_worker_that_hears_nothing_connects_anew(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job()
    hearing = Hearing()
    n_reconnects = []
    monkeypatch.setattr(reaper, "hearing", hearing)
    monkeypatch.setattr(reaper, "reconnect", lambda: n_reconnects.append(1))
    for _ in range(MAX_UNHEARD):
        reaper.run(Settings())
    hearing.note_heard()
    for _ in range(MAX_UNHEARD):
        reaper.run(Settings())
    broker.is_dead = True  # nothing was sent that could be heard
    reaper.run(Settings())
    assert n_reconnects == []
    broker.is_dead = False
    reaper.run(Settings())
    assert n_reconnects == [1]
    reaper.run(Settings())
    assert n_reconnects == [1]


@pytest.mark.parametrize(("lot", "status"), [(0.3, "queued"), (0.4, "running")])
def test_of_many_workers_some_see_to_what_is_common(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, lot: float, status: str
) -> None:
    add_job()
    job = take(lease_expires_at=long_ago())
    with db.transaction() as session:
        for i in range(29):
            jobs.heartbeat_worker(
                session, worker_id=f"w-{i}", queue="cpu", workspace_id="default"
            )
    monkeypatch.setattr(reaper.random, "random", lambda: lot)
    reaper.run(Settings())
    assert read(job).status == status
