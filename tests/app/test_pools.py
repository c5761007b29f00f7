"""What holds up the database for others does not hold up predict."""

import threading
import time

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import jobs
from app.main import app
from app.serving import get_predictors
from app.settings import get_settings
from app.storage import db
from tests.support.http import check_problem
from tests.support.models import ROWS, succeed

ON_POSTGRES = pytest.mark.parametrize("stack", ["production"], indirect=True)


@ON_POSTGRES
def test_a_locked_table_does_not_stop_predict(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "notify_of", lambda job: None)
    get_settings.cache_clear()
    with (
        TestClient(
            app,
            "http://127.0.0.1",
            raise_server_exceptions=False,
            client=("127.0.0.1", 50000),
        ) as client,
        engine.connect() as locker,
    ):
        model_id = succeed(client, "y")["model_id"]
        get_predictors.cache_clear()
        answers = []
        took: list[float] = []

        def list_jobs() -> None:
            started_at = time.monotonic()
            answers.append(client.get("/jobs"))
            took.append(time.monotonic() - started_at)

        locker.execute(sa.text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
        locker.connection.cursor().execute(
            "SET idle_in_transaction_session_timeout = 0"
        )
        threads = [threading.Thread(target=list_jobs) for _ in range(30)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        deadline = time.monotonic() + 5
        n_answered = 0
        while time.monotonic() < deadline:
            started_at = time.monotonic()
            answer = client.post(f"/models/{model_id}/predict", json={"rows": ROWS[:1]})
            assert answer.status_code == 200, answer.text
            assert time.monotonic() - started_at < 3
            n_answered += 1
        assert n_answered > 5
        started_at = time.monotonic()
        answer = client.post(f"/models/{model_id}/invocations", json={"inputs": ROWS})
        assert answer.status_code == 200, answer.text
        assert time.monotonic() - started_at < 3
        for thread in threads:
            thread.join()
        for answer in answers:
            check_problem(answer, 503)
            assert int(answer.headers["retry-after"]) > 0
        assert max(took) < 20
        locker.rollback()
        assert client.get("/jobs").status_code == 200


@ON_POSTGRES
def test_connections_have_limits(engine: sa.Engine) -> None:
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    for each, expected in (
        (engine, ["10s", "1min", "30s"]),
        (db.get_predict_engine(), ["2s", "5s", "30s"]),
    ):
        with each.connect() as connection:
            limits = [connection.scalar(sa.text(f"SHOW {name}")) for name in names]
            assert limits == expected
            info = connection.connection.dbapi_connection.info  # type: ignore[union-attr]
            parameters = info.get_parameters()
            assert parameters["keepalives_idle"] == "15"
            assert parameters["tcp_user_timeout"] == "30000"


@ON_POSTGRES
def test_a_statement_that_takes_too_long_is_ended(
    engine: sa.Engine, stack: "object"
) -> None:
    limits = db.Limits(statement_seconds=0.2)
    url = engine.url.render_as_string(hide_password=False)
    other = db.make_engine(url, limits)
    try:
        with other.connect() as connection, pytest.raises(sa.exc.OperationalError):
            connection.execute(sa.text("SELECT pg_sleep(10)"))
    finally:
        other.dispose()


@pytest.mark.slow
@pytest.mark.both_databases
def test_predict_has_connections_of_its_own(engine: sa.Engine) -> None:
    taken = [engine.connect() for _ in range(db.Limits().connections)]
    try:
        started_at = time.monotonic()
        with db.as_predict(), db.reading() as session:
            assert session.scalar(sa.text("SELECT 1")) == 1
        assert db.get_kept_connection().scalar(sa.text("SELECT 1")) == 1
        assert time.monotonic() - started_at < 2
        with pytest.raises(sa.exc.TimeoutError), db.reading() as session:
            session.scalar(sa.text("SELECT 1"))
    finally:
        for connection in taken:
            connection.close()
        db.drop_kept_connection()
