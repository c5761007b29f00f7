"""Parents and their children, on both databases: cascades, ends, promotion."""

import json
import threading
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app import blobs, db, jobs, sweeps
from app.models import Event, Job
from app.planning import read_cells
from tests.app.test_jobs import CLAIM, expire, make_job, read, session
from tests.app.test_jobs_routes import check_problem
from tests.conftest import make_csv
from tests.lometab.test_comparison import outcome

__all__ = ["session"]

TABLE = make_csv(120)
SMALL = {"k": 2, "n_blocks": 1, "d_block": 8, "n_bins": 4, "d_embedding": 4}
DONE: dict[str, Any] = {"progress": {}, "weights_sha256": None}


def make_family(
    session: Session, n_children: int = 3, **values: Any
) -> tuple[Job, list[Job]]:
    progress = {"n_finished": 0, "n_runs": n_children}
    parent = make_job(session, **{"kind": "sweep", "progress": progress, **values})
    children = [
        make_job(session, parent_id=parent.id, position=i, config={"is_cell": True})
        for i in range(n_children)
    ]
    return parent, children


def claim(session: Session) -> Job:
    job = jobs.claim(session, **CLAIM)
    assert job is not None
    if job.parent_id is not None:
        sweeps.begin(session, job.parent_id)
    return job


def finish(session: Session, job: Job, score: float = 0.5, **more: Any) -> list[Job]:
    state = {**asdict(outcome(score)), **more}
    assert jobs.finish_cell(session, job, outcome=state, **DONE)
    return sweeps.follow(session, job)


def types(session: Session, job: Job) -> list[str]:
    rows = session.scalars(
        sa.select(Event.type).where(Event.job_id == job.id).order_by(Event.seq)
    )
    return [*rows]


# The state machine


def test_a_sweep_begins_with_its_first_cell_and_ends_with_its_last(
    session: Session,
) -> None:
    parent, children = make_family(session)
    assert jobs.count_queued(session, "cpu") == 3  # the parent is nobody's work
    for i, child in enumerate(children):
        claimed = claim(session)
        assert claimed.id == child.id
        assert read(session, parent).status == "running"
        assert finish(session, claimed, score=i / 10) == []
    ended = read(session, parent)
    assert (ended.status, ended.lease_owner) == ("succeeded", None)
    assert ended.progress["n_finished"] == 3
    assert ended.progress["best_score"] == 0.2
    assert types(session, parent) == [
        *("queued", "running", "child", "child", "child", "succeeded")
    ]


def test_plain_jobs_come_before_cells(session: Session) -> None:
    make_family(session)
    plain = make_job(session)
    assert claim(session).id == plain.id


def test_a_patrol_ends_what_nobody_told(session: Session) -> None:
    parent, children = make_family(session, 2)
    for _ in children:
        claimed = claim(session)
        jobs.finish_cell(session, claimed, outcome=asdict(outcome(0.5)), **DONE)
    assert read(session, parent).status == "running"  # the workers died before follow
    assert sweeps.look_after(session) == []
    assert read(session, parent).status == "succeeded"


def test_a_sweep_without_success_fails_and_can_be_retried(session: Session) -> None:
    parent, children = make_family(session, 2)
    for _ in children:
        claimed = claim(session)
        jobs.fail(session, claimed, {"code": "diverged", "detail": "too fast"})
        sweeps.follow(session, claimed)
    failed = read(session, parent)
    assert failed.status == "failed" and failed.error is not None
    assert failed.error["code"] == "no_success"
    assert "too fast" in failed.error["detail"]
    assert sweeps.retry(session, parent)
    assert read(session, parent).status == "queued"
    assert {read(session, child).status for child in children} == {"queued"}
    finish(session, claim(session))
    finish(session, claim(session))
    assert read(session, parent).status == "succeeded"


def test_cancel_reaches_all_and_a_lost_worker_too(session: Session) -> None:
    parent, children = make_family(session)
    held = claim(session)
    assert sweeps.cancel(session, parent)
    statuses = [read(session, child).status for child in children]
    assert statuses == ["cancelling", "cancelled", "cancelled"]
    assert read(session, parent).status == "cancelling"
    assert not sweeps.cancel(session, parent)
    expire(session, held)
    jobs.requeue_stalled(session, max_attempts=3)
    sweeps.look_after(session)
    assert read(session, parent).status == "cancelled"


def test_a_cell_that_slips_through_is_caught_by_the_patrol(session: Session) -> None:
    """It was taken back from a lost worker while the sweep was being cancelled."""
    parent, children = make_family(session, 2)
    held = claim(session)
    sweeps.cancel(session, parent)
    session.execute(
        sa.update(Job)
        .where(Job.id == held.id)
        .values(status="queued", lease_owner=None, lease_expires_at=None)
    )
    session.commit()
    sweeps.look_after(session)
    assert read(session, children[0]).status == "cancelled"
    assert read(session, parent).status == "cancelled"


@pytest.mark.parametrize("is_timed", [False, True])
def test_stop_keeps_what_there_is(session: Session, is_timed: bool) -> None:
    config = {"max_runtime_seconds": 1 if is_timed else None}
    parent, children = make_family(session, config=config)
    held = claim(session)
    if is_timed:
        begun = sa.update(Job).where(Job.id == parent.id)
        long_ago = parent.created_at.replace(year=2020)
        session.execute(begun.values(started_at=long_ago))
        session.commit()
        sweeps.look_after(session)
    else:
        assert sweeps.stop(session, parent)
    statuses = [read(session, child).status for child in children]
    assert statuses == ["stopping", "cancelled", "cancelled"]
    finish(session, held)
    assert read(session, parent).status == "succeeded"


def test_weights_of_the_best_are_kept(session: Session) -> None:
    from app import blobs

    _, children = make_family(session, 6)
    for i, score in enumerate([0.1, 0.5, 0.3, 0.2, 0.6, 0.4]):
        claimed = claim(session)
        kept = None
        if sweeps.is_worth_keeping(session, claimed, outcome(score)):
            kept = blobs.store_bytes("default", f"weights {i}".encode())
        state = asdict(outcome(score))
        jobs.finish_cell(
            session, claimed, outcome=state, progress={}, weights_sha256=kept
        )
        sweeps.drop_weights(session, claimed)
    found = [read(session, child).checkpoint_sha256 is not None for child in children]
    assert found == [False, True, False, False, True, True]
    n_blobs = session.scalar(sa.text("SELECT count(*) FROM blobs"))
    assert n_blobs == 4  # the table, and three


def test_of_equal_runs_the_first_are_kept(session: Session) -> None:
    from app import blobs

    _, children = make_family(session, 5)
    for i in range(5):
        claimed = claim(session)
        assert sweeps.is_worth_keeping(session, claimed, outcome(0.5)) == (i < 3)
        kept = blobs.store_bytes("default", f"weights {i}".encode()) if i < 3 else None
        state = asdict(outcome(0.5))
        jobs.finish_cell(
            session, claimed, outcome=state, progress={}, weights_sha256=kept
        )
        sweeps.drop_weights(session, claimed)
    found = [read(session, child).checkpoint_sha256 is not None for child in children]
    assert found == [True, True, True, False, False]


def test_a_budget_begins_anew_with_a_retry(session: Session) -> None:
    config = {"max_runtime_seconds": 60}
    parent, _ = make_family(session, 2, config=config)
    for _ in range(2):
        held = claim(session)
        jobs.fail(session, held, {"code": "diverged", "detail": "no"})
        sweeps.follow(session, held)
    long_ago = parent.created_at.replace(year=2020)
    session.execute(sa.update(Job).values(started_at=long_ago))
    session.commit()
    assert sweeps.retry(session, read(session, parent))
    claim(session)
    sweeps.look_after(session)
    assert read(session, parent).status == "running"


def test_a_stopped_cell_that_loses_its_worker_keeps_the_wish(session: Session) -> None:
    parent, children = make_family(session, 2)
    held = claim(session)
    sweeps.stop(session, parent)
    jobs.release(session, held)
    sweeps.look_after(session)
    assert read(session, children[0]).status == "queued"
    again = claim(session)
    assert (again.id, again.status) == (held.id, "stopping")
    finish(session, again)
    assert read(session, parent).status == "succeeded"


def test_a_sweep_with_failed_cells_can_be_retried(session: Session) -> None:
    parent, _ = make_family(session, 2)
    finish(session, claim(session))
    held = claim(session)
    jobs.fail(session, held, {"code": "diverged", "detail": "no"})
    sweeps.follow(session, held)
    assert read(session, parent).status == "succeeded"
    assert sweeps.retry(session, read(session, parent))
    finish(session, claim(session))
    assert read(session, parent).status == "succeeded"
    assert read(session, parent).progress["n_finished"] == 2
    assert not sweeps.retry(session, read(session, parent))  # nothing is left to do
    sweeps.follow(session, held)  # a worker that comes too late says nothing twice
    assert types(session, parent).count("child") == 3


def make_search(
    session: Session, n_trials: int, *, finalists: int = 3, seeds: int = 3
) -> tuple[Job, list[Job]]:
    tune = {"n_trials": n_trials, "seeds": seeds, "finalists": finalists}
    parent, children = make_family(
        session, n_trials, kind="tune", config={"tune": tune}
    )
    for i, child in enumerate(children):
        child.config = {
            "is_cell": True,
            "trial_of": {"space": {}},
            "hyperparameters": {"max_epochs": 3, "seed": 5, "rank": i % 4 + 1},
        }
    session.commit()
    return parent, children


def find_winner(session: Session, parent: Job) -> Job | None:
    children = sweeps.read_children(session, parent)
    return sweeps.find_winner(sweeps.find_finalists(parent, children))


def test_a_tune_job_refits_its_winner_once(session: Session) -> None:
    parent, children = make_search(session, 2)
    finish(session, claim(session), score=0.9, is_pruned=True)
    (made,) = finish(session, claim(session), score=0.5)
    assert made.position == 2 + 3 * 2
    settings = {"max_epochs": 3, "seed": 5, "rank": 2}
    assert made.config == {
        "hyperparameters": settings,
        "n_seeds": 3,
        "refit_of": 1,
    }
    assert sweeps.look_after(session) == []
    assert read(session, parent).phase == "refitting"
    refit = claim(session)
    jobs.fail(session, refit, {"code": "diverged", "detail": "no"})
    sweeps.follow(session, refit)
    assert read(session, parent).status == "failed"
    assert read(session, parent).progress["n_finished"] == 2  # trials
    # Tried again, it is the refit alone that has to be made, and there is still one.
    assert sweeps.retry(session, parent)
    again = claim(session)
    assert again.id == refit.id
    jobs.fail(session, again, {"code": "diverged", "detail": "no"})
    assert sweeps.follow(session, again) == []
    assert read(session, parent).status == "failed"
    assert find_winner(session, parent).id == children[1].id  # type: ignore[union-attr]


def test_the_best_trials_are_repeated_and_the_best_mean_wins(session: Session) -> None:
    parent, children = make_search(session, 4, finalists=2)
    for score in (0.9, 0.5, 0.8, 0.7):
        made = finish(session, claim(session), score=score)
    assert read(session, parent).phase == "repeating"
    assert [job.config["repeat_of"] for job in made] == [0, 2, 0, 2]
    seeds = [job.config["hyperparameters"]["seed"] for job in made]
    assert seeds == [6, 6, 7, 7]
    assert "trial_of" not in made[0].config and made[0].config["is_cell"]
    assert [job.position for job in made] == [4, 5, 6, 7]
    assert sweeps.look_after(session) == []  # they are there once
    for score in (0.6, 0.95, 0.7, 0.8):
        assert read(session, parent).progress["best_score"] == 0.9
        assert read(session, parent).progress["n_finished"] == 4
        claimed = claim(session)
        assert not sweeps.is_worth_keeping(session, claimed, outcome(1.0))
        made = finish(session, claimed, score=score)
    (refit,) = made
    assert read(session, parent).phase == "refitting"
    assert find_winner(session, parent).id == children[2].id  # type: ignore[union-attr]
    assert refit.config["n_seeds"] == 3 and "repeat_of" not in refit.config
    assert types(session, parent).count("repeating") == 1


def test_a_refit_goes_on_from_the_weights_of_its_trial(session: Session) -> None:
    make_search(session, 1)
    claimed = claim(session)
    weights = blobs.store_bytes(claimed.workspace_id, b"weights")
    state = asdict(outcome(0.5))
    assert jobs.finish_cell(
        session, claimed, outcome=state, progress={}, weights_sha256=weights
    )
    (refit,) = sweeps.follow(session, claimed)
    assert refit.checkpoint_sha256 == weights


@pytest.mark.parametrize("ended", ["stopped", "failed"])
def test_a_lucky_run_does_not_beat_a_mean(session: Session, ended: str) -> None:
    """A repeat that failed or was cut short does not count, for good or ill."""
    parent, _ = make_search(session, 2, finalists=2, seeds=2)
    finish(session, claim(session), score=0.9)
    finish(session, claim(session), score=0.8)
    first, second = claim(session), claim(session)
    assert second.config["repeat_of"] == 1
    assert finish(session, second, score=0.7) == []
    if ended == "failed":
        jobs.fail(session, first, {"code": "diverged", "detail": "no"})
        (refit,) = sweeps.follow(session, first)
    else:
        assert sweeps.stop(session, read(session, parent))
        (refit,) = finish(session, read(session, first), score=0.99)
    winner = find_winner(session, parent)
    assert winner is not None and winner.position == 1
    assert refit.position == 2 + 2


def test_finalists_differ(session: Session) -> None:
    make_search(session, 6, finalists=2, seeds=2)
    for score in (0.9, 0.5, 0.6, 0.5, 0.9, 0.5):  # trials 0 and 4 are alike
        made = finish(session, claim(session), score=score)
    assert [job.config["repeat_of"] for job in made] == [0, 2]


def test_retry_while_repeating(session: Session) -> None:
    parent, children = make_search(session, 3, finalists=2, seeds=2)
    finish(session, claim(session), score=0.9)
    finish(session, claim(session), score=0.8)
    failed = claim(session)
    jobs.fail(session, failed, {"code": "diverged", "detail": "no"})
    assert len(sweeps.follow(session, failed)) == 2
    assert sweeps.cancel(session, read(session, parent))
    assert read(session, parent).status == "cancelled"
    assert sweeps.retry(session, read(session, parent))
    again = claim(session)
    assert again.config["repeat_of"] == 0  # the trial that failed can no longer win
    assert read(session, parent).phase == "repeating"
    assert read(session, children[2]).status == "failed"


def test_a_search_of_before_there_were_finalists(session: Session) -> None:
    parent, _ = make_search(session, 2)
    parent.config = {"tune": {"n_trials": 2, "seeds": 3}}
    session.commit()
    finish(session, claim(session), score=0.6)
    (refit,) = finish(session, claim(session), score=0.7)
    assert refit.position == 2
    found = sweeps.find_refit(session, parent)
    assert found is not None and found.id == refit.id


def test_a_search_that_is_stopped_repeats_nothing(session: Session) -> None:
    parent, children = make_search(session, 3)
    finish(session, claim(session), score=0.6)
    finish(session, claim(session), score=0.7)
    held = claim(session)
    assert sweeps.stop(session, read(session, parent))
    weights = blobs.store_bytes(held.workspace_id, b"weights")
    assert jobs.finish_cell(
        session,
        read(session, held),
        outcome=asdict(outcome(0.8)),
        progress={},
        weights_sha256=weights,
    )
    (refit,) = sweeps.follow(session, held)
    assert refit.config["n_seeds"] == 3
    assert refit.checkpoint_sha256 is None  # the winner was not trained to its end
    assert find_winner(session, parent).id == children[2].id  # type: ignore[union-attr]


def test_out_of_time_repeats_nothing(session: Session) -> None:
    parent, _ = make_search(session, 2)
    parent.config = {**parent.config, "max_runtime_seconds": 1}
    session.commit()
    finish(session, claim(session), score=0.6)
    parent = read(session, parent)
    assert parent.started_at is not None
    parent.started_at -= timedelta(seconds=5)
    session.commit()
    (refit,) = finish(session, claim(session), score=0.7)
    assert refit.config["n_seeds"] == 3


def test_two_that_end_at_once_end_the_sweep_once(engine: sa.Engine) -> None:
    with db.writing() as session:
        parent, children = make_family(session, 8)
        held = [claim(session) for _ in children]

    def end(job: Job) -> None:
        with db.writing() as session:
            finish(session, job)

    threads = [threading.Thread(target=end, args=[job]) for job in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with db.writing() as session:
        assert read(session, parent).status == "succeeded"
        assert types(session, parent).count("succeeded") == 1
        assert types(session, parent).count("child") == 8


# The API


def post(client: TestClient, status: int = 202, **config: Any) -> dict[str, Any]:
    config = {"target": "y", "hyperparameters": SMALL, **config}
    response = client.post(
        "/jobs",
        files={"file": ("t.csv", TABLE)},
        data={
            "config": json.dumps({"target": "y", "hyperparameters": SMALL, **config})
        },
    )
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    return body


def test_a_sweep_as_the_api_shows_it(client: TestClient) -> None:
    job = post(client, kind="sweep", sweep={"seeds": 2}, baselines=["tabm"])
    assert job["progress"]["n_runs"] == 62  # the paper's grid and one more, twice
    assert job["links"]["sweep"] == f"/jobs/{job['id']}/sweep"
    assert len(read_cells(job["config"])) == 31
    sweep = client.get(job["links"]["sweep"]).json()
    assert (sweep["status"], sweep["counts"]) == ("queued", {"queued": 62})
    assert [run["seed"] for run in sweep["runs"][30]] == [0, 1]
    assert sweep["comparison"]["metric"] is None
    children = client.get(f"{job['links']['children']}&limit=100").json()["data"]
    assert len(children) == 62
    by_position = {each["position"]: each for each in children}
    settings = by_position[31 + 1]["config"]["hyperparameters"]
    assert (settings["rank"], settings["sigma_init"], settings["seed"]) == (1, 0.3, 1)
    assert by_position[30]["config"]["hyperparameters"]["variant"] == "tabm"
    assert [each["id"] for each in client.get("/jobs").json()["data"]] == [job["id"]]
    assert client.get("/jobs?kind=sweep").json()["data"][0]["id"] == job["id"]
    wrong = client.get(f"/jobs/{job['id']}/tune")
    assert check_problem(wrong, 409)["code"] == "wrong_job_kind"
    assert client.post(f"/jobs/{job['id']}/cancel").json()["status"] == "cancelled"
    assert client.delete(f"/jobs/{job['id']}").status_code == 204
    assert client.get(children[0]["links"]["self"]).status_code == 404


def test_cells_are_those_that_were_asked_for(client: TestClient) -> None:
    """Whatever order the names have in the database."""
    grid = {"variant": ["lometab", "tabm"], "k": [2, 4], "d_block": [8, 16]}
    for more in (
        {},
        {"max_cells": 3, "reference": {"k": 2, "d_block": 8, "variant": "tabm"}},
    ):
        job = post(client, kind="sweep", sweep={"grid": grid, **more})
        sweep = client.get(job["links"]["sweep"]).json()
        children = client.get(f"{job['links']['children']}&limit=100").json()["data"]
        by_position = {each["position"]: each for each in children}
        for cell in sweep["comparison"]["cells"]:
            settings = by_position[cell["cell"]]["config"]["hyperparameters"]
            assert cell["settings"].items() <= settings.items()
    assert len(children) in (3, 4)  # the reference is there in any case


def test_a_tune_job_as_the_api_shows_it(client: TestClient) -> None:
    space = {"k": None, "rank": {"values": [3]}}
    job = post(client, kind="tune", tune={"n_trials": 2, "space": space})
    tune = client.get(job["links"]["tune"]).json()
    assert "k" not in tune["space"]
    assert tune["space"]["rank"] == {"values": [3]}
    assert tune["space"]["d_block"]["high"] == 1024
    assert [each["settings"] for each in tune["trials"]] == [None, None]
    assert (tune["best"], tune["importances"], tune["model_id"]) == (None, {}, None)
    refused = client.post(f"/jobs/{job['id']}/promote", json={"trial": 0})
    assert check_problem(refused, 409)["code"] == "wrong_job_status"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "sweep", "sweep": {"grid": {"rnak": [1]}}}, "did you mean rank"),
        ({"kind": "sweep", "sweep": {"grid": {"rank": [0]}}}, "rank must be at least"),
        ({"kind": "sweep", "sweep": {"gird": {}}}, "did you mean 'grid'"),
        (
            {"kind": "sweep", "sweep": {"grid": [{"rank": [1, {"a": 1}]}]}},
            "sweep.grid.0.rank.1: a value must be a text, a number",
        ),
        ({"form: grid": 1}, "there is no setting 'form: grid'"),
        ({"body": 1}, "there is no setting 'body'"),
        (
            {"kind": "tune", "tune": {"space": {"rank": {"low": 1}}}},
            "tune.space.rank.high: Field required",
        ),
        ({"kind": "sweep", "sweep": {"seeds": 100}, "n_seeds": 2}, "`seeds`"),
        (
            {"kind": "sweep", "sweep": {"grid": {"lr": [i / 999 for i in range(999)]}}},
            "lr must be above 0",
        ),
        (
            {"kind": "sweep", "sweep": {"grid": {"rank": [1, 2] * 400}, "seeds": 10}},
            "5000 runs are allowed",
        ),
        (
            {"kind": "sweep", "sweep": {"reference": {"rank": 3}}},
            "none of the cells",
        ),
        ({"sweep": {}}, "`sweep` goes with kind 'sweep'"),
        ({"kind": "tune", "tune": {"space": {"lr": {"low": 0}}}}, "high"),
        (
            {"kind": "tune", "tune": {"space": {"lr": {"low": -1, "high": 1}}}},
            "lr must be above 0",
        ),
        ({"n_seeds": 0}, "n_seeds"),
        ({"n_seeds": 3, "hyperparameters": {"seed": 2**31 - 1}}, "seed must be"),
        ({"kind": "sweep", "sweep": {"grid": []}}, "at least 1 item"),
        ({"kind": "sweep", "sweep": {"grid": {"k": [[1]]}}}, "grid"),
        (
            {
                "kind": "sweep",
                "sweep": {
                    "grid": {n: [0.5] * 1000 for n in ("lr", "dropout", "sigma_init")},
                },
            },
            "runs are allowed",
        ),
        ({"kind": "tune", "tune": {"space": {"k": {"low": 1, "high": 1e400}}}}, "high"),
        (
            {"kind": "tune", "tune": {"space": {"variant": {"low": 1, "high": 2}}}},
            "variant has no range",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    client: TestClient, config: dict[str, Any], words: str
) -> None:
    assert words in post(client, 422, **config)["detail"]


def test_a_huge_grid_is_not_made_to_draw_from_it(client: TestClient) -> None:
    grid = {
        "lr": [(i + 1) / 2000 for i in range(1000)],
        "dropout": [i / 2000 for i in range(1000)],
        "sigma_init": [i / 100 for i in range(1000)],
        "weight_decay": [i / 2000 for i in range(1000)],
    }
    job = post(client, kind="sweep", sweep={"grid": grid, "max_cells": 2})
    assert job["progress"]["n_runs"] == 2


def test_promoting(client: TestClient) -> None:
    job = post(client, kind="sweep", sweep={"grid": {"rank": [1, 2]}})

    def promote(**body: Any) -> httpx.Response:
        response: httpx.Response = client.post(f"/jobs/{job['id']}/promote", json=body)
        return response

    for body, words in (
        ({}, "say which cell"),
        ({"trial": 0}, "say which cell"),
        ({"cell": 2}, "they are 0 to 1"),
        ({"cell": -1}, "greater than or equal"),
    ):
        assert words in check_problem(promote(**body), 422)["detail"]
    made = promote(cell=1, n_seeds=2, name="second").json()
    assert (made["kind"], made["parent_id"], made["name"]) == ("train", None, "second")
    assert made["config"]["hyperparameters"]["rank"] == 2
    assert made["config"]["n_seeds"] == 2 and "is_cell" not in made["config"]
    again = client.post(f"/jobs/{made['id']}/promote", json={"cell": 0})
    assert check_problem(again, 409)["code"] == "wrong_job_kind"
