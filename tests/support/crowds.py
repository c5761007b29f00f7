"""Much of everything, for tests of the page: columns, classes, members, jobs."""

from datetime import timedelta
from random import Random

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.storage.db import make_engine
from app.storage.tables import Job
from tests.support.services import TINY
from tests.support.stacks import Service

N_JOBS, N_COLUMNS, N_CLASSES, K = 1000, 300, 50, 128

NAMES = [f"job {i}" for i in range(N_JOBS)]
SMALL = {**TINY, "k": K, "rank": 1, "d_block": 8, "n_bins": 2, "d_embedding": 1}
"""Settings with which so much is trained in seconds."""


def make_wide_csv() -> str:
    random = Random(3)
    lines = [",".join(["y", *(f"column {i}" for i in range(N_COLUMNS))])]
    for i in range(4 * N_CLASSES):
        name = i % N_CLASSES
        values = (f"{name + random.random():.3f}" for _ in range(N_COLUMNS))
        lines.append(",".join([f"class {name:02}", *values]))
    return "\n".join(lines) + "\n"


def fill_with_jobs(service: Service, job_id: str) -> None:
    """Others like it that have ended, without the work."""
    engine = make_engine(service.stack.url)
    with Session(engine) as session, session.begin():
        job = session.get_one(Job, job_id)
        columns = {each.key: getattr(job, each.key) for each in sa.inspect(Job).attrs}
        for i, name in enumerate(NAMES):
            moment = job.created_at - timedelta(minutes=i + 1)
            status = ("succeeded", "failed", "cancelled")[i % 3]
            given = {"id": f"job_{i:024}", "name": name, "status": status}
            session.add(Job(**{**columns, **given, "created_at": moment}))
    engine.dispose()
