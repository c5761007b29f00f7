"""The API does what its OpenAPI document says, and the document says all of it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fastapi.testclient import TestClient

from app.api.openapi import CSV, EXAMPLES, HEADERS, LINKS, SEVERAL, UPLOADS
from app.main import api
from tests.support.http import check_problem, post
from tests.support.services import post_job, wait_for_end
from tests.support.stacks import Service

ROOT = Path(__file__).parents[1]
DOCUMENT = api.openapi()
OPERATIONS = {
    operation["operationId"]: operation
    for operations in DOCUMENT["paths"].values()
    for operation in operations.values()
}
# Examples for each operation: few in every run of the tests, many by `make fuzz`.
N_EXAMPLES = os.environ.get("LOMETAB_FUZZ_EXAMPLES", "")
LESS = """
[[operations]]
include-operation-id = "create_job"
phases.coverage.enabled = false
"""
"""Half of all systematic cases are settings of a job; a short run leaves them out, and
on SQLite all of them."""


@pytest.mark.slow
@pytest.mark.both_databases
def test_schemathesis_finds_no_failure(
    service: Service, table_csv: str, tmp_path: Path
) -> None:
    job = post_job(service.client, table_csv, name="known")
    assert wait_for_end(service, job["id"])["status"] == "succeeded"
    config = (ROOT / "schemathesis.toml").read_text()
    (tmp_path / "schemathesis.toml").write_text(config if N_EXAMPLES else config + LESS)
    arguments = [f"--max-examples={N_EXAMPLES or 5}"]
    if service.stack.key is not None:
        arguments += ["--header", f"Authorization: Bearer {service.stack.key}"]
    elif not N_EXAMPLES:
        arguments += ["--phases=examples,fuzzing,stateful"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli"),
            f"--config-file={tmp_path / 'schemathesis.toml'}",
            "run",
            f"{service.address}/openapi.json",
            *arguments,
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.support.contract_hooks",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    links = re.search(r"API Links:\s+(\d+) covered", done.stdout)
    assert links is not None and int(links[1]) >= 4, done.stdout
    assert "Traceback" not in service.read_log()


def references(part: object) -> Iterator[str]:
    """Every `$ref` in a part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from references(each)


def check_example(example: object, schema: dict[str, Any]) -> None:
    """The example fits the schema, whose references lead into the document."""
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(example)


def find_examples(content: dict[str, Any]) -> list[Any]:
    """Those of a body, or else the one of its schema."""
    if "examples" in content:
        return [each["value"] for each in content["examples"].values()]
    schema = content["schema"]
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for place in (content, schema):
        if "example" in place:
            return [place["example"]]
    raise AssertionError(f"no example: {content}")


def test_operations_are_named_and_described() -> None:
    count = sum(len(operations) for operations in DOCUMENT["paths"].values())
    assert len(OPERATIONS) == count, "operation ids are not unique"
    tags = {tag["name"] for tag in DOCUMENT["tags"] if tag["description"]}
    for name, operation in OPERATIONS.items():
        assert name.isidentifier()
        assert operation["summary"] and not operation["summary"].endswith("."), name
        assert operation["description"].endswith("."), name
        assert set(operation["tags"]) <= tags, name


def test_parameters_are_described() -> None:
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (name, parameter["name"])


@pytest.mark.slow
def test_bodies_have_examples_that_fit() -> None:
    for name, operation in OPERATIONS.items():
        contents = operation.get("requestBody", {}).get("content", {})
        for media_type, content in contents.items():
            for example in find_examples(content):
                if media_type == "application/json":
                    check_example(example, content["schema"])
        for status, response in operation["responses"].items():
            assert response["description"], (name, status)
            assert "X-Request-ID" in response["headers"]
            for media_type, content in response.get("content", {}).items():
                if media_type.endswith("json"):
                    assert content["schema"], (name, status)
                    for example in find_examples(content):
                        check_example(example, content["schema"])


def test_errors_are_problems() -> None:
    for name, operation in OPERATIONS.items():
        statuses = {status for status in operation["responses"] if status >= "4"}
        if "security" in operation:
            assert statuses >= {"401", "403", "429", "431"}, name
            if operation.keys() & {"parameters", "requestBody"}:
                assert "422" in statuses, name
        if operation.get("requestBody"):
            assert "422" in statuses
        for status in statuses:
            content = operation["responses"][status]["content"]
            assert [*content] == ["application/problem+json"], (name, status)


def test_nothing_is_unused() -> None:
    used = set(references(DOCUMENT))
    for name in DOCUMENT["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in used, name
    for table in (CSV, EXAMPLES, HEADERS, LINKS, SEVERAL, UPLOADS):
        assert set(table) <= set(OPERATIONS)
    for links in LINKS.values():
        for link in links.values():
            target = OPERATIONS[link["operationId"]]
            names = {parameter["name"] for parameter in target["parameters"]}
            assert set(link["parameters"]) <= names


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/%00",
        "/jobs/%ff",
        "/jobs/%ed%a0%80",
        "/models/%00@1",
        "/jobs?dataset_id=%00",
        "/models?name=%00",
        "/jobs?created_before=0.5",
        "/jobs?created_after=0001-01-01T00:00:00%2B23:59",
        "/jobs?created_before=9999-12-31T23:59:59-23:59",
        f"/jobs?limit={'9' * 5000}",
        # A cursor as ours are made, with a NUL in the id; and one that nests deeply.
        "/jobs?cursor=WyIyMDI2LTAxLTAxVDAwOjAwOjAwWiIsICJhXHUwMDAwYiJd",
        f"/jobs?cursor={'W1tb' * 5000}",
    ],
)
@pytest.mark.both_databases
def test_odd_characters_and_numbers_are_refused(client: TestClient, path: str) -> None:
    check_problem(client.get(path), 422)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"target": "y", "preset": {}}',
        rb'{"target": "y", "tags": ["\u0000"]}',
        rb'{"target": "\ud800"}',
        b'{"target": "\xff"}',
        b"[" * 100_000,
    ],
)
@pytest.mark.both_databases
def test_odd_settings_are_refused(
    client: TestClient, table_csv: str, body: bytes
) -> None:
    files = {"file": ("t.csv", table_csv), "config": (None, body)}
    check_problem(client.post("/jobs", files=files), 422)


@pytest.mark.both_databases
def test_half_a_surrogate_pair_is_refused(client: TestClient) -> None:
    response = client.put(
        "/models/a/aliases/b",
        content=rb'{"\ud800": 1}',
        headers={"Content-Type": "application/json"},
    )
    check_problem(response, 422)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"abc",
        b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\na,b\n1,2\n3',
    ],
)
def test_cut_upload_is_refused(client: TestClient, body: bytes) -> None:
    """What arrived of a file is not taken for the whole."""
    content_type = {"Content-Type": "multipart/form-data; boundary=x"}
    response = client.post("/datasets", content=body, headers=content_type)
    assert check_problem(response, 422)["code"] == "bad_multipart"


def test_boundary_that_is_too_long(client: TestClient) -> None:
    content_type = {"Content-Type": f"multipart/form-data; boundary={'x' * 5000}"}
    response = client.post("/datasets", content=b"abc", headers=content_type)
    assert check_problem(response, 422)["code"] == "bad_multipart"


@pytest.mark.both_databases
def test_file_name_with_a_nul(client: TestClient) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a\0.csv"\r\n'
        b"\r\na,b\n1,2\n3,4\n\r\n--x--\r\n"
    )
    content_type = {"Content-Type": "multipart/form-data; boundary=x"}
    response = client.post("/datasets", content=body, headers=content_type)
    assert response.status_code == 201, response.text
    assert response.json()["filename"] == "a\ufffd.csv"


def test_405_names_every_method(client: TestClient, table_csv: str) -> None:
    job = post(client, table_csv, {"target": "y"}).json()
    for path, methods in (
        ("/jobs", "GET, HEAD, POST"),
        (job["links"]["self"], "DELETE, GET, HEAD, PATCH"),
    ):
        response = client.put(path)
        check_problem(response, 405)
        assert response.headers["allow"] == methods
