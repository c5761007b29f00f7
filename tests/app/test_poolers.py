"""Connections that a process keeps, and a pooler between it and Postgres."""

import shutil
import threading

import pytest
import sqlalchemy as sa

from app.settings import Settings
from app.storage import db
from tests.support.poolers import PgBouncer
from tests.support.services import TINY, post_job, wait_for_end
from tests.support.stacks import Service, Stack, Stacks
from tests.support.tables import make_csv

LIMITS = db.Limits(lock_seconds=7, idle_seconds=8, statement_seconds=9)

ROW = {"size": 1.0, "colour": "red", "weight": 2.0}


def count_connections(stack: Stack) -> int:
    """To the stack's database, but for the one that counts."""
    ((n,),) = stack.query(
        "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()"
    )
    return int(n)


@pytest.mark.parametrize("stack", ["production"], indirect=True)
@pytest.mark.parametrize(("kept", "n_left"), [(1, 1), (15, 3)])
def test_connections_beyond_those_kept_are_closed_after_use(
    stack: Stack, kept: int, n_left: int
) -> None:
    engine = db.make_engine(stack.url, db.Limits(kept=kept))
    all_there = threading.Barrier(3)

    def use() -> None:
        with engine.begin() as connection:
            connection.execute(sa.text("SELECT 1"))
            all_there.wait(10)

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count_connections(stack) == n_left
    engine.dispose()


def test_a_worker_keeps_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "_most_kept", [])
    assert db._limits(Settings()).kept == Settings().database_connections
    db.keep_one_connection()
    assert db._limits(Settings()).kept == 1


@pytest.mark.parametrize("stack", ["production"], indirect=True)
@pytest.mark.parametrize("is_pooled", [False, True])
def test_through_a_pooler_limits_hold_for_transactions_alone(
    stack: Stack, is_pooled: bool
) -> None:
    engine = db.make_engine(stack.url, LIMITS._replace(is_pooled=is_pooled))
    with engine.begin() as connection:
        for name, expected in (
            ("lock_timeout", "7s"),
            ("idle_in_transaction_session_timeout", "8s"),
            ("statement_timeout", "9s"),
        ):
            found = connection.scalar(sa.text(f"SHOW {name}"))
            assert found == expected, name
        for _ in range(10):
            connection.execute(sa.text("SELECT :x"), {"x": 1})
        prepared = connection.scalar(
            sa.text("SELECT count(*) FROM pg_prepared_statements")
        )
        assert bool(prepared) is not is_pooled
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        connection.rollback()
        raw.autocommit = True
        (left,) = raw.execute("SHOW lock_timeout").fetchone()
        assert left == ("0" if is_pooled else "7s")
        raw.autocommit = False
    engine.dispose()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not here")
def test_a_service_through_pgbouncer(stacks: Stacks) -> None:
    """Jobs, a search with Optuna's own tables, streams and predict, by few
    connections that are given out for a transaction."""
    stack = stacks.make("production")
    database = stack.url.rpartition("/")[2]
    with PgBouncer(stacks.postgres, database, server_connections=3) as pooler:
        stack.environment |= pooler.settings
        service = Service(stack)
        try:
            table = make_csv(120)
            config = {"columns": {"label": "ignore"}}
            plain = post_job(service.client, table, **config)
            search = post_job(
                service.client,
                table,
                kind="tune",
                tune={"n_trials": 3, "space": {"rank": {"values": [1, 2]}}},
                hyperparameters={**TINY, "max_epochs": 1},
                **config,
            )
            model_id = wait_for_end(service, plain["id"])["model_id"]
            assert wait_for_end(service, search["id"], 180)["status"] == "succeeded"
            for _ in range(20):
                answer = service.client.post(
                    f"/models/{model_id}/predict", json={"rows": [ROW]}
                )
                assert answer.status_code == 200, answer.text
                page = service.client.get("/jobs")
                assert page.status_code == 200, page.text
            path = f"/jobs/{plain['id']}/events"
            headers = {"Accept": "text/event-stream"}
            assert "succeeded" in service.client.get(path, headers=headers).text
            assert count_connections(stack) <= 3
        finally:
            assert service.stop() == 0
        assert "prepared statement" not in service.read_log()
