"""Datasets: tables that were uploaded. What is named here is for others."""

from app.datasets.store import (
    describe_rows,
    ingest,
    open_table,
    read_options,
    read_verdicts,
)
from app.datasets.uploads import Upload, read_body, receive

__all__ = [
    "Upload",
    "describe_rows",
    "ingest",
    "open_table",
    "read_body",
    "read_options",
    "read_verdicts",
    "receive",
]
