"""What a job would be, and which workers live."""

from dataclasses import asdict

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app import jobs
from app.jobs import heartbeat_worker
from app.settings import get_settings
from app.storage.tables import Job
from lometab.space import PAPER_SPACE
from tests.support.http import check_problem, make_key
from tests.support.jobs import CLAIM
from tests.support.tables import make_csv


def upload(client: TestClient) -> str:
    made = client.post("/datasets", files={"file": ("t.csv", make_csv(80))})
    assert made.status_code == 201
    dataset_id: str = made.json()["id"]
    return dataset_id


def test_a_plan_is_what_the_job_will_be(client: TestClient) -> None:
    body = {
        "dataset_id": upload(client),
        "target": "y",
        "preset": "fast",
        "hyperparameters": {"k": 3},
    }
    plan = client.post("/jobs/plan", json=body)
    assert plan.status_code == 200, plan.text
    assert client.get("/jobs").json()["data"] == []  # nothing was made
    job = client.post("/jobs", json=body).json()
    for name in ("estimate", "columns", "warnings"):
        assert plan.json()[name] == job[name], name
    assert plan.json()["task"] == job["config"]["task"]
    assert plan.json()["hyperparameters"] == job["config"]["hyperparameters"]
    assert plan.json()["n_runs"] == 1


def test_a_plan_of_many_runs_counts_them(client: TestClient) -> None:
    body = {"dataset_id": upload(client), "target": "y", "kind": "sweep"}
    body["sweep"] = {"grid": {"rank": [1, 2, 4], "k": [2, 3]}, "seeds": 2}
    assert client.post("/jobs/plan", json=body).json()["n_runs"] == 12
    body = {"dataset_id": body["dataset_id"], "target": "y", "kind": "tune"}
    assert client.post("/jobs/plan", json=body).json()["n_runs"] == 50


def test_a_plan_tells_what_a_search_may_draw_from(client: TestClient) -> None:
    body = {"dataset_id": upload(client), "target": "y", "kind": "tune"}
    body["hyperparameters"] = {"lr": 7e-4}
    paper, near = client.post("/jobs/plan", json=body).json()["spaces"].values()
    assert paper["d_block"] == asdict(PAPER_SPACE["d_block"])
    assert near["lr"] == {"values": [7e-4, 2e-3]}
    body["tune"] = {"space": {**dict.fromkeys(paper), **near}}
    assert client.post("/jobs/plan", json=body).status_code == 200
    made = client.post("/jobs", json=body).json()
    told = client.get(f"/jobs/{made['id']}/tune").json()
    assert told["space"] == near


def test_a_plan_has_the_faults_of_the_job(client: TestClient) -> None:
    body = {"dataset_id": upload(client), "target": "nothing"}
    planned = client.post("/jobs/plan", json=body)
    made = client.post("/jobs", json=body)
    check_problem(planned, 422)
    assert planned.json()["detail"] == made.json()["detail"]


def test_workers_are_told_and_jobs_of_others_are_not(
    client: TestClient, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "reaper_seconds", 600.0)  # none falls silent
    assert client.get("/workers").json() == {"data": []}
    body = {"dataset_id": upload(client), "target": "y"}
    job_id = client.post("/jobs", json=body).json()["id"]
    heartbeat_worker(
        session,
        worker_id=CLAIM["owner"],
        queue="cpu",
        workspace_id="default",
        memory_bytes=2**30,
        threads=2,
    )
    session.commit()
    (idle,) = client.get("/workers").json()["data"]
    assert (idle["is_busy"], idle["job_ids"], idle["threads"]) == (False, [], 2)
    claimed = jobs.claim(session, **CLAIM)
    assert isinstance(claimed, Job) and claimed.id == job_id
    session.commit()
    (busy,) = client.get("/workers").json()["data"]
    assert (busy["is_busy"], busy["job_ids"]) == (True, [job_id])
    client.headers["Authorization"] = f"Bearer {make_key('elsewhere')}"
    (seen,) = client.get("/workers").json()["data"]
    assert (seen["is_busy"], seen["job_ids"]) == (True, [])
