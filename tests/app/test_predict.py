"""Predict over HTTP, in process: every format in and out, options, bounds, chunks."""

import asyncio
import csv
import io
import json
import math
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from app import access as auth
from app.main import app
from app.serving import get_predict
from app.serving import rows as rows_module
from app.serving.requests import BATCHED_BYTES
from app.settings import get_settings
from app.storage import db
from lometab.predictor import Predictor
from tests.support.http import check_problem
from tests.support.models import ROWS, TABLE, succeed
from tests.support.servers import wait_until
from tests.support.tables import make_csv

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
INPUTS = ("size", "colour", "weight")
SMALL = replace(rows_module._LIMITS, max_batch=2**16)
N_EXAMPLES = int(os.environ.get("LOMETAB_FUZZ_EXAMPLES", "40"))


@pytest.fixture(autouse=True)
def fresh_serving() -> Iterator[None]:
    """Settings that a test changes are read when the first question comes."""
    get_predict.cache_clear()
    yield
    get_predict.cache_clear()


@pytest.fixture
def y(client: TestClient) -> str:
    """Where a model of a number is asked."""
    return f"/models/{succeed(client, 'y')['model_id']}/predict"


@pytest.fixture
def label(client: TestClient) -> str:
    """The same for one of two classes."""
    return f"/models/{succeed(client, 'label')['model_id']}/predict"


def load(client: TestClient, path: str) -> Predictor:
    return Predictor(client.get(path.replace("/predict", "/onnx")).content)


def table_of(rows: list[dict[str, Any]] = ROWS) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in INPUTS})


def to_csv(delimiter: str = ",", rows: list[dict[str, Any]] = ROWS) -> str:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerow(INPUTS)
    writer.writerows([row[name] for name in INPUTS] for row in rows)
    return file.getvalue()


def to_arrow(
    table: pa.Table, chunk: int | None = None, compression: str | None = None
) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def to_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def send(
    client: TestClient, path: str, content: bytes | str, kind: str, **headers: str
) -> httpx.Response:
    return client.post(
        path,
        content=content.encode() if isinstance(content, str) else content,
        headers={"Content-Type": kind, **headers},
    )


# Formats in


def bodies() -> dict[str, tuple[bytes, str]]:
    matrix = {"columns": INPUTS, "data": [[row[n] for n in INPUTS] for row in ROWS]}
    numbers = table_of().set_column(
        0, "size", pa.array([float(row["size"]) for row in ROWS])
    )
    levels = table_of().set_column(
        1, "colour", table_of()["colour"].dictionary_encode()
    )
    return {
        "matrix": (orjson.dumps(matrix), "application/json"),
        "csv": (to_csv().encode(), "text/csv"),
        "semicolons": (to_csv(";").encode(), "text/csv; header=present"),
        "bom": (to_csv("\t").encode("utf-8-sig"), "text/csv; charset=UTF-8"),
        "utf-16": (to_csv().encode("utf-16"), 'text/csv; charset="utf-16"'),
        "arrow": (to_arrow(table_of(), chunk=7), ARROW),
        "numbers": (to_arrow(numbers), ARROW),
        "dictionary": (to_arrow(levels), ARROW),
        "zstd": (to_arrow(levels, chunk=7, compression="zstd"), ARROW),
        "lz4": (to_arrow(levels, compression="lz4"), ARROW),
        "parquet": (to_parquet(table_of()), PARQUET),
    }


def test_every_format_gives_the_same_answer(client: TestClient, y: str) -> None:
    rows = [{name: row[name] for name in INPUTS} for row in ROWS]
    expected = client.post(y, json={"rows": rows}).json()
    assert len(expected["predictions"]) == len(ROWS)
    for name, (content, kind) in bodies().items():
        response = send(client, y, content, kind)
        assert response.status_code == 200, (name, response.text)
        assert response.json() == expected, name


def test_a_large_body_gives_the_same_answer(client: TestClient, y: str) -> None:
    """Whether it is told how long it is or not."""
    rows = [{name: row[name] for name in INPUTS} for row in ROWS]
    expected = client.post(y, json={"rows": rows}).json()
    for name, (content, kind) in bodies().items():
        halves = iter((content[:9], content[9:]))
        headers = {"Content-Type": kind}
        response = client.post(y, content=halves, headers=headers)
        assert "content-length" not in response.request.headers
        assert response.status_code == 200, (name, response.text)
        assert response.json() == expected, name


def test_missing_cells_of_arrow(client: TestClient, y: str) -> None:
    table = pa.table(
        {
            "size": pa.array([1, None], pa.int8()),
            "colour": pa.array([None, "red"], pa.large_string()),
            "weight": pa.nulls(2),
        }
    )
    rows = [{"size": 1}, {"colour": "red", "weight": None}]
    expected = client.post(y, json={"rows": rows}).json()["predictions"]
    for content, kind in ((to_arrow(table), ARROW), (to_parquet(table), PARQUET)):
        assert send(client, y, content, kind).json()["predictions"] == expected


# Formats out


def test_csv_out(client: TestClient, y: str, label: str) -> None:
    for path, names in (
        (
            y,
            "mean,member_0,member_1,member_2,member_std,interval_lower,"
            "interval_upper,trust,novelty",
        ),
        (
            label,
            "mean_high,mean_low,label,member_0_high,member_0_low,member_1_high,"
            "member_1_low,member_2_high,member_2_low,entropy,mutual_information,"
            "disagreement,set,trust,novelty",
        ),
    ):
        expected = client.post(path, json={"rows": ROWS}).json()
        response = client.post(
            path, json={"rows": ROWS}, headers={"Accept": "text/csv"}
        )
        assert response.headers["content-type"].startswith("text/csv")
        assert response.text.splitlines()[0] == names
        head = json.loads(response.headers["lometab-head"])
        assert {**head, "predictions": expected["predictions"]} == expected
        rows = [*csv.DictReader(io.StringIO(response.text))]
        assert len(rows) == len(ROWS)
        for row, each in zip(rows, expected["predictions"], strict=True):
            if path == y:
                assert float(row["mean"]) == pytest.approx(each["mean"], rel=1e-6)
                assert float(row["member_2"]) == pytest.approx(each["members"][2])
                assert float(row["interval_lower"]) == pytest.approx(
                    each["interval"][0]
                )
            else:
                assert row["label"] == each["label"]
                assert float(row["mean_low"]) == pytest.approx(each["mean"][1])
                assert json.loads(row["set"]) == each["set"]


def test_arrow_out(client: TestClient, y: str, label: str) -> None:
    for path in (y, label):
        expected = client.post(path, json={"rows": ROWS}).json()
        response = client.post(path, json={"rows": ROWS}, headers={"Accept": ARROW})
        assert response.headers["content-type"] == ARROW
        table = pa.ipc.open_stream(response.content).read_all()
        head = json.loads(table.schema.metadata[b"lometab"])
        assert head == json.loads(response.headers["lometab-head"])
        assert {**head, "predictions": expected["predictions"]} == expected
        for row, each in zip(table.to_pylist(), expected["predictions"], strict=True):
            assert row.keys() == each.keys()
            for name, value in each.items():
                if name == "members" and path == label:
                    for ours, theirs in zip(row[name], value, strict=True):
                        assert ours == pytest.approx(theirs)
                elif isinstance(value, float | list) and name != "set":
                    assert row[name] == pytest.approx(value)
                else:
                    assert row[name] == value


def test_accept(client: TestClient, y: str) -> None:
    for accept, kind in (
        ("text/csv;q=0.5, application/json;q=0.1", "text/csv"),
        ("text/html, text/*;q=0.1", "text/csv"),
        ("text/html, */*;q=0.1", "application/json"),
        (f"application/json;q=0, {ARROW}", ARROW),
    ):
        response = client.post(y, json={"rows": ROWS}, headers={"Accept": accept})
        assert response.headers["content-type"].startswith(kind), accept
    for accept in ("text/html", "application/json;q=0", "text/csv;q=x"):
        response = client.post(y, json={"rows": ROWS}, headers={"Accept": accept})
        check_problem(response, 406)


def test_infinite_ends_are_empty(client: TestClient, y: str) -> None:
    path = f"{y}?coverage=0.99&include=interval"
    answer = client.post(path, json={"rows": ROWS[:1]})
    assert answer.json()["predictions"] == [{"interval": [None, None]}]
    answer = client.post(path, json={"rows": ROWS[:1]}, headers={"Accept": "text/csv"})
    assert answer.text.splitlines()[1] == ","
    answer = client.post(path, json={"rows": ROWS[:1]}, headers={"Accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.to_pylist() == [{"interval": [None, None]}]


# Options


def test_include_and_exclude(client: TestClient, y: str, label: str) -> None:
    def names(path: str, **options: Any) -> set[str]:
        answer = client.post(path, json={"rows": ROWS[:1], **options})
        assert answer.status_code == 200, answer.text
        return {*answer.json()["predictions"][0]}

    common = {"mean", "member_std", "interval", "trust", "novelty"}
    assert names(y) == {"members", *common}
    assert names(y, exclude=["members"]) == common
    assert names(y, include=["unseen", "out_of_range"]) == {"unseen", "out_of_range"}
    assert names(y, include=["mean", "entropy"]) == {"mean"}
    assert names(f"{y}?include=mean,std") == {"mean", "std"}
    assert names(f"{y}?include=mean&include=std&exclude=mean") == {"std"}
    assert names(f"{y}?include=mean", include=["std"]) == {"std"}
    assert names(label, include=["label", "set", "disagreement"]) == {
        "label",
        "set",
        "disagreement",
    }
    for answer in (
        client.post(f"{y}?include=median", json={"rows": ROWS}),
        client.post(y, json={"rows": ROWS, "include": "mean"}),
        client.post(f"{y}?inclde=mean", json={"rows": ROWS}),
    ):
        check_problem(answer, 422, "incl")


def test_abstain(client: TestClient, y: str, label: str) -> None:
    for path, measure in ((y, "member_std"), (label, "entropy")):
        answers = client.post(path, json={"rows": ROWS}).json()["predictions"]
        middle = sorted(each[measure] for each in answers)[len(answers) // 2]
        response = client.post(
            f"{path}?abstain_above={middle}", json={"rows": ROWS, "include": ["mean"]}
        )
        for each, full in zip(response.json()["predictions"], answers, strict=True):
            assert each == {
                "mean": full["mean"],
                "abstain": full[measure] > middle,
            }
    check_problem(client.post(f"{y}?abstain_above=-1", json={"rows": ROWS}), 422)
    check_problem(client.post(f"{y}?abstain_above=NaN", json={"rows": ROWS}), 422)


def test_abstain_by_a_share(client: TestClient, y: str, label: str) -> None:
    for path in (y, label):
        answers = client.post(path, json={"rows": ROWS}).json()["predictions"]
        response = client.post(
            f"{path}?abstain=0.3", json={"rows": ROWS, "include": ["mean"]}
        )
        for each, full in zip(response.json()["predictions"], answers, strict=True):
            assert each == {"mean": full["mean"], "abstain": full["trust"] < 0.3}
        table = client.post(
            f"{path}?abstain=0.3&include=trust",
            content=TABLE,
            headers={"content-type": "text/csv", "accept": "text/csv"},
        )
        assert table.status_code == 200, table.text
        lines = table.text.splitlines()
        assert lines[0] == "trust,abstain"
        for line in lines[1:]:
            trust, abstain = line.split(",")
            assert (float(trust) < 0.3) == (abstain == "true")
    for bad in ("0", "1", "5", "-0.1", "few"):
        answer = client.post(f"{y}?abstain={bad}", json={"rows": ROWS})
        check_problem(answer, 422, "abstain")
    both = client.post(f"{y}?abstain=0.1&abstain_above=1", json={"rows": ROWS})
    check_problem(both, 422, "not both")


def test_methods_of_intervals_and_sets(client: TestClient, y: str, label: str) -> None:
    def ask(path: str, **options: Any) -> list[dict[str, Any]]:
        answer = client.post(path, json={"rows": ROWS, **options})
        assert answer.status_code == 200, answer.text
        return answer.json()["predictions"]

    constant = ask(y, conformal="constant")
    widths = {round(e["interval"][1] - e["interval"][0], 4) for e in constant}
    assert len(widths) == 1
    scaled = ask(y, conformal="scaled")
    by_spread = sorted(scaled, key=lambda each: each["member_std"])
    ends = [each["interval"] for each in by_spread]
    assert [upper - lower for lower, upper in ends] == sorted(
        upper - lower for lower, upper in ends
    )
    assert ask(y) in (constant, scaled)
    for coverage in (0.01, 0.5, 0.9):
        adaptive = ask(label, coverage=coverage)
        assert adaptive == ask(label, coverage=coverage, conformal="aps")
        assert all(each["label"] in each["set"] for each in adaptive)
    least = ask(label, coverage=0.01, conformal="lac")
    assert any(each["set"] == [] for each in least)
    wrong = client.post(y, json={"rows": ROWS, "conformal": "aps"})
    check_problem(wrong, 422, "answers by 'constant' and 'scaled' and not by 'aps'")
    check_problem(client.post(f"{y}?conformal=magic", json={"rows": ROWS}), 422)


def test_too_few_calibration_rows_are_told(
    client: TestClient, y: str, label: str
) -> None:
    for path, name in ((y, "interval"), (label, "set")):
        answer = client.post(path, json={"rows": ROWS, "coverage": 0.99}).json()
        (warning,) = answer["warnings"]
        assert "calibration rows are too few for a coverage of 0.99" in warning
        assert "needs 99" in warning
        assert name in warning and answer["predictions"][0][name] is not None
        body = {"rows": ROWS, "coverage": 0.99, "exclude": [name]}
        assert client.post(path, json=body).json()["warnings"] == []
        assert client.post(path, json={"rows": ROWS}).json()["warnings"] == []


def test_rows_unlike_the_training_rows(client: TestClient, y: str) -> None:
    names = "novelty,out_of_range,unseen"
    usual = client.post(f"{y}?include={names}", json={"rows": ROWS}).json()
    assert usual["warnings"] == []
    assert max(each["out_of_range"] for each in usual["predictions"]) == 0
    numbers = [name for name, value in ROWS[0].items() if _is_number(value)]
    assert numbers
    strange = {**ROWS[0], **dict.fromkeys(numbers, 1e9)}
    answer = client.post(f"{y}?include={names}", json={"rows": [strange]}).json()
    (found,) = answer["predictions"]
    assert found["novelty"] == 1
    assert found["out_of_range"] > 0.5
    text = " ".join(answer["warnings"])
    assert "beyond the range of training in 1 of 1 rows" in text
    assert "1 of 1 rows are unlike the training rows" in text
    empty = dict.fromkeys(ROWS[0])
    answer = client.post(f"{y}?include={names}", json={"rows": [empty]}).json()
    assert answer["predictions"][0]["novelty"] == 1
    assert any("which training had in every row" in w for w in answer["warnings"])


def _is_number(value: Any) -> bool:
    try:
        return value != "" and math.isfinite(float(value))
    except ValueError:
        return False


def test_ids_are_handed_through(client: TestClient, y: str) -> None:
    ids = ["a", 7, None, True, 1.5]
    rows = [{**row, "id": id_} for row, id_ in zip(ROWS, ids, strict=False)]
    answer = client.post(y, json={"rows": rows}).json()
    assert [each["id"] for each in answer["predictions"]] == ids
    assert answer["warnings"] == []
    named = [{"key" if k == "id" else k: v for k, v in row.items()} for row in rows]
    answer = client.post(f"{y}?id_column=key", json={"rows": named}).json()
    assert [each["id"] for each in answer["predictions"]] == ids
    assert answer["warnings"] == []
    text = client.post(y, json={"rows": rows}, headers={"Accept": "text/csv"}).text
    found = [row["id"] for row in csv.DictReader(io.StringIO(text))]
    assert found == ["a", "7", "", "true", "1.5"]
    # A column that the model takes can be the id as well.
    answer = client.post(f"{y}?id_column=colour", json={"rows": ROWS}).json()
    colours = [row["colour"] for row in ROWS]
    assert [each["id"] for each in answer["predictions"]] == colours
    check_problem(client.post(f"{y}?id_column=nix", json={"rows": rows}), 422, "nix")
    odd = {"rows": [{**ROWS[0], "id": {}}]}
    check_problem(client.post(y, json=odd), 422, "id must be")


def test_ids_of_tables(client: TestClient, y: str) -> None:
    table = table_of().append_column("id", pa.array(range(len(ROWS)), pa.uint16()))
    for content, kind in ((to_arrow(table), ARROW), (to_parquet(table), PARQUET)):
        answer = send(client, y, content, kind).json()["predictions"]
        assert [each["id"] for each in answer] == [*range(len(ROWS))]
        answer = send(client, y, content, kind, Accept=ARROW)
        ids = pa.ipc.open_stream(answer.content).read_all()["id"]
        assert ids.type == pa.uint16() and ids.to_pylist() == [*range(len(ROWS))]


def test_warnings(client: TestClient, y: str) -> None:
    text = "size,colour,note\n1,red,x\n2,maüve,y\n"
    for accept in ("application/json", "text/csv"):
        response = send(
            client, f"{y}?missing_columns=fill", text, "text/csv", Accept=accept
        )
        if accept == "application/json":
            answer = response.json()
        else:
            answer = json.loads(response.headers["lometab-head"])
        assert answer["warnings"] == [
            "column 'weight' is absent from every row and was filled as missing",
            "columns not used: 'note'",
            "column 'colour' holds categories that training did not have in 1 of 2 "
            "rows: 'maüve'",
            "1 of 2 rows are unlike the training rows: see their `novelty`, and trust "
            "their answers less",
        ]
    check_problem(send(client, y, text, "text/csv"), 422, "'weight' is absent")


def test_server_timing(client: TestClient, y: str) -> None:
    for content, kind in bodies().values():
        for body in (content, iter((content,))):
            response = client.post(y, content=body, headers={"Content-Type": kind})
            parts = response.headers["server-timing"].split(", ")
            assert {part.split(";")[0] for part in parts} == {
                "parse",
                "queue",
                "run",
                "encode",
            }
            assert all(float(part.split("dur=")[1]) >= 0 for part in parts)


# Bounds and errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b"", "application/json", "no JSON"),
        (b'{"rows": [{"size": NaN}]}', "application/json", "a missing value is null"),
        (b"[]", "application/json", "no rows"),
        (b"7", "application/json", "must be an object"),
        (b"{}", "application/json", "send"),
        (b'{"rows": []}', "application/json", "no rows"),
        (b'{"rows": {}}', "application/json", "list of objects"),
        (b'{"rows": [1]}', "application/json", "row 1 must be an object"),
        (b'{"rows": [{}], "data": []}', "application/json", "either"),
        (b'{"columns": ["a"], "data": []}', "application/json", "no rows"),
        (b'{"columns": ["a"], "data": [[1]]}', "application/json", "absent"),
        (b'{"columns": ["a", "a"], "data": []}', "application/json", "more than once"),
        (b'{"columns": [1], "data": []}', "application/json", "list of names"),
        (b'{"columns": ["a"], "data": [[1, 2]]}', "application/json", "row 1 of data"),
        (b'{"rows": [{}], "covrage": 0.5}', "application/json", "'coverage'"),
        (b"", "text/csv", "the file is empty"),
        (b"size,colour,weight\n", "text/csv", "no rows"),
        (
            b"size,colour,weight\n1,red\n",
            "text/csv",
            "names 3 columns where the lines below have 2",
        ),
        (b"size,colour,weight\n1,red,x\n", "text/csv", "row 1 holds 'x'"),
        (b"size,colour,weight\n1,red,inf\n", "text/csv", "infinite"),
        (b"size,colour,weight\n1,\xff,1\n", "text/csv; charset=utf-8", "UTF-8"),
        (b'size,colour,weight\n1,"red,1\n2,red,1\n', "text/csv", "nothing closes"),
        (b"size,size\n1,2\n", "text/csv", "columns are absent"),
        (b"a\n1\n", "text/csv; charset=klingon", "charset"),
        (b"nonsense", ARROW, "cannot be read as Arrow"),
        (b"nonsense", PARQUET, "cannot be read as Parquet"),
    ],
)
def test_bad_bodies(
    client: TestClient, y: str, content: bytes, kind: str, words: str
) -> None:
    check_problem(send(client, y, content, kind), 422, words)
    response = client.post(y, content=iter((content,)), headers={"Content-Type": kind})
    check_problem(response, 422, words)


def test_nested_columns_are_refused(client: TestClient, y: str) -> None:
    lists = table_of().set_column(0, "size", pa.array([[1.0]] * len(ROWS)))
    for content, kind in ((to_arrow(lists), ARROW), (to_parquet(lists), PARQUET)):
        check_problem(
            send(client, y, content, kind), 422, "numbers, texts, booleans and dates"
        )
    # Elsewhere they do not matter.
    spare = table_of().append_column("spare", pa.array([{"a": [1.0]}] * len(ROWS)))
    for content, kind in ((to_arrow(spare), ARROW), (to_parquet(spare), PARQUET)):
        answer = send(client, y, content, kind)
        assert answer.json()["warnings"] == ["columns not used: 'spare'"]


def test_other_media_types(client: TestClient, y: str) -> None:
    for kind in ("application/xml", "", "multipart/form-data; boundary=x"):
        check_problem(send(client, y, b"{}", kind), 415)
    response = send(
        client, y, b"{}", "application/json", **{"Content-Encoding": "gzip"}
    )
    check_problem(response, 415)


def test_too_large(client: TestClient, y: str, monkeypatch: pytest.MonkeyPatch) -> None:
    many = to_csv(rows=ROWS * 100)
    monkeypatch.setattr(get_settings(), "max_json_bytes", 1000)
    monkeypatch.setattr(get_settings(), "max_predict_bytes", len(many) - 1)
    monkeypatch.setattr(get_settings(), "max_predict_rows", 50)
    check_problem(client.post(y, json={"rows": ROWS}), 413, "1000 bytes")
    check_problem(send(client, y, many, "text/csv"), 413)
    halves = iter((many[:999].encode(), many[999:].encode()))
    response = client.post(y, content=halves, headers={"Content-Type": "text/csv"})
    check_problem(response, 413)
    fewer = [name for name in ROWS * 3]
    for content, kind in (
        (to_csv(rows=fewer).encode(), "text/csv"),
        (to_arrow(table_of(fewer)), ARROW),
        (to_parquet(table_of(fewer)), PARQUET),
    ):
        response = client.post(
            y, content=iter((content,)), headers={"Content-Type": kind}
        )
        check_problem(response, 413, "limit of 50 in one request")


def test_rows_are_not_held_if_that_is_too_much(
    client: TestClient, y: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_LIMITS", SMALL)
    text = "x" * 30_000
    rows = [{**row, "colour": text} for row in ROWS]
    for content, kind in (
        (to_arrow(table_of(rows), chunk=1, compression="zstd"), ARROW),
        (to_parquet(table_of(rows)), PARQUET),
    ):
        assert len(content) < 20_000
        check_problem(send(client, y, content, kind), 422, "batches of fewer rows")
    # Columns that are not used are let go of, batch by batch.
    spare = table_of().append_column("spare", pa.array([text] * len(ROWS)))
    content = to_arrow(spare, chunk=1, compression="zstd")
    assert send(client, y, content, ARROW).status_code == 200
    # Dictionaries stay.
    level = pa.array([text] * len(ROWS)).dictionary_encode()
    table = table_of()
    for name in ("one", "two", "three"):
        table = table.append_column(name, level)
    content = to_arrow(table, compression="zstd")
    check_problem(send(client, y, content, ARROW), 422, "not used")


def frame(metadata: bytes) -> bytes:
    """A message of a stream, without a body."""
    padded = metadata.ljust(-(-len(metadata) // 8) * 8, b"\0")
    return b"\xff" * 4 + len(padded).to_bytes(4, "little") + padded


def test_odd_arrow_messages(client: TestClient, y: str) -> None:
    schema = frame(table_of().schema.serialize().to_pybytes()[8:])
    # A record batch whose header is not there; its vtable comes after it.
    fields = struct.pack("<iHBxq", 8 - 24, 4, 3, 0)
    headless = struct.pack("<II", 8, 0) + fields
    headless += struct.pack("<6H", 12, 16, 4, 6, 0, 8)
    check_problem(send(client, y, schema + frame(headless), ARROW), 422)
    # The words by which Arrow 0.17 marked a compressed batch.
    marked = headless + b"ARROW:experimental_compression"
    content = schema + frame(marked)
    check_problem(send(client, y, content, ARROW), 422, "before Arrow 1.0")


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("is_dictionary", [False, True])
def test_an_arrow_batch_is_not_unpacked_if_that_is_too_much(
    client: TestClient,
    y: str,
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
    is_dictionary: bool,
) -> None:
    spare = pa.array(["x" * 100_000] + ["y"] * (len(ROWS) - 1))
    if is_dictionary:
        spare = spare.dictionary_encode()
    content = to_arrow(
        table_of().append_column("spare", spare), compression=compression
    )
    assert len(content) < 10_000
    assert send(client, y, content, ARROW).status_code == 200
    monkeypatch.setattr(rows_module, "_LIMITS", SMALL)
    taken = pa.total_allocated_bytes()
    check_problem(send(client, y, content, ARROW), 422, "batches of fewer rows")
    assert pa.total_allocated_bytes() - taken < 2**16
    # As it is, not compressed, it takes no more than the body did.
    content = to_arrow(table_of().append_column("spare", spare))
    assert send(client, y, content, ARROW).status_code == 200


def test_too_many_at_once(
    client: TestClient, y: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "predict_queue", 3)
    monkeypatch.setattr(get_settings(), "predict_threads", 1)
    expected = client.post(y, json={"rows": ROWS}).json()

    async def ask_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=client.headers
        ) as together:
            return await asyncio.gather(
                *(together.post(y, json={"rows": ROWS}) for _ in range(20))
            )

    answers = asyncio.run(ask_all())
    refused = [each for each in answers if each.status_code == 503]
    accepted = [each for each in answers if each.status_code == 200]
    assert len(refused) + len(accepted) == 20
    assert len(accepted) >= 3 and len(refused) >= 10
    for each in refused:
        assert check_problem(each, 503)["code"] == "overloaded"
        assert each.headers["retry-after"] == "1"
        assert each.headers["x-request-id"]
    for each in accepted:
        for ours, theirs in zip(
            each.json()["predictions"], expected["predictions"], strict=True
        ):
            assert ours["mean"] == pytest.approx(theirs["mean"], rel=1e-5)
    assert client.post(y, json={"rows": ROWS}).status_code == 200


@pytest.mark.both_databases
def test_deleted_and_revoked_at_once(client: TestClient, y: str) -> None:
    """What another process writes is seen by the very next request."""
    with db.transaction() as session:
        row, secret = auth.create_key(
            session, workspace_id="default", name="x", scopes=["predict"]
        )
    key = {"Authorization": f"Bearer {secret}"}
    assert client.post(y, json={"rows": ROWS}, headers=key).status_code == 200
    with db.transaction() as session:
        assert auth.revoke_key(session, row.id)
    check_problem(client.post(y, json={"rows": ROWS}, headers=key), 401)
    assert client.delete(y.removesuffix("/predict")).status_code == 204
    check_problem(client.post(y, json={"rows": ROWS}), 404)
    response = send(client, y, b"x" * (BATCHED_BYTES + 1), "text/csv")
    check_problem(response, 404)


@pytest.mark.both_databases
def test_by_version_and_alias(client: TestClient, y: str) -> None:
    for reference, status in (("none@1", 404), ("none@best", 404), ("a%00b", 422)):
        path = f"/models/{reference}/predict"
        check_problem(client.post(path, json={"rows": ROWS}), status)


# Before the framework


def test_below_a_root_path(client: TestClient, y: str) -> None:
    expected = client.post(y, json={"rows": ROWS}).json()
    proxied = TestClient(
        app, "http://127.0.0.1", client=("127.0.0.1", 1), root_path="/below"
    )
    proxied.headers["Authorization"] = client.headers["Authorization"]
    answer = proxied.post(f"/below{y}", json={"rows": ROWS})
    assert answer.json() == expected
    check_problem(proxied.post(f"/below{y}", json={"rows": []}), 422)


def test_a_bug_is_told_as_everywhere(
    client: TestClient, y: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Predictor, "run_all", fail)
    headers = {"X-Request-ID": "mine-1"}
    response = client.post(y, json={"rows": ROWS}, headers=headers)
    problem = check_problem(response, 500)
    assert "secret" not in response.text
    assert response.headers["x-request-id"] == problem["request_id"] == "mine-1"


def test_each_request_has_a_line_in_the_log(
    client: TestClient, y: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "app")
    for rows in (ROWS, []):
        id_ = {"X-Request-ID": f"mine-{len(rows)}"}
        response = client.post(y, json={"rows": rows}, headers=id_)
        assert response.headers.get_list("x-request-id") == [*id_.values()]

    def read() -> str:
        return "\n".join(each.getMessage() for each in caplog.records)

    wait_until(lambda: "mine-0" in read(), seconds=10, what="the lines are written")
    assert re.search(f"POST {y} 200 [0-9.]+ ms mine-20", read())
    assert re.search(f"POST {y} 422 [0-9.]+ ms mine-0", read())


# Large tables


@pytest.mark.slow
def test_large_tables_are_streamed(client: TestClient, y: str, label: str) -> None:
    rows = [*csv.DictReader(io.StringIO(make_csv(3000, seed=5)))]
    content = to_csv(rows=rows).encode()
    assert len(content) < BATCHED_BYTES  # yet more rows than a shared run takes
    for path in (y, label):
        predictor = load(client, path)
        expected = predictor.predict(rows)
        for body in (content, iter((content,))):
            response = client.post(
                f"{path}?exclude=set",
                content=body,
                headers={"Content-Type": "text/csv", "Accept": ARROW},
            )
            assert response.status_code == 200, response.text
            assert "content-length" not in response.headers
            table = pa.ipc.open_stream(response.content).read_all()
            assert table.num_rows == 3000
            mean = table["mean"].combine_chunks()
            mean = mean.flatten() if path == label else mean
            assert mean.to_numpy() == pytest.approx(expected.mean.ravel(), abs=1e-5)
        answer = send(client, path, content, "text/csv").json()
        assert len(answer["predictions"]) == 3000
        text = send(client, path, content, "text/csv", Accept="text/csv").text
        assert len([*csv.DictReader(io.StringIO(text))]) == 3000


def test_faults_far_down_are_errors(client: TestClient, y: str) -> None:
    """An answer that has begun is whole: all is checked before."""
    rows = [*csv.DictReader(io.StringIO(make_csv(2500, seed=6)))]
    good = to_csv(rows=rows)
    for bad, words in (
        (to_csv(rows=[*rows, {**rows[0], "size": "x"}]), "row 2501 holds 'x'"),
        (good + "1,inf,inf\n", "infinite number in row 2501"),
        (good + "1,red\n", "line 2502 has 2 fields where 3 are expected"),
    ):
        check_problem(send(client, y, bad, "text/csv"), 422, words)
    odd = to_csv(
        rows=[{**rows[0], "colour": "mauve"}, *rows, {**rows[0], "colour": "x"}]
    )
    warnings = send(client, y, odd, "text/csv").json()["warnings"]
    assert warnings == [
        "column 'colour' holds categories that training did not have in 2 of 2502 "
        "rows: 'mauve', 'x'"
    ]


def test_files_of_large_bodies_are_removed(
    client: TestClient, y: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for content, kind in bodies().values():
        client.post(y, content=iter((content,)), headers={"Content-Type": kind})
    for bad in (b"size,colour\n1", b"size,colour,weight\n1,red,x\n"):
        client.post(y, content=iter((bad,)), headers={"Content-Type": "text/csv"})
    assert [*tmp_path.iterdir()] == []


class Vanished(OSError):
    """What a server raises when the client it sends to is gone."""


@pytest.mark.parametrize("gone_while", ["sending", "receiving"])
def test_a_vanished_client_leaves_nothing(
    client: TestClient,
    y: str,
    gone_while: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = [*csv.DictReader(io.StringIO(make_csv(5000, seed=7)))]
    content = to_csv(rows=rows).encode()
    messages = [
        {"type": "http.request", "body": content[:100], "more_body": True},
        {"type": "http.request", "body": content[100:], "more_body": False},
        {"type": "http.disconnect"},
    ]
    if gone_while == "sending":
        del messages[1]
    n_sent = 0

    async def receive() -> Any:
        if len(messages) > 1:
            return messages.pop(0)
        if gone_while == "receiving":  # the server would tell by `send`
            await asyncio.sleep(60)
        return messages[0]

    async def send(message: Any) -> None:
        nonlocal n_sent
        if message["type"] == "http.response.body":
            n_sent += 1
            if n_sent == 2:
                raise Vanished()

    key = client.headers["authorization"].encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "path": y,
        "raw_path": y.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "headers": [(b"content-type", b"text/csv"), (b"authorization", key)],
    }

    async def main() -> None:
        try:
            await app(scope, receive, send)
        except (Vanished, ClientDisconnect):
            pass

    asyncio.run(main())
    assert [*tmp_path.iterdir()] == []
    if gone_while == "sending":
        assert not [each for each in caplog.records if each.levelname == "ERROR"]
    else:
        assert n_sent == 2
    assert client.post(y, json={"rows": ROWS}).status_code == 200


# Anything at all

cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**300, max_value=10**310),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["red", "1.5", "NA", "\0", "1e999", "\ud800", "9" * 400, "-"]),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=3),
)
names = st.sampled_from([*INPUTS, "id", "y", "", "\0", "a.b"])
rows = st.lists(st.dictionaries(names, cells, max_size=6), max_size=4)
options = st.fixed_dictionaries(
    {},
    optional={
        "missing_columns": st.sampled_from(["fill", "error", 1]),
        "coverage": st.one_of(st.just(0.9), cells),
        "calibrated": cells,
        "include": st.one_of(cells, st.lists(st.sampled_from(["mean", "set", "x"]))),
        "abstain_above": cells,
        "id_column": st.one_of(names, cells),
    },
)
messages = st.one_of(
    st.builds(lambda r, o: {"rows": r, "missing_columns": "fill", **o}, rows, options),
    st.builds(
        lambda c, d, o: {"columns": c, "data": d, "missing_columns": "fill", **o},
        st.lists(names, max_size=4),
        st.lists(st.lists(cells, max_size=4), max_size=3),
        options,
    ),
    st.recursive(cells, lambda inner: st.dictionaries(names, inner), max_leaves=4),
)


def check_handled(
    response: httpx.Response, n_rows: int | None = None
) -> list[dict[str, Any]] | None:
    """The answers for so many rows, or None if a problem says what is wrong."""
    if response.status_code != 200:
        assert response.status_code in (413, 422), response.text
        check_problem(response, response.status_code)
        return None
    assert b"NaN" not in response.content and b"Infinity" not in response.content
    predictions: list[dict[str, Any]] = orjson.loads(response.content)["predictions"]
    assert predictions and len(predictions) == (n_rows or len(predictions))
    return predictions


def check_table(response: httpx.Response, predictions: list[dict[str, Any]]) -> None:
    """The answer is whole: what JSON would have said, as CSV or Arrow."""
    assert response.status_code == 200, response.text
    names = [*predictions[0]]
    if response.headers["content-type"] == ARROW:
        table = pa.ipc.open_stream(response.content).read_all()
        assert table.schema.names == names
        found = table.to_pylist()
    else:
        found = [*csv.DictReader(io.StringIO(response.text, newline=""), strict=True)]
        members = [f"member_{i}" for i in range(3)]
        ends = {"members": members, "interval": ["interval_lower", "interval_upper"]}
        columns = [column for name in names for column in ends.get(name, [name])]
        for row in found:
            assert [*row] == columns and None not in row.values()
    means = [float(row["mean"]) for row in found]
    assert means == pytest.approx([each["mean"] for each in predictions], rel=1e-5)


FUZZ = settings(
    max_examples=N_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(message=messages)
@example(message={"rows": [{f"c{i}": i for i in range(10_000)}]})
@example(message={"columns": [f"c{i}" for i in range(10_000)], "data": [[0] * 10_000]})
@example(message={"rows": [{"size": 10**400}]})
def test_any_json(client: TestClient, y: str, message: Any) -> None:
    content = json.dumps(message).encode("utf-8", "surrogatepass")
    n_rows = None
    if isinstance(message, dict):
        sent = message.get("rows", message.get("data"))
        n_rows = len(sent) if isinstance(sent, list) else None
    check_handled(send(client, y, content, "application/json"), n_rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"rows":' * 100_000, "depth"),
        (b"[" * 200_000, "depth"),
        (b'{"rows": [{"size": 1, "size": 2, "colour": 1, "weight": 1}]}', None),
        (b'{"rows": [], "rows": [{"size": 1, "colour": 1, "weight": 1}]}', None),
        (b'{"rows": [{"size": ' + b"9" * 60_000 + b"}]}", "number is infinity"),
        (
            rb'{"rows": [{"size": "\ud800", "colour": "\u0000", "weight": 1}]}',
            "surrogate",
        ),
        (
            rb'{"rows": [{"size": 1, "colour": "\u0000", "weight": 1, '
            rb'"id": "\u0000"}]}',
            None,
        ),
    ],
)
def test_odd_json(
    client: TestClient, y: str, content: bytes, words: str | None
) -> None:
    response = send(client, y, content, "application/json")
    if words is None:
        assert check_handled(response, n_rows=1) is not None
    else:
        check_problem(response, 422, words)


@pytest.mark.slow
@FUZZ
@given(data=st.data())
def test_any_bytes(client: TestClient, y: str, data: st.DataObject) -> None:
    """Good bodies with some bytes changed, cut out or put in."""
    content, kind = data.draw(st.sampled_from([*bodies().values()]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content)))
        n_cut = data.draw(st.sampled_from([0, 1, 4, 50]))
        content = (
            content[:place]
            + data.draw(st.binary(max_size=4))
            + content[place + n_cut :]
        )
    accept = data.draw(st.sampled_from(["application/json", "text/csv", ARROW]))
    path = f"{y}?missing_columns=fill"
    predictions = check_handled(send(client, path, content, kind))
    response = send(client, path, content, kind, Accept=accept)
    if predictions is None or accept == "application/json":
        assert check_handled(response) == predictions
    else:
        check_table(response, predictions)
