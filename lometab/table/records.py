"""The records of a CSV whose layout is known, as batches of texts."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv

from lometab.errors import DataError
from lometab.table.arrow import opened
from lometab.table.layout import Layout
from lometab.table.scan import MAX_RECORD, clip, open_binary


def key_of(i: int) -> str:
    """What column i is called in batches and in Parquet files: a name such as `a.b`
    would mean something to them."""
    return f"c{i}"


def read_records(
    layout: Layout,
    columns: Sequence[int] | None = None,
    *,
    keep_blank: bool = False,
    use_threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """All rows, in batches; DataError names the line of a record that is no row.

    Args:
        columns: the numbers of those that are wanted; None: all.
        keep_blank: whether a blank line is a row of one missing value.
    """
    n_columns = len(layout.names)
    wanted = [key_of(i) for i in (range(n_columns) if columns is None else columns)]
    dialect = layout.dialect
    read_options = pa.csv.ReadOptions(
        column_names=[key_of(i) for i in range(n_columns)],
        block_size=MAX_RECORD,
        use_threads=use_threads,
    )
    parse_options = pa.csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char=False if dialect.quote == "none" else dialect.quote,
        newlines_in_values=dialect.quote != "none",
        ignore_empty_lines=not keep_blank,
    )
    convert_options = pa.csv.ConvertOptions(
        include_columns=wanted,
        column_types=dict.fromkeys(wanted, pa.string()),
        strings_can_be_null=False,
    )
    with opened(layout.text.source) as whole:
        file = whole
        if layout.stop is not None:
            file = pa.BufferReader(whole.read_buffer(layout.stop))
        if layout.start >= file.size():
            return
        # From the header's newline on: what looks like a mark of UTF-8 at the very
        # beginning would be taken off.
        file.seek(layout.start if keep_blank else max(0, layout.start - 1))
        try:
            yield from pa.csv.open_csv(
                file, read_options, parse_options, convert_options
            )
        except pa.ArrowInvalid as error:
            raise _explain(layout) or DataError(
                f"the file cannot be read as CSV: {clip(str(error), 300)}"
            ) from None


_HINT = "; if it stands below the table, set `skip_footer`"


def _explain(layout: Layout) -> DataError | None:
    """The first record that does not have as many fields as it should."""
    width = len(layout.names)
    with (
        open_binary(layout.text.source) as binary,
        io.TextIOWrapper(binary, "utf-8", "replace", newline="") as file,
    ):
        n_before = int(layout.skip_lines.value)
        for _ in range(n_before):
            file.readline()
        reader: Any = layout.dialect.reader(file)
        line = 1 + n_before
        is_first = layout.dialect.header
        n_left = layout.scan.n_records
        try:
            for record in reader:
                if record and len(record) != width and not is_first:
                    text = clip(layout.dialect.delimiter.join(record))
                    fields = "1 field" if len(record) == 1 else f"{len(record)} fields"
                    return DataError(
                        f"line {line} has {fields} where {width} are expected: {text}"
                        + (_HINT if n_left <= 3 else ""),
                        line=line,
                    )
                if record:
                    is_first = False
                    n_left -= 1
                line = reader.line_num + 1 + n_before
        except csv.Error as error:
            return DataError(f"line {line} cannot be read: {error}", line=line)
    return None
