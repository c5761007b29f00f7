"""Datasets: tables that were uploaded, for any number of jobs."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import defer

from app import datasets, jobs
from app.access import Reader, Writer
from app.api.bodies.changes import Change
from app.api.bodies.common import Page
from app.api.bodies.datasets import DatasetRead, DatasetSummary, parse_read_options
from app.api.deps import (
    DatasetDep,
    DatasetId,
    ReadSessionDep,
    SettingsDep,
    get_or_404,
)
from app.api.paging import After, Before, Cursor, Limit, has_tag, link_next, read_page
from app.api.responses import problems
from app.datasets import receive
from app.errors import DatasetInUse
from app.storage import blobs, db
from app.storage.tables import Dataset, Job

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.post(
    "",
    status_code=201,
    response_model=DatasetRead,
    summary="Upload a table",
    responses=problems(413, 415, 422),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file"],
                        "properties": {
                            "file": {"type": "string", "format": "binary"},
                            "read_options": {
                                "$ref": "#/components/schemas/ReadOptions"
                            },
                        },
                    },
                    "encoding": {"read_options": {"contentType": "application/json"}},
                }
            },
        }
    },
)
async def create_dataset(
    request: Request, response: Response, settings: SettingsDep, caller: Writer
) -> DatasetRead:
    """Send a CSV, Parquet, Arrow or JSON file (an array of objects, or one a line), or
    an Excel workbook (.xlsx: the first sheet, or `sheet`), plain or packed with gzip or
    zstd, as the part `file`. Encoding, delimiter, quotes,
    header, titles above and totals below the table, and the formats of numbers and
    dates are detected and shown; each can be set instead in the part `read_options`
    (JSON). Every record of the file is a row of the dataset, or a warning or an error
    names the line. The same bytes with the same options are one dataset: sending
    them again gives the first one."""
    # async: the body is counted while it arrives, instead of being spooled unseen.
    upload = await receive(request, max_bytes=settings.max_upload_bytes)
    try:
        upload.check("read_options")
        options = parse_read_options(upload.fields.get("read_options", b"{}"))
        dataset = await run_in_threadpool(
            datasets.ingest, upload, caller.workspace_id, options, settings
        )
    finally:
        await run_in_threadpool(upload.close)
    response.headers["Location"] = f"/datasets/{dataset.id}"
    return _read(dataset)


@router.get(
    "",
    response_model=Page[DatasetSummary],
    summary="List datasets",
    responses=problems(422),
)
def list_datasets(
    request: Request,
    response: Response,
    session: ReadSessionDep,
    caller: Reader,
    name: Annotated[jobs.Name | None, Query(description="Only those.")] = None,
    tag: Annotated[jobs.Tag | None, Query(description="Only those with it.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    created_after: After = None,
    created_before: Before = None,
) -> Page[DatasetSummary]:
    """Newest first, in pages."""
    statement = (
        sa.select(Dataset)
        .where(Dataset.workspace_id == caller.workspace_id)
        .options(defer(Dataset.profile), defer(Dataset.reading))
    )
    if name is not None:
        statement = statement.where(Dataset.name == name)
    if tag is not None:
        statement = statement.where(has_tag(session, Dataset.tags, tag))
    rows, next_cursor = read_page(
        session,
        statement,
        Dataset,
        limit=limit,
        cursor=cursor,
        created_after=created_after,
        created_before=created_before,
    )
    response.headers.update(link_next(request, next_cursor))
    summaries = [DatasetSummary(**_summarise(row)) for (row,) in rows]
    return Page(data=summaries, next_cursor=next_cursor)


@router.get(
    "/{dataset_id}",
    response_model=DatasetRead,
    summary="What is in a dataset",
    responses=problems(404, 422),
)
def read_dataset(dataset: DatasetDep) -> DatasetRead:
    """How its file was read, its columns with what each would be used as, the first
    rows, and columns that may be the target."""
    return _read(dataset)


@router.patch(
    "/{dataset_id}",
    response_model=DatasetSummary,
    summary="Change a dataset's name, tags or description",
    responses=problems(400, 404, 422),
)
def change_dataset(
    caller: Writer, dataset_id: DatasetId, body: Change
) -> DatasetSummary:
    """Its rows and how they were read are as they are; another reading is another
    dataset."""
    with db.transaction() as session:
        dataset = get_or_404(session, Dataset, dataset_id, caller.workspace_id)
        body.apply(dataset)
        session.flush()
        return DatasetSummary(**_summarise(dataset))


@router.delete(
    "/{dataset_id}",
    status_code=204,
    summary="Delete a dataset that no job uses",
    responses=problems(404, 409, 422),
)
def delete_dataset(caller: Writer, dataset_id: DatasetId) -> None:
    """While a job uses it, the answer is a 409 that names the job."""
    with db.transaction() as session:
        dataset = get_or_404(session, Dataset, dataset_id, caller.workspace_id)
        job_id = session.scalar(
            sa.select(Job.id).where(Job.dataset_id == dataset.id).limit(1)
        )
        if job_id is not None:
            raise DatasetInUse(
                f"the dataset is in use by {job_id}; delete its jobs first"
            )
        session.delete(dataset)
        session.flush()
        blobs.remove_unused(session, dataset.workspace_id, dataset.table_sha256)


def _summarise(dataset: Dataset) -> dict[str, Any]:
    names = DatasetSummary.model_fields.keys() - {"links"}
    return {
        **{name: getattr(dataset, name) for name in names},
        "links": {
            "self": f"/datasets/{dataset.id}",
            "jobs": f"/jobs?dataset_id={dataset.id}",
        },
    }


def _read(dataset: Dataset) -> DatasetRead:
    return DatasetRead.model_validate(
        {
            **_summarise(dataset),
            "read_options": datasets.read_options(dataset),
            "reading": dataset.reading,
            **dataset.profile,
        }
    )
