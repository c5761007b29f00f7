"""Excel workbooks for tests."""

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openpyxl import Workbook

SHEET = "xl/worksheets/sheet1.xml"
HEAD = (
    b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
    b"<sheetData>"
)
END = b"</sheetData></worksheet>"


def write_workbook(
    rows: Iterable[Sequence[Any]],
    *,
    name: str = "Data",
    others: Mapping[str, Iterable[Sequence[Any]]] | None = None,
    at: tuple[int, int] = (1, 1),
) -> bytes:
    """The first sheet has these rows.

    Args:
        others: further sheets.
        at: the row and the column of its first cell, from 1.
    """
    book = Workbook()
    sheets = {name: rows, **(others or {})}
    for i, (title, cells) in enumerate(sheets.items()):
        sheet = book.active if i == 0 else book.create_sheet()
        sheet.title = title
        first, left = at if i == 0 else (1, 1)
        for row, values in enumerate(cells, start=first):
            for column, value in enumerate(values, start=left):
                if value is not None:
                    sheet.cell(row, column, value)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def replace_part(content: bytes, part: str, text: bytes) -> bytes:
    """The workbook with another content of one of its parts."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for name in before.namelist():
            after.writestr(name, text if name == part else before.read(name))
    return file.getvalue()


def add_texts(content: bytes, texts: bytes) -> bytes:
    """The workbook with shared texts, each in an `si`."""
    file = io.BytesIO(content)
    with zipfile.ZipFile(file) as archive:
        types = archive.read("[Content_Types].xml")
    override = (
        b'<Override PartName="/xl/sharedStrings.xml" ContentType="application/vnd.'
        b'openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/></Types>'
    )
    types = types.replace(b"</Types>", override)
    file = io.BytesIO(replace_part(content, "[Content_Types].xml", types))
    root = HEAD[:-11].replace(b"worksheet", b"sst")
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", root + texts + b"</sst>")
    return file.getvalue()
