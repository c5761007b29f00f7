"""The supervisor against a child that plays a script: no process, no torch."""

import errno
import io
import json
import signal
import tarfile
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from app import jobs
from app.jobs import states
from app.settings import Settings
from app.storage import blobs, db
from app.storage.tables import Blob, Job, TrainedModel, utc_now
from tests.support.fake_child import (
    MODEL,
    FakeChild,
    add_job,
    attempt,
    read_events,
    types,
    write_model,
)
from worker import supervise
from worker.child import Children
from worker.faults import MachineFault
from worker.health import Health
from worker.identity import stopping
from worker.messages import (
    CheckpointUnusable,
    CheckpointWritten,
    Done,
    EpochDone,
    Examined,
    Failed,
    PhaseBegun,
    Resumed,
)
from worker.record import Record

pytestmark = pytest.mark.usefixtures("sqlite")

EPOCH = EpochDone({"epoch": 1, "max_epochs": 9, "val_score": 0.5})
PART = {"score": 0.5, "ece": None, "diversity": None, "disagreement": None}
OUTCOME = {
    **{"metric": "rmse", "val": PART, "test": PART, "k": 2, "n_parameters": 10},
    **{"best_epoch": 1, "epochs": 2, "seconds": 1.0},
}
AWAY = OperationalError("SELECT secret", {"key": "hidden"}, Exception("gone"))


def write_outcome(child: FakeChild) -> None:
    (child.folder / "outcome.json").write_text(json.dumps(OUTCOME))
    (child.folder / "weights").mkdir()
    (child.folder / "weights" / "w").write_bytes(b"w")


def write_checkpoint(epoch: int) -> Callable[[FakeChild], CheckpointWritten]:
    def write(child: FakeChild) -> CheckpointWritten:
        folder = child.folder / f"checkpoint-{epoch}"
        folder.mkdir()
        (folder / "seed-0").write_bytes(bytes([epoch]))
        return CheckpointWritten(folder.name, epoch)

    return write


def request(
    move: Callable[..., bool], job: Job, **options: Any
) -> Callable[[FakeChild], None]:
    def ask(_: FakeChild) -> None:
        with db.transaction() as session:
            assert move(session, job, **options)
            session.commit()

    return ask


def count(table: type[Any]) -> int | None:
    with db.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(table))


def fail_times(
    monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, n: int
) -> list[int]:
    """Let a method of the record fail so often before it works; the calls so far."""
    real, calls = getattr(Record, name), [0]

    def flaky(self: Record, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] <= n:
            raise error
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Record, name, flaky)
    return calls


# Ends


def test_success() -> None:
    add_job()
    child = FakeChild([PhaseBegun("training"), EPOCH, write_model])
    job = attempt(child)
    assert (job.status, job.lease_owner, job.progress["epoch"]) == (
        *("succeeded", None),
        1,
    )
    assert types(job) == ["queued", "running", "phase", "epoch", "succeeded"]
    assert child.files == [["table.parquet"]]
    assert child.is_removed
    (spec,) = child.specs
    assert (spec.job_id, spec.attempt, spec.role) == (job.id, 1, "train")
    assert spec.dataset_sha256 == "1" * 64 and spec.reading == {"delimiter": ";"}
    assert spec.makes_model and spec.device == "cpu"
    with db.reading() as session:
        model = session.scalars(sa.select(TrainedModel)).one()
    assert blobs.read("default", model.onnx_sha256) == MODEL


def test_progress_of_the_examination_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written without an event, before the job ends."""
    monkeypatch.setattr(supervise, "PROGRESS_SECONDS", 0.0)
    job = add_job()
    seen: list[Any] = []

    def look(_: FakeChild) -> None:
        with db.reading() as session:
            seen.append(session.get_one(Job, job.id).progress.get("examined"))

    attempt(FakeChild([EPOCH, Examined(1, 4), look, Examined(4, 4), look, write_model]))
    assert seen == [0.25, 1.0]


def test_error_of_the_child_is_the_jobs() -> None:
    add_job()
    failed = Failed("diverged", "the loss became nan")
    job = attempt(FakeChild([failed], exit_code=1))
    assert job.status == "failed"
    assert job.error == {"code": "diverged", "detail": "the loss became nan"}


@pytest.mark.parametrize(
    ("exit_code", "reason"),
    [
        (-signal.SIGKILL, "killed by SIGKILL"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
        (7, "exit code 7: Segmentation fault"),
    ],
)
def test_a_crash_is_tried_again_and_given_up(exit_code: int, reason: str) -> None:
    add_job()
    settings = Settings(max_attempts=2)
    job = attempt(FakeChild([EPOCH], exit_code=exit_code), settings)
    assert (job.status, job.lost_attempts, types(job)[-1]) == ("queued", 1, "lost")
    job = attempt(FakeChild([EPOCH], exit_code=exit_code), settings)
    assert job.status == "failed" and job.error is not None
    assert job.error["code"] == "worker_lost" and reason in job.error["detail"]


def test_killed_by_the_system_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([4, 5])
    monkeypatch.setattr(supervise, "count_oom_kills", lambda: next(counts))
    add_job()
    job = attempt(FakeChild(exit_code=-signal.SIGKILL))
    assert job.status == "failed" and job.error is not None
    assert job.error["code"] == "out_of_memory"


def test_too_large() -> None:
    add_job()
    child = FakeChild([EPOCH], n_bytes=2 << 20, is_endless=True, exit_code=-9)
    job = attempt(child, Settings(max_training_bytes=1 << 20))
    assert job.status == "failed" and job.error is not None
    assert job.error["code"] == "out_of_memory"
    assert "took 2 MiB where 1 MiB" in job.error["detail"]
    assert "3 MiB were expected" in job.error["detail"]


def test_cancel() -> None:
    job = add_job()
    child = FakeChild([EPOCH, request(states.cancel, job)], is_endless=True)
    job = attempt(child)
    assert job.status == "cancelled"
    assert types(job)[-2:] == ["cancelling", "cancelled"]
    assert child.n_ends > 0 and child.is_removed


def test_cancel_that_comes_with_the_end_wins() -> None:
    job = add_job()

    def end(child: FakeChild) -> None:
        request(states.cancel, job)(child)
        write_model(child)

    class Quick(FakeChild):
        def receive(self, timeout: float) -> None:
            end(self)

    assert attempt(Quick()).status == "cancelled"
    assert count(TrainedModel) == 0


def test_stop_is_handed_on_once_and_keeps_the_model() -> None:
    job = add_job()
    child = FakeChild([EPOCH, request(states.stop, job), EPOCH, EPOCH, write_model])
    job = attempt(child)
    assert child.orders == ["stop"]
    assert (job.status, job.is_stop_requested) == ("succeeded", True)


def test_out_of_time_is_a_stop() -> None:
    add_job(
        config={"max_runtime_seconds": 5}, started_at=utc_now() - timedelta(seconds=9)
    )
    child = FakeChild([EPOCH, EPOCH, write_model])
    job = attempt(child)
    assert (job.status, child.orders) == ("succeeded", ["stop"])


def test_lost_lease_writes_nothing() -> None:
    job = add_job()

    def take_away(child: FakeChild) -> None:
        with db.transaction() as session:
            session.execute(
                sa.update(Job).values(lease_expires_at=utc_now() - timedelta(hours=1))
            )
            states.requeue_stalled(session, max_attempts=3)
            session.commit()

    child = FakeChild([EPOCH, take_away, EPOCH], is_endless=True)
    job = attempt(child)
    assert (job.status, job.attempt, job.lost_attempts) == ("queued", 1, 1)
    assert types(job) == ["queued", "running", "epoch", "lost"]
    assert child.is_removed


def test_lost_by_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is away for most of the lease: nobody could renew it."""
    job = add_job()
    fail_times(monkeypatch, "renew_lease", AWAY, 10**9)
    job = attempt(FakeChild(is_endless=True), Settings(lease_seconds=0.05))
    assert job.status == "running"  # until a reaper sees that the lease ran out


# The worker has to go


@pytest.mark.parametrize("exit_code", [3, 1, -9])
def test_shutting_down_releases(exit_code: int) -> None:
    job = add_job()
    child = FakeChild(
        [EPOCH, lambda _: stopping.set(), write_checkpoint(4)], exit_code=exit_code
    )
    job = attempt(child)
    assert (job.status, job.lost_attempts, child.orders) == ("queued", 0, ["leave"])
    assert types(job)[-2:] == ["checkpoint", "released"]
    assert (job.checkpoint_epoch, job.checkpoint_attempt) == (4, 1)


def test_a_child_that_does_not_leave_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "LEAVE_SECONDS", 0.0)
    add_job()
    child = FakeChild([lambda _: stopping.set()], is_endless=True, exit_code=-9)
    job = attempt(child)
    assert (job.status, child.n_ends > 0) == ("queued", True)


# Checkpoints


def test_checkpoint_is_kept_replaced_and_resumed() -> None:
    add_job()
    script = [write_checkpoint(1), EPOCH, write_checkpoint(2)]
    job = attempt(FakeChild(script, exit_code=-9))
    assert (job.status, job.checkpoint_epoch, job.lost_attempts) == ("queued", 2, 0)
    assert count(Blob) == 2  # the table, and one checkpoint

    seen: list[bytes] = []

    def look(child: FakeChild) -> Resumed:
        seen.append((child.folder / "checkpoint" / "seed-0").read_bytes())
        return Resumed(2)

    job = attempt(FakeChild([look, write_model]))
    assert seen == [b"\x02"]
    assert job.status == "succeeded" and "resumed" in types(job)
    assert (job.checkpoint_sha256, count(Blob)) == (None, 2)  # table and model


def damage(sha256: str | None, how: str) -> None:
    with db.transaction() as session:
        table = "blob_chunks"
        change = {
            "flipped": f"UPDATE {table} SET content = zeroblob(length(content))",
            "cut": f"UPDATE {table} SET content = substr(content, 1, 9)",
            "gone": f"DELETE FROM {table}",
        }[how]
        session.execute(
            sa.text(
                f"{change} WHERE generation = (SELECT generation FROM blobs "
                "WHERE sha256 = :s)"
            ),
            {"s": sha256},
        )


@pytest.mark.database_store
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_damaged_checkpoint_is_dropped(how: str) -> None:
    add_job()
    job = attempt(FakeChild([write_checkpoint(1)], exit_code=-9))
    damage(job.checkpoint_sha256, how)
    child = FakeChild([EPOCH, write_model])
    job = attempt(child)
    assert job.status == "succeeded", job.error
    assert child.files == [["table.parquet"]]
    (warning,) = [data for kind, data in read_events(job) if kind == "warning"]
    assert "checkpoint was dropped" in warning["detail"]


def test_unpackable_checkpoint_is_dropped() -> None:
    sha256 = blobs.store_bytes("default", b"no archive" * 100)
    add_job(checkpoint_sha256=sha256, checkpoint_epoch=3)
    job = attempt(FakeChild([EPOCH], exit_code=-9))
    assert (job.status, job.checkpoint_sha256, job.checkpoint_epoch) == (
        *("queued", None),
        None,
    )
    assert count(Blob) == 1


def test_checkpoint_that_the_child_cannot_use_is_dropped() -> None:
    add_job()
    attempt(FakeChild([write_checkpoint(1)], exit_code=-9))
    job = attempt(FakeChild([CheckpointUnusable("an old version")], exit_code=-9))
    assert (job.status, job.checkpoint_sha256) == ("queued", None)
    assert ("warning" in types(job)) and count(Blob) == 1
    child = FakeChild([EPOCH, write_model])
    assert attempt(child).status == "succeeded"
    assert child.files == [["table.parquet"]]


# Cells and trials


def add_family(n_children: int = 2) -> tuple[Job, list[Job]]:
    progress = {"n_finished": 0, "n_runs": n_children}
    parent = add_job(kind="sweep", progress=progress)
    return parent, [
        add_job(
            parent_id=parent.id,
            role="cell",
            position=i,
            number=i,
            repeat=0,
            settings={"k": i + 1},
        )
        for i in range(n_children)
    ]


def test_cells_of_a_sweep_share_a_child() -> None:
    add_family(2)
    run = [EPOCH, write_outcome, Done()]

    class Cells(FakeChild):
        def clear(self) -> None:
            (self.folder / "outcome.json").unlink()
            (self.folder / "weights" / "w").unlink()
            (self.folder / "weights").rmdir()

    child = Cells([*run, *run])
    children = Children(lambda: child)
    for i in range(2):
        job = attempt(child, children=children)
        assert (job.status, job.position) == ("succeeded", i), job.error
        assert job.outcome is not None and job.outcome["val"]["score"] == 0.5
        assert job.checkpoint_sha256 is not None  # the weights: one of the best
    assert child.files == [["table.parquet"]] * 2
    assert [spec.role for spec in child.specs] == ["cell", "cell"]
    assert child.n_ends == 0
    children.end()
    assert child.n_ends == 1 and child.is_removed


def test_the_next_job_of_its_own_gets_its_own_child() -> None:
    add_family(1)
    first = FakeChild([write_outcome, Done()])
    second = FakeChild([write_model])
    made = iter([first, second])
    children = Children(lambda: next(made))
    attempt(first, children=children)
    assert not first.is_removed
    add_job()
    assert attempt(second, children=children).status == "succeeded"
    assert first.is_removed and first.n_ends == 1 and second.is_removed


class HopelessTrial:
    """Draws, and finds every epoch hopeless."""

    def __init__(self, job: Job) -> None:
        self.settings = {"k": 3}

    def is_hopeless(self, progress: dict[str, Any]) -> bool:
        assert progress["val_score"] == 0.5
        return True


def add_trial() -> Job:
    progress = {"n_finished": 0, "n_runs": 1}
    parent = add_job(kind="tune", progress=progress)
    return add_job(
        parent_id=parent.id,
        role="trial",
        position=0,
        number=0,
        config={"task": "regression"},
    )


def test_pruned_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.jobs.search.Trial", HopelessTrial)
    add_trial()
    child = FakeChild([EPOCH, write_outcome, Done()])
    job = attempt(child)
    assert job.status == "succeeded" and job.outcome is not None
    assert job.outcome["is_pruned"] and child.orders == ["stop"]
    assert child.specs[0].role == "trial"
    assert child.specs[0].hyperparameters == {"k": 3, "max_epochs": 9}
    assert job.config["hyperparameters"] == {"k": 3, "max_epochs": 9}


class CalmTrial(HopelessTrial):
    def is_hopeless(self, progress: dict[str, Any]) -> bool:
        return False


def test_a_trial_ends_its_search_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.jobs.search.Trial", CalmTrial)
    began = utc_now() - timedelta(seconds=99)
    parent = add_job(
        kind="tune",
        status="running",
        lease_owner="its children",
        started_at=began,
        config={"time_budget_seconds": 100},
        progress={"n_finished": 0, "n_runs": 2},
    )
    for i in range(2):
        about = {"parent_id": parent.id, "role": "trial", "position": i, "number": i}
        add_job(**about, config={"task": "regression"})
    child = FakeChild([EPOCH, EPOCH, EPOCH, write_outcome, Done()])
    job = attempt(child)
    assert (job.status, child.orders) == ("succeeded", ["stop"])
    with db.reading() as session:
        assert session.get_one(Job, parent.id).status == "stopping"
        rows = session.scalars(sa.select(Job.status).where(Job.number == 1))
        assert rows.all() == ["cancelled"]


def test_a_model_of_trials_gets_their_weights() -> None:
    parent = add_job(kind="tune", progress={"n_runs": 3})
    for i in range(3):
        packed = blobs.store_bytes(parent.workspace_id, pack({f"seed-{i}": b"w"}))
        add_job(
            parent_id=parent.id,
            role="trial",
            number=i,
            position=i,
            status="succeeded",
            # The weights of the last one are gone.
            checkpoint_sha256=packed if i < 2 else None,
        )
    add_job(
        parent_id=parent.id,
        role="refit",
        position=3,
        number=1,
        made_of={"trials": [1, 0, 2]},
    )
    found: list[str] = []

    def look(child: FakeChild) -> None:
        places = (child.folder / "networks").rglob("*")
        found.extend(str(p.relative_to(child.folder)) for p in places if p.is_file())
        write_model(child)

    child = FakeChild([look])
    job = attempt(child)
    assert job.status == "succeeded"
    assert sorted(found) == ["networks/0/seed-0", "networks/1/seed-1"]
    assert child.specs[0].networks == (1, 0, 2)


def pack(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def test_a_study_out_of_reach_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    from app.jobs.search import StudyError

    def fail(_: Job) -> None:
        raise StudyError("An exception is raised during the commit. [SQL: ...]")

    monkeypatch.setattr("app.jobs.search.Trial", fail)
    add_trial()
    job = attempt(FakeChild())
    assert (job.status, job.lost_attempts, types(job)[-1]) == ("queued", 0, "released")


# The database is away


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["read_dataset", "write_table", "read_checkpoint", "finish", "write_progress"],
)
def test_a_database_that_comes_back_costs_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fail_times(monkeypatch, name, AWAY, 3)
    add_job()
    job = attempt(FakeChild([EPOCH, EPOCH, EPOCH, write_model]))
    assert (job.status, job.attempt, job.error) == ("succeeded", 1, None)
    assert calls[0] > 3


def test_away_while_requests_checkpoints_and_leases_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("read_status", "keep_checkpoint", "drop_checkpoint"):
        fail_times(monkeypatch, name, AWAY, 1)
    add_job()
    script = [EPOCH, write_checkpoint(1), CheckpointUnusable("x"), EPOCH, write_model]
    job = attempt(FakeChild(script))
    assert (job.status, job.attempt) == ("succeeded", 1)


def test_away_where_nobody_waits_for_it_releases() -> None:
    """Whatever a part of an attempt raises: the job waits, and no SQL is shown."""

    class Broken(FakeChild):
        def start(self, spec: Any) -> None:
            raise AWAY

    add_job()
    child, health = Broken(), Health()
    job = attempt(child, health=health)
    assert (job.status, job.lost_attempts, job.error) == ("queued", 0, None)
    assert child.is_removed
    assert "secret" not in str(read_events(job))


def test_what_is_stored_of_our_own_errors_has_no_sql() -> None:
    class Broken(FakeChild):
        def start(self, spec: Any) -> None:
            try:
                raise AWAY
            except OperationalError as error:
                raise RuntimeError(f"it broke: {error}") from error

    add_job()
    with pytest.raises(RuntimeError):
        attempt(Broken())
    with db.reading() as session:
        job = session.scalars(sa.select(Job)).one()
    assert job.status == "failed"
    assert job.error == jobs.describe_failure(AWAY) | {
        "detail": "the database failed (RuntimeError); the worker's log has the rest"
    }


def test_our_own_error_is_the_jobs_end_and_has_one_line() -> None:
    add_job()
    with pytest.raises(FileNotFoundError):
        attempt(FakeChild(exit_code=0))  # it ended well, but left no model
    with db.reading() as session:
        job = session.scalars(sa.select(Job)).one()
    assert job.status == "failed" and job.error is not None
    assert job.error["code"] == "internal"
    assert job.error["detail"].startswith("FileNotFoundError: ")


# Faults of the machine


def no_space(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def make_no_folder() -> FakeChild:
    raise MachineFault("no folder can be made")


@pytest.mark.slow
@pytest.mark.parametrize("is_fit", [False, True])
@pytest.mark.parametrize("where", ["folder", "table", "child", "memory"])
def test_a_fault_of_the_machine_is_not_the_jobs(
    where: str, is_fit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = None if is_fit else OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(supervise, "find_fault", lambda: fault)
    script = [Failed("machine_fault", "OSError: No space left on device")]
    child: Any = FakeChild(script if where == "child" else [], exit_code=1)
    if where == "table":
        monkeypatch.setattr(Record, "write_table", no_space)
    if where == "memory":
        fail_times(monkeypatch, "read_dataset", MemoryError(), 10**9)  # type: ignore[arg-type]
    add_job()
    health = Health()
    job = attempt(make_no_folder if where == "folder" else child, health=health)
    assert (job.status, job.error) == ("queued", None)
    if is_fit:  # it may be the job that is too large for the machine
        assert (job.lost_attempts, types(job)[-1]) == (1, "lost")
    else:
        assert (job.lost_attempts, types(job)[-2:]) == (0, ["warning", "released"])
    assert health._is_doubted
