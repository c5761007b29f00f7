"""Cancel, stop, retry and delete of jobs of every kind, by one function each."""

import threading
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import jobs
from app.errors import JobIsPart, JobNotFinished
from app.storage import db
from app.storage.tables import Job
from tests.support.families import claim, finish, make_family
from tests.support.jobs import make_job, read

pytestmark = pytest.mark.both_databases


N_RACES = 20


@pytest.mark.parametrize("kind", ["train", "sweep", "tune"])
def test_one_function_for_every_kind(session: Session, kind: str) -> None:
    if kind == "train":
        job, children = make_job(session), []
    else:
        job, children = make_family(session, 2, kind=kind, config={"tune": {}})
    with pytest.raises(JobNotFinished):
        jobs.delete(session, job)
    assert not jobs.stop(session, job)  # it has not begun
    assert jobs.cancel(session, job)
    assert job.status == "cancelled"  # as it is now, without being read again
    assert not jobs.cancel(session, job)
    assert {read(session, child).status for child in children} <= {"cancelled"}
    assert jobs.retry(session, job)
    assert job.status == "queued"
    assert {read(session, child).status for child in children} <= {"queued"}
    assert jobs.cancel(session, job)
    jobs.delete(session, job)
    assert session.scalar(sa.select(sa.func.count()).select_from(Job)) == 0


def test_a_child_is_told_to_its_parent(session: Session) -> None:
    parent, children = make_family(session, 2)
    assert jobs.cancel(session, children[1])
    assert read(session, parent).progress["n_finished"] == 1
    finish(session, claim(session))
    assert read(session, parent).status == "succeeded"
    with pytest.raises(JobIsPart, match="which has ended"):
        jobs.retry(session, read(session, children[1]))
    with pytest.raises(JobIsPart, match="delete that"):
        jobs.delete(session, read(session, children[1]))


@pytest.mark.slow
def test_cancelling_a_child_and_its_parent_at_once(engine: sa.Engine) -> None:
    """Neither waits for the other in a circle."""
    errors: list[BaseException] = []

    def cancel(id_: str, start: threading.Barrier) -> None:
        try:
            with db.transaction() as session:
                job = session.get_one(Job, id_)
                start.wait()
                jobs.cancel(session, job)
        except BaseException as error:
            errors.append(error)

    for _ in range(N_RACES):
        with db.transaction() as session:
            parent, children = make_family(session, 6)
        ids = [parent.id, children[5].id, children[0].id]
        is_sqlite = engine.dialect.name == "sqlite"  # there one writes at a time
        start = threading.Barrier(1 if is_sqlite else len(ids))
        threads: list[Any] = [
            threading.Thread(target=cancel, args=(id_, start)) for id_ in ids
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        with db.reading() as session:
            family = sa.or_(Job.id == parent.id, Job.parent_id == parent.id)
            statuses = session.scalars(sa.select(Job.status).where(family)).all()
        assert statuses == ["cancelled"] * 7
