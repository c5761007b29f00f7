"""JSON tables are read in pieces, wherever these end, or refused for what they are."""

import json
import time
from typing import Any

import pytest

from lometab.errors import DataError, FileTooLarge
from lometab.table import ParquetTable, json_pieces, json_rows, read_csv
from lometab.table.json_rows import read_json_lines


def read(content: str) -> dict[str, list[Any]]:
    table: ParquetTable = read_csv(content.encode())
    return {name: column.to_pylist() for name, column in table.items()}


ROWS = [
    {"a": i, "b": f'{{"x{i}", [ü]}}', **({"c": i / 2} if i % 3 else {})}
    for i in range(40)
]


@pytest.mark.parametrize("piece", [60, 61, 67, 100, 2**20])
def test_the_ends_of_pieces_are_not_seen(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_pieces, "PIECE", piece)
    expected = {name: [row.get(name) for row in ROWS] for name in ("a", "b", "c")}
    assert read(json.dumps(ROWS)) == expected
    assert read(json.dumps(ROWS, indent=1, ensure_ascii=False) + "\n") == expected
    assert read("\n\n".join(map(json.dumps, ROWS))) == expected


@pytest.mark.parametrize("piece", [60, 2**20])
def test_the_line_of_a_fault_is_told(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_pieces, "PIECE", piece)
    lines = json.dumps(ROWS, indent=1).splitlines()
    for i, wrong in ((3, "{"), (60, "x"), (len(lines) - 1, "")):
        text = "\n".join([*lines[:i], wrong, *lines[i + 1 :]])
        with pytest.raises(DataError, match="is no JSON") as caught:
            read(text)
        assert caught.value.line in (i, i + 1)
    with pytest.raises(DataError, match="Extra data") as caught:
        read("\n".join([*lines, "", "2"]))
    assert caught.value.line == len(lines) + 2


def test_an_object_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE", 100)
    rows = [{"a": "x"}, {"a": "x" * 200}]
    with pytest.raises(DataError, match="more than"):
        read(json.dumps(rows))
    with pytest.raises(DataError, match="line 2 has more than"):
        read("\n".join(map(json.dumps, rows)))


def test_numbers_and_texts_in_different_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_CELLS", 2)
    found = read('[{"a":1,"b":1},{"a":2.5,"b":true},{"a":null,"b":"x"},{"a":3}]')
    assert found == {"a": [1.0, 2.5, None, 3.0], "b": ["1", "true", "x", None]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"a":1' + "0" * 400 + "}]", "no float64"),
        ('[{"a":"\\ud800"}]', "Unicode"),
        ('[{"\\ud800":1}]', "Unicode"),
        ('[{"a":' + "[" * 5000 + "]" * 5000 + "}]", "cannot be read"),
        ('{"columns":[' + "[" * 900 + "]" * 900 + '],"data":[[1,2]]}', "list of 1"),
        ('[{"a":"' + "x" * 2**21 + '"}]', "1 MiB"),
        ("[{},{}]", "no columns"),
    ],
)
def test_what_is_no_table_is_refused(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(text)


def test_an_error_is_short_however_long_the_file() -> None:
    columns = {f"{'n' * 50}{i}": [1] * (1 + i % 2) for i in range(9000)}
    with pytest.raises(DataError, match="has 1 and") as caught:
        read(json.dumps(columns))
    assert len(str(caught.value)) < 500


def test_what_is_parsed_whole_has_a_limit_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_rows, "_MAX_WHOLE", 10_000)
    assert read(json.dumps(ROWS * 10))["a"][:2] == [0, 1]
    with pytest.raises(FileTooLarge, match="an object on each line"):
        read(json.dumps({"rows": ROWS * 10}))
    monkeypatch.setattr(json_rows, "_MAX_WHOLE", 1_000_000)
    for value in ("x" * 300_000 + "\U0001f600", ["abc"] * 20_000):
        with pytest.raises(FileTooLarge, match="would take"):
            read(json.dumps({"a": [value], "b": value}, ensure_ascii=False))


def test_columns_are_counted_before_they_are_named() -> None:
    started = time.process_time()
    with pytest.raises(FileTooLarge, match="5000001 columns"):
        read('{"columns":[' + "0," * 5_000_000 + '0],"data":[]}')
    assert time.process_time() - started < 3


def test_lines_end_where_json_lets_them() -> None:
    """Other marks of Unicode may stand within a text."""
    assert read_json_lines('{"a":"x\u2028y"}\r\n\n{"a":1}') == [
        {"a": "x\u2028y"},
        {"a": 1},
    ]
