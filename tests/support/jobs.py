"""Rows of jobs as the state machine has them, without a request or a worker."""

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import jobs
from app.jobs import states
from app.storage import blobs
from app.storage.tables import Dataset, Job, new_id, utc_now

REPORTS: dict[str, Any] = {
    "diversity": {"k": 4},
    "report": {"scores": {"test": {"ensemble": {"rmse": 0.5}}}},
}
CLAIM: dict[str, Any] = {"queue": "cpu", "owner": "me", "lease_seconds": 60}


def make_job(session: Session, **values: Any) -> Job:
    sha256 = blobs.store_bytes("default", b"a table")
    dataset = session.scalar(sa.select(Dataset))
    if dataset is None:
        dataset = Dataset(
            id=new_id("ds"),
            workspace_id="default",
            sha256="0" * 64,
            options_sha256="0" * 64,
            table_sha256=sha256,
            filename="t.csv",
            size=8,
            n_rows=1,
            n_columns=2,
            read_options={},
            reading={},
            profile={},
        )
        session.add(dataset)
        session.flush()
    job = Job(
        id=new_id("job"),
        workspace_id="default",
        dataset_id=dataset.id,
        **{
            "kind": "train",
            "role": "train",
            "config": {},
            "schema": {},
            "estimate": {},
            "queue": "cpu",
            **values,
        },
    )
    states.add(session, job)
    session.commit()
    return job


def read(session: Session, job: Job) -> Job:
    """The job as the database has it now."""
    session.expire_all()
    return session.get_one(Job, job.id)


def expire(session: Session, job: Job) -> None:
    """Let the lease of the job's worker run out."""
    past = utc_now() - timedelta(seconds=1)
    session.execute(
        sa.update(Job).where(Job.id == job.id).values(lease_expires_at=past)
    )
    session.commit()


def hold(session: Session) -> Job:
    job = jobs.claim(session, **CLAIM)
    assert job is not None
    session.expunge(job)
    return job
