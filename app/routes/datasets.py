"""Datasets: tables that were uploaded, for any number of jobs."""

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from app import blobs, datasets
from app.auth import Reader, Writer
from app.deps import (
    ChangedDatasetDep,
    DatasetDep,
    ReadSessionDep,
    SessionDep,
    SettingsDep,
)
from app.errors import BadMultipart, DatasetInUse
from app.models import Dataset, Job
from app.paging import After, Before, Cursor, Limit, read_page
from app.routes.responses import problems
from app.schemas import DatasetRead, Page
from app.uploads import receive

router = APIRouter(prefix="/datasets", tags=["datasets"])


@router.post(
    "",
    status_code=201,
    response_model=DatasetRead,
    summary="Upload a CSV",
    responses=problems(413, 415, 422),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file"],
                        "properties": {"file": {"type": "string", "format": "binary"}},
                    }
                }
            },
        }
    },
)
async def create_dataset(
    request: Request, response: Response, settings: SettingsDep, caller: Writer
) -> DatasetRead:
    """Send the CSV as the part `file`. The same bytes are one dataset: sending them
    again gives the first one."""
    # async: the body is counted while it arrives, instead of being spooled unseen.
    upload = await receive(request, max_bytes=settings.max_upload_bytes)
    try:
        if upload.file is None:
            raise BadMultipart("the part `file` with the CSV is missing")
        dataset, _ = await run_in_threadpool(
            datasets.ingest, upload, caller.workspace_id
        )
    finally:
        upload.close()
    response.headers["Location"] = f"/datasets/{dataset.id}"
    return _read(dataset)


@router.get(
    "",
    response_model=Page[DatasetRead],
    summary="List datasets",
    responses=problems(422),
)
def list_datasets(
    session: ReadSessionDep,
    caller: Reader,
    limit: Limit = 50,
    cursor: Cursor = None,
    created_after: After = None,
    created_before: Before = None,
) -> Page[DatasetRead]:
    """Newest first, in pages."""
    rows, next_cursor = read_page(
        session,
        sa.select(Dataset).where(Dataset.workspace_id == caller.workspace_id),
        Dataset,
        limit=limit,
        cursor=cursor,
        created_after=created_after,
        created_before=created_before,
    )
    return Page(data=[_read(row) for (row,) in rows], next_cursor=next_cursor)


@router.get(
    "/{dataset_id}",
    response_model=DatasetRead,
    summary="What is in a dataset",
    responses=problems(404, 422),
)
def read_dataset(dataset: DatasetDep) -> DatasetRead:
    """Its columns, and what each would be used as if it is not the target."""
    return _read(dataset)


@router.delete(
    "/{dataset_id}",
    status_code=204,
    summary="Delete a dataset that no job uses",
    responses=problems(404, 409, 422),
)
def delete_dataset(dataset: ChangedDatasetDep, session: SessionDep) -> None:
    """While a job uses it, the answer is a 409 that names the job."""
    job_id = session.scalar(
        sa.select(Job.id).where(Job.dataset_id == dataset.id).limit(1)
    )
    if job_id is not None:
        raise DatasetInUse(f"the dataset is in use by {job_id}; delete its jobs first")
    session.delete(dataset)
    session.flush()
    blobs.remove_unused(session, dataset.workspace_id, dataset.sha256)
    session.commit()


def _read(dataset: Dataset) -> DatasetRead:
    names = DatasetRead.model_fields.keys() - {"links"}
    return DatasetRead.model_validate(
        {
            **{name: getattr(dataset, name) for name in names},
            "links": {
                "self": f"/datasets/{dataset.id}",
                "jobs": f"/jobs?dataset_id={dataset.id}",
            },
        }
    )
