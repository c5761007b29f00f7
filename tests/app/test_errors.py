"""Errors are documented, and say nothing that they should not."""

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.errors import JOB_FAILURES, document
from app.main import api, app
from app.storage import db
from lometab.errors import DataError, ExportMismatch, TrainingDiverged
from tests.support.http import check_problem
from worker.train import failure_code

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert written == document(), "run `make docs`"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataError("x"), "bad_data"),
        (TrainingDiverged("x"), "diverged"),
        (ExportMismatch("x"), "export_mismatch"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (KeyError("x"), "internal"),
    ],
)
def test_every_failure_of_a_job_is_documented(error: Exception, code: str) -> None:
    assert failure_code(error) == code
    assert code in JOB_FAILURES


def test_a_bug_tells_no_secret() -> None:
    @api.get("/boom", include_in_schema=False)
    def boom() -> None:
        raise RuntimeError("secret")

    client = TestClient(
        app, "http://127.0.0.1", client=("127.0.0.1", 1), raise_server_exceptions=False
    )
    response = client.get("/boom", headers={"X-Request-ID": "mine-1"})
    api.router.routes.pop()
    problem = check_problem(response, 500)
    assert "secret" not in response.text
    assert response.headers["x-request-id"] == problem["request_id"] == "mine-1"


def test_request_ids(client: TestClient) -> None:
    made = client.get("/healthz").headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{16}", made)
    kept = client.get("/healthz", headers={"X-Request-ID": "a.b-C_1"})
    assert kept.headers["x-request-id"] == "a.b-C_1"
    odd = client.get("/healthz", headers={"X-Request-ID": "a b\t" + "x" * 200})
    assert re.fullmatch("[0-9a-f]{16}", odd.headers["x-request-id"])
    assert odd.headers["x-request-id"] != made


def test_a_database_out_of_reach_is_503(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = db.make_engine("postgresql+psycopg://nobody@127.0.0.1:9/none")
    monkeypatch.setattr(db, "get_engine", lambda: away)
    for path in ("/jobs", "/readyz", "/models/mdl_x"):
        response = client.get(path)
        problem = check_problem(response, 503)
        assert problem["code"] == "unavailable"
        assert int(response.headers["retry-after"]) > 0
    assert client.get("/healthz").status_code == 200
    away.dispose()
