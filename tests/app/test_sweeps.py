"""Parents and their children, on both databases: cascades, ends, winners."""

import threading
from dataclasses import asdict
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import jobs
from app.storage import blobs, db
from app.storage.tables import Event, Job
from tests.support.families import DONE, claim, finish, make_family
from tests.support.jobs import expire, make_job, read
from tests.support.outcomes import outcome

pytestmark = pytest.mark.both_databases


def reconcile_all(session: Session) -> list[Job]:
    """What the reaper does."""
    return [
        job for id_ in jobs.list_open(session) for job in jobs.reconcile(session, id_)
    ]


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
    assert len(children) == 3
    for i, child in enumerate(children):
        assert jobs.has_queued(session, "cpu")
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
        jobs.finish_measured(session, claimed, outcome=asdict(outcome(0.5)), **DONE)
    assert read(session, parent).status == "running"  # the workers died before follow
    assert reconcile_all(session) == []
    assert read(session, parent).status == "succeeded"


def test_a_sweep_without_success_fails_and_can_be_retried(session: Session) -> None:
    parent, children = make_family(session, 2)
    for _ in children:
        claimed = claim(session)
        jobs.fail(session, claimed, {"code": "diverged", "detail": "too fast"})
        jobs.follow(session, claimed)
    failed = read(session, parent)
    assert failed.status == "failed" and failed.error is not None
    assert failed.error["code"] == "no_success"
    assert "too fast" in failed.error["detail"]
    assert jobs.retry(session, parent)
    assert read(session, parent).status == "queued"
    assert {read(session, child).status for child in children} == {"queued"}
    finish(session, claim(session))
    finish(session, claim(session))
    assert read(session, parent).status == "succeeded"


def test_cancel_reaches_all_and_a_lost_worker_too(session: Session) -> None:
    parent, children = make_family(session)
    held = claim(session)
    assert jobs.cancel(session, parent)
    statuses = [read(session, child).status for child in children]
    assert statuses == ["cancelling", "cancelled", "cancelled"]
    assert read(session, parent).status == "cancelling"
    assert not jobs.cancel(session, parent)
    expire(session, held)
    jobs.requeue_stalled(session, max_attempts=3)
    reconcile_all(session)
    assert read(session, parent).status == "cancelled"


def test_a_cell_that_slips_through_is_caught_by_the_patrol(session: Session) -> None:
    """It was taken back from a lost worker while the sweep was being cancelled."""
    parent, children = make_family(session, 2)
    held = claim(session)
    jobs.cancel(session, parent)
    session.execute(
        sa.update(Job)
        .where(Job.id == held.id)
        .values(status="queued", lease_owner=None, lease_expires_at=None)
    )
    session.commit()
    reconcile_all(session)
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
        reconcile_all(session)
    else:
        assert jobs.stop(session, parent)
    statuses = [read(session, child).status for child in children]
    assert statuses == ["stopping", "cancelled", "cancelled"]
    finish(session, held)
    assert read(session, parent).status == "succeeded"


def test_weights_of_the_best_are_kept(session: Session) -> None:
    from app.storage import blobs

    _, children = make_family(session, 6)
    for i, score in enumerate([0.1, 0.5, 0.3, 0.2, 0.6, 0.4]):
        claimed = claim(session)
        kept = None
        if jobs.is_worth_keeping(session, claimed, outcome(score)):
            kept = blobs.store_bytes("default", f"weights {i}".encode())
        state = asdict(outcome(score))
        jobs.finish_measured(
            session, claimed, outcome=state, progress={}, weights_sha256=kept
        )
        jobs.drop_weights(session, claimed)
    found = [read(session, child).checkpoint_sha256 is not None for child in children]
    assert found == [False, True, False, False, True, True]
    n_blobs = session.scalar(sa.text("SELECT count(*) FROM blobs"))
    assert n_blobs == 4  # the table, and three


def test_of_equal_runs_the_first_are_kept(session: Session) -> None:
    from app.storage import blobs

    _, children = make_family(session, 5)
    for i in range(5):
        claimed = claim(session)
        assert jobs.is_worth_keeping(session, claimed, outcome(0.5)) == (i < 3)
        kept = blobs.store_bytes("default", f"weights {i}".encode()) if i < 3 else None
        state = asdict(outcome(0.5))
        jobs.finish_measured(
            session, claimed, outcome=state, progress={}, weights_sha256=kept
        )
        jobs.drop_weights(session, claimed)
    found = [read(session, child).checkpoint_sha256 is not None for child in children]
    assert found == [True, True, True, False, False]


def test_a_budget_begins_anew_with_a_retry(session: Session) -> None:
    config = {"max_runtime_seconds": 60}
    parent, _ = make_family(session, 2, config=config)
    for _ in range(2):
        held = claim(session)
        jobs.fail(session, held, {"code": "diverged", "detail": "no"})
        jobs.follow(session, held)
    long_ago = parent.created_at.replace(year=2020)
    session.execute(sa.update(Job).values(started_at=long_ago))
    session.commit()
    assert jobs.retry(session, read(session, parent))
    claim(session)
    reconcile_all(session)
    assert read(session, parent).status == "running"


def test_a_stopped_cell_without_a_worker_keeps_the_request(session: Session) -> None:
    parent, children = make_family(session, 2)
    held = claim(session)
    jobs.stop(session, parent)
    jobs.release(session, held)
    reconcile_all(session)
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
    jobs.follow(session, held)
    assert read(session, parent).status == "succeeded"
    assert jobs.retry(session, read(session, parent))
    finish(session, claim(session))
    assert read(session, parent).status == "succeeded"
    assert read(session, parent).progress["n_finished"] == 2
    assert not jobs.retry(session, read(session, parent))  # nothing is left to do
    jobs.follow(session, held)  # a worker that comes too late says nothing twice
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
            "hyperparameters": {"max_epochs": 3, "seed": 5, "rank": i % 4 + 1},
        }
    session.commit()
    return parent, children


def find_winner(session: Session, parent: Job) -> Job | None:
    children = jobs.read_children(session, parent)
    return jobs.find_winner(jobs.find_finalists(parent, children))


def test_a_tune_job_refits_its_winner_once(session: Session) -> None:
    parent, children = make_search(session, 2)
    finish(session, claim(session), score=0.9, is_pruned=True)
    (made,) = finish(session, claim(session), score=0.5)
    assert (made.role, made.number, made.position) == ("refit", 1, 2)
    settings = {"max_epochs": 3, "seed": 5, "rank": 2}
    assert made.config == {
        "hyperparameters": settings,
        "n_seeds": 3,
    }
    assert reconcile_all(session) == []
    assert read(session, parent).phase == "refitting"
    refit = claim(session)
    jobs.fail(session, refit, {"code": "diverged", "detail": "no"})
    jobs.follow(session, refit)
    assert read(session, parent).status == "failed"
    assert read(session, parent).progress["n_finished"] == 2  # trials
    # Tried again, it is the refit alone that has to be made, and there is still one.
    assert jobs.retry(session, parent)
    again = claim(session)
    assert again.id == refit.id
    jobs.fail(session, again, {"code": "diverged", "detail": "no"})
    assert jobs.follow(session, again) == []
    assert read(session, parent).status == "failed"
    assert find_winner(session, parent).id == children[1].id  # type: ignore[union-attr]


def test_the_best_trials_are_repeated_and_the_best_mean_wins(session: Session) -> None:
    parent, children = make_search(session, 4, finalists=2)
    for score in (0.9, 0.5, 0.8, 0.7):
        made = finish(session, claim(session), score=score)
    assert read(session, parent).phase == "repeating"
    assert [job.number for job in made] == [0, 2, 0, 2]
    seeds = [job.config["hyperparameters"]["seed"] for job in made]
    assert seeds == [6, 6, 7, 7]
    assert [job.role for job in made] == ["repeat"] * 4
    assert [job.repeat for job in made] == [1, 1, 2, 2]
    assert [job.position for job in made] == [4, 5, 6, 7]
    assert reconcile_all(session) == []  # they are there once
    for score in (0.6, 0.95, 0.7, 0.8):
        assert read(session, parent).progress["best_score"] == 0.9
        assert read(session, parent).progress["n_finished"] == 4
        claimed = claim(session)
        assert not jobs.is_worth_keeping(session, claimed, outcome(1.0))
        made = finish(session, claimed, score=score)
    (refit,) = made
    assert read(session, parent).phase == "refitting"
    assert find_winner(session, parent).id == children[2].id  # type: ignore[union-attr]
    assert refit.config["n_seeds"] == 3 and (refit.role, refit.number) == ("refit", 2)
    assert types(session, parent).count("repeating") == 1


def test_a_refit_goes_on_from_the_weights_of_its_trial(session: Session) -> None:
    make_search(session, 1)
    claimed = claim(session)
    weights = blobs.store_bytes(claimed.workspace_id, b"weights")
    state = asdict(outcome(0.5))
    assert jobs.finish_measured(
        session, claimed, outcome=state, progress={}, weights_sha256=weights
    )
    (refit,) = jobs.follow(session, claimed)
    assert refit.checkpoint_sha256 == weights


@pytest.mark.parametrize("ended", ["stopped", "failed"])
def test_a_lucky_run_does_not_beat_a_mean(session: Session, ended: str) -> None:
    """A repeat that failed or was cut short does not count, for good or ill."""
    parent, _ = make_search(session, 2, finalists=2, seeds=2)
    finish(session, claim(session), score=0.9)
    finish(session, claim(session), score=0.8)
    first, second = claim(session), claim(session)
    assert second.number == 1
    assert finish(session, second, score=0.7) == []
    if ended == "failed":
        jobs.fail(session, first, {"code": "diverged", "detail": "no"})
        (refit,) = jobs.follow(session, first)
    else:
        assert jobs.stop(session, read(session, parent))
        (refit,) = finish(session, read(session, first), score=0.99)
    winner = find_winner(session, parent)
    assert winner is not None and winner.number == 1
    assert (refit.role, refit.number) == ("refit", 1)


def test_finalists_differ(session: Session) -> None:
    make_search(session, 6, finalists=2, seeds=2)
    for score in (0.9, 0.5, 0.6, 0.5, 0.9, 0.5):  # trials 0 and 4 are alike
        made = finish(session, claim(session), score=score)
    assert [job.number for job in made] == [0, 2]


def test_retry_while_repeating(session: Session) -> None:
    parent, children = make_search(session, 3, finalists=2, seeds=2)
    finish(session, claim(session), score=0.9)
    finish(session, claim(session), score=0.8)
    failed = claim(session)
    jobs.fail(session, failed, {"code": "diverged", "detail": "no"})
    assert len(jobs.follow(session, failed)) == 2
    assert jobs.cancel(session, read(session, parent))
    assert read(session, parent).status == "cancelled"
    assert jobs.retry(session, read(session, parent))
    again = claim(session)
    assert again.number == 0  # the trial that failed can no longer win
    assert read(session, parent).phase == "repeating"
    assert read(session, children[2]).status == "failed"


def test_a_search_of_before_there_were_finalists(session: Session) -> None:
    parent, _ = make_search(session, 2)
    parent.config = {"tune": {"n_trials": 2, "seeds": 3}}
    session.commit()
    finish(session, claim(session), score=0.6)
    (refit,) = finish(session, claim(session), score=0.7)
    assert refit.position == 2
    found = jobs.find_refit(session, parent)
    assert found is not None and found.id == refit.id


def test_a_search_that_is_stopped_repeats_nothing(session: Session) -> None:
    parent, children = make_search(session, 3)
    finish(session, claim(session), score=0.6)
    finish(session, claim(session), score=0.7)
    held = claim(session)
    assert jobs.stop(session, read(session, parent))
    weights = blobs.store_bytes(held.workspace_id, b"weights")
    assert jobs.finish_measured(
        session,
        read(session, held),
        outcome=asdict(outcome(0.8)),
        progress={},
        weights_sha256=weights,
    )
    (refit,) = jobs.follow(session, held)
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
    with db.transaction() as session:
        parent, children = make_family(session, 8)
        held = [claim(session) for _ in children]

    def end(job: Job) -> None:
        with db.transaction() as session:
            finish(session, job)

    threads = [threading.Thread(target=end, args=[job]) for job in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with db.transaction() as session:
        assert read(session, parent).status == "succeeded"
        assert types(session, parent).count("succeeded") == 1
        assert types(session, parent).count("child") == 8
