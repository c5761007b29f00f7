"""One function for each reader: bytes in, nothing out.

What a reader refuses on purpose is caught here, all else is a bug. The bytes are read
as the service reads them, with the same limits but smaller.
"""

import asyncio
import base64
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fastapi import Request

from app.datasets import receive
from app.errors import AppError
from app.serving.invocations import Invocation
from app.serving.neighbours import Neighbour, make_query
from app.serving.open_inference import HEADER, OpenInference
from app.serving.rows import Kind, Rows, open_rows, read_json
from lometab.errors import DataError, FileTooLarge, ModelFileError
from lometab.onnx_file import read_metadata
from lometab.table import ParquetTable, read_file
from tests.support.workbooks import add_texts, replace_part, write_workbook

MAX_BYTES = 2**20
MAX_ROWS = 10_000
KNOWN = ("a", "b", "c")
SMALL_WORKBOOK = add_texts(
    write_workbook([["a", "b"], [1, "x"], [2.5, "y"]]), b"<si><t>z</t></si>"
)


def read_upload(content: bytes) -> None:
    """A file as it is uploaded: CSV, Arrow, Parquet or JSON, packed or not."""
    with tempfile.TemporaryDirectory(prefix="lometab-fuzz-") as folder:
        source, target = Path(folder) / "file", Path(folder) / "table"
        source.write_bytes(content)
        try:
            reading = read_file(
                source, target, max_bytes=MAX_BYTES, max_columns=50, max_rows=MAX_ROWS
            )
        except (DataError, FileTooLarge):
            return
        table = ParquetTable(target)
        assert table.n_rows == reading.n_rows <= MAX_ROWS
        assert len(table) <= 50


def read_csv_rows(content: bytes) -> None:
    _read_rows(content, "csv")


def read_arrow_rows(content: bytes) -> None:
    _read_rows(content, "arrow")


def read_parquet_rows(content: bytes) -> None:
    _read_rows(content, "parquet")


def read_json_lines(content: bytes) -> None:
    _read_rows(content, "lines")


def _read_rows(content: bytes, kind: Kind) -> None:
    """Rows as predict reads them: all of them, twice, in the same number."""
    try:
        rows = open_rows(content, kind, KNOWN if kind in ("csv", "xlsx") else ())
        found = [_count(rows, size) for size in (50, 1000)]
    except (DataError, FileTooLarge):
        return
    assert found[0] == found[1]


def _count(rows: Rows, size: int) -> int:
    """As many as there are, but for those that predict would not take."""
    n_rows = 0
    for _, n in rows.chunks(KNOWN, size):
        n_rows += n
        if n_rows > MAX_ROWS:
            return MAX_ROWS
    return n_rows


def read_workbook(content: bytes) -> None:
    """A workbook whose parts are what follows a letter in each line of bytes: so that
    its inputs are XML, and need no valid zip file."""
    _read_rows(make_workbook(content), "xlsx")


PARTS = {
    b"s": "xl/worksheets/sheet1.xml",
    b"t": "xl/sharedStrings.xml",
    b"b": "xl/workbook.xml",
    b"r": "xl/_rels/workbook.xml.rels",
    b"y": "xl/styles.xml",
    b"c": "[Content_Types].xml",
}


def make_workbook(content: bytes) -> bytes:
    """A small one, with the parts that its lines replace; or a zip file as it is."""
    if content.startswith(b"PK"):
        return content
    found = SMALL_WORKBOOK
    for line in content.split(b"\n")[:10]:
        if name := PARTS.get(line[:1]):
            found = replace_part(found, name, line[1:])
    return found


def read_infer(content: bytes) -> None:
    """A body of the Open Inference Protocol; the first two bytes say how long its JSON
    is, 0 that all of it is."""
    length, body = int.from_bytes(content[:2], "big"), content[2:]
    headers = {HEADER: b"%d" % length} if length else {}
    _ask(OpenInference("m", None), body, headers)


def read_invocation(content: bytes) -> None:
    _ask(Invocation(), content, {})


def _ask(neighbour: Neighbour, body: bytes, headers: dict[bytes, bytes]) -> None:
    """What it is turned into is JSON that predict reads, with options for a query."""
    try:
        asked = neighbour.read(body, headers)
        make_query(asked.options)
    except (DataError, AppError) as error:
        assert len(str(error)) < 2000
        return
    read_json_rows(asked.body)


def read_json_rows(content: bytes) -> None:
    try:
        rows, _ = read_json(content)
        list(rows.chunks(KNOWN, 100))
    except (DataError, RecursionError):  # which predict tells as what it is
        pass


def read_multipart(content: bytes) -> None:
    """A body in pieces whose size the first byte says."""
    size = 1 + content[0] if content else 1
    body = [content[i : i + size] for i in range(1, len(content), size)]

    async def receive_message() -> dict[str, Any]:
        piece = body.pop(0) if body else b""
        return {"type": "http.request", "body": piece, "more_body": bool(body)}

    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    scope = {"type": "http", "method": "POST", "headers": headers}
    try:
        upload = asyncio.run(
            receive(Request(scope, receive_message), max_bytes=MAX_BYTES)
        )
    except AppError:
        return
    assert upload.path is None or upload.path.stat().st_size == upload.size
    upload.close()


def read_onnx(content: bytes) -> None:
    try:
        read_metadata(content)
    except ModelFileError:
        pass


TARGETS: dict[str, Callable[[bytes], None]] = {
    "upload": read_upload,
    "csv": read_csv_rows,
    "arrow": read_arrow_rows,
    "parquet": read_parquet_rows,
    "json": read_json_rows,
    "lines": read_json_lines,
    "workbook": read_workbook,
    "infer": read_infer,
    "invocations": read_invocation,
    "multipart": read_multipart,
    "onnx": read_onnx,
}
CORPUS = Path(__file__).parents[2] / "corpus"
"""Of each target a file, with an input in base64 on each line."""


def read_corpus(name: str) -> list[bytes]:
    path = CORPUS / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [base64.b64decode(line) for line in lines]


def write_corpus(name: str, inputs: Iterable[bytes]) -> None:
    CORPUS.mkdir(exist_ok=True)
    lines = sorted(base64.b64encode(content).decode() for content in {*inputs})
    text = "".join(f"{line}\n" for line in sorted(lines, key=len))
    (CORPUS / f"{name}.txt").write_text(text)
