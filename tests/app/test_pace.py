"""How long training takes, by what workers have measured."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app import jobs
from app.jobs.pace import Pace, Work
from app.settings import get_settings
from app.storage import blobs, db
from app.storage.tables import Job, Worker
from tests.support.http import post
from tests.support.jobs import REPORTS
from tests.support.tables import make_csv

CONFIG = {"target": "y", "columns": {"label": "ignore"}}


def run(flops: float, steps: int, seconds: float) -> dict[str, float]:
    return {"flops": flops, "steps": steps, "seconds": seconds}


def test_without_a_measurement_small_steps_take_their_time() -> None:
    small = Work(flops_per_epoch=10**6, steps_per_epoch=5, max_epochs=10)
    assert 0.005 < Pace().seconds_per_epoch(small) < 0.1  # by flops alone: 0.00005
    large = Work(flops_per_epoch=10**12, steps_per_epoch=100, max_epochs=10)
    assert Pace().seconds_per_epoch(large) == pytest.approx(50, rel=0.05)


def test_a_measured_run_is_estimated_as_it_was() -> None:
    for flops, steps, seconds in [(1e6, 5, 0.2), (3e11, 90, 40.0)]:
        pace = Pace([run(flops, steps, seconds)])
        work = Work(int(flops), steps, 10)
        assert pace.seconds_per_epoch(work) == pytest.approx(seconds)
        longer = Work(int(10 * flops), 10 * steps, 10)
        assert pace.seconds_per_epoch(longer) == pytest.approx(10 * seconds)


def test_runs_with_like_steps_decide() -> None:
    """Of a machine with slow steps and fast products, and one that was disturbed."""
    few = [run(1e6, 5, 0.2)] * 5 + [run(1e6, 5, 9.0)]
    many = [run(1e12, 100, 10.0)] * 5
    pace = Pace(few + many)
    assert pace.seconds_per_epoch(Work(2 * 10**6, 10, 9)) == pytest.approx(0.4, rel=0.1)
    assert pace.seconds_per_epoch(Work(10**12, 100, 9)) == pytest.approx(10)


@pytest.fixture
def heard_for_long(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOMETAB_REAPER_SECONDS", "60")
    get_settings.cache_clear()


def live(worker_id: str) -> None:
    with db.transaction() as session:
        jobs.heartbeat_worker(
            session, worker_id=worker_id, queue="cpu", workspace_id="default"
        )


def claim_and_finish(owner: str, seconds: float, epoch: int = 4) -> None:
    with db.transaction() as session:
        job = jobs.claim(session, queue="cpu", owner=owner, lease_seconds=60)
        assert job is not None
        sha256 = blobs.store_bytes(job.workspace_id, b"a model")
        progress = {"epoch": epoch, "max_epochs": 300, "seconds": seconds * epoch}
        assert jobs.finish(
            session, job, onnx_sha256=sha256, reports=REPORTS, progress=progress
        )


def read_estimate(client: TestClient, **more: Any) -> dict[str, Any]:
    answer = post(client, make_csv(60), {**CONFIG, **more})
    assert answer.status_code == 202, answer.text
    estimate: dict[str, Any] = answer.json()["estimate"]
    return estimate


@pytest.mark.both_databases
@pytest.mark.usefixtures("heard_for_long")
def test_the_next_job_is_estimated_by_the_last(client: TestClient) -> None:
    live("w1")
    first = read_estimate(client)
    assert first["basis"] == "assumed"
    claim_and_finish("w1", seconds=0.7)
    second = read_estimate(client)
    assert second["basis"] == "workers"
    assert second["seconds_per_epoch"] == pytest.approx(0.7, rel=1e-3)
    assert second["max_seconds"] == pytest.approx(300 * 0.7, rel=1e-3)
    # Twice the seeds, twice the time; a limit is a limit.
    assert read_estimate(client, n_seeds=2)["max_seconds"] == pytest.approx(
        420, rel=0.01
    )
    assert read_estimate(client, max_runtime_seconds=30)["max_seconds"] == 30
    with db.reading() as session:
        worker = session.get_one(Worker, "w1")
        assert len(worker.epochs or ()) == 1


@pytest.mark.usefixtures("heard_for_long")
def test_a_run_of_one_epoch_says_nothing_of_the_pace(client: TestClient) -> None:
    live("w1")
    read_estimate(client)
    claim_and_finish("w1", seconds=99.0, epoch=1)
    assert read_estimate(client)["basis"] == "assumed"


@pytest.mark.usefixtures("heard_for_long")
def test_a_run_that_was_stopped_says_nothing_of_the_pace(client: TestClient) -> None:
    """Its last epoch was cut off."""
    live("w1")
    job = post_job(client)
    with db.transaction() as session:
        session.get_one(Job, job["id"]).is_stop_requested = True
    claim_and_finish("w1", seconds=0.1)
    assert read_estimate(client)["basis"] == "assumed"


@pytest.mark.usefixtures("heard_for_long")
def test_more_than_an_hour_is_warned_of(client: TestClient) -> None:
    live("w1")
    assert not any("hours" in w for w in post_job(client)["warnings"])
    claim_and_finish("w1", seconds=30.0)
    job = post_job(client)
    assert any("up to 2.5 hours" in warning for warning in job["warnings"])
    sweep = {"grid": {"rank": [1, 2, 4], "k": [2, 4]}, "seeds": 3}
    job = post_job(client, kind="sweep", sweep=sweep)
    assert any("days" in warning or "hours" in warning for warning in job["warnings"])


def post_job(client: TestClient, **more: Any) -> dict[str, Any]:
    job: dict[str, Any] = post(client, make_csv(60), {**CONFIG, **more}).json()
    return job


def test_the_epochs_of_the_run_itself_count_most(client: TestClient) -> None:
    job_id = post_job(client)["id"]
    with db.transaction() as session:
        job = jobs.claim(session, queue="cpu", owner="w1", lease_seconds=60)
        assert job is not None
        progress = {"epoch": 4, "max_epochs": 300, "seconds": 8.0, "eta_seconds": 9000}
        assert jobs.report_progress(session, job, "training", progress, [])
    job = client.get(f"/jobs/{job_id}").json()
    assert job["estimate"]["basis"] == "run"
    assert job["estimate"]["seconds_per_epoch"] == 2.0
    assert job["estimate"]["max_seconds"] == 600.0
    assert any("2.5 hours more" in warning for warning in job["warnings"])
