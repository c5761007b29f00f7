"""From an uploaded file to a dataset row, and back to the table in it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.datasets.uploads import Upload
from app.settings import Settings
from app.storage import blobs, db, usage
from app.storage.tables import Dataset, new_id
from lometab.table import Expected, ParquetTable, ReadOptions, Verdict, examine_file


def ingest(
    upload: Upload,
    workspace_id: str,
    options: ReadOptions,
    settings: Settings,
    expected: Expected | None = None,
) -> Dataset:
    """Read the file, keep its table, and find or add its row.

    The same bytes read the same way are one dataset. Nothing is kept of a file that
    cannot be read.

    Args:
        expected: what is known of a file to predict.
    """
    assert upload.path is not None
    key = {
        "workspace_id": workspace_id,
        "sha256": upload.sha256,
        "options_sha256": _digest(options, expected),
    }
    if (dataset := _find(key)) is not None:
        if blobs.is_intact(workspace_id, dataset.table_sha256):
            return dataset
    path = upload.path.with_name("table.parquet")
    reading, profile = examine_file(
        upload.path,
        path,
        options,
        scratch=upload.path.parent,
        max_bytes=settings.max_table_bytes,
        max_columns=settings.max_columns,
        max_rows=settings.max_rows,
        expected=expected,
    )
    values = {
        "filename": upload.filename,
        "size": upload.size,
        "n_rows": reading.n_rows,
        "n_columns": len(reading.names),
        "read_options": asdict(options),
        "reading": asdict(reading),
        "profile": profile.to_dict(),
    }
    with db.reading() as session:
        usage.check_bytes(session, settings, workspace_id, path.stat().st_size)
    while True:
        with path.open("rb") as file:
            table_sha256 = blobs.store(workspace_id, file)
        try:
            found = _find_or_add(key, table_sha256=table_sha256, **values)
        except IntegrityError:  # the blob was removed between the two steps
            continue
        if found is not None:  # else it was there, and was deleted at that moment
            return found


def _digest(options: ReadOptions, expected: Expected | None) -> str:
    state = asdict(options)
    if expected is not None:
        dialect = expected.dialect
        state["expected"] = [
            sorted(expected.columns),
            None if dialect is None else dialect.to_dict(),
        ]
    if options.sheet is None:  # datasets of before had no such option
        del state["sheet"]
    text = json.dumps(state, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _find(key: dict[str, str]) -> Dataset | None:
    with db.reading() as session:
        return session.scalar(sa.select(Dataset).filter_by(**key))


def _find_or_add(key: dict[str, str], **values: Any) -> Dataset | None:
    """The row; None if it is deleted while we look for it."""
    with db.transaction() as session:
        db.insert_unless_exists(
            session,
            Dataset,
            id=new_id("ds"),
            created_at=db.now(session),
            **key,
            **values,
        )
        dataset = session.scalar(sa.select(Dataset).filter_by(**key))
        if dataset is not None:
            _mend(session, dataset, values["table_sha256"])
        return dataset


def _mend(session: Session, dataset: Dataset, table_sha256: str) -> None:
    """Let a dataset whose table was damaged have the new one, if it is another."""
    before = dataset.table_sha256
    if before == table_sha256 or blobs.is_intact(dataset.workspace_id, before):
        return
    dataset.table_sha256 = table_sha256
    session.flush()
    blobs.remove_unused(session, dataset.workspace_id, before)


def open_table(dataset: Dataset) -> ParquetTable:
    """The table; its columns are fetched when they are asked for."""
    return ParquetTable(blobs.BlobFile(dataset.workspace_id, dataset.table_sha256))


def read_options(dataset: Dataset) -> ReadOptions:
    state = dataset.read_options
    options: Any = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in state.items()
    }
    return ReadOptions(**options)


def read_verdicts(dataset: Dataset) -> dict[str, Verdict]:
    """What was decided of each column when the file was read."""
    names = [field.name for field in fields(Verdict)]
    return {
        column["name"]: _verdict({name: column.get(name) for name in names})
        for column in dataset.profile["columns"]
    }


def _verdict(state: dict[str, Any]) -> Verdict:
    """Datasets of before have no values that spoil a column."""
    return Verdict(**state | {"unreadable": tuple(state["unreadable"] or ())})


def describe_rows(dataset: Dataset, rows: Sequence[int]) -> str:
    """Where rows, counted from 0, are in the file."""
    first_line = dataset.reading["first_line"]
    if first_line is None:
        return "row " + ", ".join(str(row + 1) for row in rows)
    return "line " + ", ".join(str(row + first_line) for row in rows)
