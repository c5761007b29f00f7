"""Workspaces take turns, and a claim does not look at all that waits."""

import statistics
import time
from collections import Counter

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app import jobs
from app.settings import get_settings
from app.storage import db
from app.storage.tables import Job
from tests.support.families import make_family
from tests.support.http import check_problem, make_key, post
from tests.support.jobs import CLAIM, make_job
from tests.support.tables import make_csv

pytestmark = pytest.mark.both_databases


def give(session: Session, job: Job, workspace_id: str) -> None:
    session.execute(
        sa.update(Job).where(Job.id == job.id).values(workspace_id=workspace_id)
    )


def claim(session: Session, job_id: str | None = None) -> Job:
    job = jobs.claim(session, **CLAIM, job_id=job_id)
    assert job is not None
    return job


def test_a_few_jobs_do_not_wait_for_many(session: Session) -> None:
    for _ in range(20):
        make_job(session)
    for workspace_id in ("other", "third"):
        for _ in range(2):
            give(session, make_job(session), workspace_id)
    taken = [claim(session).workspace_id for _ in range(8)]
    assert Counter(taken[:3]) == {"default": 1, "other": 1, "third": 1}
    assert Counter(taken[3:6]) == {"default": 1, "other": 1, "third": 1}
    assert taken[6:] == ["default", "default"]


def test_a_named_job_does_not_jump_the_queue(session: Session) -> None:
    """A client that posts a thousand jobs has a thousand messages in the broker."""
    named = [make_job(session) for _ in range(3)]
    give(session, make_job(session), "other")
    assert claim(session, named[1].id).id == named[1].id
    assert claim(session, named[2].id).workspace_id == "other"
    assert claim(session, named[2].id).id == named[2].id
    assert claim(session, named[2].id).id == named[0].id


def test_the_order_in_a_workspace(session: Session) -> None:
    """Jobs on their own by age; then the older of two sweeps, in its own order."""
    _, old = make_family(session, 2)
    _, new = make_family(session, 2)
    alone = [make_job(session) for _ in range(2)]
    expected = [*alone, *old, *new]
    assert [claim(session).id for _ in expected] == [job.id for job in expected]
    assert jobs.claim(session, **CLAIM) is None


N_QUEUED = 100_000


def fill(session: Session, like: Job, n_rows: int, **values: object) -> None:
    """Many copies of a queued job."""
    table = Job.__table__
    numbers = sa.select(sa.literal(1).label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(sa.select(numbers.c.n + 1).where(numbers.c.n < n_rows))
    made = {
        "id": sa.literal("job_") + sa.cast(numbers.c.n + 10**9, sa.String),
        **values,
    }
    columns = [made.get(c.name, c) for c in table.columns]
    statement = sa.select(*columns).select_from(table).join(numbers, sa.true())
    session.execute(
        sa.insert(table).from_select(
            [c.name for c in table.columns], statement.where(table.c.id == like.id)
        )
    )


def time_claims() -> float:
    """The median, in seconds."""
    seconds = []
    for _ in range(15):
        started_at = time.monotonic()
        with db.transaction() as session:
            claim(session)
        seconds.append(time.monotonic() - started_at)
    return statistics.median(seconds)


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("has_parent", [False, True])
def test_a_claim_among_many(engine: sa.Engine, has_parent: bool) -> None:
    with db.transaction() as session:
        for _ in range(20):
            make_job(session)
    among_few = time_claims()
    with db.transaction() as session:
        _, (child, *_) = make_family(session, 1)
        if has_parent:
            numbers = sa.literal_column("numbers.n")
            fill(session, child, N_QUEUED, position=numbers, number=numbers)
        else:
            fill(session, make_job(session), N_QUEUED)
        give(session, make_job(session), "other")
        session.execute(sa.text("ANALYZE"))
    # To look at them all takes a hundred times that of a few.
    assert time_claims() < max(0.02, 4 * among_few)


def test_a_workspace_has_a_limit(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOMETAB_MAX_QUEUED_JOBS", "3")
    get_settings.cache_clear()
    config = {"target": "y", "columns": {"label": "ignore"}}
    first = [post(client, make_csv(60), config) for _ in range(2)]
    assert [answer.status_code for answer in first] == [202, 202]
    sweep = {**config, "kind": "sweep", "sweep": {"grid": {"rank": [1, 2]}}}
    answer = post(client, make_csv(60), sweep)
    problem = check_problem(answer, 429, "3")
    assert problem["code"] == "too_many_queued_jobs"
    assert int(answer.headers["retry-after"]) > 0
    assert post(client, make_csv(60), config).status_code == 202
    assert post(client, make_csv(60), config).status_code == 429
    job_id = first[0].json()["id"]
    assert client.post(f"/jobs/{job_id}/cancel").status_code == 202
    assert post(client, make_csv(60), config).status_code == 202
    again = client.post(f"/jobs/{job_id}/retry")
    assert check_problem(again, 429)["code"] == "too_many_queued_jobs"
    client.headers["Authorization"] = f"Bearer {make_key('other')}"
    assert post(client, make_csv(60), config).status_code == 202
