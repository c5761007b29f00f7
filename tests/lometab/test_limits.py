"""Small files that unpack to gigabytes are refused while they are small."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.serving.rows import ArrowRows, ParquetRows
from lometab.errors import DataError, FileTooLarge, nearest
from lometab.table import (
    Limits,
    ParquetInput,
    read_categories,
    read_file,
    read_moments,
    read_numbers,
)
from lometab.table.headers import distinguish
from tests.support.workbooks import (
    END,
    HEAD,
    SHEET,
    add_texts,
    replace_part,
    write_workbook,
)

MEGABYTE = "x" * 2**20
LONG = 3 * 2**28
SPACE = 3 * 2**29
"""Bytes of address space that reading may take beyond what the modules do."""

CHILD = """
import json, resource, sys
from pathlib import Path
from lometab.errors import DataError
if sys.argv[1] == "upload":
    from lometab.table import read_file
else:
    from app.serving import rows
import pyarrow.compute, pyarrow.dataset
pages = int(Path("/proc/self/statm").read_text().split()[0])
space = pages * resource.getpagesize() + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (space, space))
path = Path(sys.argv[2])
try:
    if sys.argv[1] == "upload":
        read = read_file(path, path.with_name("table"), max_bytes=100_000_000,
                         max_rows=10_000_000)
        told = f"{read.n_rows} rows"
    else:
        opened = rows.open_rows(path.read_bytes(), sys.argv[1], ["a"])
        told = str(sum(n for _, n in opened.chunks(["a"], 1024)))
except DataError as error:
    told = str(error)
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(json.dumps({"told": told, "peak": peak * 1024}))
"""


def run(what: str, content: bytes, folder: Path) -> Any:
    """What becomes of a file in a process that has little memory."""
    path = folder / "file"
    path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, what, str(path), str(SPACE)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def arrow(table: pa.Table, compression: str | None = None) -> bytes:
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return file.getvalue()


def arrow_file(table: pa.Table, compression: str) -> bytes:
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return file.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", write_statistics=False, **options)
    return file.getvalue()


def pointing(n_rows: int, text: str) -> pa.Table:
    """Many rows that point at one text."""
    column = pa.DictionaryArray.from_arrays(np.zeros(n_rows, np.int8), [text])
    return pa.table({"a": column})


def bombs() -> dict[str, tuple[str, bytes]]:
    buffers = [None, pa.py_buffer(np.array([0, LONG])), pa.py_buffer(bytes(LONG))]
    long = pa.table({"a": pa.Array.from_buffers(pa.large_string(), 1, buffers)})
    nulls = pa.table({"a": pa.nulls(300_000_000)})
    value = parquet(long, use_dictionary=False)
    found = {
        "predict arrow dictionary": ("arrow", arrow(pointing(3000, MEGABYTE), "zstd")),
        "predict parquet dictionary": ("parquet", parquet(pointing(3000, MEGABYTE))),
        "predict parquet value": ("parquet", value),
        "upload arrow": ("upload", arrow(long, "zstd")),
        "upload arrow file": ("upload", arrow_file(long, "zstd")),
        "upload arrow dictionary": ("upload", arrow(pointing(3000, MEGABYTE), "zstd")),
        "upload parquet value": ("upload", value),
        "upload nulls": ("upload", arrow(nulls)),
        "upload json names": ("upload", gzip.compress(wide_json())),
        "upload json lists": (
            "upload",
            gzip.compress(b'{"columns":["a"],"data":[[0]' + b",[0]" * 2**24 + b"]}"),
        ),
        "predict workbook row": ("xlsx", workbook(SHEET, share(40), 7 * 2**20)),
        "upload workbook row": ("upload", workbook(SHEET, share(16_000), 2**17)),
        "upload workbook cells": ("upload", workbook(SHEET, NESTED)),
        "upload workbook rows": ("upload", workbook(SHEET, b"<row/>" * 15_000_000)),
        "upload workbook fill": ("upload", workbook(SHEET, FILLED)),
        "upload workbook styles": ("upload", workbook("xl/styles.xml", STYLES)),
    }
    return found


NESTED = b"<foo>" + (b"<c/>" * 100_000 + b"<row/>") * 120 + b"</foo>"
"""Cells that are in no row, between rows: nothing is through with them."""
FILLED = b'<row><c r="A1"><v>1</v></c><c r="XFD1"><v>1</v></c></row>' + (
    b"<row><c><v>1</v></c></row>" * 100_000
)
STYLES = b"<cellXfs>" + b"<xf/>" * 1_600_000 + b"</cellXfs>"


def share(n_cells: int) -> bytes:
    """Cells of a row with one text in common."""
    return b"<row>" + b'<c t="s"><v>0</v></c>' * n_cells + b"</row>"


def workbook(part: str, content: bytes, n_bytes: int = 2) -> bytes:
    """A small one with other rows or other styles.

    Args:
        n_bytes: of its first shared text.
    """
    if part == SHEET:
        content = HEAD + content + END
    else:
        content = HEAD.replace(b"worksheet", b"styleSheet")[:-11] + content
        content += b"</styleSheet>"
    book = replace_part(write_workbook([["a"], ["x"]]), part, content)
    return add_texts(book, b"<si><t>" + b"q" * n_bytes + b"</t></si>")


def wide_json() -> bytes:
    """Many names in the first object, and none in many others."""
    names = ",".join(f'"{i}":0' for i in range(9000))
    return f"[{{{names}}}{',{}' * 300_000}]".encode()


BOMBS = [
    "predict arrow dictionary",
    "predict parquet dictionary",
    "predict parquet value",
    "upload arrow",
    "upload arrow file",
    "upload arrow dictionary",
    "upload parquet value",
    "upload nulls",
    "upload json names",
    "upload json lists",
    "predict workbook row",
    "upload workbook row",
    "upload workbook cells",
    "upload workbook rows",
    "upload workbook fill",
    "upload workbook styles",
]


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[str, bytes]]:
    return bombs()


@pytest.mark.processes
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(
    name: str, made: dict[str, tuple[str, bytes]], tmp_path: Path
) -> None:
    what, content = made[name]
    assert len(content) < 200_000
    done = run(what, content, tmp_path)
    assert "limit" in done["told"] or "more than" in done["told"], done
    assert done["peak"] < 600_000_000, done


@pytest.mark.parametrize("rows", [ArrowRows, ParquetRows])
def test_one_value_is_at_most_a_megabyte(rows: Any, tmp_path: Path) -> None:
    for text in (MEGABYTE, MEGABYTE + "x"):
        table = pa.table({"a": [text, "b"]})
        content = arrow(table) if rows is ArrowRows else parquet(table)
        (tmp_path / "file").write_bytes(content)
        if text == MEGABYTE:
            [(chunk, n_rows)] = rows(content).chunks(["a"], 1024)
            assert read_categories(chunk["a"]).tolist() == [text, "b"] and n_rows == 2
            assert read_file(tmp_path / "file", tmp_path / "table").n_rows == 2
            continue
        with pytest.raises(DataError, match="a text of more than 1 MiB"):
            [*rows(content).chunks(["a"], 1024)]
        with pytest.raises(DataError, match="a text of more than 1 MiB"):
            read_file(tmp_path / "file", tmp_path / "table")


def test_texts_with_common_beginnings_come_in_small_batches() -> None:
    """In this encoding, a row may take as much as its whole page, and no bytes."""
    content = parquet(
        pa.table({"a": [MEGABYTE] * 40}),
        use_dictionary=False,
        column_encoding={"a": "DELTA_BYTE_ARRAY"},
    )
    assert len(content) < 10_000
    limits = Limits(max_rows=10**6, max_columns=9, max_bytes=10**9, max_batch=2**24)
    sizes = [batch.num_rows for batch in ParquetInput(content, limits).batches([0])]
    assert sum(sizes) == 40 and max(sizes) <= 4


def test_rows_have_a_limit(tmp_path: Path) -> None:
    table = pa.table({"a": pa.nulls(1000), "b": [True] * 1000})
    for content in (arrow(table), parquet(table), b"a,b\n" + b"1,2\n" * 1000):
        (tmp_path / "file").write_bytes(content)
        reading = read_file(tmp_path / "file", tmp_path / "table", max_rows=1000)
        assert reading.n_rows == 1000
        with pytest.raises(FileTooLarge, match="1000 rows or more"):
            read_file(tmp_path / "file", tmp_path / "table", max_rows=999)
    (tmp_path / "file").write_bytes(arrow(table))
    with pytest.raises(FileTooLarge, match="unpacks to more than"):
        read_file(tmp_path / "file", tmp_path / "table", max_bytes=10_000)


def test_a_shared_text_of_views_is_counted_for_each(tmp_path: Path) -> None:
    view = np.zeros(2000 * 4, "<i4").reshape(-1, 4)
    view[:, 0], view[:, 1] = 2**20, int.from_bytes(b"xxxx", "little")
    column = pa.Array.from_buffers(
        pa.string_view(),
        2000,
        [None, pa.py_buffer(view), pa.py_buffer(MEGABYTE.encode())],
    )
    (tmp_path / "file").write_bytes(arrow(pa.table({"a": column})))
    with pytest.raises(FileTooLarge):
        read_file(tmp_path / "file", tmp_path / "table", max_bytes=100_000_000)


def test_dictionaries_mean_what_their_rows_do() -> None:
    texts = ["2", None, "x", "1.0", "2", "NA", "1"]
    plain = pa.array(texts)
    encoded = plain.dictionary_encode()
    assert read_categories(encoded).tolist() == read_categories(plain).tolist()
    spare = pa.DictionaryArray.from_arrays(
        pa.array([2, None, 0, 2], pa.int8()), ["1", "bad", "3", None]
    )
    np.testing.assert_array_equal(read_numbers(spare, "a"), [3, np.nan, 1, 3])
    with pytest.raises(DataError, match="row 103 holds 'x'"):
        read_numbers(encoded, "a", first_row=101)
    days = pa.array(["2024-01-02", "2024-01-01"]).dictionary_encode()
    assert np.diff(read_moments(days, "a")) == [-86400]


def test_names_are_compared_within_bounds() -> None:
    """Quadratic work on these would take minutes."""
    names = [f"{'n' * 80}{i}" for i in range(100_000)]
    assert nearest("colour", ["color", *names]) == "color"
    assert nearest("x" * 10**6, names) is None
    warnings: list[str] = []
    distinct = distinguish(["a"] * 100_000, warnings)
    assert len(set(distinct)) == 100_000 and len(warnings) == 21
