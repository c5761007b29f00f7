"""Files as people have them: read cell for cell, or refused by line."""

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lometab.errors import DataError
from lometab.notes import Notes
from lometab.table import ParquetTable, ReadOptions, read_csv, read_file, scan

CELLS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.text(",;\t|\"' \n\r0aé", max_size=6),
    st.sampled_from(["", "1", "1,5", "NA", '""', "\r\n", " ", "\ufeff"]),
)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    width = draw(st.integers(1, 4))
    row = st.lists(CELLS, min_size=width, max_size=width)
    return draw(st.lists(row, min_size=1, max_size=6))


def write(rows: list[list[str]], delimiter: str, newline: str) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator=newline).writerows(rows)
    return file.getvalue().encode()


@pytest.mark.slow
@given(
    tables(),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 9),
)
@example([["a\rb"]], ",", "\r\n", 1)
def test_a_told_dialect_gives_every_cell(
    rows: list[list[str]], delimiter: str, newline: str, block: int
) -> None:
    """Also where blocks of a few bytes end in the middle of anything."""
    if newline == "\n":  # then Python writes "\r" bare, and refuses to read it again
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    names = [f"x{i}" for i in range(len(rows[0]))]
    content = write([names, *rows], delimiter, newline)
    options = ReadOptions(encoding="utf-8", delimiter=delimiter, quote='"', header=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BLOCK", block)
        table = read_csv(content, options)
    assert [*table] == names
    columns = [column.to_pylist() for column in table.values()]
    assert [list(row) for row in zip(*columns, strict=True)] == rows


@pytest.mark.slow
@given(tables(), st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]))
@example([["", "'' "], ["''", "''"]], ",", "\n")  # apostrophes that are no quotes
def test_a_guess_is_right_or_shown(
    rows: list[list[str]], delimiter: str, newline: str
) -> None:
    """Without a word from the caller, a file is read as it was meant, or refused by
    line, or one of the guesses that the reading shows is another, and in doubt."""
    if newline == "\n":
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    names = [f"x{i}" for i in range(len(rows[0]))]
    with TemporaryDirectory() as folder:
        source = Path(folder) / "file"
        source.write_bytes(write([names, *rows], delimiter, newline))
        table = io.BytesIO()
        try:
            found = read_file(source, table)
        except DataError as error:
            assert error.line is not None and f"line {error.line} " in str(error)
            # Only where there is one column, whose cells hold what may part others.
            assert len(names) == 1
            return
    columns = [column.to_pylist() for column in ParquetTable(table).values()]
    cells = [list(row) for row in zip(*columns, strict=True)]
    if (list(found.names), cells) != (names, rows):
        meant = {
            "delimiter": delimiter,
            "header": True,
            "quote": '"',
            "encoding": "utf-8",
        }
        guesses = {name: getattr(found, name) for name in meant}
        others = [each for name, each in guesses.items() if each.value != meant[name]]
        assert others and all(guess.confidence < 1 for guess in others)


@pytest.mark.slow
def test_a_record_may_be_longer_than_a_block(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a,b\n" + '"' + "x\n" * 500_000 + '",1\n2,3\n')
    reading = read_file(tmp_path / "file", tmp_path / "table")
    assert (reading.n_rows, reading.first_line) == (2, None)
    long = "a,b\n" + "x" * (2**20 + 10) + ",1\n"
    (tmp_path / "file").write_text(long)
    with pytest.raises(DataError, match="line 2 begins a record of more than 1 MiB"):
        read_file(tmp_path / "file", tmp_path / "table")


@pytest.mark.parametrize("size", [7, 100, 250, 999, 5000])
def test_a_table_is_divided_without_a_gap(size: int, tmp_path: Path) -> None:
    """By row groups where these are small, and within them where they are large."""
    path = tmp_path / "t.parquet"
    groups = [100, 100, 1, 700, 99]
    starts = np.cumsum([0, *groups])
    names = ["a", "b"]
    schema = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
    metadata = {b"lometab": json.dumps({"names": names}).encode()}
    with pq.ParquetWriter(path, schema.with_metadata(metadata)) as writer:
        for start, n in zip(starts, groups, strict=False):
            numbers = np.arange(start, start + n)
            texts = pa.array([str(each) for each in numbers])
            writer.write_table(pa.table([pa.array(numbers), texts], schema=schema))
    table = ParquetTable(path)
    parts = table.divide(size)
    assert [first for first, _ in parts] == [0, *np.cumsum([n for _, n in parts])][:-1]
    assert sum(n for _, n in parts) == 1000 and all(n > 0 for _, n in parts)
    assert max(n for _, n in parts) <= max(2 * size, 101)
    for first, n in (parts[0], parts[-1], (50, 3), (99, 200)):
        copy = tmp_path / "copy.parquet"
        table.copy_rows(first, n, {"b", "absent"}, copy)
        found = [*ParquetTable(copy).rows(first, n, {"b"}, size=64)]
        texts = [text for batch in found for text in batch.column(0).to_pylist()]
        assert texts == [str(i) for i in range(first, first + n)]
        with pytest.raises(OSError):  # what was not copied is a hole
            ParquetTable(copy)["a"]
    with path.open("rb") as file:  # not by a path alone
        ParquetTable(file).copy_rows(0, 1000, {"a", "b"}, copy)
    kept = ParquetTable(copy)
    assert kept["a"].to_pylist() == [*range(1000)] and len(kept["b"]) == 1000


def test_notes_of_parts_are_those_of_the_whole() -> None:
    whole, joined = Notes(rare=["c"]), Notes()
    for i in range(3):
        part = Notes(rare=["c"])
        for notes in (whole, part):
            notes.n_rows += 10
            notes.see("c", {f"x{i}", "y"}, 2)
            notes.see_beyond("n", i)
            notes.see_missing("m", i)
            notes.see_novel(np.array([0.5, 0.999]))
        joined.add(Notes.from_dict(json.loads(json.dumps(part.to_dict()))))
    assert joined.warnings() == whole.warnings() != []
