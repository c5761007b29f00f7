"""Errors of the database stay in the log: no caller sees a statement or its values."""

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app import jobs
from app.storage import db
from app.storage.tables import Job
from tests.support.jobs import hold, make_job, read

pytestmark = pytest.mark.both_databases


SECRET = "a value of a row"
SQL = ("SELECT", "INSERT", "UPDATE", "sqlite3", "psycopg", "[SQL", "sqlalche.me")


def break_database(connection: sa.Connection) -> sa.exc.DBAPIError:
    """The error of a statement that the database refuses, with a value in it."""
    try:
        with connection.begin_nested():
            connection.execute(
                sa.text("SELECT nothing FROM nowhere WHERE name = :name"),
                {"name": SECRET},
            )
    except sa.exc.DBAPIError as error:
        return error
    raise AssertionError("the statement should have failed")


def test_the_error_of_a_job_has_no_sql(
    session: Session, database: sa.Connection, client: TestClient
) -> None:
    error = break_database(database)
    assert "nowhere" in str(error) and SECRET not in str(error)  # nor in the log
    job = make_job(
        session,
        schema={"numeric": [], "categorical": [], "datetime": [], "ignored": {}},
        estimate={
            "n_parameters": 1,
            "memory_bytes": 1,
            "serving_bytes": 1,
            "flops_per_epoch": 1,
            "seconds_per_epoch": 1.0,
        },
        progress={"epoch": 0, "max_epochs": 1},
    )
    assert jobs.fail(session, hold(session), jobs.describe_failure(error))
    session.commit()
    told = client.get(f"/jobs/{job.id}").json()["error"]
    events = client.get(f"/jobs/{job.id}/events").text
    assert told["code"] == "internal" and "the database failed" in told["detail"]
    for text in (told["detail"], events):
        assert not any(word in text for word in (*SQL, "nowhere", SECRET)), text
    assert read(session, job).status == "failed"


def test_other_errors_are_told_as_they_are() -> None:
    told = jobs.describe_failure(ValueError("the folder is gone"))
    assert told == {"code": "internal", "detail": "ValueError: the folder is gone"}


def test_an_answer_has_no_sql(client: TestClient, database: sa.Connection) -> None:
    with db.transaction() as session:
        make_job(session)
    database.execute(sa.text("ALTER TABLE jobs RENAME TO elsewhere"))
    answer = client.get("/jobs/job_1")
    assert answer.status_code >= 500
    for word in (*SQL, Job.__tablename__ + "."):
        assert word not in answer.text, answer.text
