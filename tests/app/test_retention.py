"""What is old goes, what a workspace keeps is told, and quotas refuse."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import jobs, retention
from app.doctor import examine
from app.settings import Settings, get_settings
from app.storage import blobs, db
from app.storage.tables import (
    Attempt,
    Blob,
    Dataset,
    Event,
    Job,
    ModelAnswers,
    ModelCounts,
    TrainedModel,
    new_id,
    utc_now,
)
from tests.support.blobs import count, refer
from tests.support.fake_child import add_job, claim
from tests.support.http import check_problem, post
from tests.support.jobs import REPORTS
from tests.support.models import TABLE

pytestmark = pytest.mark.both_databases

OLD = timedelta(days=10)
CONFIG = {"target": "y", "columns": {"label": "ignore"}}


def end(job: Job, *, fails: bool, age: timedelta = OLD) -> None:
    with db.transaction() as session:
        claimed = jobs.claim(session, queue="cpu", owner="me", lease_seconds=60)
        assert claimed is not None and claimed.id == job.id
    with db.transaction() as session:
        if fails:
            assert jobs.fail(session, claimed, {"code": "internal", "detail": "x"})
        else:
            sha256 = blobs.store_bytes("default", job.id.encode())
            assert jobs.finish(
                session, claimed, onnx_sha256=sha256, reports=REPORTS, progress={}
            )
    with db.transaction() as session:
        row = session.get_one(Job, job.id)
        assert row.finished_at is not None
        row.finished_at -= age


def age_datasets() -> None:
    with db.transaction() as session:
        session.execute(sa.update(Dataset).values(created_at=utc_now() - OLD))


def list_faults() -> list[str]:
    """But for folders, which other processes may have left here."""
    found = [each for kind in examine(deep=True, min_age=3600) for each in kind.faults]
    return [fault for fault in found if "no process uses it" not in fault]


def test_nothing_goes_unless_a_setting_says_so(engine: sa.Engine) -> None:
    end(add_job(), fails=True)
    refer(blobs.store_bytes("default", b"unused"))
    age_datasets()
    assert retention.sweep(Settings()) == 0
    assert count(Job) == 1 and count(Dataset) == 2


def test_failed_jobs_and_their_datasets_go(engine: sa.Engine) -> None:
    old = add_job()
    end(old, fails=True)
    young = add_job()
    end(young, fails=True, age=timedelta(0))
    refer(blobs.store_bytes("default", b"unused"))
    age_datasets()
    settings = Settings(keep_failed_jobs_days=5, keep_datasets_days=5)
    assert retention.sweep(settings) == 2
    with db.reading() as session:
        assert [*session.scalars(sa.select(Job.id))] == [young.id]
        datasets = [*session.scalars(sa.select(Dataset.id))]
    assert datasets == [young.dataset_id]  # it is in use
    assert count(Blob) == 1
    assert list_faults() == []
    assert retention.sweep(settings) == 0


def test_jobs_that_succeeded_keep_their_models(engine: sa.Engine) -> None:
    end(add_job(), fails=False)
    age_datasets()
    assert retention.sweep(Settings(keep_failed_jobs_days=1, keep_datasets_days=1)) == 0
    assert count(TrainedModel) == count(Job) == count(Dataset) == 1


def test_events_and_attempts_go_but_for_the_last(engine: sa.Engine) -> None:
    job = add_job()
    with db.transaction() as session:
        assert jobs.release(session, claim(session))
    end(job, fails=True)
    assert count(Event) > 3 and count(Attempt) == 2
    settings = Settings(keep_events_days=5, keep_attempts_days=5)
    assert retention.sweep(settings) == 2
    with db.reading() as session:
        (event,) = session.scalars(sa.select(Event))
        (attempt,) = session.scalars(sa.select(Attempt))
        row = session.get_one(Job, job.id)
    assert event.seq == row.event_seq and event.type == "failed"
    assert attempt.number == 2
    assert list_faults() == []
    assert retention.sweep(settings) == 0
    with db.transaction() as session:  # and the job goes on where it was
        assert jobs.retry(session, session.get_one(Job, job.id))
    assert list_faults() == []


def watch(model_id: str, day: datetime, shard: str) -> None:
    with db.transaction() as session:
        about = {"model_id": model_id, "workspace_id": "default"}
        name = day.strftime("%Y-%m-%d")
        session.add(ModelCounts(**about, day=name, shard=shard, counts={"n_rows": 1}))
        session.add(
            ModelAnswers(
                **about, id=new_id("ans"), n_rows=1, content=b"x", created_at=day
            )
        )


def test_what_was_counted_of_served_rows_goes(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever counted it: those processes are gone, and write no more."""
    monkeypatch.setattr("app.retention.sweeping.AT_ONCE", 2)
    end(add_job(), fails=False)
    with db.reading() as session:
        model_id = session.scalars(sa.select(TrainedModel.id)).one()
    for shard in "abcde":
        watch(model_id, utc_now() - OLD, shard)
    watch(model_id, utc_now(), "a")
    assert retention.sweep(Settings()) == 0
    assert retention.sweep(Settings(monitor_days=5)) == 10
    assert count(ModelCounts) == count(ModelAnswers) == count(TrainedModel) == 1


def test_a_sweep_is_bounded_and_goes_on(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.retention.sweeping.AT_ONCE", 2)
    for i in range(5):
        refer(blobs.store_bytes("default", b"%d" % i))
    age_datasets()
    settings = Settings(keep_datasets_days=5)
    assert retention.sweep(settings, seconds=0) == 0
    assert count(Dataset) == 5
    assert retention.sweep(settings) == 5
    assert count(Dataset) == count(Blob) == 0


def test_a_workspace_has_settings_of_its_own(engine: sa.Engine) -> None:
    refer(blobs.store_bytes("default", b"x"))
    age_datasets()
    others = Settings(workspaces={"other": {"keep_datasets_days": 1}})
    assert retention.sweep(others) == 0
    assert others.for_workspace("other").keep_datasets_days == 1
    own = Settings(
        keep_datasets_days=1, workspaces={"default": {"keep_datasets_days": 0}}
    )
    assert retention.sweep(own) == 0
    for unfit in ({"keep_dataset_days": 1}, {"max_models": -1}, {"port": 1}):
        with pytest.raises(ValueError, match="default"):
            Settings(workspaces={"default": unfit})


@pytest.fixture
def limited(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def limit(**own: float) -> None:
        text = json.dumps({"default": own})
        monkeypatch.setenv("LOMETAB_WORKSPACES", text)
        get_settings.cache_clear()

    yield limit
    get_settings.cache_clear()


def test_usage_and_quotas(client: TestClient, limited: Any) -> None:
    empty = client.get("/usage").json()
    assert empty["bytes"] == empty["files"] == 0
    assert empty["quotas"]["max_stored_bytes"] is None
    answer = client.post("/datasets", files={"file": ("t.csv", TABLE)})
    assert answer.status_code == 201, answer.text
    used = client.get("/usage").json()
    assert used["files"] == used["datasets"]["count"] == 1
    assert used["bytes"] == used["datasets"]["bytes"] > 0

    limited(max_stored_bytes=used["bytes"])
    assert client.get("/usage").json()["quotas"]["max_stored_bytes"] == used["bytes"]
    longer = TABLE + TABLE.splitlines()[-1] + "\n"
    more = client.post("/datasets", files={"file": ("t.csv", longer)})
    for refused in (more, post(client, TABLE, CONFIG)):
        problem = check_problem(refused, 507)
        assert problem["code"] == "quota_exceeded" and "GET /usage" in problem["detail"]
    again = client.post("/datasets", files={"file": ("t.csv", TABLE)})
    assert again.status_code in (200, 201)  # it is there already

    limited(max_queued_jobs=1)
    assert post(client, TABLE, CONFIG).status_code == 202
    problem = check_problem(post(client, TABLE, CONFIG), 429)
    assert problem["code"] == "too_many_queued_jobs"


def test_a_quota_of_models(client: TestClient, limited: Any) -> None:
    end(add_job(), fails=False)
    limited(max_models=1)
    problem = check_problem(post(client, TABLE, CONFIG), 429)
    assert problem["code"] == "too_many_models"
