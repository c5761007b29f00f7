"""Sweeps and searches over HTTP, in process: asked for, shown, refused, promoted."""

import json
from dataclasses import asdict
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app import jobs
from app.storage.tables import Job
from lometab.evaluation import DRAWS
from tests.support.http import check_problem
from tests.support.outcomes import outcome
from tests.support.tables import make_csv

TABLE = make_csv(120)
SMALL = {"k": 2, "n_blocks": 1, "d_block": 8, "n_bins": 4, "d_embedding": 4}


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


@pytest.mark.both_databases
def test_a_sweep_as_the_api_shows_it(client: TestClient) -> None:
    job = post(client, kind="sweep", sweep={"seeds": 2}, baselines=["tabm"])
    assert job["progress"]["n_runs"] == 62  # the paper's grid and one more, twice
    assert job["links"]["sweep"] == f"/jobs/{job['id']}/sweep"
    assert len(jobs.read_cells(job["config"])) == 31
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


def test_runs_of_the_same_seed_are_compared(
    client: TestClient, session: Session
) -> None:
    """One cell's first run has failed; its second one is no pair of others' first."""
    sweep = {"grid": {"rank": [1, 2]}, "seeds": 3}
    job = post(client, kind="sweep", sweep=sweep, baselines=["catboost"])
    luck = [[0.01 * seed * (i % 7 - 3) for i in range(100)] for seed in (1, -1, 2)]
    children = session.scalars(sa.select(Job).where(Job.parent_id == job["id"])).all()
    for each in children:
        assert each.number is not None and each.repeat is not None
        if (each.number, each.repeat) == (1, 0):
            continue  # as if it had failed
        score = [0.8, 0.7, 0.9][each.number]
        draws = [score + x for x in luck[each.repeat]]
        each.outcome = {**asdict(outcome(score)), DRAWS: draws}
    session.commit()
    compared = client.get(job["links"]["sweep"]).json()["comparison"]
    behind = [each["behind"] for each in compared["cells"]]
    assert behind[1] == pytest.approx({"score": 0.1, "standard_error": 0}, abs=1e-9)
    # CatBoost is ahead, and no model can be made of it.
    assert behind[2]["score"] == pytest.approx(-0.1)
    assert (compared["best_score"], compared["best_model"]) == (2, 0)
    assert (compared["tied"], compared["recommended"]) == ([0], 0)
    settings = compared["cells"][2]["settings"]
    assert settings == {"variant": "catboost"}


@pytest.mark.both_databases
def test_cells_are_those_that_were_asked_for(client: TestClient) -> None:
    """Whatever order the names have in the database."""
    grid = {"variant": ["lometab", "tabm"], "k": [2, 4], "d_block": [8, 16]}
    more: dict[str, Any]
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
    # The reference is there in any case, whether it was drawn or not.
    assert len(children) in (3, 4)
    shown = [cell["settings"] for cell in sweep["comparison"]["cells"]]
    assert more["reference"] in shown


@pytest.mark.both_databases
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


@pytest.mark.slow
def test_a_huge_grid_is_not_made_to_draw_from_it(client: TestClient) -> None:
    grid = {
        "lr": [(i + 1) / 2000 for i in range(1000)],
        "dropout": [i / 2000 for i in range(1000)],
        "sigma_init": [i / 100 for i in range(1000)],
        "weight_decay": [i / 2000 for i in range(1000)],
    }
    job = post(client, kind="sweep", sweep={"grid": grid, "max_cells": 2})
    assert job["progress"]["n_runs"] == 2


@pytest.mark.both_databases
def test_promoting(client: TestClient) -> None:
    job = post(client, kind="sweep", sweep={"grid": {"rank": [1, 2]}})

    def promote(**body: Any) -> httpx.Response:
        response: httpx.Response = client.post(f"/jobs/{job['id']}/promote", json=body)
        return response

    for body, words in (
        ({}, "set `cell`"),
        ({"trial": 0}, "set `cell`"),
        ({"cell": 2}, "they are 0 to 1"),
        ({"cell": -1}, "greater than or equal"),
    ):
        assert words in check_problem(promote(**body), 422)["detail"]
    made = promote(cell=1, n_seeds=2, name="second").json()
    assert (made["kind"], made["parent_id"], made["name"]) == ("train", None, "second")
    assert made["config"]["hyperparameters"]["rank"] == 2
    assert made["config"]["n_seeds"] == 2 and made["promoted_from"] == job["id"]
    assert (made["role"], made["number"]) == ("train", 1)
    again = client.post(f"/jobs/{made['id']}/promote", json={"cell": 0})
    assert check_problem(again, 409)["code"] == "wrong_job_kind"
