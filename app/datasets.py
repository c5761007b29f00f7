"""From an uploaded file to a dataset row, and back to the table in it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app import blobs, db
from app.models import Dataset, new_id
from app.settings import Settings
from app.uploads import Upload
from lometab.data import Verdict
from lometab.profile import profile_table
from lometab.reading import ReadOptions, read_file
from lometab.tables import ParquetTable


def ingest(
    upload: Upload, workspace_id: str, options: ReadOptions, settings: Settings
) -> Dataset:
    """Read the file, keep its table, and find or add its row.

    The same bytes read the same way are one dataset. Nothing is kept of a file that
    cannot be read.
    """
    assert upload.path is not None
    key = {
        "workspace_id": workspace_id,
        "sha256": upload.sha256,
        "options_sha256": _digest(options),
    }
    if (dataset := _find(key)) is not None:
        return dataset
    path = upload.path.with_name("table.parquet")
    reading = read_file(
        upload.path,
        path,
        options,
        max_bytes=settings.max_table_bytes,
        max_columns=settings.max_columns,
    )
    profile = profile_table(path, reading, options)
    values = {
        "filename": upload.filename,
        "size": upload.size,
        "n_rows": reading.n_rows,
        "n_columns": len(reading.names),
        "read_options": asdict(options),
        "reading": asdict(reading),
        "profile": asdict(profile)
        | {"columns": [column.to_dict() for column in profile.columns]},
    }
    while True:
        with path.open("rb") as file:
            table_sha256 = blobs.store(workspace_id, file)
        try:
            return _find_or_add(key, table_sha256=table_sha256, **values)
        except IntegrityError:  # the blob was removed between the two steps
            continue


def _digest(options: ReadOptions) -> str:
    text = json.dumps(asdict(options), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _find(key: dict[str, str]) -> Dataset | None:
    with db.reading() as session:
        return session.scalar(sa.select(Dataset).filter_by(**key))


def _find_or_add(key: dict[str, str], **values: Any) -> Dataset:
    with db.writing() as session:
        db.insert_unless_exists(
            session,
            Dataset,
            id=new_id("ds"),
            created_at=db.now(session),
            **key,
            **values,
        )
        dataset = session.scalars(sa.select(Dataset).filter_by(**key)).one()
        session.commit()
        return dataset


def open_table(dataset: Dataset) -> ParquetTable:
    """The table; its columns are fetched when they are asked for."""
    return ParquetTable(blobs.BlobFile(dataset.workspace_id, dataset.table_sha256))


def read_options(dataset: Dataset) -> ReadOptions:
    state = dataset.read_options
    missing = state["missing_values"]
    return ReadOptions(
        **state | {"missing_values": None if missing is None else tuple(missing)}
    )


def read_verdicts(dataset: Dataset) -> dict[str, Verdict]:
    """What was decided of each column when the file was read."""
    names = [field.name for field in fields(Verdict)]
    return {
        column["name"]: Verdict(**{name: column[name] for name in names})
        for column in dataset.profile["columns"]
    }


def count_levels(dataset: Dataset, names: Sequence[str]) -> list[int]:
    """How many categories columns have, a missing one included."""
    columns = {column["name"]: column for column in dataset.profile["columns"]}
    return [
        columns[name]["n_distinct"] + (columns[name]["n_missing"] > 0) for name in names
    ]


def describe_rows(dataset: Dataset, rows: Sequence[int]) -> str:
    """Where rows, counted from 0, are in the file."""
    first_line = dataset.reading["first_line"]
    if first_line is None:
        return "row " + ", ".join(str(row + 1) for row in rows)
    return "line " + ", ".join(str(row + first_line) for row in rows)
