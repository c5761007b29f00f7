"""What HTTP expects of everybody."""

import gzip
import json
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from app.main import api
from app.settings import Settings, get_settings
from app.storage import db
from app.storage.tables import TrainedModel
from tests.support.http import check_problem, post
from tests.support.models import TABLE, succeed


def test_a_page_of_another_origin_may_ask_if_it_is_set(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = {"Origin": "https://app.example"}
    asked = {**origin, "Access-Control-Request-Method": "PUT"}
    assert (
        "access-control-allow-origin" not in client.get("/jobs", headers=origin).headers
    )
    monkeypatch.setattr(get_settings(), "cors_origins", ["https://app.example"])
    answer = client.get("/jobs", headers=origin)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "Retry-After" in answer.headers["access-control-expose-headers"]
    allowed = client.options("/models/n/aliases/a", headers=asked)
    assert allowed.status_code == 200
    assert "PUT" in allowed.headers["access-control-allow-methods"]
    other = {**asked, "Origin": "https://evil.example"}
    refused = client.options("/models/n/aliases/a", headers=other)
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers
    assert "access-control-allow-credentials" not in answer.headers


def test_origins_are_checked() -> None:
    read = Settings(cors_origins="https://a.example/, http://b.example:8080")
    assert read.cors_origins == ["https://a.example", "http://b.example:8080"]
    with pytest.raises(ValueError, match="origin"):
        Settings(cors_origins="https://a.example/path")


def test_head_is_the_head_of_get(client: TestClient) -> None:
    job = succeed(client, "y")
    for path in (
        "/healthz",
        "/jobs",
        f"/jobs/{job['id']}/report",
        f"/models/{job['model_id']}/onnx",
        f"/jobs/{job['id']}/events",
    ):
        plain = {"Accept-Encoding": "identity"}
        get, head = (ask(path, headers=plain) for ask in (client.get, client.head))
        assert head.status_code == get.status_code == 200, path
        assert head.content == b""
        assert head.headers.get("content-length") == get.headers.get("content-length")
        assert head.headers.get("etag") == get.headers.get("etag")
    live = {"Accept": "text/event-stream"}
    assert client.head(f"/jobs/{job['id']}/events", headers=live).status_code == 200
    assert client.head("/jobs/job_0").status_code == 404


def unpack(content: bytes, encoding: str) -> Any:
    if encoding == "gzip":
        return json.loads(gzip.decompress(content))
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as file:
        return json.loads(file.read())


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("gzip", "gzip"),
        ("zstd, gzip;q=0.5", "zstd"),
        ("gzip, zstd", "zstd"),
        ("br", None),
        ("gzip;q=0", None),
        ("identity", None),
    ],
)
def test_answers_are_packed_as_the_client_likes(
    client: TestClient, accept: str, expected: str | None
) -> None:
    plain = client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    with client.stream(
        "GET", "/openapi.json", headers={"Accept-Encoding": accept}
    ) as a:
        content = b"".join(a.iter_raw())
    assert a.headers.get("content-encoding") == expected
    if expected is None:
        assert content == plain.content
        return
    assert a.headers["vary"] == "Accept-Encoding"
    assert len(content) < len(plain.content) / 3
    assert unpack(content, expected) == plain.json()


def test_small_answers_and_files_are_not_packed(client: TestClient) -> None:
    job = succeed(client, "y")
    headers = {"Accept-Encoding": "gzip"}
    for path in ("/healthz", f"/models/{job['model_id']}/onnx"):
        assert "content-encoding" not in client.get(path, headers=headers).headers
    report = client.get(f"/jobs/{job['id']}/report", headers=headers)
    assert report.headers["content-encoding"] == "gzip"
    assert report.headers["etag"].startswith("W/")
    again = {**headers, "If-None-Match": report.headers["etag"]}
    assert client.get(f"/jobs/{job['id']}/report", headers=again).status_code == 304


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("application/vnd.apache.arrow.stream", None), ("text/csv", "gzip")],
)
def test_numbers_are_not_packed_as_they_hardly_get_smaller(
    client: TestClient, accept: str, expected: str | None
) -> None:
    job = succeed(client, "y")
    rows = [{"x1": i / 7, "colour": "red", "x2": i / 3} for i in range(100)]
    answer = client.post(
        f"/models/{job['model_id']}/predict?missing_columns=fill",
        json={"rows": rows},
        headers={"Accept": accept, "Accept-Encoding": "gzip"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(accept)
    assert answer.headers.get("content-encoding") == expected


def test_an_unknown_query_parameter_is_named(client: TestClient) -> None:
    check_problem(client.get("/jobs?statu=failed"), 422, "'statu'", "'status'")
    check_problem(client.get("/healthz?a=1"), 422, "'a'")
    assert client.get("/jobs?status=failed&limit=3").status_code == 200


def test_pages_lead_to_the_next(client: TestClient) -> None:
    for seed in (1, 2, 3):
        config = {"target": "y", "hyperparameters": {"seed": seed}, "tags": ["a b"]}
        assert post(client, TABLE, config).status_code == 202
    first = client.get("/jobs?limit=2&tag=a b")
    link = first.links["next"]["url"]
    assert "limit=2" in link and link.startswith("/jobs?")
    second = client.get(link)
    assert len(second.json()["data"]) == 1 and "link" not in second.headers
    assert client.get("/jobs?tag=a").json()["data"] == []


@pytest.mark.both_databases
def test_lists_are_filtered_by_tag_and_name(client: TestClient) -> None:
    config = {"target": "y", "tags": ["x'y", "z"], "name": "n"}
    assert post(client, TABLE, config).status_code == 202
    for query, n in (("tag=z", 1), ("tag=x'y", 1), ("tag=x", 0), ("name=n", 1)):
        assert len(client.get(f"/jobs?{query}").json()["data"]) == n, query
    assert client.get("/models?tag=z").json()["data"] == []


def test_a_problem_leads_to_its_explanation(client: TestClient) -> None:
    problem = client.get("/jobs/job_0").json()
    assert problem["type"] == "/docs/errors#not_found"
    page = client.get(problem["type"])
    assert page.status_code == 200 and "id='not_found'" in page.text


def test_an_alias_is_moved_only_if_nobody_else_did(client: TestClient) -> None:
    ids = []
    for version in (1, 2):
        ids.append(succeed(client, "y")["model_id"])
        with db.transaction() as session:
            model = session.get_one(TrainedModel, ids[-1])
            model.name, model.version = "n", version

    def put(version: int, **headers: str) -> Any:
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        path = "/models/n/aliases/champion"
        return client.put(path, json={"version": version}, headers=names)

    check_problem(put(1, If_Match='"mdl_x"'), 412, "there is none")
    first = put(1, If_None_Match="*")
    assert first.status_code == 200 and first.headers["etag"] == f'"{ids[0]}"'
    check_problem(put(2, If_None_Match="*"), 412, ids[0])
    check_problem(put(2, If_Match=f'"{ids[1]}"'), 412, ids[0])
    assert put(2, If_Match=first.headers["etag"]).status_code == 200
    assert put(1).status_code == 200


def test_every_hyperparameter_says_what_it_is() -> None:
    schemas = api.openapi()["components"]["schemas"]
    for name in ("TrainConfig", "Split", "ReadOptions"):
        for field, schema in schemas[name]["properties"].items():
            assert schema.get("description"), (name, field)
    assert "mask" in schemas["TrainConfig"]["properties"]["rank"]["description"]


def test_behind_a_proxy_paths_have_its_prefix(client: TestClient) -> None:
    """As uvicorn has them with `--root-path`."""
    with TestClient(
        client.app, root_path="/lometab", client=("127.0.0.1", 1)
    ) as behind:
        behind.headers.update(client.headers)
        behind.base_url = "http://127.0.0.1"
        assert behind.get("/lometab/healthz").status_code == 200
        assert behind.get("/lometab/jobs").status_code == 200
        document = behind.get("/lometab/openapi.json").json()
        assert "/jobs" in document["paths"]
