"""The client against answers that are made up: what is repeated and what is not, how
errors and events come out, what is sent. With real services: tests/test_client.py."""

import asyncio
import doctest
import hashlib
import inspect
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lometab.client
from lometab.client import (
    AsyncClient,
    BadData,
    Busy,
    Client,
    ClientError,
    Conflict,
    Dataset,
    Job,
    JobFailed,
    Model,
    NotFound,
    NotReady,
    Retries,
    TimedOut,
    Unreachable,
    Webhook,
    errors,
    wire,
)
from lometab.client.sync import Datasets, Jobs, Models, Webhooks
from lometab.errors import DataError
from scripts.make_client import FOLDER, make_sync

QUICK = Retries(attempts=4, first_seconds=0.001, most_seconds=0.01)
Handler = Callable[[httpx.Request], httpx.Response]


class Script:
    """Answers in turn; an exception is raised. The last one comes again."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = [*answers]
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def make_client(handler: Handler, **options: Any) -> Client:
    options = {"retries": QUICK, **options}
    return Client("http://service", transport=httpx.MockTransport(handler), **options)


def job(status: str = "queued", **more: Any) -> httpx.Response:
    return httpx.Response(202, json={"id": "job_1", "status": status, **more})


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    body = {"code": code, "detail": f"about {code}", **more}
    return httpx.Response(status, json=body, headers=headers)


@pytest.mark.processes
def test_the_sync_client_is_made_of_the_other() -> None:
    there = (FOLDER / "sync").glob("*.py")
    found = {path.name: path.read_text(encoding="utf-8") for path in there}
    assert make_sync() == found, "make client"


def test_every_public_name_is_in_the_page_that_is_run() -> None:
    """The blocks of docs/client.md use each, or its table names it."""
    page = (FOLDER.parents[1] / "docs" / "client.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    for name in {*lometab.client.__all__} - {"show", "wire"}:
        assert re.search(rf"\b{name}\b", page), name
    lists, single = (Datasets, Jobs, Models, Webhooks), (Dataset, Job, Model, Webhook)
    for kind in (Client, *lists, *single):
        for name, member in inspect.getmembers(kind):
            if name.startswith("_") or isinstance(member, str):
                continue
            assert re.search(rf"\.{name}\b", code + page), (kind, name)
            assert inspect.getdoc(member), (kind, name)


def test_examples_in_docstrings() -> None:
    for module in (lometab.client.show, lometab.client.wire, errors):
        result = doctest.testmod(module)
        assert result.attempted > 0 and result.failed == 0, module


def test_a_job_is_made_once_however_often_it_is_sent(tmp_path: Path) -> None:
    """Each sending has the whole file and the same key; another job another one."""
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,2\n")
    script = Script(
        httpx.ConnectError("down"),
        httpx.RemoteProtocolError("cut off"),
        problem(503, "unavailable", headers={"Retry-After": "0"}),
        job(),
    )
    client = make_client(script)
    made = client.train(path, "y", preset="fast", rank=8)
    assert made.id == "job_1" and len(script.requests) == 4
    keys = {request.headers["Idempotency-Key"] for request in script.requests}
    assert len(keys) == 1
    for body in script.bodies:
        assert b"a,y\n1,2\n" in body and b'"hyperparameters": {"rank": 8}' in body
    client.train(path, "y")
    assert script.requests[-1].headers["Idempotency-Key"] not in keys


def test_a_promotion_is_repeated_under_one_key() -> None:
    script = Script(httpx.ReadError("cut off"), job())
    make_client(script).jobs["job_1"].promote(cell=1)
    first, second = (request.headers["Idempotency-Key"] for request in script.requests)
    assert first == second


def test_what_cannot_be_repeated_is_not() -> None:
    def send(script: Script) -> None:
        make_client(script).request("POST", "/odd", is_safe=False)

    script = Script(httpx.ReadError("cut off"), job())
    with pytest.raises(Unreachable, match="POST /odd"):
        send(script)
    assert len(script.requests) == 1
    script = Script(httpx.ConnectError("down"), job())  # it never arrived
    send(script)
    assert len(script.requests) == 2


def test_it_gives_up_and_says_so() -> None:
    script = Script(httpx.ConnectError("no route"))
    with pytest.raises(Unreachable, match=r"http://service .*is the service running"):
        make_client(script).get("/jobs")
    assert len(script.requests) == QUICK.attempts
    with pytest.raises(TimedOut, match=r"within 7 s; give the client a longer"):
        make_client(Script(httpx.ReadTimeout("slow")), timeout=7).get("/jobs")
    with pytest.raises(Busy, match="about overloaded"):
        make_client(Script(problem(503, "overloaded"))).get("/jobs")


def test_what_the_service_asks_to_wait_is_waited() -> None:
    told = httpx.Response(503, headers={"Retry-After": "3"})
    assert Retries().pause(1, told) == 3
    assert Retries(most_seconds=2).pause(1, told) == 2
    assert Retries().pause(3, None) <= 1.0 < Retries().pause(4, None) + 0.1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "not_found", NotFound),
        (422, "bad_data", BadData),
        (409, "wrong_job_status", Conflict),
        (409, "report_not_ready", NotReady),
    ],
)
def test_errors_are_exceptions_by_their_code(
    status: int, code: str, kind: type[Exception]
) -> None:
    given = problem(status, code, column="pH", line=7, request_id="r1", errors=[{}])
    with pytest.raises(kind) as caught:
        make_client(Script(given)).get("/jobs/job_1")
    error: Any = caught.value
    assert (error.code, error.status, error.column, error.line) == (
        code,
        status,
        "pH",
        7,
    )
    assert error.request_id == "r1" and error.errors == [{}]
    assert str(error) == f"about {code}"


def test_a_proxys_page_is_an_error_too() -> None:
    given = httpx.Response(418, text="<html>")
    with pytest.raises(ClientError, match="418"):
        make_client(Script(given)).get("/jobs")


def test_a_stop_that_was_cut_off_and_arrived_is_no_conflict() -> None:
    script = Script(
        httpx.ReadError("cut off"),
        problem(409, "wrong_job_status"),
        httpx.Response(200, json={"id": "job_1", "status": "stopping"}),
    )
    assert make_client(script).jobs["job_1"].stop().status == "stopping"
    script = Script(
        problem(409, "wrong_job_status"),
        httpx.Response(200, json={"id": "job_1", "status": "failed"}),
    )
    with pytest.raises(Conflict):
        make_client(script).jobs["job_1"].stop()


# Events


def event(seq: int, type_: str = "epoch") -> bytes:
    data = json.dumps({"seq": seq, "type": type_, "data": {}})
    return f"id: {seq}\nevent: {type_}\ndata: {data}\n\n".encode()


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream that ends in the middle of an event."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        raise httpx.ReadError("cut off")

    async def __aiter__(self) -> Any:
        for piece in self.pieces:
            yield piece
        raise httpx.ReadError("cut off")


def serve_events(seen: list[str], *, streams: bool = True) -> Handler:
    """Events 1 to 4; the first stream breaks within the third, the next is refused."""

    def handle(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            ended = not streams or len(seen) > 2
            status = "succeeded" if ended else "running"
            return httpx.Response(200, json={"id": "job_1", "status": status})
        if "text/event-stream" not in request.headers["Accept"]:
            after = int(request.url.params["after"])
            rows = [{"seq": n, "type": "epoch", "data": {}} for n in (1, 2, 3, 4)]
            left = [row for row in rows if row["seq"] > after][:2]
            more = left[-1]["seq"] if left and left[-1]["seq"] < 4 else None
            return httpx.Response(200, json={"data": left, "next_after": more})
        if not streams:
            raise httpx.ReadError("nothing comes through")
        seen.append(request.headers["Last-Event-ID"])
        if len(seen) == 1:
            pieces = (event(1), event(2), event(3)[:20])
            return httpx.Response(200, stream=Broken(*pieces))
        if len(seen) == 2:
            return problem(503, "overloaded")
        return httpx.Response(200, content=event(3) + event(4, "succeeded"))

    return handle


def test_each_event_comes_once_though_streams_break() -> None:
    seen: list[str] = []
    events = [e["seq"] for e in make_client(serve_events(seen)).jobs["job_1"].events()]
    assert events == [1, 2, 3, 4]
    assert seen == ["0", "2", "2"]


def test_where_no_stream_comes_through_events_are_polled() -> None:
    client = make_client(serve_events([], streams=False))
    assert [e["seq"] for e in client.jobs["job_1"].events()] == [1, 2, 3, 4]


def test_the_other_client_does_the_same() -> None:
    async def collect() -> list[int]:
        transport = httpx.MockTransport(serve_events([]))
        async with AsyncClient(
            "http://service", transport=transport, retries=QUICK
        ) as client:
            return [e["seq"] async for e in client.jobs["job_1"].events()]

    assert asyncio.run(collect()) == [1, 2, 3, 4]


def test_a_wait_that_is_too_long_ends() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            time.sleep(0.02)
            raise httpx.ReadTimeout("silence")
        return httpx.Response(200, json={"id": "job_1", "status": "running"})

    with pytest.raises(TimedOut, match=r"job_1 has not ended within 0.01 s"):
        make_client(handle).jobs["job_1"].wait(timeout=0.01)


def test_a_failed_job_is_an_exception_with_its_code() -> None:
    error = {"code": "diverged", "detail": "the loss is not finite"}
    info = {"id": "job_1", "status": "failed", "error": error}

    def handle(request: httpx.Request) -> httpx.Response:
        if "text/event-stream" in request.headers["Accept"]:
            return httpx.Response(200, content=event(1, "failed"))
        if request.url.path.endswith("/events"):
            return httpx.Response(200, json={"data": [], "next_after": None})
        return httpx.Response(200, json=info)

    with pytest.raises(JobFailed, match="not finite") as caught:
        make_client(handle).jobs["job_1"].wait(progress=True)
    assert caught.value.code == "diverged"


# Rows


def answer_rows(request: httpx.Request) -> httpx.Response:
    """The number of each row, as mean; and a member less and more."""
    body = request.read()
    if request.headers["Content-Type"] == wire.PARQUET:
        rows = pa.parquet.read_table(pa.BufferReader(body)).to_pylist()
    else:
        rows = [json.loads(line) for line in body.splitlines()]
    answers = [
        {"mean": row["a"] * 1.0, "members": [row["a"] - 1, row["a"] + 1]}
        for row in rows
    ]
    if "members" in request.url.params.get("exclude", ""):
        answers = [{"mean": each["mean"]} for each in answers]
    told = {"classes": None, "k": 2, "warnings": ["w"], "predictions": answers}
    return httpx.Response(200, json=told)


@pytest.fixture
def parquet() -> None:
    pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize("chunk_rows", [2, 100])
def test_frames_go_and_come_in_order(parquet: None, chunk_rows: int) -> None:
    model = make_client(answer_rows).models["m@1"]
    numbers = [3, 1, 2, 7, 5]
    frame = pd.DataFrame({"a": numbers}, index=list("vwxyz"))
    answered = model.predict(frame, chunk_rows=chunk_rows)
    assert answered["mean"].tolist() == numbers
    assert answered.index.tolist() == list("vwxyz")
    assert [*answered.columns] == ["mean"] and model.warnings == ["w"]
    polars = model.predict_members(pl.DataFrame({"a": numbers}), chunk_rows=chunk_rows)
    assert polars.columns == ["mean", "member_0", "member_1"]
    assert polars["member_1"].to_list() == [n + 1 for n in numbers]
    table = model.predict(pa.table({"a": numbers}), chunk_rows=chunk_rows)
    assert table["mean"].to_pylist() == numbers
    rows = model.predict([{"a": n} for n in numbers], chunk_rows=chunk_rows)
    assert rows == [{"mean": float(n)} for n in numbers]
    assert model.predict({"a": numbers})["mean"] == numbers


def test_a_chunk_is_repeated_by_itself(parquet: None) -> None:
    n_asked = 0

    def handle(request: httpx.Request) -> httpx.Response:
        nonlocal n_asked
        n_asked += 1
        if n_asked == 2:
            raise httpx.WriteError("cut off")
        return answer_rows(request)

    rows = [{"a": n} for n in range(6)]
    answered = make_client(handle).models["m@1"].predict(rows, chunk_rows=2)
    assert [row["mean"] for row in answered] == [0, 1, 2, 3, 4, 5]
    assert n_asked == 4


def test_a_frame_is_sent_without_its_index(parquet: None) -> None:
    frame = pd.DataFrame({"a": [1]}, index=["i"])
    table = pa.parquet.read_table(pa.BufferReader(wire.encode(frame).source))
    assert table.column_names == ["a"]


@pytest.mark.parametrize("data", [3, [1, 2], object(), [{"a": object()}]])
def test_what_is_no_table_is_refused(data: Any) -> None:
    with pytest.raises(DataError):
        wire.encode(data)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match=r"no file 'nowhere.csv'"):
        wire.encode("nowhere.csv")


def test_classes_have_a_column_each() -> None:
    told = {
        "classes": ["no", "yes"],
        "k": 1,
        "predictions": [
            {
                "mean": [0.2, 0.8],
                "label": "yes",
                "members": [[0.2, 0.8]],
                "set": ["yes"],
            }
        ],
    }
    assert wire.flatten(told) == {
        "mean_no": [0.2],
        "mean_yes": [0.8],
        "label": ["yes"],
        "member_0_no": [0.2],
        "member_0_yes": [0.8],
        "set": [["yes"]],
    }


def test_lists_come_page_by_page() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        is_first = "cursor" not in request.url.params
        rows = [{"id": "a"}] if is_first else [{"id": "b"}]
        cursor = "c" if is_first else None
        return httpx.Response(200, json={"data": rows, "next_cursor": cursor})

    assert [row["id"] for row in make_client(handle).jobs.rows()] == ["a", "b"]


def test_address_and_key_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOMETAB_URL", "http://elsewhere:1/")
    monkeypatch.setenv("LOMETAB_KEY", "lmt_x")
    script = Script(httpx.Response(200, json={}))
    with Client(transport=httpx.MockTransport(script)) as client:
        client.get("/limits")
    (request,) = script.requests
    assert str(request.url) == "http://elsewhere:1/limits"
    assert request.headers["Authorization"] == "Bearer lmt_x"
    with pytest.raises(ClientError, match="must begin with http"):
        Client("elsewhere")


def test_things_show_their_state() -> None:
    client = make_client(Script(job("running", progress={"epoch": 3}, name="<b>")))
    made = client.train([{"a": 1}], "a")
    assert repr(made) == "<Job job_1 status='running' name='<b>' epoch=3>"
    assert "&lt;b&gt;" in made._repr_html_() and "<b>" not in made._repr_html_()
    assert repr(client.models["m@1"]) == "<Model m@1>"


RESULT = bytes(range(256)) * 40
RESULT_TAG = f'"{hashlib.sha256(RESULT).hexdigest()}"'


class Cut(httpx.SyncByteStream):
    """An answer that breaks off."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self.content
        raise httpx.RemoteProtocolError("cut off")


def serve_result(request: httpx.Request, *, etag: str = RESULT_TAG) -> httpx.Response:
    """A third of what is asked for, until little is left."""
    start = 0
    if "Range" in request.headers and request.headers["If-Range"] == etag:
        start = int(request.headers["Range"][len("bytes=") : -1])
    rest = RESULT[start:]
    headers = {"ETag": etag, "Content-Length": str(len(rest))}
    stream: Any = Cut(rest[: len(rest) // 3]) if len(rest) > 500 else None
    status = 206 if start else 200
    if stream is None:
        return httpx.Response(status, headers=headers, content=rest)
    return httpx.Response(status, headers=headers, stream=stream)


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    client = make_client(serve_result)
    path = client.jobs["job_1"].download(tmp_path / "out.csv")
    assert path.read_bytes() == RESULT
    assert [each.name for each in tmp_path.iterdir()] == ["out.csv"]


def test_a_download_that_is_damaged_or_never_ends_is_none(tmp_path: Path) -> None:
    client = make_client(lambda request: serve_result(request, etag='"other"'))
    with pytest.raises(ClientError, match="damaged"):
        client.jobs["job_1"].download(tmp_path / "out.csv")
    client = make_client(Script(httpx.ConnectError("down")))
    with pytest.raises(Unreachable):
        client.jobs["job_1"].download(tmp_path / "out.csv")
    client = make_client(Script(problem(410, "result_gone")))
    with pytest.raises(ClientError, match="result_gone"):
        client.jobs["job_1"].download(tmp_path / "out.csv")
    assert not [*tmp_path.iterdir()]


def test_a_file_is_predicted_by_a_job(tmp_path: Path) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/models/churn@1/predictions":
            body = request.read()
            assert b'"output": "csv"' in body and b"a\n1\n" in body
            assert b'"exclude": ["members"]' in body
            return job()
        if request.url.path.endswith("/result"):
            return serve_result(request)
        if request.url.path.endswith("/events"):
            return httpx.Response(200, json={"data": [], "next_after": None})
        return httpx.Response(
            200, json={"id": "job_1", "status": "succeeded", "warnings": ["a word"]}
        )

    source = tmp_path / "t.csv"
    source.write_text("a\n1\n")
    model = make_client(handle).models["churn@1"]
    assert model.predict_file(source, tmp_path / "out.csv").read_bytes() == RESULT
    assert model.warnings == ["a word"]
    with pytest.raises(DataError, match="xlsx"):
        model.predict_file(source, tmp_path / "out.xlsx")


def test_faults_come_page_by_page() -> None:
    script = Script(
        httpx.Response(200, json={"data": [{"row": 3}], "next_after": 3}),
        httpx.Response(200, json={"data": [{"row": 8}], "next_after": None}),
    )
    rows = [fault["row"] for fault in make_client(script).jobs["job_1"].faults()]
    assert rows == [3, 8]
    assert script.requests[1].url.params["after"] == "3"


def test_a_file_without_a_length_is_whole_when_its_answer_ends(tmp_path: Path) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        pieces = iter([RESULT[:1000], RESULT[1000:]])
        return httpx.Response(200, headers={"ETag": RESULT_TAG}, content=pieces)

    path = make_client(handle).models["m@1"].download(tmp_path / "m.onnx")
    assert path.read_bytes() == RESULT


HOOK = {"id": "wh_1", "url": "https://hooks.example.com", "events": ["job.failed"]}


def test_a_webhook_shows_its_secret_once() -> None:
    secret = {"secret": "whsec_x"}
    script = Script(
        httpx.Response(201, json={**HOOK, **secret}),
        httpx.Response(200, json=HOOK),
        httpx.Response(200, json={**HOOK, "secret": "whsec_y"}),
    )
    hook = make_client(script).webhooks.create(HOOK["url"], ["job.failed"])
    assert hook.secret == "whsec_x"
    assert "whsec" not in repr(hook) + hook._repr_html_() + json.dumps(hook.info)
    assert hook.refresh().secret == "whsec_x"
    assert hook.rotate().secret == "whsec_y" and "secret" not in hook.info


def test_what_would_be_done_twice_is_not_repeated() -> None:
    """A webhook more, a secret that nobody saw, or a message more."""
    for ask in (
        lambda client: client.webhooks.create("https://x", ["job.failed"]),
        lambda client: client.webhooks["wh_1"].rotate(),
        lambda client: client.webhooks["wh_1"].redeliver("msg_1"),
    ):
        script = Script(httpx.ReadError("cut off"))
        with pytest.raises(Unreachable):
            ask(make_client(script))
        assert len(script.requests) == 1


def test_deliveries_come_in_pages() -> None:
    pages = [{"data": [{"id": i}], "next_cursor": str(i)} for i in range(2)]
    pages.append({"data": [{"id": 2}], "next_cursor": None})
    script = Script(*(httpx.Response(200, json=page) for page in pages))
    found = make_client(script).webhooks["wh_1"].deliveries("dead")
    assert [each["id"] for each in found] == [0, 1, 2]
    asked = [dict(request.url.params) for request in script.requests]
    assert asked[0] == {"status": "dead"} and asked[2]["cursor"] == "1"
