"""From an uploaded file to a dataset row, and back to the table in it."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from app import blobs, db
from app.models import Dataset, new_id
from app.uploads import Upload
from lometab.data import judge, measure
from lometab.tables import Table, read_csv


def ingest(upload: Upload, workspace_id: str) -> tuple[Dataset, Table]:
    """Read the file, keep its bytes, and find or add its row.

    The same bytes are one dataset. Nothing is kept of a file that cannot be read.
    """
    assert upload.file is not None
    table = read_csv(upload.file.read())
    values = {
        "workspace_id": workspace_id,
        "filename": upload.filename,
        "size": upload.size,
        "n_rows": len(next(iter(table.values()))),
        "columns": describe_columns(table),
    }
    while True:
        upload.file.seek(0)
        sha256 = blobs.store(workspace_id, upload.file)
        try:
            return _find_or_add(sha256=sha256, **values), table
        except IntegrityError:  # the blob was removed between the two steps
            continue


def _find_or_add(**values: Any) -> Dataset:
    with db.writing() as session:
        db.insert_unless_exists(
            session, Dataset, id=new_id("ds"), created_at=db.now(session), **values
        )
        dataset = session.scalars(
            sa.select(Dataset).where(
                Dataset.workspace_id == values["workspace_id"],
                Dataset.sha256 == values["sha256"],
            )
        ).one()
        session.commit()
        return dataset


def describe_columns(table: Table) -> list[dict[str, Any]]:
    """Each column's kind, as it would be used if it were a feature."""
    described = []
    for name, values in table.items():
        verdict = judge(name, measure(values))
        described.append({"name": name, "kind": verdict.kind, "reason": verdict.reason})
    return described


def read_table(dataset: Dataset) -> Table:
    return read_csv(blobs.read(dataset.workspace_id, dataset.sha256))
