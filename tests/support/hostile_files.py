"""Small files as people have them, and what must become of each.

One table: a file is read so, or refused with this code and line. Everything is made
here; `python -m tests.support.hostile_files FOLDER` writes the files out to look at.
"""

import gzip
import io
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Case:
    name: str
    content: bytes
    options: dict[str, Any] = field(default_factory=dict)
    """What the caller says of the file."""
    cells: dict[str, list[str | None]] | None = None
    """The first rows that must come back, by column."""
    n_rows: int | None = None
    found: dict[str, Any] = field(default_factory=dict)
    """What must be detected."""
    kinds: dict[str, str] = field(default_factory=dict)
    looks: dict[str, str] = field(default_factory=dict)
    formats: dict[str, str | None] = field(default_factory=dict)
    warns: str | None = None
    """Part of a warning."""
    status: int = 201
    code: str | None = None
    line: int | None = None
    says: str | None = None
    """Part of the error's sentence."""
    is_slow: bool = False
    """Thousands of columns take seconds."""


def text(*lines: str, end: str = "\n", encoding: str = "utf-8") -> bytes:
    return "".join(line + end for line in lines).encode(encoding)


def many(row: Callable[[int], str], count: int = 60, header: str = "x,y") -> bytes:
    return text(header, *map(row, range(count)))


def parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def arrow(is_file: bool, **columns: Any) -> bytes:
    table = pa.table(columns)
    file = io.BytesIO()
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def batches(count: int) -> bytes:
    batch = pa.record_batch([pa.array([1])], names=["a"])
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema) as writer:
        for _ in range(count):
            writer.write_batch(batch)
    return file.getvalue()


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


AB = {"a": ["1", "3"], "b": ["x", "y"]}
PLAIN = ("a,b", "1,x", "3,y")
BAD = {"status": 422, "code": "bad_data"}

CASES = [
    # Encodings
    Case(
        "utf-8",
        text("ä,b", "1,é"),
        cells={"ä": ["1"], "b": ["é"]},
        found={"encoding": "utf-8"},
    ),
    Case("utf-8 with a mark", b"\xef\xbb\xbf" + text(*PLAIN), cells=AB),
    Case(
        "utf-16 little",
        text(*PLAIN, encoding="utf-16"),
        cells=AB,
        found={"encoding": "utf-16"},
    ),
    Case(
        "utf-16 big",
        b"\xfe\xff" + text("a,b", "1,ß", encoding="utf-16-be"),
        cells={"a": ["1"], "b": ["ß"]},
    ),
    Case(
        "utf-16 without a mark",
        text(*PLAIN, encoding="utf-16-le"),
        cells=AB,
        found={"encoding": "utf-16-le"},
    ),
    Case(
        "windows-1252",
        text("name,b", "Müller €,1", encoding="windows-1252"),
        cells={"name": ["Müller €"], "b": ["1"]},
        warns="windows-1252",
        found={"encoding": "windows-1252"},
    ),
    Case(
        "latin-1 told",
        text("name,b", "Andr\xe9,1", encoding="latin-1"),
        {"encoding": "latin-1"},
        cells={"name": ["André"], "b": ["1"]},
    ),
    Case(
        "utf-8 told of latin-1",
        text("n,b", "x,1", "Andr\xe9,1", encoding="latin-1"),
        {"encoding": "utf-8"},
        **BAD,
        line=3,
        says="encoding",
    ),
    Case("utf-16 cut in half", text(*PLAIN, encoding="utf-16")[:-1], **BAD, line=3),
    Case("an emoji", text("a,b", "1,\U0001f642"), cells={"b": ["\U0001f642"]}),
    # Delimiters
    Case("semicolons", text("a;b", "1;x", "3;y"), cells=AB, found={"delimiter": ";"}),
    Case("tabs", text("a\tb", "1\tx", "3\ty"), cells=AB, found={"delimiter": "\t"}),
    Case("bars", text("a|b", "1|x", "3|y"), cells=AB, found={"delimiter": "|"}),
    Case(
        "semicolons and decimal commas",
        many(lambda i: f"{i},5;{i},25", header="a;b"),
        found={"delimiter": ";"},
        formats={"a": "1.234,5", "b": "1.234,5"},
        kinds={"a": "numeric"},
    ),
    Case(
        "semicolons, decimal commas, no header",
        text("1,5;2,5", "3,5;4,5"),
        found={"delimiter": ";", "header": False},
        cells={"column_1": ["1,5", "3,5"]},
    ),
    *(
        Case(
            f"the usual European file, {count} rows",
            many(
                lambda i: (
                    f"{i - 20},{i % 900 + 100};{'rot' if i % 2 else 'grün'};1,{i:03d}"
                ),
                count,
                header="size;color;y",
            ),
            found={"delimiter": ";", "header": True},
            n_rows=count,
            formats={"size": "1.234,5", "color": None, "y": "1.234,5"},
        )
        for count in (50, 200, 400, 900)
    ),
    Case(
        "the same without a header",
        text(*(f"-{i % 7},{i + 100};rot {i % 3};1,{i + 100}" for i in range(300))),
        found={"delimiter": ";", "header": False},
        formats={"column_1": "1.234,5", "column_3": "1.234,5"},
    ),
    *(
        Case(
            f"accents in the header, {encoding}, {count} rows",
            many(
                lambda i: f"{i},{'Müller' if i % 2 else 'x'},{i % 3}",
                count,
                header="größe,größter häufiger Wert,y",
            )
            .decode()
            .encode(encoding),
            found={"encoding": "windows-1252", "delimiter": ","},
            cells={"größe": ["0"], "größter häufiger Wert": ["x"]},
            n_rows=count,
            warns="windows-1252",
        )
        for encoding in ("latin-1", "windows-1252")
        for count in (3, 300)
    ),
    Case(
        "one bad byte among UTF-8",
        text("größe,b", *["1,ä"] * 50) + b"2,\xff\n" + text(*["1,ä"] * 50),
        **BAD,
        line=52,
        says="not UTF-8",
    ),
    Case(
        "one bad byte among UTF-8, encoding set",
        text("größe,b", "1,ä") + b"2,\xff\n",
        {"encoding": "windows-1252"},
        n_rows=2,
    ),
    Case(
        "commas in texts",
        text("a;b", '1;"x, y, z"', '3;"p, q"'),
        cells={"b": ["x, y, z", "p, q"]},
        found={"delimiter": ";"},
    ),
    Case(
        "a told delimiter",
        text("a;b,c", "1;2,3"),
        {"delimiter": ","},
        cells={"a;b": ["1;2"], "c": ["3"]},
    ),
    Case("one column", text("price", "1.5", "2.5"), cells={"price": ["1.5", "2.5"]}),
    # Quotes
    Case(
        "quoted cells", text('"a","b"', '"1","x, y"'), cells={"a": ["1"], "b": ["x, y"]}
    ),
    Case(
        "doubled quotes",
        text("a,b", '1,"he said ""no"""'),
        cells={"b": ['he said "no"']},
    ),
    Case(
        "newlines in quotes",
        text("a,b", '1,"x\ny"', "3,z"),
        cells={"a": ["1", "3"], "b": ["x\ny", "z"]},
        n_rows=2,
    ),
    Case(
        "CRLF in quotes",
        text("a,b", '1,"x\r\ny"', "3,z", end="\r\n"),
        cells={"b": ["x\r\ny", "z"]},
    ),
    Case("a newline in a name", text('"a\nb",c', "1,2"), cells={"a\nb": ["1"]}),
    Case(
        "inches",
        text("size,b", '5" pipe,1', '3" pipe,2'),
        found={"quote": "none"},
        cells={"size": ['5" pipe', '3" pipe']},
    ),
    Case(
        "a stray quote among quoted cells",
        text("a,b", '"x",1', '5" pipe,2'),
        **BAD,
        line=3,
        says='5" pipe',
    ),
    Case("text after a closing quote", text("a,b", '"x" y,1'), **BAD, line=2),
    Case(
        "quotes as characters, told",
        text("a,b", '"x,1', 'y",2'),
        {"quote": "none"},
        cells={"a": ['"x', 'y"'], "b": ["1", "2"]},
    ),
    Case(
        "single quotes, told",
        text("a,b", "'x, y',1"),
        {"quote": "'"},
        cells={"a": ["x, y"]},
    ),
    Case(
        "an open quote",
        text("a,b", "1,2", '"3,4', "5,6"),
        **BAD,
        line=3,
        says="nothing closes",
    ),
    Case(
        "an open quote in the last cell",
        text("a,b", "1,2", '3,"4', "5,6"),
        **BAD,
        line=3,
    ),
    # Lines
    Case("CRLF", text(*PLAIN, end="\r\n"), cells=AB),
    Case("CR", text(*PLAIN, end="\r"), cells=AB),
    Case("CRLF and LF", b"a,b\r\n1,x\n3,y\r\n", cells=AB),
    Case("a CR inside a cell", b"a,b\n1,x\ry\n", **BAD, line=2),
    Case("no newline at the end", b"a,b\n1,x\n3,y", cells=AB),
    Case(
        "blank lines",
        text("", "a,b", "", "1,x", "", "3,y", "", ""),
        cells=AB,
        n_rows=2,
        warns="5 blank lines",
    ),
    Case("a line of blanks in one column", text("a", "1", "  ", "3"), n_rows=3),
    # Ragged
    Case(
        "a cell too many",
        text("a,b", "1,2", "3,4,5", "6,7"),
        **BAD,
        line=3,
        says="3 fields where 2",
    ),
    Case(
        "a cell too few",
        text("a,b,c", "1,2,3", "4,5", "6,7,8"),
        **BAD,
        line=3,
        says="4,5",
    ),
    Case(
        "ragged after a long beginning",
        text("a,b", *["1,2"] * 3000, "3", "4,5"),
        **BAD,
        line=3002,
    ),
    Case(
        "ragged after a record of two lines",
        text("a,b", '1,"x\ny"', "3"),
        **BAD,
        line=4,
    ),
    Case(
        "a title above the header",
        text("Report of 2024", "a,b,c", "1,2,3", "4,5,6"),
        cells={"a": ["1", "4"]},
        found={"skip_lines": 1},
        warns="Report of 2024",
    ),
    Case(
        "delimiters at the ends of lines",
        text("a,b", "1,x,", "3,y,"),
        cells=AB,
        warns="ends with a delimiter",
        kinds={"column_3": "ignore"},
    ),
    Case("a delimiter at the end of the header", text("a,b,", "1,x", "3,y"), cells=AB),
    Case("a delimiter at the end of all", text("a,b,", "1,x,", "3,y,"), cells=AB),
    # Headers
    Case(
        "no header",
        text("1.5,x", "2.5,y", "3.5,x"),
        found={"header": False},
        cells={"column_1": ["1.5", "2.5", "3.5"]},
        n_rows=3,
    ),
    Case("no header, told", text("a,b", "c,d"), {"header": False}, n_rows=2),
    Case(
        "years as names, told",
        text("2019,2020", "1,2"),
        {"header": True},
        cells={"2019": ["1"], "2020": ["2"]},
    ),
    Case(
        "equal names",
        text("a,a,b", "1,2,3"),
        warns="'a_2'",
        cells={"a": ["1"], "a_2": ["2"], "b": ["3"]},
    ),
    Case(
        "a name that would be given",
        text("a,a_2,a", "1,2,3"),
        cells={"a": ["1"], "a_2": ["2"], "a_3": ["3"]},
    ),
    Case(
        "an empty name",
        text("a,,b", "1,2,3"),
        warns="column 2, unnamed, is called",
        cells={"column_2": ["2"]},
    ),
    Case(
        "an index without a name",
        many(lambda i: f"{i},{i * i % 7}", header=",v"),
        looks={"column_1": "id"},
        kinds={"column_1": "ignore"},
    ),
    Case(
        "R's row names",
        text('"x","y"', '"r1",1.5,2', '"r2",2.5,3'),
        cells={"column_1": ["r1", "r2"], "x": ["1.5", "2.5"]},
        warns="R writes",
    ),
    Case("names with blanks around", text(" a , b", "1,2"), cells={"a": ["1"]}),
    Case(
        "names that SQL knows",
        text('select,"c0""; --",a.b', "1,2,3"),
        cells={"select": ["1"], 'c0"; --': ["2"], "a.b": ["3"]},
    ),
    Case("a header alone", text("a,b"), **BAD, says="no rows"),
    # No tables
    Case("nothing", b"", **BAD, says="empty"),
    Case("blanks", b" \n\n ", **BAD, says="empty"),
    Case("a NUL", b"a,b\n1,2\n3,\x00\n", **BAD, line=3, says="NUL"),
    Case("random bytes", bytes(range(256)) * 3, **BAD, line=1),
    Case(
        "a picture",
        b"\x89PNG\r\n\x1a\n" + bytes(20),
        status=415,
        code="unsupported_media_type",
    ),
    Case(
        "a zip file",
        b"PK\x03\x04" + bytes(20),
        status=415,
        code="unsupported_media_type",
        says="no .xlsx workbook",
    ),
    # Packed
    Case("gzip", gzip.compress(text(*PLAIN)), cells=AB),
    Case(
        "gzip in two parts",
        gzip.compress(b"a,b\n1,x\n") + gzip.compress(b"3,y\n"),
        cells=AB,
    ),
    Case("gzip, cut", gzip.compress(text(*PLAIN) * 50)[:-12], **BAD, says="cut"),
    Case("zstd", zstd(text(*PLAIN)), cells=AB),
    Case("zstd, broken", zstd(text(*PLAIN) * 50)[:20] + bytes(9), **BAD),
    Case(
        "a bomb",
        gzip.compress(b"a,b\n" + b"1,2\n" * 3_000_000),
        status=413,
        code="too_large",
        says="unpacks",
    ),
    # Parquet and Arrow
    Case(
        "parquet",
        parquet(a=[1, 3], b=["x", "y"]),
        cells=AB,
        found={"format": "parquet"},
    ),
    Case(
        "parquet with nulls, dates and booleans",
        parquet(
            a=pa.array([1.5, None] * 30),
            t=pa.array([0, 86400] * 30, pa.timestamp("s")),
            b=[True, False] * 30,
            c=pa.array(["x", None] * 30).dictionary_encode(),
        ),
        kinds={"a": "numeric", "t": "datetime", "b": "categorical", "c": "categorical"},
        looks={"b": "boolean"},
        n_rows=60,
    ),
    Case("parquet with lists", parquet(a=[[1], [2]]), **BAD, says="list"),
    Case("parquet, cut", parquet(a=[1, 2])[:-9], **BAD),
    Case("arrow stream", arrow(False, a=[1, 3], b=["x", "y"]), cells=AB),
    Case("arrow file", arrow(True, a=[1, 3], b=["x", "y"]), cells=AB),
    Case("arrow stream, cut", arrow(False, a=list(range(99)))[:200], **BAD),
    Case(
        "parquet with a name that means a path",
        parquet(**{"a.b": [1, 2]}),
        cells={"a.b": ["1", "2"]},
    ),
    Case(
        "a parquet bomb",
        parquet(a=pa.array(["x" * 10_000] * 5000)),
        status=413,
        code="too_large",
    ),
    # Written to harm
    Case(
        "arrow with offsets that fall",
        arrow(False, a=["hello", "world"]).replace(
            struct.pack("<3i", 0, 5, 10), struct.pack("<3i", 0, 50, 10)
        ),
        **BAD,
    ),
    Case("arrow in a thousand batches", batches(1000), n_rows=1000),
    Case("arrow cut between batches", batches(10)[:-400], **BAD, says="cut short"),
    Case(
        "arrow with texts that are no UTF-8",
        arrow(
            False,
            a=pa.Array.from_buffers(
                pa.string(),
                2,
                [
                    None,
                    pa.py_buffer(struct.pack("<3i", 0, 2, 4)),
                    pa.py_buffer(b"\xff\xfe\xc3("),
                ],
            ),
        ),
        **BAD,
    ),
    Case("arrow with a NUL", arrow(False, a=["a\0b", "c"]), **BAD, says="NUL"),
    Case(
        "dates of no calendar",
        arrow(False, t=pa.array([10**18, 1], pa.timestamp("us"))),
        **BAD,
        says="years",
    ),
    Case(
        "dates that overflow",
        arrow(False, t=pa.array([2**62, 1], pa.timestamp("s"))),
        **BAD,
        says="years",
    ),
    Case("a text in a dictionary, often", parquet(a=["x" * 30_000] * 200), n_rows=200),
    Case(
        "columns that add up to the same",
        text(
            ",".join(f"g{i}" for i in range(300)),
            *(
                ",".join(str((i * j + j // 2) % 2) for i in range(300))
                for j in range(40)
            ),
        ),
        n_rows=40,
    ),
    Case(
        "five thousand equal names",
        text(",".join(["a"] * 5000), ",".join(["1"] * 5000)),
        n_rows=1,
        is_slow=True,
    ),
    Case(
        "a missing word with a NUL",
        text(*PLAIN),
        {"missing_values": ["\0"]},
        status=422,
        code="invalid_request",
    ),
    # Excel, Germany and R
    Case(
        "Excel's first line",
        b"sep=;\r\na;b\r\n1;x\r\n3;y\r\n",
        cells=AB,
        found={"delimiter": ";"},
    ),
    Case(
        "Excel's first line, ragged below",
        b"sep=;\r\na;b\r\n1;x;2\r\n3;y\r\n4;z\r\n",
        **BAD,
        line=3,
    ),
    Case("two marks of UTF-8", b"\xef\xbb\xbf" * 2 + text(*PLAIN), cells=AB),
    Case("a quote in a file of CR", b'a,b\r1,2\r3,"x"y\r5,"z"\r', **BAD, line=3),
    Case(
        "a title above, after blank lines",
        text("", "", "Report", "a,b,c", "1,2,3"),
        cells={"a": ["1"]},
        found={"skip_lines": 3},
    ),
    Case(
        "a header that is too short", text("x,y", "1,5,foo", "2,6,bar"), **BAD, line=1
    ),
    Case(
        "a long header",
        text(
            ",".join(f"{'n' * 40}{i}" for i in range(9000)),
            *[",".join(["1"] * 9000)] * 2,
        ),
        n_rows=2,
        is_slow=True,
    ),
    Case(
        "single quotes",
        text("a,b", "'x','1'", "'y','2'"),
        found={"quote": "'"},
        cells={"a": ["x", "y"], "b": ["1", "2"]},
    ),
    Case(
        "thousands alone, told",
        many(lambda i: f"{i + 1}.234;{i}", header="x;y"),
        {"number_format": "1.234,5"},
        formats={"x": "1.234,5"},
    ),
    Case(
        "thousands beside decimal commas",
        many(lambda i: f"{i + 1}.{i:03d},50;{i + 1}.500", header="x;y"),
        formats={"x": "1.234,5", "y": "1.234,5"},
        warns="as those of other columns",
    ),
    Case(
        "plain numbers, told",
        many(lambda i: f'"{i},234",{i}'),
        {"number_format": "1234.5"},
        kinds={"x": "ignore"},
        formats={"x": None},
    ),
    Case(
        "numbers that a float would round",
        parquet(a=pa.array([2**64 - 1, 2**64 - 2], pa.uint64())),
        cells={"a": [str(2**64 - 1), str(2**64 - 2)]},
    ),
    # Kinds
    Case(
        "thousands", many(lambda i: f'"{i + 1},{i:03d}",{i}'), formats={"x": "1,234.5"}
    ),
    Case(
        "thousands with blanks",
        many(lambda i: f"{i + 1} 234.5,{i}"),
        formats={"x": "1,234.5"},
    ),
    Case(
        "decimal commas, told",
        many(lambda i: f"{i + 1},234;{i}", header="x;y"),
        {"number_format": "1,234.5"},
        formats={"x": "1,234.5"},
    ),
    Case(
        "numbers and one word",
        text("x,y", *(f"{i % 9},{i}" for i in range(50)), "many,3"),
        kinds={"x": "categorical"},
    ),
    Case(
        "ISO dates",
        many(lambda i: f"2024-01-{i % 28 + 1:02d},{i}"),
        kinds={"x": "datetime"},
        formats={"x": None},
    ),
    Case(
        "days first",
        many(lambda i: f"{i % 28 + 1}/12/2024,{i}"),
        kinds={"x": "datetime"},
        formats={"x": "d/m/y"},
    ),
    Case(
        "months first",
        many(lambda i: f"12/{i % 28 + 1}/24 1:30 PM,{i}"),
        kinds={"x": "datetime"},
        formats={"x": "m/d/y"},
    ),
    Case(
        "days or months first",
        many(lambda i: f"{i % 12 + 1}/{i % 7 + 1}/2024,{i}"),
        kinds={"x": "ignore"},
        looks={"x": "date"},
        warns="date_format",
    ),
    Case(
        "days or months first, told",
        many(lambda i: f"{i % 12 + 1}.1.2024,{i}"),
        {"date_format": "d/m/y"},
        kinds={"x": "datetime"},
        formats={"x": "d/m/y"},
    ),
    Case(
        "31 February",
        many(lambda i: f"31/{i % 2 + 1}/2024,{i}"),
        kinds={"x": "categorical"},
    ),
    Case(
        "booleans",
        many(lambda i: f"{'yes' if i % 2 else 'no'},{i}"),
        kinds={"x": "categorical"},
        looks={"x": "boolean"},
    ),
    Case(
        "free text",
        many(lambda i: f"note number {i},{i}"),
        looks={"x": "text"},
        kinds={"x": "ignore"},
        warns="free text",
    ),
    Case("identifiers", many(lambda i: f"{1000 + i},{i % 5}"), looks={"x": "id"}),
    Case(
        "identifiers by name",
        many(lambda i: f"{i * 37 % 61},{i % 5}", header="customer_id,y"),
        looks={"customer_id": "id"},
    ),
    Case("one value", many(lambda i: f"7,{i % 5}"), looks={"x": "constant"}),
    Case("no value", many(lambda i: f"NA,{i % 5}"), looks={"x": "empty"}),
    Case(
        "a copy",
        many(lambda i: f"{i % 5},{i * 7 % 11},{i % 5}", header="x,y,z"),
        looks={"z": "copy"},
        kinds={"x": "numeric", "z": "ignore"},
    ),
    Case(
        "codes",
        many(lambda i: f"{i % 4},{i / 7}"),
        kinds={"x": "numeric"},
        warns="codes",
    ),
    Case(
        "missing words",
        many(lambda i: f"{['1', ' NA ', '?', 'null'][i % 4]},{i}"),
        kinds={"x": "numeric"},
    ),
    Case(
        "words that are values",
        many(lambda i: f"{['0', '999'][i % 2]},{i}"),
        kinds={"x": "numeric"},
        looks={"x": "number"},
    ),
    Case(
        "own missing words",
        many(lambda i: f"{['1.5', '2', 'none yet'][i % 3]},{i}"),
        {"missing_values": ["none yet"]},
        kinds={"x": "numeric"},
    ),
    Case("underscores", many(lambda i: f"{i}_000,{i % 5}"), looks={"x": "text"}),
    Case(
        "many columns",
        text(",".join(f"c{i}" for i in range(3000)), *[",".join(["1"] * 3000)] * 3),
        n_rows=3,
        is_slow=True,
    ),
    Case(
        "too many columns",
        text("," * 20_000, "," * 20_000),
        status=413,
        code="too_large",
        says="columns",
    ),
    Case("a long cell", text("a,b", "x" * 1_000_000 + ",1", "y,2"), n_rows=2),
]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for i, case in enumerate(CASES, start=1):
        (folder / f"{i:03d} {case.name.replace('/', '-')}").write_bytes(case.content)


if __name__ == "__main__":
    main()
