"""Bodies of other protocols that are made to harm: each is refused for what it is,
with a short sentence, and holds nobody up."""

import json
import struct
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.serving import Invocation, OpenInference
from app.settings import get_settings
from lometab.errors import DataError
from tests.support.http import check_problem
from tests.support.models import succeed

DEEP = "[" * 300 + "1" + "]" * 300
HEADER = "Inference-Header-Content-Length"


@pytest.fixture
def model_id(client: TestClient) -> str:
    found: str = succeed(client, "y")["model_id"]
    return found


Post = Callable[..., Any]


@pytest.fixture
def post(client: TestClient, model_id: str) -> Post:
    paths = {
        "invocations": f"/models/{model_id}/invocations",
        "infer": f"/v2/models/{model_id}/infer",
    }

    def send(what: str, body: str | bytes, **headers: str) -> Any:
        headers.setdefault("Content-Type", "application/json")
        return client.post(paths[what], content=body, headers=headers)

    return send


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_bytes_are_refused_as_everywhere(post: Post, value: float) -> None:
    content = np.array([1.0, value]).tobytes()
    head = {
        "inputs": [
            {
                "name": "size",
                "datatype": "FP64",
                "shape": [2],
                "parameters": {"binary_data_size": len(content)},
            }
        ]
    }
    text = json.dumps(head).encode()
    answer = post("infer", text + content, **{HEADER: f"{len(text)}"})
    assert answer.status_code in (400, 422) and "infinite" in answer.text, answer.text


INVOCATIONS = [
    f'{{"instances": [{{"size": {DEEP}}}]}}',
    f'{{"instances": {{"size": {DEEP}}}}}',
    f'{{"dataframe_split": {{"columns": {DEEP}, "data": [[1]]}}}}',
    '{"instances": [{"size": "\\ud800"}]}',
    '{"instances": [{"size": "\\ud800", "weight": NaN}]}',
    '{"instances": [{"size": 1}], "params": {"include": "\\ud800"}}',
    '{"instances": [{"size": NaN}], "params": {"include": "\\ud800"}}',
    f'{{"instances": [{{"size": 1}}], "params": {{"coverage": {DEEP}}}}}',
    f'{{"instances": [{{"size": 1}}], "params": {{"include": {DEEP}}}}}',
    '{"instances": [{"size": 1}], "params": {"include": [1, {}]}}',
    '{"instances": [{"size": 1}], "params": {"sheet": {"a": 1}}}',
    '{"instances": [{"size": NaN, "weight": ' + "9" * 400 + "}]}",
    '{"instances": [{"size": "NaN, "weight": 1}]}',
    '{"instances": [{"size": xNaN}]}',
]


@pytest.mark.parametrize("body", INVOCATIONS, ids=range(len(INVOCATIONS)))
def test_odd_invocations_are_refused(post: Post, body: str) -> None:
    problem = check_problem(post("invocations", body), 422)
    assert len(problem["detail"]) < 1000


def test_numbers_beside_nan_are_what_they_are_without_it(post: Post) -> None:
    """However many digits they have; and a NaN in a text is a part of it."""
    row = '{"size": 123456789012345678901234567890, "colour": "NaN \\" NaN", "weight": '
    first, second = (
        post("invocations", f'{{"instances": [{row} {each}}}]}}').json()["predictions"]
        for each in ("NaN", "null")
    )
    assert first == second


def test_reading_nan_takes_no_time_of_its_own() -> None:
    """A text that nothing closes is gone through once."""
    started_at = perf_counter()
    for text in (b'"' + b'\\"' * 2**19, b'"' * 2**20, b"\\" * 2**20, b'"a' * 2**19):
        with pytest.raises(DataError, match="no JSON"):
            Invocation().read(b'{"a": NaN, "b": ' + text, {})
    assert perf_counter() - started_at < 10


def make_input(**changes: Any) -> dict[str, Any]:
    return {"name": "size", "datatype": "FP64", "shape": [1], "data": [1], **changes}


def infer(*inputs: Any, **more: Any) -> str:
    text = json.dumps({"inputs": [*inputs], **more})
    return text.replace('"DEEP"', DEEP)


INFER = [
    infer(make_input(datatype=[])),
    infer(make_input(datatype={"a": 1})),
    infer(make_input(data=["DEEP"])),
    infer(make_input(), id="DEEP"),
    infer(make_input(), id=[1]),
    infer(make_input(), parameters={"coverage": "DEEP"}),
    infer(make_input(), outputs=[{"name": []}]),
    infer(make_input(), outputs=[{"name": "DEEP"}]),
    infer(make_input(shape="DEEP")),
    infer(make_input(shape={"a": 1})),
    infer(make_input(shape=[0], parameters={"binary_data_size": False})),
]


@pytest.mark.parametrize("body", INFER, ids=range(len(INFER)))
def test_odd_tensors_are_refused(post: Post, body: str) -> None:
    problem = check_problem(post("infer", body), 422)
    assert len(problem["detail"]) < 1000


@pytest.mark.parametrize("length", ["9" * 5000, "99", "-1", "1_0", "x"])
def test_a_length_that_is_none_is_refused(post: Post, length: str) -> None:
    answer = post("infer", infer(make_input()), **{HEADER: length})
    check_problem(answer, 422, "Inference-Header-Content-Length")


LONG = "x" * 300_000
ECHOES = {
    "names of an invocation": (
        "invocations",
        json.dumps({f"{'k' * 90}{i}": 1 for i in range(9000)}),
    ),
    "a parameter": ("invocations", json.dumps({"instances": [], "params": {LONG: 1}})),
    "an option": (
        "invocations",
        json.dumps({"instances": [{}], "params": {"sheet": LONG}}),
    ),
    "a shape": ("infer", infer(make_input(shape=[1] * 300_000))),
    "a datatype": ("infer", infer(make_input(datatype=LONG))),
    "an input": ("infer", infer(make_input(name=LONG, shape=[2]))),
    "two inputs": ("infer", infer(make_input(name=LONG), make_input(name=LONG))),
    "an output": ("infer", infer(make_input(), outputs=[{"name": LONG}])),
    "lengths": (
        "infer",
        infer(
            *(make_input(name=f"{i}", shape=[i], data=[1] * i) for i in range(1, 500))
        ),
    ),
}


@pytest.mark.parametrize("name", ECHOES)
def test_an_error_does_not_repeat_its_body(post: Post, name: str) -> None:
    answer = post(*ECHOES[name])
    check_problem(answer, 422)
    assert len(answer.content) < 6000


def pack(*inputs: dict[str, Any], rest: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    head = json.dumps({"inputs": [*inputs]}).encode()
    return head + rest, {HEADER.lower().encode(): b"%d" % len(head)}


def of_bytes(name: str, datatype: str, n_rows: int, size: int) -> dict[str, Any]:
    return {
        "name": name,
        "datatype": datatype,
        "shape": [n_rows],
        "parameters": {"binary_data_size": size},
    }


def test_many_inputs_take_no_more_time_than_their_bytes(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the body is not copied for each."""
    monkeypatch.setattr(get_settings(), "max_columns", 20_000)
    inputs = [of_bytes(str(i), "UINT8", 1, 1) for i in range(8000)]
    body, headers = pack(*inputs, rest=bytes(2**24))
    started_at = perf_counter()
    with pytest.raises(DataError, match="left behind"):
        OpenInference("a", None).read(body, headers)
    assert perf_counter() - started_at < 2


def test_columns_rows_and_bytes_are_bounded(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "max_columns", 50)
    monkeypatch.setattr(get_settings(), "max_predict_rows", 1000)
    many = infer(*(make_input(name=str(i)) for i in range(51)))
    check_problem(post("infer", many), 413, "51 inputs")
    body, headers = pack(of_bytes("size", "UINT8", 1001, 1001), rest=bytes(1001))
    told = {name.decode(): value.decode() for name, value in headers.items()}
    check_problem(post("infer", body, **told), 413, "1001 rows")
    for rows in ({"size": [1] * 1001}, [{"size": 1}] * 1001):
        check_problem(post("invocations", json.dumps({"inputs": rows})), 413, "1001")
    monkeypatch.setattr(get_settings(), "max_json_bytes", 2000)
    body, headers = pack(of_bytes("size", "UINT8", 900, 900), rest=b"\xff" * 900)
    told = {name.decode(): value.decode() for name, value in headers.items()}
    check_problem(post("infer", body, **told), 413, "limit of 2000 bytes")


def test_lists_are_counted_before_they_are_made(
    client: TestClient,
    model_id: str,
    post: Post,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(get_settings(), "max_predict_rows", 1000)
    lists = "[" + "[1]," * 3000 + "[1]]"
    says = "more than 2000 lists"
    check_problem(post("invocations", f'{{"instances": {lists}}}'), 413, says)
    check_problem(post("infer", f'{{"inputs": {lists}}}'), 413, says)
    path = f"/models/{model_id}/predict"
    lines = "{}\n" * 3000
    for body, kind in ((f'{{"rows": {lists}}}', "json"), (lines, "x-ndjson")):
        headers = {"Content-Type": f"application/{kind}"}
        check_problem(client.post(path, content=body, headers=headers), 413, says)


def test_texts_are_read_as_far_as_the_shape_goes(client: TestClient) -> None:
    rest = struct.pack("<I", 0) * 100_000
    body, headers = pack(of_bytes("a", "BYTES", 3, len(rest)), rest=rest)
    with pytest.raises(DataError, match="has 4 values"):
        OpenInference("a", None).read(body, headers)


def test_tensors_are_written_whole_in_pieces(client: TestClient) -> None:
    n_rows = 70_001
    numbers = np.arange(n_rows, dtype="<f8")
    numbers[::7] = np.nan
    flags = np.arange(n_rows) % 2 == 0
    body, headers = pack(
        of_bytes("a", "FP64", n_rows, 8 * n_rows),
        of_bytes("b", "BOOL", n_rows, n_rows),
        rest=numbers.tobytes() + flags.tobytes(),
    )
    found = json.loads(OpenInference("m", None).read(body, headers).body)
    assert found["columns"] == ["a", "b"]
    expected = [None if np.isnan(x) else x for x in numbers.tolist()]
    assert [row[0] for row in found["data"]] == expected
    assert [row[1] for row in found["data"]] == flags.tolist()
