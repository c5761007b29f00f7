"""Workers divide their machine, and a queued job knows its turn."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from kombu import Connection
from sqlalchemy.orm import Session

from app import jobs
from app.jobs import workers
from app.jobs.workers import Share, find_share, heartbeat_worker
from app.settings import Settings, get_settings
from app.storage.tables import Worker, utc_now
from lometab import __version__
from lometab.errors import LoMETabError
from lometab.machine import Machine
from tests.support.http import check_problem, make_key
from tests.support.jobs import CLAIM
from tests.support.tables import make_csv


@pytest.fixture(autouse=True)
def nobody_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "reaper_seconds", 600.0)


def beat(session: Session, worker_id: str, **values: Any) -> None:
    heartbeat_worker(session, worker_id=worker_id, queue="cpu", workspace_id="default")
    if values:
        session.execute(
            sa.update(Worker).where(Worker.id == worker_id).values(**values)
        )
    session.commit()


@pytest.mark.parametrize(
    ("share", "limit", "expected"),
    [
        (Share(), 16, 16),
        (Share(on_machine=4, on_host=1), 16, 4),  # --scale 4, without limits
        (Share(on_machine=4, on_host=1), 2, 2),  # each has a quota of its own
        (Share(on_machine=4, on_host=4), 2, 1),  # four in one container
        (Share(on_machine=40, on_host=1), 16, 1),
    ],
)
def test_threads_are_divided(
    share: Share, limit: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "count_cpus", lambda: limit)
    monkeypatch.setattr(workers, "count_machine", lambda: Machine(16, 2**34))
    settings = Settings(training_threads=0)
    assert jobs.find_training_threads(settings, share=share) == expected
    assert jobs.find_training_threads(settings, 0.1, share) == 1  # a small table
    assert jobs.find_training_threads(Settings(training_threads=7), share=share) == 7


def test_memory_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "count_memory", lambda: 1000)
    monkeypatch.setattr(workers, "count_machine", lambda: Machine(16, 3000))
    settings = Settings(max_training_bytes=0)
    assert jobs.find_training_bytes(settings) == 900
    assert jobs.find_training_bytes(settings, Share(4, 1)) == 675
    assert jobs.find_training_bytes(settings, Share(4, 2)) == 450


def test_only_workers_of_this_machine_that_live_share_it(session: Session) -> None:
    assert find_share(session, heard_within=60) == Share(1, 1)
    beat(session, "here")
    beat(session, "in another container", host="other")
    beat(session, "on another machine", machine="other")
    beat(session, "of a version before", machine=None, host=None)
    beat(session, "dead", heartbeat_at=utc_now() - timedelta(hours=1))
    assert find_share(session, heard_within=60) == Share(on_machine=2, on_host=1)


def post_job(client: TestClient) -> str:
    files = {"file": ("t.csv", make_csv(60))}
    response = client.post("/jobs", files=files, data={"config": '{"target": "y"}'})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def test_a_queued_job_knows_its_turn(client: TestClient, session: Session) -> None:
    keys = {"ours": dict(client.headers), "elsewhere": dict(client.headers)}
    keys["elsewhere"]["authorization"] = f"Bearer {make_key('elsewhere')}"
    whose = {}
    for name in ("ours", "ours", "elsewhere", "elsewhere", "elsewhere"):
        client.headers.update(keys[name])
        whose[post_job(client)] = name

    def read(job_id: str) -> dict[str, Any]:
        client.headers.update(keys[whose[job_id]])
        found: dict[str, Any] = client.get(f"/jobs/{job_id}").json()
        return found

    assert {read(id_)["estimated_start_at"] for id_ in whose} == {None}  # no worker
    beat(session, "one")
    told = {id_: read(id_) for id_ in whose}
    begun = [jobs.claim(session, **CLAIM) for _ in whose]
    order = [told[job.id] for job in begun if job is not None]
    assert [each["queue_place"] for each in order] == [1, 2, 3, 4, 5]
    starts = [datetime.fromisoformat(each["estimated_start_at"]) for each in order]
    assert starts == sorted(starts)
    (listed, *_) = client.get("/jobs").json()["data"]
    assert listed["queue_place"] is None


def test_readiness_counts_workers(client: TestClient, session: Session) -> None:
    ready = client.get("/readyz").json()
    assert ready["workers"] == {"cpu": 0, "gpu": 0}
    assert ready["providers"] == ready["providers_asked"] == ["CPUExecutionProvider"]
    check_problem(client.get("/readyz?worker=1"), 503, "no worker")
    beat(session, "one")
    assert client.get("/readyz?worker=1").json()["workers"] == {"cpu": 1, "gpu": 0}


def test_where_a_worker_runs_is_told(client: TestClient, session: Session) -> None:
    beat(session, "one", device="cpu")
    (worker,) = client.get("/workers").json()["data"]
    assert worker["host"] and worker["device"] == "cpu"
    assert worker["version"] == __version__
    assert "machine" not in worker


def test_the_version_is_told(client: TestClient) -> None:
    found = client.get("/version").json()
    assert found["version"] == __version__
    assert found["revision"].isalnum()


def test_passwords_come_from_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("p@ss:/word\n")
    settings = Settings(
        database_url="postgresql+psycopg://me@host:5432/db",
        database_password_file=file,
        broker_url="redis://host:6379/0",
        broker_password_file=file,
    )
    url = sa.make_url(settings.sqlalchemy_url)
    assert (url.username, url.password, url.host) == ("me", "p@ss:/word", "host")
    broker = Connection(settings.celery_url)
    assert (broker.password, broker.hostname) == ("p@ss:/word", "host")
    assert "p@ss" not in str(settings.environment())
    twice = Settings(database_url="a://me:x@host/db", database_password_file=file)
    with pytest.raises(LoMETabError, match="give it once"):
        assert twice.sqlalchemy_url
    away = Settings(database_url="a://host/db", database_password_file=tmp_path / "no")
    with pytest.raises(LoMETabError, match="cannot be read"):
        assert away.sqlalchemy_url
