"""A budget of time: which search it becomes, when that ends, and what is made of it."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app import jobs
from app.jobs import JobSettings
from app.jobs.budget import reserve
from app.jobs.planning import make_children
from app.storage import blobs
from app.storage.tables import Job, utc_now
from lometab.space import NEIGHBOURS
from tests.support.families import claim, make_family
from tests.support.http import post
from tests.support.jobs import make_job, read
from tests.support.outcomes import outcome
from tests.support.tables import make_csv

pytestmark = pytest.mark.both_databases

# What it becomes


def ask(**more: Any) -> JobSettings:
    return JobSettings(**{"target": "y", "time_budget_seconds": 600, **more})


def test_a_plain_job_with_a_budget_is_a_search() -> None:
    body = ask()
    assert body.kind == "tune" and body.tune is not None
    assert (body.tune.n_trials, body.tune.seeds, body.tune.finalists) == (200, 1, 1)
    assert body.tune.full_space["d_block"].high == 512  # type: ignore[union-attr]
    assert ask(time_budget_seconds=10).tune.n_trials == 8  # type: ignore[union-attr]
    assert ask(kind="tune", tune={"n_trials": 5}).tune.n_trials == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"kind": "sweep"}, "a sweep, which compares, takes `max_runtime_seconds`"),
        ({"max_runtime_seconds": 60}, "not both"),
        ({"n_seeds": 3}, "leave `n_seeds`"),
        ({"kind": "tune", "tune": {"finalists": 2}}, "leave `n_seeds`"),
        ({"time_budget_seconds": 9}, "greater than or equal to 10"),
    ],
)
def test_what_does_not_go_with_a_budget(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ask(**more)


def test_every_trial_has_its_seed_and_no_limit_of_its_own(session: Session) -> None:
    body = ask(time_budget_seconds=12, hyperparameters={"seed": 7})
    config = body.model_dump(mode="json")
    parent = make_job(session, kind="tune", role="tune", config=config)
    trials = make_children(parent, body)
    seeds = [trial.config["hyperparameters"]["seed"] for trial in trials]
    assert seeds == [*range(7, 15)]
    assert "max_runtime_seconds" not in trials[0].config


def test_neighbours_are_settings(session: Session) -> None:
    for each in NEIGHBOURS:
        JobSettings(target="y", hyperparameters=each)


# When it ends


def make_search(session: Session, n_trials: int = 3) -> Job:
    tune = {"n_trials": n_trials, "seeds": 1, "finalists": 1}
    budget = {"time_budget_seconds": 100}
    parent, children = make_family(
        session, n_trials, kind="tune", config={"tune": tune, **budget}
    )
    for i, child in enumerate(children):
        settings = {"max_epochs": 3, "seed": i}
        child.config = {"hyperparameters": settings, **budget}
    session.commit()
    return parent


def finish(session: Session, job: Job, score: float, **more: Any) -> list[Job]:
    weights = blobs.store_bytes(job.workspace_id, f"weights {job.number}".encode())
    state = {**asdict(outcome(score)), **more}
    assert jobs.finish_measured(
        session, job, outcome=state, progress={}, weights_sha256=weights
    )
    return jobs.follow(session, job)


def test_the_search_leaves_time_for_the_model(session: Session) -> None:
    parent = make_search(session)
    assert jobs.find_deadline(parent) is None  # it has not begun
    claim(session)
    parent = read(session, parent)
    assert parent.started_at is not None
    deadline = parent.started_at + timedelta(seconds=90)
    assert jobs.find_deadline(parent) == deadline
    parent.config = {**parent.config, "time_budget_seconds": 10}
    assert jobs.find_deadline(parent) == parent.started_at + timedelta(seconds=6)
    parent.config = {"max_runtime_seconds": 10}
    assert jobs.find_deadline(parent) == parent.started_at + timedelta(seconds=10)


def test_more_time_is_left_where_the_table_is_large(session: Session) -> None:
    assert reserve(600) == reserve(600, 1) == 60
    assert reserve(600, 50) == 100
    assert reserve(600, 1000) == 300  # not all of it
    parent = make_search(session)
    claim(session)
    parent = read(session, parent)
    assert parent.started_at is not None
    parent.estimate = {**parent.estimate, "reserve_seconds": 40.0}
    assert jobs.find_deadline(parent) == parent.started_at + timedelta(seconds=60)


def test_the_time_that_is_left_is_told(client: TestClient) -> None:
    def read_reserve(n_rows: int, **more: Any) -> float | None:
        config = {"target": "y", "columns": {"label": "ignore"}, **more}
        answer = post(client, make_csv(n_rows), config)
        assert answer.status_code == 202, answer.text
        seconds: float | None = answer.json()["estimate"]["reserve_seconds"]
        return seconds

    small, large = (read_reserve(n, time_budget_seconds=10) for n in (60, 100_000))
    assert (small, large) == (4, 5)
    assert read_reserve(60) is None


def test_out_of_time_ends_the_search_with_a_model_of_its_trials(
    session: Session,
) -> None:
    parent = make_search(session, 4)
    assert finish(session, claim(session), 0.5) == []
    running = claim(session)
    row = read(session, parent)
    row.started_at = utc_now() - timedelta(seconds=91)
    session.commit()
    assert jobs.reconcile(session, parent.id) == []  # one is still running
    assert read(session, parent).status == "stopping"
    assert read(session, running).status == "stopping"
    (made,) = finish(session, running, 0.8)
    assert (made.role, made.number, made.position) == ("refit", 1, 4)
    assert made.made_of == {"trials": [1, 0]}  # the best first
    assert "n_seeds" not in made.config
    weights = jobs.find_networks(session, made)
    assert {n: blobs.read(parent.workspace_id, sha) for n, sha in weights.items()} == {
        0: b"weights 0",
        1: b"weights 1",
    }
    statuses = [child.status for child in jobs.read_children(session, parent)]
    assert statuses == ["succeeded", "succeeded", "cancelled", "cancelled", "queued"]
    assert jobs.reconcile(session, parent.id) == []  # there is one


def test_more_weights_are_kept_than_of_a_plain_search(session: Session) -> None:
    parent = make_search(session, 20)
    for i in range(20):
        claimed = claim(session)
        assert jobs.is_worth_keeping(session, claimed, outcome(i / 100))
        finish(session, claimed, i / 100)
        jobs.drop_weights(session, claimed)
    children = jobs.read_children(session, parent)
    kept = [c.number for c in children if c.checkpoint_sha256 and c.role == "trial"]
    assert kept == [*range(4, 20)]


def test_a_search_without_any_network_fails(session: Session) -> None:
    parent = make_search(session, 1)
    claimed = claim(session)
    jobs.fail(session, claimed, {"code": "diverged", "detail": "too fast"})
    assert jobs.follow(session, claimed) == []
    failed = read(session, parent)
    assert failed.status == "failed" and failed.error is not None
    assert failed.error["code"] == "no_success"
