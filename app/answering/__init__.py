"""What is answered of rows, and how it is written: for requests and for workers."""

from app.answering.columns import (
    Columns,
    check_doubt,
    encode_rows,
    find_id_column,
    make_columns,
    warn_of_coverage,
    with_ids,
)
from app.answering.options import (
    DEFAULT,
    FIELDS,
    PredictField,
    PredictOptions,
    read_options,
    read_query,
)
from app.answering.parts import MEDIA_TYPES, Output, PartFile, join_parts
from app.answering.writers import ArrowWriter, CsvWriter, JsonWriter, Writer

__all__ = [
    "DEFAULT",
    "FIELDS",
    "MEDIA_TYPES",
    "ArrowWriter",
    "Columns",
    "CsvWriter",
    "JsonWriter",
    "Output",
    "PartFile",
    "PredictField",
    "PredictOptions",
    "Writer",
    "check_doubt",
    "encode_rows",
    "find_id_column",
    "join_parts",
    "make_columns",
    "read_options",
    "read_query",
    "warn_of_coverage",
    "with_ids",
]
