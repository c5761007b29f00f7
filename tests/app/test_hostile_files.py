"""Files as people have them, over HTTP: read right, or refused with the line."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.settings import get_settings
from tests.app.test_jobs_routes import check_problem
from tests.hostile_files import CASES, Case


def upload(client: TestClient, case: Case) -> Any:
    fields = {"read_options": json.dumps(case.options)} if case.options else {}
    return client.post("/datasets", files={"file": ("file", case.content)}, data=fields)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_file(client: TestClient, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "max_table_bytes", 10_000_000)
    response = upload(client, case)
    if case.status != 201:
        problem = check_problem(response, case.status, case.says or "")
        assert (problem["code"], problem.get("line")) == (case.code, case.line)
        return
    assert response.status_code == 201, response.text
    dataset = response.json()
    columns = {column["name"]: column for column in dataset["columns"]}
    for name, wanted in (case.cells or {}).items():
        place = [*columns].index(name)
        shown = [row[place] for row in dataset["head"]][: len(wanted)]
        assert shown == wanted, name
    if case.cells and case.n_rows is None:
        assert dataset["n_rows"] == len(next(iter(case.cells.values())))
    if case.n_rows is not None:
        assert dataset["n_rows"] == case.n_rows
    for what, wanted in case.found.items():
        found = dataset["reading"][what]
        assert (found["value"] if isinstance(found, dict) else found) == wanted
    for field, wanted in (
        ("kind", case.kinds),
        ("looks_like", case.looks),
        ("format", case.formats),
    ):
        found = {name: columns[name][field] for name in wanted}
        assert found == wanted
    if case.warns is not None:
        assert any(case.warns in warning for warning in dataset["warnings"])
