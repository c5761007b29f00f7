"""Sweeps, tuning and promotion: real workers, real kills, on both databases."""

import signal
from collections import Counter
from typing import Any

import pytest

from lometab.predictor import Predictor
from tests.support.servers import wait_until
from tests.support.services import (
    TINY,
    find_child,
    post_job,
    read_events,
    read_job,
    wait_for_end,
)
from tests.support.stacks import Service, Stack
from tests.support.tables import make_csv

pytestmark = pytest.mark.slow

# What the databases do differently is in tests/app/test_sweeps.py: one scenario here
# takes half a minute, so each has one stack.
ON_POSTGRES = pytest.mark.parametrize("stack", ["production"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("stack", ["embedded"], indirect=True)

TABLE = make_csv(300)
SMALL_SPACE = {
    "k": {"values": [2, 4]},
    "rank": {"values": [1, 2]},
    "d_block": {"low": 8, "high": 16, "step": 8},
    "n_blocks": None,
    "n_bins": {"low": 2, "high": 8},
    "d_embedding": None,
}
GRID = {"rank": [1, 2], "sigma_init": [0.1, 2.0]}


def read_sweep(service: Service, job_id: str) -> dict[str, Any]:
    answer = service.client.get(f"/jobs/{job_id}/sweep")
    assert answer.status_code == 200, answer.text
    sweep: dict[str, Any] = answer.json()
    return sweep


@ON_POSTGRES
def test_a_sweep_survives_its_worker(service: Service, stack: Stack) -> None:
    long = {**TINY, "max_epochs": 12, "patience": None}
    job = post_job(
        service.client,
        TABLE,
        "label",
        kind="sweep",
        columns={"y": "ignore"},
        hyperparameters=long,
        baselines=["mlp", "catboost"],
        sweep={"grid": GRID, "seeds": 2, "reference": {"variant": "mlp"}},
    )
    assert (job["status"], job["progress"]["n_runs"]) == ("queued", 12)
    wait_until(
        lambda: read_job(service, job["id"])["progress"]["n_finished"] >= 3,
        seconds=90,
        what="three runs",
    )
    child = find_child(service)
    worker = service.find_process("worker.tasks")
    assert worker is not None
    worker.send_signal(signal.SIGKILL)
    ended = wait_for_end(service, job["id"], seconds=150)
    assert ended["status"] == "succeeded", ended["error"]
    assert not child.is_running()

    # No cell is lost, none is there twice, and the kill cost one attempt, or none if it
    # came between two runs.
    sweep = read_sweep(service, job["id"])
    assert sweep["counts"] == {"succeeded": 12}
    assert [len(runs) for runs in sweep["runs"]] == [2] * 6
    rows = stack.query(
        "SELECT position, attempt FROM jobs WHERE parent_id = :id", id=job["id"]
    )
    assert sorted(position for position, _ in rows) == [*range(12)]
    assert sum(attempt for _, attempt in rows) in (12, 13)
    told = [e["data"] for e in read_events(service, job["id"]) if e["type"] == "child"]
    assert Counter(each["position"] for each in told) == Counter(range(12))

    compared = sweep["comparison"]
    assert compared["metric"] == "accuracy"
    cells = compared["cells"]
    assert [cell["n_seeds"] for cell in cells] == [2] * 6
    assert cells[0]["settings"] == {"rank": 1, "sigma_init": 0.1}
    assert cells[4]["settings"] == {"variant": "mlp"}
    assert cells[4]["test"]["diversity"] is None
    assert cells[4]["delta_percent"] == 0
    assert cells[5]["settings"] == {"variant": "catboost"}
    assert cells[5]["test"]["score"]["mean"] > 0.5 and cells[5]["regime"] is None
    assert cells[0]["test"]["score"]["std"] is not None
    weak, strong = (cells[i]["test"]["diversity"]["mean"] for i in (0, 1))
    assert strong > 3 * weak
    assert compared["best_score"] in compared["pareto"]

    # Cells have no model; the best few have kept their weights.
    assert stack.query("SELECT count(*) FROM models") == [(0,)]
    kept = stack.query(
        "SELECT repeat, number FROM jobs WHERE parent_id = :id "
        "AND checkpoint_sha256 IS NOT NULL",
        id=job["id"],
    )
    assert 1 <= len(kept) <= 4
    listed = service.client.get("/jobs").json()["data"]
    assert [each["id"] for each in listed] == [job["id"]]
    first = service.client.get(f"/jobs?parent_id={job['id']}&limit=100").json()["data"]
    assert len(first) == 12

    refused = service.client.post(f"/jobs/{job['id']}/promote", json={"cell": 5})
    assert "CatBoost" in refused.json()["detail"]

    # Promoting trains nothing if the weights are there, and gives the cell's scores.
    best = min(kept)[1]
    made = service.client.post(
        f"/jobs/{job['id']}/promote", json={"cell": best, "name": "winner"}
    )
    assert made.status_code == 202, made.text
    promoted = wait_for_end(service, made.json()["id"])
    assert promoted["status"] == "succeeded", promoted["error"]
    assert (promoted["promoted_from"], promoted["number"]) == (job["id"], best)
    report = service.client.get(f"/jobs/{promoted['id']}/report").json()
    outcome = next(each for each in first if each["position"] == best)["outcome"]
    accuracy = report["scores"]["test"]["ensemble"]["accuracy"]
    assert accuracy == pytest.approx(outcome["test"]["score"])
    types = [e["type"] for e in read_events(service, promoted["id"])]
    assert ("epoch" in types) == ((0, best) not in kept)

    ranks = service.client.get(f"/ranks?job_id={job['id']}").json()["methods"]
    assert [each["ranks"][job["id"]] for each in ranks] == [*range(1, 7)]
    refused = service.client.delete(f"/jobs/{first[0]['id']}")
    assert refused.json()["code"] == "job_is_part"
    assert service.client.delete(f"/jobs/{job['id']}").status_code == 204
    assert stack.query("SELECT count(*) FROM jobs") == [(1,)]


@ON_SQLITE
def test_cancel_stop_and_retry_a_sweep(service: Service, stack: Stack) -> None:
    endless = {**TINY, "max_epochs": 10_000, "patience": None}
    job = post_job(
        service.client,
        TABLE,
        kind="sweep",
        hyperparameters=endless,
        sweep={"grid": {"rank": [1, 2, 3]}},
    )
    wait_until(
        lambda: read_job(service, job["id"])["status"] == "running",
        seconds=60,
        what="the sweep runs",
    )
    assert service.client.post(f"/jobs/{job['id']}/cancel").status_code == 202
    wait_until(
        lambda: read_job(service, job["id"])["status"] == "cancelled",
        seconds=20,
        what="the sweep is cancelled",
    )
    assert read_sweep(service, job["id"])["counts"] == {"cancelled": 3}

    assert service.client.post(f"/jobs/{job['id']}/retry").status_code == 202
    find_child(service)
    wait_until(
        lambda: (
            "training"
            in [
                each["phase"]
                for each in service.client.get(f"/jobs?parent_id={job['id']}").json()[
                    "data"
                ]
            ]
        ),
        seconds=60,
        what="a cell is trained",
    )
    stopped = service.client.post(f"/jobs/{job['id']}/stop")
    assert stopped.json()["status"] == "stopping", stopped.text
    ended = wait_for_end(service, job["id"])
    assert ended["status"] == "succeeded"
    counts = read_sweep(service, job["id"])["counts"]
    assert counts == {"succeeded": 1, "cancelled": 2}


@ON_SQLITE
def test_tuning_ends_in_a_model(service: Service, stack: Stack) -> None:
    job = post_job(
        service.client,
        TABLE,
        kind="tune",
        hyperparameters={**TINY, "max_epochs": 12},
        tune={"n_trials": 8, "space": SMALL_SPACE, "seeds": 2},
        name="tuned",
        baselines=["mlp"],
    )
    wait_until(
        lambda: read_job(service, job["id"])["progress"]["n_finished"] >= 2,
        seconds=90,
        what="two trials",
    )
    worker = service.find_process("worker.tasks")
    assert worker is not None
    worker.send_signal(signal.SIGKILL)
    ended = wait_for_end(service, job["id"], seconds=150)
    assert ended["status"] == "succeeded", ended["error"]
    tune = service.client.get(f"/jobs/{job['id']}/tune").json()
    assert len(tune["trials"]) == 8
    assert {each["status"] for each in tune["trials"]} == {"succeeded"}
    given = tune["trials"][0]["settings"]
    assert (given["k"], given["n_bins"], given["d_block"]) == (4, 8, 16)
    full = [t for t in tune["trials"] if not t["is_pruned"]]
    full.sort(key=lambda t: t["outcome"]["val"]["score"])
    finalists = {each["trial"]: each for each in tune["finalists"]}
    assert finalists.keys() == {each["trial"] for each in full[:3]}
    assert all(len(each["runs"]) == 2 for each in finalists.values())
    means = {trial: each["score"]["mean"] for trial, each in finalists.items()}
    assert tune["best"] == min(means, key=means.__getitem__)
    assert tune["best_settings"]["d_block"] in (8, 16)
    assert 1e-4 <= tune["best_settings"]["lr"] <= 5e-3
    assert sum(tune["importances"].values()) == pytest.approx(1)
    axes = {each["name"]: each["values"] for each in tune["parallel_coordinates"]}
    assert len(axes["score"]) == len(axes["lr"]) == 8

    # One study, whose trials are those of the jobs, none of them left running.
    assert stack.query("SELECT study_name FROM studies") == [(job["id"],)]
    # A worker that dies between drawing one and saying whose it is leaves it closed.
    states = Counter(state for (state,) in stack.query("SELECT state FROM trials"))
    assert states["COMPLETE"] + states["PRUNED"] == 8
    assert states["RUNNING"] == 0 and states["FAIL"] <= 1

    # The winner, trained with two seeds, is one model, and has its baseline beside it.
    refit = read_job(service, tune["refit_job_id"])
    assert (refit["role"], refit["number"]) == ("refit", tune["best"])
    assert refit["config"]["hyperparameters"]["lr"] == tune["best_settings"]["lr"]
    assert ended["model_id"] == refit["model_id"] == tune["model_id"]
    report = service.client.get(f"/jobs/{refit['id']}/report").json()
    names = [(each["name"], each["n_seeds"]) for each in report["baselines"]]
    assert names == [("lometab", 2), ("mlp", 2)]
    answer = service.client.post(
        "/models/tuned@1/predict",
        json={"rows": [{"size": 1, "colour": "red", "weight": 2, "label": "low"}]},
    ).json()
    assert answer["k"] == 2 * tune["best_settings"]["k"]
    assert len(answer["predictions"][0]["members"]) == answer["k"]
    assert service.client.delete(f"/models/{ended['model_id']}").status_code == 204
    assert service.client.delete(f"/jobs/{job['id']}").status_code == 204
    assert stack.query("SELECT count(*) FROM trials") == [(0,)]


@ON_SQLITE
def test_a_budget_ends_in_one_model_of_several_trials(service: Service) -> None:
    job = post_job(
        service.client,
        TABLE,
        hyperparameters={**TINY, "max_epochs": 4},
        time_budget_seconds=20,
        tune={"n_trials": 3, "space": SMALL_SPACE},
        kind="tune",
        name="budgeted",
    )
    assert job["config"]["time_budget_seconds"] == 20
    ended = wait_for_end(service, job["id"], seconds=200)
    assert ended["status"] == "succeeded", ended["error"]
    tune = service.client.get(f"/jobs/{job['id']}/tune").json()
    refit = read_job(service, tune["refit_job_id"])
    networks = refit["made_of"]["trials"]
    done = [t for t in tune["trials"] if t["status"] == "succeeded"]
    assert sorted(networks) == [t["trial"] for t in done]
    assert tune["best"] == networks[0] and tune["tied"]

    # Every member is one of a trial, and answers.
    content = service.client.get(f"/models/{ended['model_id']}/onnx").content
    facts = Predictor(content).metadata
    trials = {network["trial"] for network in facts["networks"]}
    assert trials <= {*networks} and len(facts["members"]) == facts["k"]
    answer = service.client.post(
        "/models/budgeted@1/predict",
        json={"rows": [{"size": 1, "colour": "red", "weight": 2, "label": "low"}]},
    ).json()
    assert len(answer["predictions"][0]["members"]) == answer["k"] == facts["k"]
