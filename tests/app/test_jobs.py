"""The job state machine, on both databases."""

from collections.abc import Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import jobs
from app.storage import blobs
from app.storage.tables import Blob, Event, Job, Report, TrainedModel, utc_now
from tests.support.jobs import CLAIM, REPORTS, expire, hold, make_job, read

pytestmark = pytest.mark.both_databases


def test_claim_takes_the_named_job_else_the_oldest(session: Session) -> None:
    ids = [
        make_job(session, created_at=utc_now() + timedelta(seconds=i)).id
        for i in range(3)
    ]
    claimed = [jobs.claim(session, job_id=ids[2], **CLAIM) for _ in range(3)]
    assert [job.id for job in claimed if job] == [ids[2], ids[0], ids[1]]
    assert jobs.claim(session, job_id=ids[2], **CLAIM) is None


def test_claim_keeps_to_its_queue(session: Session) -> None:
    gpu = make_job(session, queue="gpu")
    assert jobs.claim(session, job_id=gpu.id, **CLAIM) is None
    claimed = jobs.claim(session, job_id=gpu.id, **{**CLAIM, "queue": "gpu"})
    assert claimed is not None
    assert (claimed.status, claimed.attempt, claimed.lease_owner) == (
        "running",
        1,
        "me",
    )
    assert claimed.started_at is not None and claimed.started_at.tzinfo is not None


def claim_again(session: Session, job: Job) -> tuple[Job, Job]:
    """The job as a frozen worker holds it, and as the next one does."""
    first = jobs.claim(session, **CLAIM)
    assert first is not None
    session.expunge(first)
    expire(session, job)
    assert jobs.requeue_stalled(session, max_attempts=3) == 1
    second = jobs.claim(session, **CLAIM)
    assert second is not None and second.attempt == 2
    session.expunge(second)
    return first, second


def test_a_zombie_cannot_write(session: Session) -> None:
    zombie, holder = claim_again(session, make_job(session))
    sha256 = blobs.store_bytes("default", b"model")
    result = {"onnx_sha256": sha256, "reports": REPORTS, "progress": {}}
    assert not jobs.heartbeat(session, zombie, 60)
    assert not jobs.report_progress(session, zombie, "training", {"epoch": 9})
    assert not jobs.finish(session, zombie, **result)
    assert not jobs.fail(session, zombie, {"code": "internal", "detail": ""})
    assert not jobs.release(session, zombie)
    assert not jobs.lose(session, zombie, max_attempts=3, reason="")
    assert session.scalar(sa.select(sa.func.count()).select_from(TrainedModel)) == 0
    assert read(session, holder).status == "running"
    assert jobs.finish(session, holder, **result)
    assert not jobs.finish(session, holder, **result)


def test_finish_publishes_all_or_nothing(session: Session) -> None:
    job = make_job(session)
    claimed = jobs.claim(session, **CLAIM)
    assert claimed is not None
    sha256 = blobs.store_bytes("default", b"model")
    assert jobs.finish(
        session, claimed, onnx_sha256=sha256, reports=REPORTS, progress={"epoch": 3}
    )
    ended = read(session, job)
    assert (ended.status, ended.phase, ended.lease_owner) == ("succeeded", None, None)
    assert ended.finished_at is not None
    model = session.scalars(sa.select(TrainedModel)).one()
    assert (model.job_id, model.metrics) == (job.id, {"rmse": 0.5})
    assert session.get_one(Report, (job.id, "diversity")).body == {"k": 4}


def test_lost_attempts_have_a_cap_and_releases_do_not_count(session: Session) -> None:
    job = make_job(session)
    for _ in range(5):
        claimed = jobs.claim(session, **CLAIM)
        assert claimed is not None
        assert jobs.release(session, claimed)
    for n_lost in (1, 2, 3):
        claimed = jobs.claim(session, **CLAIM)
        assert claimed is not None
        expire(session, job)
        assert jobs.requeue_stalled(session, max_attempts=3) == 1
        assert read(session, job).lost_attempts == n_lost
    ended = read(session, job)
    assert (ended.status, ended.attempt) == ("failed", 8)
    assert ended.error is not None and ended.error["code"] == "worker_lost"
    assert jobs.claim(session, **CLAIM) is None


def test_a_living_lease_is_left_alone(session: Session) -> None:
    make_job(session)
    claimed = jobs.claim(session, **CLAIM)
    assert claimed is not None
    assert jobs.heartbeat(session, claimed, 60)
    assert jobs.requeue_stalled(session, max_attempts=3) == 0


def test_workers_are_counted_while_their_heartbeats_come(session: Session) -> None:
    for worker_id, queue in (("a", "cpu"), ("b", "cpu"), ("c", "gpu"), ("a", "cpu")):
        jobs.heartbeat_worker(
            session, worker_id=worker_id, queue=queue, workspace_id="default"
        )
    assert jobs.count_workers(session, "cpu", heard_within=60) == 2
    jobs.forget_worker(session, "b")
    assert jobs.count_workers(session, "cpu", heard_within=60) == 1
    assert jobs.count_workers(session, "cpu", heard_within=-1) == 0


def test_wrong_states_are_impossible(session: Session) -> None:
    job = make_job(session)
    for values in (
        {"status": "odd"},
        {"status": "running"},
        {"queue": "tpu"},
        {"role": "odd"},
    ):
        with pytest.raises(sa.exc.IntegrityError):
            session.execute(sa.update(Job).where(Job.id == job.id).values(**values))
        session.rollback()


def test_times_come_back_in_utc(session: Session) -> None:
    job = make_job(session)
    assert read(session, job).created_at.utcoffset() == timedelta(0)
    with pytest.raises(sa.exc.StatementError, match="must carry a zone"):
        session.execute(
            sa.update(Job).values(created_at=utc_now().replace(tzinfo=None))
        )


def test_models_of_one_name_are_versions(session: Session) -> None:
    for name in ("churn", "churn", None, "other"):
        make_job(session, name=name)
    sha256 = blobs.store_bytes("default", b"model")
    while claimed := jobs.claim(session, **CLAIM):
        assert jobs.finish(
            session, claimed, onnx_sha256=sha256, reports=REPORTS, progress={}
        )
    models = session.scalars(sa.select(TrainedModel)).all()
    versions = sorted((model.name or "", model.version or 0) for model in models)
    assert versions == [("", 0), ("churn", 1), ("churn", 2), ("other", 1)]


def types(session: Session, job: Job) -> list[str]:
    """The types of the job's events; their numbers have no gap."""
    events = session.scalars(
        sa.select(Event).where(Event.job_id == job.id).order_by(Event.seq)
    ).all()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert read(session, job).event_seq == len(events)
    return [event.type for event in events]


def finish(session: Session, job: Job) -> bool:
    sha256 = blobs.store_bytes("default", b"model")
    return jobs.finish(session, job, onnx_sha256=sha256, reports=REPORTS, progress={})


def test_cancel_in_every_state(session: Session) -> None:
    waiting = make_job(session)
    assert jobs.cancel(session, waiting)
    assert read(session, waiting).status == "cancelled"
    assert not jobs.cancel(session, waiting)
    job = make_job(session)
    held = hold(session)
    assert jobs.cancel(session, job)
    assert read(session, job).status == "cancelling"
    assert jobs.heartbeat(session, held, 60) == "cancelling"
    assert not jobs.cancel(session, job)
    assert not jobs.stop(session, job)
    assert not jobs.retry(session, job)
    # The worker was about to publish: the cancel came first.
    assert not finish(session, held)
    assert session.scalar(sa.select(sa.func.count()).select_from(TrainedModel)) == 0
    assert jobs.end_cancelled(session, held)
    assert types(session, job) == ["queued", "running", "cancelling", "cancelled"]
    assert jobs.claim(session, **CLAIM) is None


def test_finish_before_cancel(session: Session) -> None:
    job = make_job(session)
    held = hold(session)
    assert finish(session, held)
    assert not jobs.cancel(session, job)
    assert read(session, job).status == "succeeded"


def test_stop_outlives_a_lost_worker(session: Session) -> None:
    job = make_job(session)
    assert not jobs.stop(session, job)
    held = hold(session)
    assert jobs.stop(session, job)
    expire(session, job)
    assert jobs.requeue_stalled(session, max_attempts=3) == 1
    assert read(session, job).status == "queued"
    again = hold(session)
    assert (again.status, again.attempt) == ("stopping", 2)
    assert not finish(session, held)
    assert finish(session, again)
    assert types(session, job) == [
        *("queued", "running", "stopping", "lost", "running", "succeeded")
    ]


def test_lost_while_cancelling_is_cancelled(session: Session) -> None:
    job = make_job(session)
    hold(session)
    jobs.cancel(session, job)
    expire(session, job)
    assert jobs.requeue_stalled(session, max_attempts=3) == 1
    assert read(session, job).status == "cancelled"


def test_retry_of_ended_jobs(session: Session) -> None:
    job = make_job(session)
    held = hold(session)
    assert not jobs.retry(session, job)
    assert jobs.fail(session, held, {"code": "internal", "detail": "x"})
    assert jobs.retry(session, job)
    ready = read(session, job)
    assert (ready.status, ready.error, ready.finished_at) == ("queued", None, None)
    assert hold(session).attempt == 2


def expire_and_requeue(session: Session, job: Job) -> None:
    expire(session, job)
    assert jobs.requeue_stalled(session, max_attempts=3) == 1


def fail_and_retry(session: Session, job: Job) -> None:
    assert jobs.fail(session, job, {"code": "internal", "detail": "x"})
    assert jobs.retry(session, job)


@pytest.mark.parametrize(
    "come_back", [jobs.release, expire_and_requeue, fail_and_retry]
)
def test_what_comes_back_to_the_queue_waits_from_then_on(
    session: Session, come_back: Callable[[Session, Job], object]
) -> None:
    days = timedelta(days=10)
    make_job(session, created_at=utc_now() - days)
    assert read_queue_age(session) == pytest.approx(days.total_seconds(), abs=60)
    come_back(session, hold(session))
    assert read_queue_age(session) < 60


def read_queue_age(session: Session) -> float:
    gauges = jobs.read_gauges(session, heard_within=60)
    ages = next(each for each in gauges if each.name == "lometab_queue_age_seconds")
    return dict(ages.values)[("cpu",)]


def keep(session: Session, job: Job, epoch: int) -> bool:
    sha256 = blobs.store_bytes("default", b"checkpoint %d" % epoch)
    return jobs.keep_checkpoint(session, job, sha256=sha256, epoch=epoch)


def count_blobs(session: Session) -> int | None:
    return session.scalar(sa.select(sa.func.count()).select_from(Blob))


def test_an_attempt_that_got_forward_does_not_count(session: Session) -> None:
    job = make_job(session)
    for epoch in range(1, 6):
        held = hold(session)
        assert keep(session, held, epoch)
        expire(session, job)
        assert jobs.requeue_stalled(session, max_attempts=2) == 1
        lost = read(session, job)
        assert (lost.status, lost.lost_attempts) == ("queued", 0)
    hold(session)
    expire(session, job)
    jobs.requeue_stalled(session, max_attempts=2)
    assert read(session, job).lost_attempts == 1
    assert read(session, job).checkpoint_epoch == 5


def test_checkpoints_replace_each_other_and_go_on_success(session: Session) -> None:
    job = make_job(session)
    held = hold(session)
    before = count_blobs(session)
    assert before is not None
    for epoch in (1, 2, 3):
        assert keep(session, held, epoch)
        assert count_blobs(session) == before + 1
    assert finish(session, held)
    assert read(session, job).checkpoint_sha256 is None
    assert count_blobs(session) == before + 1  # the model's


def test_checkpoints_of_failed_jobs_are_kept_for_a_while(session: Session) -> None:
    job = make_job(session)
    held = hold(session)
    keep(session, held, 1)
    jobs.fail(session, held, {"code": "internal", "detail": "x"})
    assert jobs.drop_old_checkpoints(session, kept_seconds=3600) == 0
    assert jobs.drop_old_checkpoints(session, kept_seconds=-1) == 1
    assert read(session, job).checkpoint_sha256 is None


def test_progress_and_its_events_are_one_write(session: Session) -> None:
    job = make_job(session)
    held = hold(session)
    epochs: list[jobs.NewEvent] = [("epoch", {"epoch": i}) for i in (1, 2, 3)]
    assert jobs.report_progress(session, held, "training", {"epoch": 3}, epochs)
    assert types(session, job) == ["queued", "running", "epoch", "epoch", "epoch"]
    assert read(session, job).progress == {"epoch": 3}
