"""The OpenAPI document: each list of words is there once, under one name."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from app.api import application, openapi
from app.main import api
from app.storage import enums
from worker.train import failure_code

DOCUMENT: dict[str, Any] = api.openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
SHOWN = ["JobStatus", "JobKind", "JobRole", "JobPhase", "EventType", "FailureCode"]


def list_schemas(node: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            if key not in ("example", "examples"):
                yield from list_schemas(value, f"{path}/{key}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from list_schemas(value, f"{path}/{i}")


@pytest.mark.parametrize("name", SHOWN)
def test_enums_of_jobs_are_named(name: str) -> None:
    enum: type[StrEnum] = getattr(enums, name)
    assert SCHEMAS[name]["enum"] == [member.value for member in enum]


def test_no_list_of_words_is_there_twice() -> None:
    places: defaultdict[tuple[Any, ...], list[str]] = defaultdict(list)
    for path, schema in list_schemas(DOCUMENT):
        if isinstance(schema.get("enum"), list):
            places[tuple(schema["enum"])].append(path)
    doubles = {words: found for words, found in places.items() if len(found) > 1}
    assert doubles == {}


def test_named_enums_are_referred_to_and_no_reference_is_open() -> None:
    used = {
        schema["$ref"].removeprefix("#/components/schemas/")
        for _, schema in list_schemas(DOCUMENT)
        if isinstance(schema.get("$ref"), str)
    }
    assert used <= SCHEMAS.keys()
    assert openapi.ENUMS.keys() <= used


def test_every_field_of_an_answer_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "understand.md").read_text()
    told = {word for line in page.splitlines() for word in re.findall(r"`(\w+)`", line)}
    assert {*openapi.ENUMS["PredictField"], "abstain"} <= told


def test_an_unknown_code_of_a_failure_is_internal() -> None:
    assert enums.FailureCode("a code of another version") is enums.FailureCode.INTERNAL


def test_codes_of_the_child_process_are_known() -> None:
    from lometab import errors

    for error in (
        errors.DataError("x"),
        errors.TrainingDiverged("x"),
        errors.ExportMismatch("x"),
        errors.MissingPackage("x"),
        MemoryError(),
        RuntimeError("x"),
    ):
        code = failure_code(error)
        assert code in list(enums.FailureCode), code


def test_many_threads_may_ask_for_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a browser does that opens the page of a service which has just started."""
    made: list[int] = []

    def make(api: FastAPI) -> dict[str, Any]:
        made.append(1)
        time.sleep(0.2)
        return {"paths": {}}

    monkeypatch.setattr(application, "make_document", make)
    monkeypatch.setattr(api, "openapi_schema", None)
    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(lambda _: api.openapi(), range(8))]
    assert made == [1] and found == [{"paths": {}}] * 8
