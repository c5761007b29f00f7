"""Sweeps and searches with their children, as rows."""

from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from app import jobs
from app.storage.tables import Job
from tests.support.jobs import CLAIM, make_job
from tests.support.outcomes import outcome

DONE: dict[str, Any] = {"progress": {}, "weights_sha256": None}


def make_family(
    session: Session, n_children: int = 3, **values: Any
) -> tuple[Job, list[Job]]:
    progress = {"n_finished": 0, "n_runs": n_children}
    kind = values.setdefault("kind", "sweep")
    parent = make_job(session, **{"role": kind, "progress": progress, **values})
    children = [
        make_job(
            session,
            parent_id=parent.id,
            role="trial" if parent.kind == "tune" else "cell",
            position=i,
            number=i,
            repeat=0,
        )
        for i in range(n_children)
    ]
    return parent, children


def claim(session: Session) -> Job:
    job = jobs.claim(session, **CLAIM)
    assert job is not None
    if job.parent_id is not None:
        jobs.begin_parent(session, job.parent_id)
    return job


def finish(session: Session, job: Job, score: float = 0.5, **more: Any) -> list[Job]:
    state = {**asdict(outcome(score)), **more}
    assert jobs.finish_measured(session, job, outcome=state, **DONE)
    return jobs.follow(session, job)
