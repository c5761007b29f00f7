"""Whole and nearly whole inputs to begin with."""

import gzip
import io
import json
import zipfile
from collections.abc import Iterator

import pyarrow as pa

from lometab.onnx_file import seal
from tests.support.fuzz.targets import PARTS, SMALL_WORKBOOK
from tests.support.hostile_files import AB, CASES, arrow, batches, parquet, zstd
from tests.support.workbooks import END, HEAD

MAX_SEED = 4096


def make_seeds(name: str) -> list[bytes]:
    return [seed for seed in _SEEDS[name]() if len(seed) <= MAX_SEED]


def _uploads() -> Iterator[bytes]:
    for case in CASES:
        if isinstance(case.content, bytes):
            yield case.content
    yield from (*_csv(), *_arrow(), *_parquet(), *_json())
    yield gzip.compress(b"a,b\n1,2\n")
    yield zstd(b"a,b\n1,2\n")


def _csv() -> Iterator[bytes]:
    yield b"a,b,c\n1,x,2\n3,y,4\n"
    yield b'"a";"b"\r\n"1,5";"x ""y"" z"\r\n;\r\n'
    yield "a\tb\nÄ\tö\n".encode("utf-16")
    yield b"Title\n\na,b\n1,2\nTotal,2\n"
    yield b"a\n1\n\n2\n"


def _arrow() -> Iterator[bytes]:
    yield arrow(False, **AB)
    yield arrow(True, **AB)
    yield batches(3)
    table = pa.table(
        {"a": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [1, 2, 3]}
    )
    for compression in (None, "zstd", "lz4"):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        yield sink.getvalue().to_pybytes()


def _parquet() -> Iterator[bytes]:
    yield parquet(**AB)
    yield parquet(a=[1, None, 3], b=[True, False, None])


def _json() -> Iterator[bytes]:
    rows = [{"a": 1, "b": "x"}, {"a": None, "c": 2.5}]
    for found in (
        rows,
        {"rows": rows, "members": False},
        {"columns": ["a", "b"], "data": [[1, "x"], [2, None]]},
        {"a": [1, 2], "b": ["x", None]},
    ):
        yield json.dumps(found).encode()


def _lines() -> Iterator[bytes]:
    yield b'{"a": 1}\n{"a": 2, "b": "x"}\n'
    yield b"\xef\xbb\xbf[1]\n"


def _workbook() -> Iterator[bytes]:
    yield b""
    cells = b'<row r="1"><c t="s"><v>0</v></c><c t="inlineStr"><is><t>b</t></is></c>'
    more = b'</row><row r="3"><c r="B3" t="b"><v>1</v></c><c><v>1e3</v></c></row>'
    yield b"s" + HEAD + cells + more + END
    root = HEAD[:-11].replace(b"worksheet", b"sst")
    yield b"t" + root + b"<si><r><t>a</t></r><r><t>b</t></r></si><si/></sst>"
    file = io.BytesIO(SMALL_WORKBOOK)
    with zipfile.ZipFile(file) as archive:
        for letter, name in PARTS.items():
            text = archive.read(name).replace(b"\n", b" ")
            yield letter + text
            yield letter + text[:3500].rpartition(b">")[0] + b">"


def _infer() -> Iterator[bytes]:
    inputs = [
        {"name": "a", "datatype": "FP64", "shape": [2, 1], "data": [[1], [2.5]]},
        {"name": "b", "datatype": "BYTES", "shape": [2], "data": ["x", None]},
    ]
    head = {
        "id": "1",
        "inputs": inputs,
        "outputs": [{"name": "mean", "parameters": {"binary_data": True}}],
        "parameters": {"coverage": 0.8},
    }
    yield bytes(2) + json.dumps(head).encode()
    for kind, rest in (("FP16", bytes(4)), ("BYTES", b"\1\0\0\0x\0\0\0\0")):
        size = {"binary_data_size": len(rest)}
        tensor = {"name": "a", "datatype": kind, "shape": [2], "parameters": size}
        text = json.dumps({"inputs": [tensor]}).encode()
        yield len(text).to_bytes(2, "big") + text + rest


def _invocations() -> Iterator[bytes]:
    for form, rows in (
        ("dataframe_split", {"columns": ["a", "b"], "data": [[1, "x"], [2, None]]}),
        ("dataframe_records", [{"a": 1, "b": "NaN"}, {"a": float("nan")}]),
        ("inputs", {"a": [[1], [2]], "b": ["x", "y"]}),
        ("instances", {"a": 1, "b": "x"}),
    ):
        params = {"coverage": 0.8, "include": ["mean"]}
        yield json.dumps({form: rows, "params": params}).encode()


def _multipart() -> Iterator[bytes]:
    head = b'--b\r\nContent-Disposition: form-data; name="'
    file = head + b'file"; filename="t.csv"\r\n\r\na,b\n1,2\n\r\n'
    config = head + b'config"\r\nContent-Type: application/json\r\n\r\n{}\r\n'
    for size in (0, 10, 255):
        yield bytes([size]) + file + config + b"--b--\r\n"
        yield bytes([size]) + config + file + b"--b--"


def _onnx() -> Iterator[bytes]:
    yield seal(b"\x08\x0a", {"version": 1, "k": 4})
    yield seal(b"\x08\x0a", {"version": 2})
    tensor = b"\x08\x0a\x3a\x08\x2a\x06\x6a\x04\x0a\x02ab"  # with data elsewhere
    yield seal(tensor, {"version": 1})


_SEEDS = {
    "upload": _uploads,
    "csv": _csv,
    "arrow": _arrow,
    "parquet": _parquet,
    "json": _json,
    "lines": _lines,
    "workbook": _workbook,
    "infer": _infer,
    "invocations": _invocations,
    "multipart": _multipart,
    "onnx": _onnx,
}
