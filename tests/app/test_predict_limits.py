"""One odd request hurts nobody else, and what is held is counted."""

import asyncio
import gc
import io
import json
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from app.main import app
from app.serving import get_predict, get_predictors
from app.serving.batches import Answer, SmallRequest, answer_together
from app.serving.models import find_served
from app.serving.requests import PredictRequest
from app.serving.rows import Records, open_rows
from app.serving.tables import answer_table
from app.settings import get_settings
from lometab.predictor import Predictor
from tests.support.http import check_problem, make_key
from tests.support.models import ROWS, succeed

INPUTS = ("size", "colour", "weight")
CSV = "size,colour,weight\n1,red,2\n"


@pytest.fixture(autouse=True)
def fresh_app() -> Iterator[None]:
    get_predict.cache_clear()
    yield
    get_predict.cache_clear()


@pytest.fixture
def model_id(client: TestClient) -> str:
    found: str = succeed(client, "y")["model_id"]
    return found


def make_request(client: TestClient, model_id: str, **changes: Any) -> PredictRequest:
    secret = client.headers["authorization"].removeprefix("Bearer ")
    request = PredictRequest(
        secret=secret,
        reference=model_id,
        kind="json",
        charset="utf-8",
        media_type="application/json",
        query={},
        length=None,
        received_at=perf_counter(),
    )
    return request._replace(**changes)


# One odd request


@pytest.mark.slow
@pytest.mark.parametrize(
    "charset", ["zlib", "hex", "base64", "rot13", "bz2", "undefined", "a\0b", "idna"]
)
def test_only_charsets_of_texts(
    client: TestClient, model_id: str, charset: str
) -> None:
    path = f"/models/{model_id}/predict"
    for content in (CSV.encode(), iter((CSV.encode(),))):
        response = client.post(
            path,
            content=content,
            headers={"Content-Type": f"text/csv; charset={charset}".encode("latin-1")},
        )
        check_problem(response, 422, "charset")


def test_an_odd_body_is_told_to_its_sender_alone(
    client: TestClient, model_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever reading it raises, were it a bug."""
    good = SmallRequest(make_request(client, model_id), json_of(ROWS[:2]))
    odd = good._replace(request=good.request._replace(kind="csv", charset="zlib"))
    bad = good._replace(body=b"[]")
    results = answer_together([good, odd, bad, good], get_predictors(), 256)
    assert isinstance(results[1], Exception) and isinstance(results[2], Exception)
    alone = answer_together([good], get_predictors(), 256)
    for each in (results[0], results[3]):
        assert predictions(each) == pytest.approx(predictions(alone[0]), rel=1e-5)


def test_a_joined_run_that_fails_is_run_one_by_one(
    client: TestClient, model_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Predictor.run_all

    def fail(self: Predictor, x_num: Any, x_cat: Any) -> Any:
        if np.isnan(x_num).any():
            raise RuntimeError("no good")
        return run(self, x_num, x_cat)

    monkeypatch.setattr(Predictor, "run_all", fail)
    rows = [{"size": 1.0, "colour": "red", "weight": 2.0}]
    gap = [{**rows[0], "weight": None}]
    request = make_request(client, model_id)
    small = [SmallRequest(request, json_of(each)) for each in (rows, gap, rows)]
    results = answer_together(small, get_predictors(), 256)
    assert predictions(results[0]) == predictions(results[2])
    assert str(results[1]) == "no good"


def test_callers_share_no_run(client: TestClient, model_id: str) -> None:
    """Clients of two workspaces name the same model at once; one of them has none."""
    stranger = {"Authorization": f"Bearer {make_key('elsewhere')}"}
    path = f"/models/{model_id}/predict"

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
        ) as many:
            ours = {"Authorization": client.headers["authorization"]}
            for headers in (ours, stranger):  # a key is looked up when first used
                await many.post(path, json={"rows": ROWS}, headers=headers)
            return await asyncio.gather(
                *(
                    many.post(path, json={"rows": ROWS}, headers=headers)
                    for headers in [ours, stranger] * 16
                )
            )

    answers = asyncio.run(ask())
    assert {each.status_code for each in answers[::2]} == {200}
    assert {each.status_code for each in answers[1::2]} == {404}


@pytest.mark.parametrize("depth", [500, 900, 1020])
def test_nested_values(client: TestClient, model_id: str, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    path = f"/models/{model_id}/predict"
    for body in (
        f'{{"rows": [{{"size": {deep}, "colour": "red", "weight": 1}}]}}',
        f'{{"rows": [{{"size": 1, "colour": {deep}, "weight": 1}}]}}',
        f'{{"rows": [{{"size": 1, "colour": "red", "weight": 1, "id": {deep}}}]}}',
        f'{{"rows": [{deep}]}}',
        f'{{"rows": [{{}}], "include": {deep}}}',
    ):
        for content in (body.encode(), iter((body.encode(),))):
            response = client.post(
                path, content=content, headers={"Content-Type": "application/json"}
            )
            assert response.status_code in (200, 422), response.text


def json_of(rows: list[dict[str, Any]]) -> bytes:
    picked = [{name: row[name] for name in INPUTS} for row in rows]
    return json.dumps({"rows": picked}).encode()


def predictions(result: object) -> list[float]:
    assert isinstance(result, Answer), result
    return [each["mean"] for each in json.loads(result.content)["predictions"]]


# What is held


def test_a_table_counts_until_its_answer_is_sent(
    client: TestClient, model_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "table_queue", 2)
    n_before = get_predict().n_tables
    body = json_of(ROWS * 300)

    class Client:
        """It takes the head of its answer and then nothing, until it is let."""

        def __init__(self) -> None:
            self.body = iter([body])
            self.status = 0
            self.has_begun = asyncio.Event()
            self.may_go_on = asyncio.Event()
            self.n_bytes = 0

        async def receive(self) -> Any:
            for content in self.body:
                return {"type": "http.request", "body": content, "more_body": False}
            await asyncio.sleep(60)

        async def send(self, message: Any) -> None:
            self.status = message.get("status", self.status)
            self.n_bytes += len(message.get("body", b""))
            if message["type"] == "http.response.body":
                self.has_begun.set()
                await self.may_go_on.wait()
            elif self.status != 200:
                self.has_begun.set()

        def start(self) -> "asyncio.Task[None]":
            key = client.headers["authorization"].encode()
            headers = [(b"content-type", b"application/json"), (b"authorization", key)]
            path = f"/models/{model_id}/predict"
            scope = {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": "1.1",
                "method": "POST",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "root_path": "",
                "scheme": "http",
                "server": ("127.0.0.1", 80),
                "client": ("127.0.0.1", 1),
                "headers": headers,
            }
            return asyncio.ensure_future(app(scope, self.receive, self.send))

    async def main() -> list[int]:
        clients = [Client() for _ in range(3)]
        tasks = []
        for each in clients:
            tasks.append(each.start())
            await asyncio.wait_for(each.has_begun.wait(), 60)
        assert get_predict().n_tables == 2
        for each in clients:
            each.may_go_on.set()
        await asyncio.gather(*tasks)
        assert min(each.n_bytes for each in clients[:2]) > 100_000
        return [each.status for each in clients]

    assert asyncio.run(main()) == [200, 200, 503]
    assert get_predict().n_tables == n_before == 0


def find_records() -> list[Records]:
    return [each for each in gc.get_objects() if type(each) is Records]


@pytest.mark.slow
def test_parsed_rows_are_not_kept_while_a_table_is_sent(
    client: TestClient, model_id: str
) -> None:
    rows = [{**row, "id": i} for i, row in enumerate(ROWS * 200)]
    body = json.dumps({"rows": [{n: r[n] for n in (*INPUTS, "id")} for r in rows]})
    expected = client.post(f"/models/{model_id}/predict", content=body.encode()[:-1])
    check_problem(expected, 415)
    gc.collect()
    earlier = find_records()  # of other tests in this process, held by their failures
    for media_type in ("application/json", "text/csv"):
        request = make_request(client, model_id, media_type=media_type)
        answer = answer_table(
            request, body.encode(), perf_counter(), get_predictors(), 10**6
        )
        gc.collect()
        assert all(any(each is old for old in earlier) for each in find_records())
        content = answer.first + b"".join(answer.others)
        if media_type == "application/json":
            found = json.loads(content)["predictions"]
            assert [each["id"] for each in found] == [*range(len(rows))]
            predictor = get_predictors().get(
                find_served(request.secret, request.reference)
            )
            mean = predictor.predict([{n: r[n] for n in INPUTS} for r in rows]).mean
            assert [each["mean"] for each in found] == pytest.approx(mean, rel=1e-5)
        else:
            assert content.count(b"\n") == len(rows) + 1


@pytest.mark.parametrize("size", [50, 1000])
def test_rows_of_a_stream_without_known_columns_are_counted(size: int) -> None:
    schema = pa.schema({"unknown": pa.float64()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for n_rows in (1, 2049):
            writer.write_batch(
                pa.record_batch([pa.nulls(n_rows, pa.float64())], schema)
            )
    rows = open_rows(sink.getvalue(), "arrow", ())
    counts = [n for _, n in rows.chunks(["known"], size)]
    assert sum(counts) == 2050
    assert max(counts) == size
