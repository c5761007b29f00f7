"""Workbooks: every kind of cell, damage of every kind, and bombs that are measured."""

import datetime as dt
import io
import random
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from lometab.errors import DataError, FileTooLarge, LoMETabError
from lometab.table import ParquetTable, Reading, ReadOptions, read_file
from tests.support.workbooks import (
    END,
    HEAD,
    SHEET,
    add_texts,
    replace_part,
    write_workbook,
)

ROWS: list[list[Any]] = [
    ["name", "price", "day", "at", "ok", "clock"],
    *(
        [
            f"n{i % 4}",
            i * 1.5,
            dt.date(2024, 1, 1 + i % 28),
            dt.datetime(2024, 1, 1, i % 24, 30),
            i % 2 == 0,
            dt.time(i % 24, 15),
        ]
        for i in range(40)
    ),
]
SMALL = write_workbook(ROWS)


def read(
    content: bytes, folder: Path, **options: Any
) -> tuple[Reading, dict[str, list[Any]]]:
    source = folder / "file"
    source.write_bytes(content)
    limits = {name: options.pop(name) for name in [*options] if name[:4] == "max_"}
    reading = read_file(source, folder / "table", ReadOptions(**options), **limits)
    table = ParquetTable(folder / "table")
    return reading, {name: column.to_pylist() for name, column in table.items()}


def test_cells_are_texts_that_mean_the_same(tmp_path: Path) -> None:
    reading, table = read(SMALL, tmp_path)
    assert (reading.format, reading.n_rows) == ("xlsx", 40)
    assert {name: values[1] for name, values in table.items()} == {
        "name": "n1",
        "price": "1.5",
        "day": "2024-01-02",
        "at": "2024-01-01 01:30:00",
        "ok": "false",
        "clock": "01:15:00",
    }
    assert table["price"][2] == "3"


def test_a_table_may_stand_anywhere(tmp_path: Path) -> None:
    content = write_workbook(ROWS, at=(4, 3), others={"Notes": [["a", "b"]]})
    reading, table = read(content, tmp_path)
    assert [*table] == ROWS[0] and reading.n_rows == 40
    assert reading.sheet is not None and reading.sheet.value == "Data"
    assert "'Notes'" in reading.warnings[0] and "`sheet`" in reading.warnings[0]


def test_a_sheet_is_chosen_by_its_name(tmp_path: Path) -> None:
    more = {"Prices": [["x", "y"], *[[i, i % 3] for i in range(30)]]}
    content = write_workbook(ROWS, others=more)
    reading, table = read(content, tmp_path, sheet="Prices")
    assert [*table] == ["x", "y"] and reading.n_rows == 30
    assert reading.warnings == ()
    with pytest.raises(DataError, match="did you mean 'Prices'"):
        read(content, tmp_path, sheet="prices")
    with pytest.raises(DataError, match="`sheet` is for Excel"):
        read(b"a,b\n1,2\n", tmp_path, sheet="Prices")


def test_an_empty_sheet_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'Data' is empty; set `sheet`"):
        read(write_workbook([]), tmp_path)


def cells(*refs: str) -> bytes:
    written = [
        f'<row r="{ref.lstrip("ABCDEFGXYZ")}"><c r="{ref}"><v>1</v></c></row>'
        for ref in refs
    ]
    return HEAD + "".join(written).encode() + END


BOMBS = {
    "a row of cells": HEAD + b"<row>" + b"<c/>" * 5_000_000 + b"</row>" + END,
    "columns without end": cells("A1", "ZZZZZZ2"),
    "before the rows": b"<worksheet>" + b"<cols/>" * 4_000_000 + HEAD[11:] + END,
    "rows of spaces": HEAD + b"<row>" + b" " * (2**25) + b"</row>" + END,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_what_would_take_memory_is_refused_before(name: str, tmp_path: Path) -> None:
    content = replace_part(SMALL, SHEET, BOMBS[name])
    assert len(content) < 200_000
    with pytest.raises(DataError):
        read(content, tmp_path)


def test_limits_are_those_of_every_upload(tmp_path: Path) -> None:
    many = replace_part(SMALL, SHEET, HEAD + b"<row/>" * 300_000 + END)
    with pytest.raises(FileTooLarge, match="unpacks to"):
        read(many, tmp_path, max_bytes=1_000_000)
    with pytest.raises(FileTooLarge, match="more than 1000 rows"):
        read(replace_part(SMALL, SHEET, cells("A1", "B2000")), tmp_path, max_rows=1000)
    with pytest.raises(FileTooLarge, match="columns"):
        read(replace_part(SMALL, SHEET, cells("A1", "XFD2")), tmp_path, max_columns=100)


def test_entities_are_refused(tmp_path: Path) -> None:
    text = b'<!DOCTYPE a [<!ENTITY x "aaaa">]>' + HEAD + b"<row>&x;</row>" + END
    for part in (SHEET, "xl/workbook.xml"):
        with pytest.raises(DataError, match="declares entities"):
            read(replace_part(SMALL, part, text), tmp_path)
    with pytest.raises(DataError, match="UTF-8"):
        text = ("<!DOCTYPE a>" + HEAD.decode()).encode("utf-16")
        read(replace_part(SMALL, SHEET, text), tmp_path)


def test_damage_is_an_error_of_ours(tmp_path: Path) -> None:
    """Bytes of the archive, and of what is in it."""
    rng = random.Random(0)
    with zipfile.ZipFile(io.BytesIO(SMALL)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for i in range(60):
        if i % 3 == 0:
            content = _damage(SMALL, rng)
        else:
            name = rng.choice([*parts])
            content = replace_part(SMALL, name, _damage(parts[name], rng))
        try:
            read(content, tmp_path)
        except LoMETabError:
            pass


def _damage(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(damaged))
        if rng.random() < 0.5:
            damaged[place] = rng.choice(b'0123456789<>/"=abzR:\xff')
        else:
            del damaged[place : place + rng.randint(1, 30)]
    return bytes(damaged)


def test_only_real_rows_are_through_with(tmp_path: Path) -> None:
    """What only looks like the end of a row counts as what it is."""
    half = b"<c/>" * 70_000
    for content in (
        b"<row>" + half + b"<row/>" + half + b"</row>",
        b"<row>" + half + b"<!-- </row> -->" + half + b"</row>",
        b"<x:row xmlns:x='y'>" + half + b"</x:row>" + b"<x:row xmlns:x='y'>" + half,
    ):
        with pytest.raises(FileTooLarge, match=r"more than (131072 el|16384 cells)"):
            read(replace_part(SMALL, SHEET, HEAD + content + END), tmp_path)


def inline(*texts: str) -> bytes:
    cells = (f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in texts)
    return f"<row>{''.join(cells)}</row>".encode()


def test_a_carriage_return_is_no_end_of_a_row(tmp_path: Path) -> None:
    rows = [("note", "n"), *[(f"a{i}", f"{i}") for i in range(9)], ("p&#13;q", "6")]
    sheet = HEAD + b"".join(inline(*row) for row in [*rows, ("z", "7")]) + END
    reading, table = read(replace_part(SMALL, SHEET, sheet), tmp_path)
    assert reading.n_rows == 11
    assert table["note"][-2:] == ["p\nq", "z"] and table["n"][-2:] == ["6", "7"]


def test_cells_out_of_order_have_their_places_and_rows_are_refused(
    tmp_path: Path,
) -> None:
    row = '<row r="{0}"><c r="B{0}"><v>{0}</v></c><c r="A{0}"><v>9</v></c></row>'
    rows = [row.format(i) for i in range(1, 20)]
    _, table = read(
        replace_part(SMALL, SHEET, HEAD + "".join(rows).encode() + END), tmp_path
    )
    assert [len(values) for values in table.values()] == [18, 18] or len(table) == 2
    rows[5], rows[6] = rows[6], rows[5]
    with pytest.raises(DataError, match="row 6 of the sheet stands after row 7"):
        read(replace_part(SMALL, SHEET, HEAD + "".join(rows).encode() + END), tmp_path)


def test_long_formats_are_refused(tmp_path: Path) -> None:
    """openpyxl takes time by the square of their length, and lets nobody else run."""
    styles = (
        b'<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        b'<numFmts><numFmt numFmtId="200" formatCode="'
        + b"[" * 200_000
        + b'"/></numFmts><cellXfs><xf numFmtId="200"/></cellXfs></styleSheet>'
    )
    started = time.process_time()
    with pytest.raises(DataError, match="a number format of the workbook"):
        read(replace_part(SMALL, "xl/styles.xml", styles), tmp_path)
    assert time.process_time() - started < 2


def test_what_is_no_cell_is_not_built(tmp_path: Path) -> None:
    rules = b'<dataValidations><dataValidation sqref="' + b"A1 " * 700_000 + b'"/>'
    after = END.replace(b"</work", rules + b"</dataValidations></work")
    rows = b"".join(inline(f"a{i}", f"{i}") for i in range(20))
    started = time.process_time()
    read(replace_part(SMALL, SHEET, HEAD + rows + after), tmp_path)
    assert time.process_time() - started < 2  # it was 4


def test_few_bytes_are_no_long_sheet(tmp_path: Path) -> None:
    """Cells without anything in them hardly take room in a file, but time."""
    row = b"<row>" + b"<c/>" * 16_000 + b"</row>"
    with pytest.raises(FileTooLarge, match="beyond the limit of 200 times"):
        read(replace_part(SMALL, SHEET, HEAD + row * 100 + END), tmp_path)


def test_other_ways_to_pack_are_refused(tmp_path: Path) -> None:
    """They unpack as much as they like, whatever is asked for."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(SMALL)) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as after,
    ):
        for name in before.namelist():
            after.writestr(name, before.read(name))
    with pytest.raises(DataError, match="no spreadsheet is"):
        read(file.getvalue(), tmp_path)


@pytest.mark.slow
def test_a_part_that_is_longer_than_it_says_takes_no_memory(tmp_path: Path) -> None:
    part = "xl/_rels/workbook.xml.rels"
    with zipfile.ZipFile(io.BytesIO(SMALL)) as archive:
        honest = archive.read(part)
    content = _understate(SMALL, part, honest, 2**28)
    assert len(content) < 2**20
    tracemalloc.start()
    read(content, tmp_path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**26


def _understate(content: bytes, part: str, told: bytes, n_more: int) -> bytes:
    """The workbook with so many blanks behind a part, whose size says nothing of
    them."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    blanks = b" " * 2**20
    packed = packer.compress(told)
    packed += b"".join(packer.compress(blanks) for _ in range(n_more >> 20))
    packed += packer.flush()
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for name in before.namelist():
            if name != part:
                after.writestr(name, before.read(name))
        # Stored as it is packed, and then called deflated.
        after.writestr(zipfile.ZipInfo(part), packed)
        info = after.getinfo(part)
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, len(told)
        info.CRC = zlib.crc32(told)
    return file.getvalue()


def test_a_part_is_measured_whatever_its_name(tmp_path: Path) -> None:
    """The list of parts says what they are, not their names."""
    content = add_texts(SMALL, b"<si><t>" + b"q" * 2**24 + b"</t></si>")
    for name in ("xl/texts.bin", "xl/worksheets/texts.xml"):
        with pytest.raises(FileTooLarge):
            read(_rename(content, "xl/sharedStrings.xml", name), tmp_path)
    many = {f"S{i}": [["a"], [1]] for i in range(40)}
    content = write_workbook(ROWS, others=many)
    big = HEAD + b"<row><c/></row>" * 200_000 + END
    for i in range(2, 30):  # the others are not even opened
        content = replace_part(content, f"xl/worksheets/sheet{i}.xml", big)
    assert read(content, tmp_path)[0].n_rows == 40


def _rename(content: bytes, part: str, name: str) -> bytes:
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for each in before.namelist():
            text = before.read(each).replace(part.encode(), name.encode())
            after.writestr(name if each == part else each, text)
    return file.getvalue()


def test_shared_texts_are_read(tmp_path: Path) -> None:
    cell = '<c r="{}" t="s"><v>{}</v></c>'
    rows = "".join(
        f'<row r="{i}" ht="15">{cell.format(f"A{i}", 0)}{cell.format(f"C{i}", 1)}</row>'
        for i in range(2, 30)
    )
    head = f'<row r="1">{cell.format("A1", 2)}{cell.format("C1", 3)}</row>'
    content = replace_part(SMALL, SHEET, HEAD + (head + rows).encode() + END)
    texts = "".join(f"<si><t>{text}</t></si>" for text in ("x", "y", "a", "b"))
    _, table = read(add_texts(content, texts.encode()), tmp_path)
    assert table["a"] == ["x"] * 28 and table["b"] == ["y"] * 28
