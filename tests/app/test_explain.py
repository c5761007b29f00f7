"""`explain` in predict and `/effects`, of a model that was trained."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app import jobs
from app.main import app
from app.serving import batches, get_predict, get_predictors
from app.settings import get_settings
from app.storage import db
from app.storage.tables import TrainedModel
from lometab.predictor import Predictor
from tests.support.http import check_problem, post
from tests.support.jobs import CLAIM
from tests.support.models import (
    OTHER,
    ROWS,
    TABLE,
    TINY,
    finish,
    succeed,
    train_as_worker,
)
from tests.support.tables import make_csv


def ask(client: TestClient, job: dict[str, Any], rows: Any, **options: Any) -> Any:
    body = {"rows": rows, "explain": True, **options}
    return client.post(f"/models/{job['model_id']}/predict", json=body)


@pytest.mark.parametrize("target", OTHER)
def test_what_columns_add(client: TestClient, target: str) -> None:
    job = succeed(client, target)
    answer = ask(client, job, ROWS[:3])
    assert answer.status_code == 200, answer.text
    assert "explain;dur=" in answer.headers["server-timing"]
    classes = answer.json()["classes"]
    for each in answer.json()["predictions"]:
        found = each["explanation"]
        assert found["values"].keys() == {"size", "colour", "weight"}
        assert found["standard_error"].keys() == found["member_std"].keys()
        mean = each["mean"]
        if classes:
            assert found["label"] == each["label"]
            mean = mean[classes.index(each["label"])]
        total = found["base"] + sum(found["values"].values())
        assert total == pytest.approx(mean, abs=1e-6 * max(1, abs(mean)))
        assert 0 < found["n_model_rows"] <= 2100
    plain = client.post(
        f"/models/{job['model_id']}/predict", json={"rows": ROWS[:3]}
    ).json()["predictions"]
    assert [{**each, "explanation": 0} for each in plain] == [
        {**each, "explanation": 0} for each in answer.json()["predictions"]
    ]


def test_the_same_row_has_the_same_explanation(client: TestClient) -> None:
    job = succeed(client, "y")
    answers = [
        ask(client, job, rows).json()["predictions"][0]["explanation"]
        for rows in (ROWS[:1], ROWS[:1], ROWS[:4])
    ]
    values = [each["values"] for each in answers]
    assert values[0] == values[1] == pytest.approx(values[2], rel=1e-4, abs=1e-5)


def test_the_column_that_matters_is_found(client: TestClient) -> None:
    """y is 2 size - weight + 3 if red: a large size adds much."""
    job = succeed(client, "y")
    row = {"size": 9.9, "colour": "blue", "weight": 5.0}
    found = ask(client, job, [row]).json()["predictions"][0]["explanation"]
    assert max(found["values"], key=lambda name: found["values"][name]) == "size"


def test_what_is_too_much_to_explain(client: TestClient) -> None:
    job = succeed(client, "y")
    rows = [*ROWS, *ROWS]
    check_problem(ask(client, job, rows), 422, "at most 20 rows")
    check_problem(ask(client, job, rows * 200), 422, "at most 20 rows")
    check_problem(ask(client, job, ROWS[:1], explain="yes"), 422, "explain")
    for accept in ("text/csv", "application/vnd.apache.arrow.stream"):
        answer = client.post(
            f"/models/{job['model_id']}/predict",
            json={"rows": ROWS[:1], "explain": True},
            headers={"Accept": accept},
        )
        check_problem(answer, 422, "as JSON")
    by_query = client.post(
        f"/models/{job['model_id']}/predict?explain=true",
        content=TABLE.splitlines()[0] + "\n" + TABLE.splitlines()[1] + "\n",
        headers={"Content-Type": "text/csv"},
    )
    assert by_query.json()["predictions"][0]["explanation"]["values"]


def test_others_in_the_same_run_are_told_nothing(client: TestClient) -> None:
    job = succeed(client, "y")
    plain = client.post(f"/models/{job['model_id']}/predict", json={"rows": ROWS[:2]})
    assert all("explanation" not in each for each in plain.json()["predictions"])


@pytest.mark.both_databases
def test_effects_of_columns(client: TestClient) -> None:
    job = succeed(client, "y")
    address = f"/models/{job['model_id']}/effects"
    body = client.get(f"{address}?columns=size,colour").json()
    size, colour = body["columns"]
    assert (size["kind"], colour["kind"]) == ("numeric", "categorical")
    curve = size["outputs"][0]
    assert curve["mean"][-1] > curve["mean"][0] and len(curve["members"]) == 3
    assert {*colour["grid"]} == {"red", "green", "blue"}
    assert body["n_rows"] == 50
    listed = client.get(address, params={"columns": '["size"]'}).json()
    assert listed["columns"] == [size]
    check_problem(client.get(f"{address}?columns=siez"), 422, "'size'")
    check_problem(client.get(f"{address}?columns="), 422)
    check_problem(client.get(address), 422)
    names = ",".join(f"c{i}" for i in range(11))
    check_problem(client.get(f"{address}?columns={names}"), 422, "at most 10")


@pytest.mark.both_databases
def test_no_row_is_kept_if_none_may_be(client: TestClient) -> None:
    config = {"target": "y", "columns": {"label": "ignore"}, "keep_rows": False}
    post(client, TABLE, {**config, "hyperparameters": TINY})
    with db.transaction() as session:
        claimed = jobs.claim(session, **CLAIM)
        assert claimed is not None
        finish(session, claimed)
    job = client.get(f"/jobs/{claimed.id}").json()
    report = client.get(job["links"]["report"]).json()
    assert report["points"] is None and report["importance"]["columns"]
    for effect in report["effects"]["columns"]:
        assert all(curve["ice"] == [] for curve in effect["outputs"])
    onnx = client.get(f"/models/{job['model_id']}/onnx").content
    assert Predictor(onnx).background is None
    check_problem(ask(client, job, ROWS[:1]), 422, "`keep_rows` false")
    effects = client.get(f"/models/{job['model_id']}/effects?columns=size")
    check_problem(effects, 422, "`keep_rows` false")


def test_rows_are_in_the_file_and_not_in_the_database(client: TestClient) -> None:
    job = succeed(client, "label")
    with db.reading() as session:
        model = session.get_one(TrainedModel, job["model_id"])
        predictor = get_predictors().get(model)
        assert "background" not in (model.facts or {})
    assert predictor.background is not None and len(predictor.background) == 50


def test_explain_is_never_answered_in_the_event_loop(client: TestClient) -> None:
    from app.serving.quick import QuickRequests
    from tests.support.requests import make_request

    job = succeed(client, "y")
    predictors = get_predictors()
    ask(client, job, ROWS[:1])  # loads it
    quick = QuickRequests(get_settings(), predictors)
    request = make_request(job["model_id"])
    assert quick._is_short(request, b'{"rows": [{"size": 1}]}')
    assert not quick._is_short(request, b'{"rows": [{"size": 1}], "explain": true}')
    asked = request._replace(query={"explain": "true"})
    assert not quick._is_short(asked, b'{"rows": [{"size": 1}]}')


def test_a_report_tells_what_drives_the_model(client: TestClient) -> None:
    job = succeed(client, "y")
    body = client.get(job["links"]["report"]).json()
    assert next(iter(body)) == "summary"
    assert body["importance"]["columns"][0]["column"] == "size"
    assert {each["name"] for each in body["naive"]} == {"mean", "best single column"}
    names = {"importance", "effects", "slices", "naive"}
    found = client.get(job["links"]["figures"]).json()["figures"]
    absent = {each["name"] for each in found if each["why_absent"]}
    assert not names & (absent - {"slices"})


def test_groups_that_a_job_asks_for(client: TestClient, tmp_path: Path) -> None:
    config = {"target": "y", "columns": {"label": "ignore"}, "hyperparameters": TINY}
    for groups, words in (
        ([["size", "wieght"]], "did you mean 'weight'"),
        ([["y"]], "no column that the model takes"),
    ):
        answer = post(client, make_csv(60), {**config, "importance_groups": groups})
        check_problem(answer, 422, words)
    wanted = [["size", "weight"]]
    answer = post(client, make_csv(60), {**config, "importance_groups": wanted})
    assert answer.json()["config"]["importance_groups"] == wanted
    job_id = train_as_worker(tmp_path)
    report = client.get(f"/jobs/{job_id}/report").json()
    assert [each["columns"] for each in report["importance"]["groups"]] == wanted


def test_explain_is_found_however_it_is_written(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Escaped, it is not seen before the body is parsed."""
    job = succeed(client, "y")
    path = f"/models/{job['model_id']}/predict"
    plain = client.post(path, json={"rows": ROWS[:1]})
    threads: list[str] = []
    real = batches.explain

    def note(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return real(*arguments)

    monkeypatch.setattr(batches, "explain", note)
    body = plain.request.content.replace(b"{", b'{"\\u0065xplain": true, ', 1)
    answer = client.post(
        path, content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.json()["predictions"][0]["explanation"]["values"]
    assert len(threads) == 1 and threads[0].startswith("predict-")


def test_nobody_waits_for_what_others_have_explained(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = succeed(client, "y")
    path = f"/models/{job['model_id']}/predict"
    get_predict.cache_clear()
    n_queue = get_settings().explain_queue
    goes_on = threading.Event()
    real = batches.explain

    def wait(*arguments: Any) -> Any:
        assert goes_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(batches, "explain", wait)

    async def ask_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport,
            base_url="http://127.0.0.1",
            headers=client.headers,
            timeout=60,
        ) as together:
            explained = {"rows": ROWS[:1], "explain": True}
            tasks = [
                asyncio.create_task(together.post(path, json=explained))
                for _ in range(n_queue + 1)
            ]
            while get_predict().n_explained < n_queue:
                await asyncio.sleep(0.01)
            for _ in range(10):
                plain = await asyncio.wait_for(
                    together.post(path, json={"rows": ROWS[:1]}), 30
                )
                assert plain.status_code == 200, plain.text
            assert get_predict().n_explained == n_queue
            goes_on.set()
            return await asyncio.gather(*tasks)

    answers = asyncio.run(ask_all())
    get_predict.cache_clear()
    assert sorted(each.status_code for each in answers) == [200] * n_queue + [503]
    (refused,) = [each for each in answers if each.status_code == 503]
    assert "explained" in check_problem(refused, 503)["detail"]
