"""The doctor finds each kind of fault, and none in what is sound."""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from app import doctor, jobs
from app.cli.application import cli
from app.storage import blobs, db
from app.storage.enums import WebhookEvent
from app.storage.tables import (
    Attempt,
    BlobChunk,
    Delivery,
    Event,
    Job,
    ModelAlias,
    ModelAnswers,
    ModelCounts,
    Report,
    TrainedModel,
    Webhook,
    Worker,
    utc_now,
)
from tests.support.families import claim, finish, make_family
from tests.support.jobs import CLAIM, REPORTS, make_job

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests leave in the machine's is not this one's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def filled(session: Session) -> Session:
    """One of each: jobs in several states, a model, a sweep that has ended."""
    for _ in range(3):
        make_job(session)
    job = jobs.claim(session, **CLAIM)
    assert job is not None
    sha256 = blobs.store_bytes("default", b"a model")
    job.name = "price"
    jobs.finish(session, job, onnx_sha256=sha256, reports=REPORTS, progress={})
    session.add(
        ModelAlias(
            workspace_id="default",
            name="price",
            alias="best",
            model_id=session.scalars(sa.select(TrainedModel.id)).one(),
        )
    )
    held = jobs.claim(session, **CLAIM)
    assert held is not None
    waiting = jobs.claim(session, **CLAIM)
    assert waiting is not None
    jobs.fail(session, waiting, {"code": "diverged", "detail": "too fast"})
    make_family(session, 2)
    for _ in range(2):
        finish(session, claim(session))
    session.commit()
    return session


def find_faults() -> dict[str, tuple[str, ...]]:
    found = doctor.examine(deep=True, min_age=-5)
    return {each.name: each.faults for each in found if each.faults}


def test_all_is_well(filled: Session) -> None:
    assert find_faults() == {}
    done = CliRunner().invoke(cli, ["doctor", "--deep"])
    assert done.exit_code == 0, done.output
    assert "all is well" in done.output


def set_job(before: str, **values: Any) -> sa.Update:
    return sa.update(Job).where(Job.status == before).values(**values)


def put(make: Callable[[str], list[Any]]) -> Callable[[Session], None]:
    """Add rows that are made with the id of the model, one after the other."""

    def fill(session: Session) -> None:
        for row in make(session.scalars(sa.select(TrainedModel.id)).one()):
            session.add(row)
            session.flush()

    return fill


HOOK = {"url": "https://example.org/", "events": [], "secret": "s"}
LONG_AGO = utc_now() - timedelta(days=1)
LATER_FAULTS: dict[str, tuple[str, Callable[[Session], Any]]] = {
    "counts elsewhere": (
        "in its workspace",
        put(
            lambda id_: [
                ModelCounts(
                    model_id=id_,
                    day="2026-01-01",
                    shard="a",
                    workspace_id="b",
                    counts={},
                )
            ]
        ),
    ),
    "answers elsewhere": (
        "in its workspace",
        put(
            lambda id_: [
                ModelAnswers(
                    id="ans_1", model_id=id_, workspace_id="b", n_rows=1, content=b""
                )
            ]
        ),
    ),
    "a message elsewhere": (
        "in its workspace",
        put(
            lambda _: [
                Webhook(id="whk_1", workspace_id="default", **HOOK),
                Delivery(
                    id="msg_1",
                    webhook_id="whk_1",
                    workspace_id="b",
                    type=WebhookEvent.JOB_FAILED,
                    key="k",
                    body="{}",
                ),
            ]
        ),
    ),
    "a lease of long ago": (
        "lease has ended",
        lambda session: [
            session.execute(set_job("running", lease_expires_at=LONG_AGO)),
            session.add(
                Worker(
                    id="w",
                    workspace_id="default",
                    queue="cpu",
                    heartbeat_at=db.now(session),
                )
            ),
        ],
    ),
    "rows without an answer": (
        "rows of prediction jobs",
        lambda session: session.execute(
            sa.update(Job)
            .where(Job.kind == "sweep")
            .values(
                kind="predict",
                role="predict",
                progress={
                    **{"n_rows": 5, "rows_done": 4, "n_faults": 0},
                    **{"n_runs": 2, "n_finished": 2},
                },
            )
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LATER_FAULTS)
def test_what_later_tables_have_is_examined(filled: Session, name: str) -> None:
    words, break_it = LATER_FAULTS[name]
    break_it(filled)
    filled.commit()
    found = find_faults()
    assert [words in check for check in found] == [True], found


def test_without_a_worker_a_lease_may_end(filled: Session) -> None:
    """Nobody is there to put the job back; the next worker does."""
    filled.execute(set_job("running", lease_expires_at=LONG_AGO))
    filled.commit()
    assert find_faults() == {}


FAULTS: dict[str, tuple[str, sa.Executable]] = {
    "a gap": ("no gap", sa.delete(Event).where(Event.seq == 2)),
    "a number": ("no gap", set_job("running", event_seq=9)),
    "an attempt": ("attempts", sa.delete(Attempt).where(Attempt.number == 1)),
    "an end": ("status says", set_job("succeeded", finished_at=None)),
    "a reason": ("status says", set_job("failed", error=None)),
    "a report": ("their reports", sa.delete(Report)),
    "a run": (
        "counted their runs",
        sa.update(Job)
        .where(Job.kind == "sweep")
        .values(progress={"n_runs": 2, "n_finished": 1}),
    ),
    "an event elsewhere": (
        "in its workspace",
        sa.update(Event).values(workspace_id="other"),
    ),
    "a dataset elsewhere": (
        "in its workspace",
        sa.update(Job).where(Job.status == "failed").values(workspace_id="other"),
    ),
    "a model of nothing": (
        "each model has its job",
        set_job("succeeded", status="cancelled"),
    ),
    "an alias": ("its model", sa.update(ModelAlias).values(name="other")),
    "a byte": ("as it was stored", sa.update(BlobChunk).values(content=b"X table")),
    "a chunk": ("as it was stored", sa.delete(BlobChunk)),
}


@pytest.mark.slow
@pytest.mark.database_store
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(filled: Session, name: str) -> None:
    words, statement = FAULTS[name]
    filled.execute(statement)
    filled.commit()
    found = find_faults()
    assert any(words in check for check in found), found
    done = CliRunner().invoke(cli, ["doctor", "--deep"])
    assert done.exit_code == 1
    assert "FAULT" in done.output


@pytest.mark.parametrize(
    "leave",
    [
        lambda session: blobs.store_bytes("default", b"nobody's"),
        lambda session: session.add(
            BlobChunk(
                workspace_id="default",
                generation="0000000001-0",
                index=0,
                content=b"",
            )
        ),
    ],
    ids=["blob", "chunk"],
)
def test_orphans_are_found(filled: Session, leave: Callable[[Session], Any]) -> None:
    leave(filled)
    filled.commit()
    (name,) = find_faults()
    assert "refers to them" in name


def test_the_quick_one_asks_for_the_tables_alone(client: TestClient) -> None:
    assert [each.faults for each in doctor.examine(deep=False)] == [()]


def test_many_faults_are_not_all_shown(session: Session) -> None:
    for _ in range(30):
        make_job(session)
    session.execute(sa.delete(Event))
    session.commit()
    text = "\n".join(map(str, doctor.examine(deep=True)))
    assert text.count("0 events") == doctor.MAX_FAULTS
    assert "and more" in text
