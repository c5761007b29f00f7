"""From a file as people have it to a table as we keep it: Parquet, cell for cell.

Everything about the file is detected, can be told instead, and is reported. Rows are
never dropped or shifted: the table has as many rows as the file has records, or a
DataError names the line.

The texts of a CSV are kept as they are; what they mean is decided later, by whole
columns. Columns of the table are called c0, c1, ... in the Parquet file, and by their
own names in its metadata: a name such as `a.b` would mean something to Parquet.
"""

import codecs
import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from lometab import cells, scan
from lometab.errors import ConfigError, DataError, FileTooLarge, FileTypeError
from lometab.scan import MAX_RECORD, blocks, clip, error_at, refuse, scan_text

Encoding = Literal["utf-8", "utf-16", "windows-1252", "latin-1"]
Delimiter = Literal[",", ";", "\t", "|"]
Quote = Literal['"', "'", "none"]

METADATA = b"lometab"
"""The key of the columns' names in the metadata of the Parquet file."""
_SAMPLE = 2**20
_GROUP = 2**22
csv.field_size_limit(sys.maxsize)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a file is to be read; what is None is detected."""

    # Read by pydantic where a request body holds this class: unknown keys are errors.
    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    encoding: Encoding | None = None
    """How its bytes spell characters."""
    delimiter: Delimiter | None = None
    """What stands between the cells of a line."""
    quote: Quote | None = None
    """What stands around cells that hold delimiters or newlines; doubled inside."""
    header: bool | None = None
    """Whether the first line names the columns."""
    number_format: cells.NumberFormat | None = None
    """How numbers are written that are not plain."""
    date_format: Literal["d/m/y", "m/d/y"] | None = None
    """How dates are written that are not in ISO 8601."""
    missing_values: tuple[str, ...] | None = None
    """Texts that mean missing, instead of the usual ones; the empty text always
    does."""

    def __post_init__(self) -> None:
        if any("\0" in word for word in self.missing_values or ()):
            raise ConfigError("missing_values must not hold NUL characters")

    @property
    def missing(self) -> tuple[str, ...]:
        if self.missing_values is None:
            return cells.MISSING
        return ("", *self.missing_values)


@dataclass(frozen=True, kw_only=True)
class Guess:
    """Something about a file, and how sure it is: 1 is told, or beyond doubt."""

    value: Any
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a file turned out to be."""

    format: Literal["csv", "parquet", "arrow"]
    compression: Literal["gzip", "zstd"] | None
    names: tuple[str, ...]
    n_rows: int
    n_bytes: int
    """Of the table in memory."""
    encoding: Guess | None = None
    delimiter: Guess | None = None
    quote: Guess | None = None
    header: Guess | None = None
    first_line: int | None = None
    """The line of the first row, if then each row has a line of its own."""
    warnings: tuple[str, ...] = ()


@dataclass
class _Limits:
    max_bytes: int
    max_columns: int


def read_file(
    source: Path,
    destination: Path | IO[bytes],
    options: ReadOptions | None = None,
    *,
    scratch: Path | None = None,
    max_bytes: int = sys.maxsize,
    max_columns: int = 10_000,
) -> Reading:
    """Write the table in a CSV, Parquet or Arrow file, packed or not, as Parquet.

    Args:
        scratch: a folder for what is unpacked or decoded; the source's own if None.
        max_bytes: how large the file may be once unpacked.
    """
    options = options or ReadOptions()
    limits = _Limits(max_bytes, max_columns)
    scratch = scratch or source.parent
    compression = _find_compression(source)
    if compression is not None:
        source = _unpack(source, scratch / "unpacked", compression, max_bytes)
    kind = _find_format(source)
    if kind == "csv":
        return _read_csv(source, destination, options, compression, scratch, limits)
    return _read_arrow(source, destination, kind, compression, limits)


# ----------------------------------------------------------------------------
# What kind of file it is


def _start(path: Path, size: int = 8) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _find_compression(path: Path) -> Literal["gzip", "zstd"] | None:
    start = _start(path)
    if start.startswith(b"\x1f\x8b"):
        return "gzip"
    return "zstd" if start.startswith(b"\x28\xb5\x2f\xfd") else None


def _unpack(source: Path, target: Path, compression: str, max_bytes: int) -> Path:
    n_bytes = 0
    try:
        with (
            pa.OSFile(str(source)) as packed,
            pa.CompressedInputStream(packed, compression) as stream,
            target.open("wb") as file,
        ):
            while block := stream.read(scan.BLOCK):
                n_bytes += len(block)
                if n_bytes > max_bytes:
                    raise FileTooLarge(
                        f"the file unpacks to more than the {max_bytes} bytes taken "
                        "here"
                    )
                file.write(block)
    except OSError as error:
        raise DataError(
            f"the {compression} file cannot be unpacked, so it is damaged or cut "
            f"short: {clip(str(error))}"
        ) from None
    return target


def _find_format(path: Path) -> Literal["csv", "parquet", "arrow"]:
    start = _start(path)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    for magic, what in _OTHERS.items():
        if start.startswith(magic):
            raise FileTypeError(
                f"this is {what}; CSV, Parquet and Arrow are read, plain or packed "
                "with gzip or zstd"
            )
    return "csv"


_OTHERS = {
    b"PK\x03\x04": "a zip file or an Excel workbook (save the sheet as CSV)",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook (save the sheet as CSV)",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "a 7-zip file",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite f": "a SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"\xff\xfe\x00\x00": "text in UTF-32 (save it as UTF-8)",
}


# ----------------------------------------------------------------------------
# CSV


def _read_csv(
    source: Path,
    destination: Path | IO[bytes],
    options: ReadOptions,
    compression: Literal["gzip", "zstd"] | None,
    scratch: Path,
    limits: _Limits,
) -> Reading:
    encoding = _find_encoding(source, options.encoding)
    if encoding.value not in ("utf-8", None):
        source = _decode(source, scratch / "decoded", encoding.value, limits.max_bytes)
    sample = _sample(source)
    skipped = 0
    told_delimiter: str | None = options.delimiter
    if (first := re.match(r"sep=([,;\t|])\r?\n", sample)) is not None:  # Excel's
        told_delimiter = told_delimiter or first[1]
        skipped = len(first[0])
        sample = sample[skipped:]
    if not sample.strip():
        raise DataError("the file is empty; a CSV with a header line is needed")
    quote = _find_quote(sample, options.quote)
    delimiter = _find_delimiter(sample, told_delimiter, quote.value)
    found = scan_text(source, delimiter.value, quote.value, skipped)
    if found.bad_quote is not None and options.quote is None and not found.has_quoted:
        quote = Guess(value="none", confidence=0.9)  # inches, not quotes
        delimiter = _find_delimiter(sample, told_delimiter, quote.value)
        found = scan_text(source, delimiter.value, quote.value, skipped)
    refuse(source, found)
    if encoding.value is None:
        is_told = options.encoding is not None
        if found.bad_utf8 is None:
            encoding = Guess(value="utf-8", confidence=1.0)
        elif is_told:
            raise error_at(
                source, found.bad_utf8, "is not UTF-8 text; say its `encoding`"
            )
        else:
            encoding = Guess(value="windows-1252", confidence=0.8)
            source = _decode(
                source, scratch / "decoded", "windows-1252", limits.max_bytes
            )
            sample = _sample(source)[skipped:]
    records = _records(sample, delimiter.value, quote.value)
    if len(records[0]) > limits.max_columns:
        raise FileTooLarge(
            f"the file has {len(records[0])} columns where {limits.max_columns} are "
            "taken"
        )
    header = _find_header(records, options.header)
    try:
        names, warnings = _name_columns(
            records, bool(header.value), _begins_quoted(sample, quote.value)
        )
    except DataError as error:
        raise error_at(source, found.first_start, str(error)) from None
    if encoding.confidence < 1:
        warnings.append(
            f"the file is not UTF-8 and was read as {encoding.value}; say its "
            "`encoding` if letters are wrong"
        )
    if found.n_blank:
        warnings.append(f"{found.n_blank} blank lines were passed over")
    start = found.first_end if header.value else skipped
    dialect = _Dialect(delimiter.value, quote.value, bool(header.value), skipped)
    n_rows, n_bytes = _parse(source, destination, names, dialect, start)
    n_records = found.n_records - bool(header.value)
    if n_rows != n_records:
        raise DataError(
            f"the file has {n_records} records, of which {n_rows} could be read; "
            "please report this with the file"
        )
    if n_rows == 0:
        raise DataError("the file has a header but no rows")
    has_lines = found.n_blank == 0 and not found.has_long_records
    return Reading(
        format="csv",
        compression=compression,
        names=tuple(names),
        n_rows=n_rows,
        n_bytes=n_bytes,
        encoding=encoding,
        delimiter=delimiter,
        quote=quote,
        header=header,
        first_line=1 + bool(header.value) + (skipped > 0) if has_lines else None,
        warnings=tuple(warnings),
    )


@dataclass
class _Dialect:
    delimiter: str
    quote: str
    header: bool = False
    skipped: int = 0
    """Bytes of a first line that is no part of the table."""

    def reader(self, lines: Iterable[str]) -> Any:
        if self.quote == "none":
            return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote)


# Encoding


def _find_encoding(path: Path, told: Encoding | None) -> Guess:
    """The encoding if its first bytes or the caller tell; else of value None."""
    start = _start(path, 2**16)
    marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if told is not None and told != "utf-8":
        if told == "utf-16" and not marked:
            return Guess(value=_find_utf16(start) or "utf-16-le", confidence=1.0)
        return Guess(value=told, confidence=1.0)
    if told is None and marked:
        return Guess(value="utf-16", confidence=1.0)
    if told is None and (found := _find_utf16(start)):
        return Guess(value=found, confidence=0.9)
    return Guess(value=None, confidence=1.0)


def _find_utf16(start: bytes) -> str | None:
    """UTF-16 without a mark: every second byte of plain text is then zero."""
    zeros = np.frombuffer(start[: len(start) // 2 * 2], np.uint8).reshape(-1, 2) == 0
    if len(zeros) == 0:
        return None
    first, second = zeros.mean(axis=0)
    if second > 0.4 and first == 0:
        return "utf-16-le"
    return "utf-16-be" if first > 0.4 and second == 0 else None


def _decode(source: Path, target: Path, encoding: str, max_bytes: int) -> Path:
    """The same text in UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)()
    n_lines = n_bytes = 0
    with source.open("rb") as file, target.open("wb") as written:
        for block in _and_the_end(blocks(file)):
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                before = block[: error.start].decode(encoding, "ignore")
                line = n_lines + _count_lines(before) + 1
                raise DataError(
                    f"line {line} is not {encoding} text; say its `encoding`, or save "
                    "the file as CSV in UTF-8",
                    line=line,
                ) from None
            n_lines += _count_lines(text)
            content = text.encode("utf-8", "surrogatepass")
            n_bytes += len(content)
            if n_bytes > max_bytes:
                raise FileTooLarge(
                    f"the file is larger than {max_bytes} bytes in UTF-8"
                )
            written.write(content)
    return target


def _and_the_end(blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield from blocks
    yield b""


def _count_lines(text: str) -> int:
    """The ends of lines, of whatever kind."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _sample(path: Path) -> str:
    """The beginning of the text, up to the end of a line."""
    start = _start(path, _SAMPLE)
    is_whole = len(start) < _SAMPLE
    text = start.decode("utf-8", "replace").removeprefix("\ufeff")
    if is_whole:
        return text
    cut = max(text.rfind("\n"), text.rfind("\r"))
    return text[: cut + 1] if cut > 0 else text


# Quotes, delimiter, header, names


def _find_quote(sample: str, told: Quote | None) -> Guess:
    if told is not None:
        return Guess(value=told, confidence=1.0)
    if '"' not in sample:
        texts = [text.strip() for text in re.split(r"[,;\t|\r\n]", sample[:20_000])]
        texts = [text for text in texts if text]
        quoted = [t for t in texts if len(t) > 1 and t[0] == t[-1] == "'"]
        if len(quoted) > 0.5 * len(texts):
            return Guess(value="'", confidence=0.8)
    return Guess(value='"', confidence=1.0)


def _begins_quoted(sample: str, quote: str) -> bool:
    """Whether the lines below the header begin with a quote, as R writes its row
    names."""
    lines = [line for line in re.split(r"[\r\n]+", sample)[1:11] if line]
    return bool(lines) and all(line.startswith(quote) for line in lines)


def _records(sample: str, delimiter: str, quote: str, count: int = 1000) -> list[Any]:
    """The first records; the last one, which may be cut, if there are no others."""
    lines = io.StringIO(sample, newline="")
    reader = _Dialect(delimiter, quote).reader(lines)
    records: list[Any] = []
    try:
        for record in reader:
            if record:
                records.append(record)
            if len(records) == count:
                return records
    except csv.Error:  # a lone carriage return; whoever parses it will say where
        pass
    is_cut = len(sample) >= _SAMPLE // 2 and len(records) > 1
    return records[:-1] if is_cut else records


def _find_delimiter(sample: str, told: str | None, quote: str) -> Guess:
    """The one that cuts most lines into the same number of cells, at least two."""
    if told is not None:
        return Guess(value=told, confidence=1.0)
    ranked = []
    for delimiter in get_args(Delimiter):
        records = _records(sample, delimiter, quote)
        if not records:
            continue
        width, count = Counter(map(len, records)).most_common(1)[0]
        share = count / len(records) if width > 1 else 0.0
        texts = [cell for record in records[:100] for cell in record]
        clean = sum(not set(text) & set(",;\t|") for text in texts) / len(texts)
        numeric = sum(_looks_numeric(text) for text in texts) / len(texts)
        ranked.append((round(share, 2), round(numeric, 2), round(clean, 2), delimiter))
    ranked.sort(reverse=True)
    if not ranked or ranked[0][0] == 0:
        return Guess(value=",", confidence=0.5)
    best, second = ranked[0], ranked[1]
    doubt = 0.3 if second[0] > 0.9 * best[0] else 0.0
    return Guess(value=best[-1], confidence=round(max(0.1, best[0] - doubt), 2))


def _looks_numeric(text: str) -> bool:
    for style in get_args(cells.NumberFormat):
        try:
            cells.number(text, (), style)
            return True
        except ValueError:
            continue
    return False


def _looks_typed(text: str) -> bool:
    """Whether it is a number or a date, as names of columns are not."""
    if _looks_numeric(text):
        return True
    for style in get_args(cells.MomentFormat):
        try:
            cells.moment(text, (), style)
            return True
        except ValueError:
            continue
    return False


def _find_header(records: list[list[str]], told: bool | None) -> Guess:
    if told is not None:
        return Guess(value=told, confidence=1.0)
    first, body = records[0], records[1:101]
    if not body:
        return Guess(value=True, confidence=0.5)
    width = _width(body, len(first))
    if len(first) == width - 1:
        return Guess(value=True, confidence=0.9)  # names without that of the index
    present = [cell for cell in first if cell.strip(cells.BLANKS) not in cells.MISSING]
    if any(_looks_typed(cell) for cell in present):
        return Guess(value=False, confidence=0.8)
    columns = [
        [row[i] for row in body if i < len(row) and row[i] not in cells.MISSING]
        for i in range(len(first))
    ]
    if any(column and all(map(_looks_typed, column)) for column in columns):
        return Guess(value=True, confidence=0.99)
    returning = sum(cell in column for cell, column in zip(first, columns, strict=True))
    if returning > len(first) / 2:
        return Guess(value=False, confidence=0.7)  # the first line is like the others
    return Guess(value=True, confidence=0.7)


def _name_columns(
    records: list[list[str]], has_header: bool, begins_quoted: bool
) -> tuple[list[str], list[str]]:
    """The names of the columns, and what had to be done to them."""
    body = records[1:] if has_header else records
    first = records[0]
    width = _width(body, len(first))
    if not has_header:
        return [f"column_{i}" for i in range(1, width + 1)], []
    names = [name.strip(cells.BLANKS + "\ufeff") for name in first]
    warnings = []
    rows = [row for row in body if len(row) == width]
    if len(names) == width - 1 and all(not row[-1].strip() for row in rows):
        names.append("")
        warnings.append("every line ends with a delimiter")
    elif (
        1 < len(names) == width - 1
        and begins_quoted
        and len(rows) == len({row[0] for row in rows})
    ):
        names.insert(0, "")
        warnings.append("the header has no name for the first column, as R writes it")
    elif len(names) == width + 1 and not names[-1]:
        names.pop()
        warnings.append("the header ends with a delimiter")
    elif len(names) != width:
        raise DataError(
            f"names {len(names)} columns where the lines below have {width} cells"
        )
    return _distinguish(names, warnings), warnings


def _width(records: list[list[str]], preferred: int) -> int:
    """How many cells most records have; of several widths as frequent, the one
    preferred."""
    counts = Counter(map(len, records))
    return max(counts, key=lambda w: (counts[w], w == preferred), default=preferred)


def _distinguish(names: list[str], warnings: list[str]) -> list[str]:
    """Names for columns that have none or another's."""
    taken = set(names)
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    distinct: list[str] = []
    for i, name in enumerate(names, start=1):
        new = name
        if not name or name in seen:
            wanted = name or f"column_{i}"
            new = wanted
            counts[wanted] += bool(name)
            while new in seen or new in taken:
                counts[wanted] += 1
                new = f"{wanted}_{counts[wanted]}"
            was = f"another column {name!r}" if name else f"column {i} without a name"
            warnings.append(f"{was} is called {new!r}")
        seen.add(new)
        distinct.append(new)
    return distinct


# The parser


def _parse(
    path: Path,
    destination: Path | IO[bytes],
    names: list[str],
    dialect: _Dialect,
    start: int,
) -> tuple[int, int]:
    """Write all records after the start; the number of them, and of bytes."""
    keys = _keys(names)
    options = {
        "read_options": pa.csv.ReadOptions(column_names=keys, block_size=MAX_RECORD),
        "parse_options": pa.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=False if dialect.quote == "none" else dialect.quote,
            newlines_in_values=dialect.quote != "none",
        ),
        "convert_options": pa.csv.ConvertOptions(
            column_types=dict.fromkeys(keys, pa.string()), strings_can_be_null=False
        ),
    }
    with pa.OSFile(str(path)) as file:
        if start >= file.size():
            return 0, 0
        # From the header's newline on: what looks like a mark of UTF-8 at the very
        # beginning would be taken off.
        file.seek(max(0, start - 1))
        try:
            batches = pa.csv.open_csv(file, **options)
            return _write(destination, names, batches)
        except pa.ArrowInvalid as error:
            raise _explain(path, len(names), dialect) or DataError(
                f"the file cannot be read as CSV: {clip(str(error), 300)}"
            ) from None


def _explain(path: Path, width: int, dialect: _Dialect) -> DataError | None:
    """The first record that does not have as many cells as it should."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        file.read(dialect.skipped)  # of ASCII alone
        reader = dialect.reader(file)
        n_before = 1 if dialect.skipped else 0
        line = 1 + n_before
        is_first = dialect.header
        try:
            for record in reader:
                if record and len(record) != width and not is_first:
                    text = clip(dialect.delimiter.join(record))
                    cells_ = "1 cell" if len(record) == 1 else f"{len(record)} cells"
                    return DataError(
                        f"line {line} has {cells_} where {width} are expected: {text}",
                        line=line,
                    )
                if record:
                    is_first = False
                line = reader.line_num + 1 + n_before
        except csv.Error as error:
            return DataError(f"line {line} cannot be read: {error}", line=line)
    return None


# ----------------------------------------------------------------------------
# Parquet and Arrow in, Parquet out


def _read_arrow(
    source: Path,
    destination: Path | IO[bytes],
    kind: Literal["parquet", "arrow"],
    compression: Literal["gzip", "zstd"] | None,
    limits: _Limits,
) -> Reading:
    try:
        with pa.OSFile(str(source)) as file:
            schema, batches = _open_parquet(file) if kind == "parquet" else _open(file)
            if len(schema) > limits.max_columns:
                raise FileTooLarge(
                    f"the file has {len(schema)} columns where {limits.max_columns} "
                    "are taken"
                )
            if len(schema) == 0:
                raise DataError("the file has no columns")
            warnings: list[str] = []
            names = _distinguish(
                [name.strip(cells.BLANKS) for name in schema.names], warnings
            )
            for name, field in zip(names, schema, strict=True):
                cells.plain_type(field.type, name)
                if "\0" in name:
                    raise DataError("a column's name holds a NUL character")
            if kind == "arrow":
                _check_end(source)
            n_rows, n_bytes = _write(
                destination, names, _normalise(batches, names, limits)
            )
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"the file holds what is not read: {clip(str(error), 200)}"
        ) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the file cannot be read as {kind.capitalize()}, so it is damaged or cut "
            f"short: {clip(str(error), 200)}"
        ) from None
    if n_rows == 0:
        raise DataError("the file has columns but no rows")
    return Reading(
        format=kind,
        compression=compression,
        names=tuple(names),
        n_rows=n_rows,
        n_bytes=n_bytes,
        warnings=tuple(warnings),
    )


def _check_end(path: Path) -> None:
    """A stream that was cut between two batches would else pass for whole."""
    with path.open("rb") as file:
        if file.read(6) == b"ARROW1":
            return
        file.seek(max(0, path.stat().st_size - 8))
        if file.read() != b"\xff\xff\xff\xff\0\0\0\0":
            raise DataError("the Arrow stream has no end, so it was cut short")


def _open_parquet(file: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    opened = pq.ParquetFile(file)
    schema = opened.schema_arrow
    # Kept encoded: a text of a megabyte in a million rows is one megabyte then.
    texts = [f.name for f in schema if pa.types.is_large_string(f.type)]
    texts += [f.name for f in schema if pa.types.is_string(f.type)]
    opened = pq.ParquetFile(file, read_dictionary=texts, pre_buffer=False)
    return schema, opened.iter_batches(batch_size=2**16)


def _open(file: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if file.read(6) == b"ARROW1":
        opened = pa.ipc.open_file(file)
        n_batches = opened.num_record_batches
        return opened.schema, (opened.get_batch(i) for i in range(n_batches))
    file.seek(0)
    stream = pa.ipc.open_stream(file)
    return stream.schema, stream


def _normalise(
    batches: Iterable[pa.RecordBatch],
    names: list[str],
    limits: _Limits,
) -> Iterator[pa.RecordBatch]:
    n_bytes = 0
    for batch in batches:
        batch.validate(full=True)
        size = sum(map(_unpacked_size, batch.columns))
        n_bytes += size
        if n_bytes > limits.max_bytes:
            raise FileTooLarge(
                f"the file unpacks to more than the {limits.max_bytes} bytes taken here"
            )
        # A dictionary's texts are written out a few megabytes at a time.
        step = max(1, batch.num_rows * _GROUP // max(size, 1))
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            columns = [
                _without_nul(cells.plain(column, name), name)
                for column, name in zip(part.columns, names, strict=True)
            ]
            yield pa.record_batch(columns, names=_keys(names))


def _without_nul(column: pa.Array, name: str) -> pa.Array:
    is_text = pa.types.is_string(column.type)
    if is_text and pc.any(pc.match_substring(column, "\0")).as_py():
        raise DataError(f"column {name!r} holds NUL characters", column=name)
    return column


def _unpacked_size(column: pa.Array) -> int:
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary.cast(pa.large_string()))
        return int(pc.sum(lengths.take(column.indices)).as_py() or 0)
    return int(column.nbytes)


def _keys(names: list[str]) -> list[str]:
    return [f"c{i}" for i in range(len(names))]


def _write(
    destination: Path | IO[bytes], names: list[str], batches: Iterable[pa.RecordBatch]
) -> tuple[int, int]:
    """Write batches as Parquet; the number of rows, and of bytes in memory."""
    writer = None
    n_rows = n_bytes = 0
    metadata = {METADATA: json.dumps({"names": names}).encode()}
    try:
        for group in _groups(batches):
            if writer is None:
                writer = pq.ParquetWriter(
                    destination,
                    group.schema.with_metadata(metadata),
                    compression="zstd",
                    use_dictionary=_repeating(group),
                    write_statistics=False,
                )
            writer.write_table(group)
            n_rows += group.num_rows
            n_bytes += group.nbytes
    finally:
        if writer is not None:
            writer.close()
        pa.default_memory_pool().release_unused()
    return n_rows, n_bytes


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined to row groups of a few megabytes."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= _GROUP or len(waiting) >= 1000:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _repeating(group: pa.Table) -> list[str]:
    """The columns that are worth a dictionary, by their first rows."""
    return [
        name
        for name, column in zip(group.schema.names, group.columns, strict=True)
        if len(column[:1000].unique()) < 0.5 * min(len(column), 1000)
    ]
