"""Files as people have them, over HTTP: read right, or refused with the line."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fastapi.testclient import TestClient

from app.serving.rows import CsvRows
from app.settings import get_settings
from lometab.table import ReadOptions, read_csv, read_file
from tests.support.hostile_files import CASES as FIRST
from tests.support.hostile_files import Case
from tests.support.http import check_problem, upload
from tests.support.sheet_files import SHEETS
from tests.support.written_files import EXTRA

CASES = [*FIRST, *EXTRA, *SHEETS]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_file(client: TestClient, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "max_table_bytes", 10_000_000)
    response = upload(client, case.content, case.options)
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


@pytest.mark.parametrize("shared_stack", ["production"], indirect=True)
def test_what_is_read_is_kept_by_postgres_too(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses texts and numbers in JSON that SQLite takes."""
    monkeypatch.setattr(get_settings(), "max_table_bytes", 10_000_000)
    for case in CASES:
        if case.status != 201 or case.is_slow:
            continue
        response = upload(client, case.content, case.options)
        assert response.status_code == 201, (case.name, response.text)
        kept = client.get(f"/datasets/{response.json()['id']}")
        assert kept.json() == response.json(), case.name


PREDICTED = [
    case
    for case in CASES
    if "European" in case.name
    or "accents" in case.name
    or (
        case in EXTRA
        and case.status == 201
        and not {"Parquet", "JSON"}.intersection(case.name.split())
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("case", PREDICTED, ids=lambda case: case.name)
def test_file_is_predicted_as_it_was_read(case: Case) -> None:
    """Predict reads the same values, knowing the columns alone or the dialect too."""
    options = ReadOptions(**case.options)
    table = read_csv(case.content, options)
    known = [*table][:2]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(case.content)
        reading = read_file(path, path.with_name("table"), options)
        # What a query can set of a body.
        told = ReadOptions(
            skip_lines=options.skip_lines,
            skip_footer=options.skip_footer,
            header=False if reading.header and not reading.header.value else None,
        )
        for trained in (None, asdict(reading)):
            for body in (case.content, path):
                rows = CsvRows(body, known, trained=trained, options=told)
                read: dict[str, list[str]] = {name: [] for name in known}
                for chunk, _ in rows.chunks(known, 100):
                    for name in known:
                        read[name] += chunk[name].to_pylist()
                assert read == {name: table[name].to_pylist() for name in known}
