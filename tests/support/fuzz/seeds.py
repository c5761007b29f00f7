"""Whole and nearly whole inputs to begin with."""

import gzip
import json
from collections.abc import Iterator

import pyarrow as pa

from lometab.onnx_file import seal
from tests.support.hostile_files import AB, CASES, arrow, batches, parquet, zstd

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
    "multipart": _multipart,
    "onnx": _onnx,
}
