"""Figures over HTTP: in which formats, of which jobs, and what is refused."""

import re

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import jobs
from app.api import figures
from app.main import api
from app.storage import db
from app.storage.tables import Report
from lometab.plots import FIGURES, RenderBusy
from tests.support.http import check_problem, post
from tests.support.jobs import CLAIM
from tests.support.models import TABLE, TINY, succeed


@pytest.mark.slow
@pytest.mark.both_databases
def test_the_figures_of_a_model(client: TestClient) -> None:
    job = succeed(client, "label")
    body = client.get(job["links"]["figures"]).json()
    assert body["job_id"] == job["id"]
    found = {each["name"]: each for each in body["figures"]}
    assert found["predicted"]["why_absent"] and not found["predicted"]["links"]
    for name in ("training", "reliability", "confusion"):
        links = found[name]["links"]
        spec = client.get(links["spec"])
        assert spec.headers["content-type"] == "application/vnd.vegalite.v6+json"
        assert spec.json()["$schema"].startswith("https://vega.github.io/schema/")
    svg = client.get(found["training"]["links"]["svg"])
    assert svg.headers["content-type"] == "image/svg+xml"
    assert "default-src 'none'" in svg.headers["content-security-policy"]
    assert svg.content.startswith(b"<svg")
    assert client.get(links["png"]).content.startswith(b"\x89PNG")


@pytest.mark.slow
def test_which_format_is_meant(client: TestClient) -> None:
    job = succeed(client, "y")
    address = f"/jobs/{job['id']}/figures/members"
    for accept, content_type in (
        ("*/*", "image/svg+xml"),
        ("image/*", "image/svg+xml"),
        ("text/html, image/png;q=0.8", "image/png"),
        ("application/json", "application/vnd.vegalite.v6+json"),
    ):
        answer = client.get(address, headers={"Accept": accept})
        assert answer.headers["content-type"] == content_type
        assert answer.headers["vary"].startswith("Accept")
    refused = client.get(address, headers={"Accept": "text/html"})
    assert check_problem(refused, 406)["code"] == "not_acceptable"
    # The extension comes first, then the query, then the header.
    assert client.get(f"{address}?format=png").content.startswith(b"\x89PNG")
    accepts = {"Accept": "text/html"}
    spec = client.get(f"{address}.json?format=png&theme=dark", headers=accepts)
    assert spec.json()["background"] == "#14181d"


def test_a_figure_that_one_has_is_not_sent_again(client: TestClient) -> None:
    address = f"/jobs/{succeed(client, 'y')['id']}/figures/members"
    tags = set()
    for query in (".json", ".json?theme=dark", ".svg", ".png?scale=1", ".png?scale=2"):
        first = client.get(address + query)
        tags.add(first.headers["etag"])
        known = {"If-None-Match": first.headers["etag"]}
        assert client.get(address + query, headers=known).status_code == 304
    assert len(tags) == 5


def test_names_that_are_none(client: TestClient) -> None:
    job = succeed(client, "y")
    address = f"/jobs/{job['id']}/figures"
    problem = check_problem(client.get(f"{address}/trainin"), 404, "'training'?")
    assert problem["code"] == "no_figure"
    check_problem(client.get(f"{address}/confusion"), 404, "no classes")
    check_problem(client.get(f"{address}/pareto"), 404, "there are")
    for name in ("training.pdf", "__class__", "a%00", "A", "%3Csvg", "x" * 99, "a.b.c"):
        check_problem(client.get(f"{address}/{name}"), 422)
    check_problem(client.get(f"{address}/..%2Freport"), 404)
    for query in (
        "scale=0",
        "scale=1e-5",
        "scale=9",
        "scale=nan",
        "theme=blue",
        "format=gif",
    ):
        check_problem(client.get(f"{address}/training?{query}"), 422)


@pytest.mark.both_databases
def test_a_job_that_trains_shows_its_epochs(client: TestClient) -> None:
    config = {"target": "y", "columns": {"label": "ignore"}, "hyperparameters": TINY}
    job = post(client, TABLE, config).json()
    address = f"/jobs/{job['id']}/figures"
    check_problem(client.get(address), 409, "not ready")
    epoch = {"train_loss": 1.0, "val_score": 0.5, "member_score": 0.6}
    with db.transaction() as session:
        claimed = jobs.claim(session, **CLAIM)
        assert claimed is not None
        for seed, number, score in ((0, 1, 0.9), (0, 1, 0.5), (0, 2, 0.4), (1, 1, 9.0)):
            event = {**epoch, "epoch": number, "val_score": score, "diversity": 0.1}
            event["seed"] = seed
            jobs.report_progress(
                session, claimed, "training", {"epoch": 1}, [("epoch", event)]
            )
    (figure,) = client.get(address).json()["figures"]
    assert figure["name"] == "training"
    spec = client.get(figure["links"]["spec"]).json()
    rows = spec["vconcat"][0]["layer"][0]["data"]["values"]
    lines = [(row["epoch"], row["value"]) for row in rows if row["who"] == "ensemble"]
    assert lines == [(1, 0.5), (2, 0.4)]


@pytest.mark.both_databases
def test_a_report_of_before_says_what_it_lacks(client: TestClient) -> None:
    job = succeed(client, "y")
    with db.transaction() as session:
        report = session.get_one(Report, (job["id"], "report"))
        new = ("curve", "points")
        old = {name: value for name, value in report.body.items() if name not in new}
        session.execute(
            sa.update(Report)
            .where(Report.job_id == job["id"], Report.kind == "report")
            .values(body=old)
        )
    found = client.get(job["links"]["figures"]).json()["figures"]
    absent = {each["name"]: each["why_absent"] for each in found}
    assert absent["predicted"] and absent["training"]  # no events were written here
    assert absent["members"] is None
    assert client.get(job["links"]["report"]).status_code == 200


def test_a_sweep_that_has_not_begun(client: TestClient) -> None:
    config = {"target": "y", "hyperparameters": TINY, "kind": "sweep"}
    grid = {"grid": {"k": [2, 3], "rank": [1, 2]}}
    job = post(client, TABLE, {**config, "sweep": grid}).json()
    found = client.get(job["links"]["figures"]).json()["figures"]
    assert {each["name"] for each in found} == {
        "sweep-score",
        "sweep-diversity",
        "pareto",
    }
    assert all(each["why_absent"] for each in found)


def test_too_many_at_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    job = succeed(client, "y")

    def busy(*_: object, **__: object) -> bytes:
        raise RenderBusy

    monkeypatch.setattr(figures, "render", busy)
    answer = client.get(f"/jobs/{job['id']}/figures/members.svg")
    check_problem(answer, 503)
    assert answer.headers["retry-after"] == "1"
    assert client.get(f"/jobs/{job['id']}/figures/members.json").status_code == 200


def test_every_name_can_be_asked_for() -> None:
    paths = api.openapi()["paths"]
    (parameter,) = (
        each
        for each in paths["/jobs/{job_id}/figures/{figure}"]["get"]["parameters"]
        if each["name"] == "figure"
    )
    assert all(re.fullmatch(parameter["schema"]["pattern"], name) for name in FIGURES)
