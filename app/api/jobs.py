"""Jobs: asking for a model, and what became of it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app import datasets, jobs
from app.access import Caller, Reader, Writer, read_secret
from app.api.bodies.changes import Change
from app.api.bodies.common import Id, Page
from app.api.bodies.datasets import parse_read_options
from app.api.bodies.jobs import EventPage, JobCreate, JobCreateOnDataset, JobRead
from app.api.deps import JobDep, JobId, ReadSessionDep, SettingsDep, get_or_404
from app.api.once import KeyHeader, Lock, create_once, keep
from app.api.paging import After, Before, Cursor, Limit, has_tag, link_next, read_page
from app.api.responses import problems
from app.datasets import Upload, read_body, receive
from app.errors import (
    BadMultipart,
    UnsupportedMediaType,
    WrongJobStatus,
    from_validation,
)
from app.settings import Settings
from app.storage import db
from app.storage.enums import JobKind, JobStatus
from app.storage.tables import Dataset, Event, Job, TrainedModel

router = APIRouter(prefix="/jobs", tags=["jobs"])

MAX_CONFIG_BYTES = 2**20


@router.post(
    "",
    status_code=202,
    response_model=JobRead,
    summary="Train a model",
    responses=problems(404, 409, 413, 415, 422, 429),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["file", "config"],
                        "properties": {
                            "file": {"type": "string", "format": "binary"},
                            "config": {"$ref": "#/components/schemas/JobCreate"},
                            "read_options": {
                                "$ref": "#/components/schemas/ReadOptions"
                            },
                        },
                    },
                    "encoding": {
                        "config": {"contentType": "application/json"},
                        "read_options": {"contentType": "application/json"},
                    },
                },
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/JobCreateOnDataset"}
                },
            },
        }
    },
)
async def create_job(
    request: Request,
    settings: SettingsDep,
    caller: Writer,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Send a CSV, Parquet or Arrow file as the part `file` and the settings as the part
    `config` of `multipart/form-data`; or send the settings as JSON, with the
    `dataset_id` of a file that was uploaded before.

    Everything that can be checked is checked before the answer: the file, the target,
    the split and every setting. The answer shows what was made of them. With an
    `Idempotency-Key` the same request can be sent again without a second job.
    """
    # async: the body is counted while it arrives, instead of being spooled unseen.
    content_type = request.headers.get("content-type", "")
    if content_type.startswith("multipart/form-data"):
        upload = await receive(request, max_bytes=settings.max_upload_bytes)
        try:
            return await run_in_threadpool(
                _create_from_file, upload, settings, caller, idempotency_key
            )
        finally:
            await run_in_threadpool(upload.close)
    if content_type.split(";")[0].strip() == "application/json":
        body = await read_body(request, max_bytes=MAX_CONFIG_BYTES)
        return await run_in_threadpool(
            _create_on_dataset, body, settings, caller, idempotency_key
        )
    raise UnsupportedMediaType(
        "send multipart/form-data with the parts `file` (the CSV) and `config` (JSON), "
        "or application/json with a `dataset_id`"
    )


def _create_from_file(
    upload: Upload, settings: Settings, caller: Caller, key: str | None
) -> Response:
    upload.check("config", "read_options")
    if "config" not in upload.fields:
        raise BadMultipart(
            'the part `config` is missing; it is JSON such as {"target": "price"}'
        )
    body = _parse(JobCreate, upload.fields["config"])
    if "read_options" in upload.fields:
        if "read_options" in body.model_fields_set:
            raise BadMultipart(
                "`read_options` is a part and in `config` too; send it once"
            )
        options = parse_read_options(upload.fields["read_options"])
        body = body.model_copy(update={"read_options": options})

    def create(lock: Lock | None) -> JobRead:
        dataset = datasets.ingest(
            upload, caller.workspace_id, body.read_options, settings
        )
        return _create_job(body, dataset, settings, lock)

    # The options are a part of the body.
    return create_once(body, (upload.sha256,), caller, key, create)


def _create_on_dataset(
    content: bytes, settings: Settings, caller: Caller, key: str | None
) -> Response:
    body = _parse(JobCreateOnDataset, content)
    with db.reading() as session:
        dataset = get_or_404(session, Dataset, body.dataset_id, caller.workspace_id)

    def create(lock: Lock | None) -> JobRead:
        return _create_job(body, dataset, settings, lock)

    data = (dataset.sha256, dataset.options_sha256)
    return create_once(body, data, caller, key, create)


def _parse(kind: type[jobs.JobSettings], content: bytes) -> Any:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise from_validation(error, kind.setting_names()) from None


def _create_job(
    body: jobs.JobSettings, dataset: Dataset, settings: Settings, lock: Lock | None
) -> JobRead:
    """Check the data against the settings, write the rows, notify the workers."""
    plan = jobs.plan_job(body, dataset)
    with db.transaction() as session:
        job = jobs.create_job(session, plan, settings)
        answer = JobRead.of(job, None)
        keep(session, lock, answer)
    jobs.notify_of(job)
    return answer


@router.get(
    "", response_model=Page[JobRead], summary="List jobs", responses=problems(422)
)
def list_jobs(
    request: Request,
    session: ReadSessionDep,
    caller: Reader,
    status: Annotated[JobStatus | None, Query(description="Only those.")] = None,
    kind: Annotated[JobKind | None, Query(description="Only those.")] = None,
    dataset_id: Annotated[Id | None, Query(description="Only those on it.")] = None,
    parent_id: Annotated[
        Id | None, Query(description="The runs of a sweep or tune job.")
    ] = None,
    name: Annotated[jobs.Name | None, Query(description="Only those.")] = None,
    tag: Annotated[jobs.Tag | None, Query(description="Only those with it.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    created_after: After = None,
    created_before: Before = None,
) -> Response:
    """Newest first, in pages. The runs of a sweep or tune job are not among them, but
    listed with its `parent_id`."""
    statement = (
        sa.select(Job, TrainedModel.id)
        .outerjoin(TrainedModel, TrainedModel.job_id == Job.id)
        .where(Job.workspace_id == caller.workspace_id, Job.parent_id == parent_id)
    )
    for column, value in (
        (Job.status, status),
        (Job.kind, kind),
        (Job.dataset_id, dataset_id),
        (Job.name, name),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if tag is not None:
        statement = statement.where(has_tag(session, Job.tags, tag))
    rows, next_cursor = read_page(
        session,
        statement,
        Job,
        limit=limit,
        cursor=cursor,
        created_after=created_after,
        created_before=created_before,
    )
    page = Page[JobRead](
        data=[JobRead.of(job, model_id) for job, model_id in rows],
        next_cursor=next_cursor,
    )
    # Written here: FastAPI would check a page of 100 once more.
    return Response(
        page.model_dump_json(),
        media_type="application/json",
        headers=link_next(request, next_cursor),
    )


@router.get(
    "/{job_id}",
    response_model=JobRead,
    summary="Status, phase and progress of a job",
    responses=problems(404, 422),
)
def read_job(job: JobDep, session: ReadSessionDep, settings: SettingsDep) -> JobRead:
    """Ask again until `status` is an end; then `links` leads to reports and model."""
    answer = JobRead.of(job, jobs.find_model_id(session, job))
    if job.status == JobStatus.QUEUED:
        heard_within = 2 * settings.reaper_seconds
        if not jobs.count_workers(session, job.queue, heard_within=heard_within):
            answer.notice = f"no worker of the queue '{job.queue}' is heard of"
        waiting = jobs.find_waiting(session, job, heard_within=heard_within)
        if waiting is not None:
            answer.queue_place = waiting.ahead + 1
            if (seconds := waiting.starts_in_seconds) is not None:
                answer.estimated_start_at = db.now(session) + timedelta(seconds=seconds)
    return answer


@router.patch(
    "/{job_id}",
    response_model=JobRead,
    summary="Change a job's name, tags or description",
    responses=problems(400, 404, 422),
)
def change_job(caller: Writer, job_id: JobId, body: Change) -> JobRead:
    """Before the end, name and tags are those that its model will get; afterwards the
    model keeps its own."""
    with db.transaction() as session:
        job = get_or_404(session, Job, job_id, caller.workspace_id)
        body.apply(job)
        session.flush()
        return JobRead.of(job, jobs.find_model_id(session, job))


@router.delete(
    "/{job_id}",
    status_code=204,
    summary="Delete a job that has ended, and its reports",
    responses=problems(404, 409, 422),
)
def delete_job(caller: Writer, job_id: JobId) -> None:
    """Before the end, or while its model lives, the answer is a 409."""
    with db.transaction() as session:
        job = get_or_404(session, Job, job_id, caller.workspace_id)
        jobs.delete(session, job)
    if job.kind == JobKind.TUNE:
        jobs.search.delete_study(job.id)


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    response_model=JobRead,
    summary="End a job and keep nothing",
    responses=problems(404, 409, 422),
)
def cancel_job(caller: Writer, job_id: JobId) -> JobRead:
    """A queued job is cancelled at once; a running one as soon as its worker hears of
    it, within seconds. With a sweep or tune job, all its runs are cancelled."""
    return JobRead.of(_ask(caller, job_id, jobs.cancel, "cancelled"), None)


@router.post(
    "/{job_id}/stop",
    status_code=202,
    response_model=JobRead,
    summary="Stop training and keep the best epoch so far",
    responses=problems(404, 409, 422),
)
def stop_job(caller: Writer, job_id: JobId) -> JobRead:
    """The job ends its epoch, is evaluated and exported, and succeeds. A sweep begins
    no further cell; a tune job no further trial, and refits its winner."""
    return JobRead.of(_ask(caller, job_id, jobs.stop, "stopped"), None)


@router.post(
    "/{job_id}/retry",
    status_code=202,
    response_model=JobRead,
    summary="Run a failed or cancelled job again",
    responses=problems(404, 409, 422, 429),
)
def retry_job(caller: Writer, job_id: JobId) -> JobRead:
    """It goes on from its checkpoint if one is still kept. Of a sweep or tune job,
    those runs are tried again that have not succeeded."""
    job = _ask(caller, job_id, jobs.retry, "tried again")
    jobs.notify_of(job)
    return JobRead.of(job, None)


def _ask(
    caller: Caller, job_id: str, move: Callable[[Session, Job], bool], participle: str
) -> Job:
    with db.transaction() as session:
        job = get_or_404(session, Job, job_id, caller.workspace_id)
        if not move(session, job):
            raise WrongJobStatus(
                f"a job that is {job.status} cannot be {participle}",
                job_status=job.status,
            )
    return job


@router.get(
    "/{job_id}/events",
    response_model=EventPage,
    summary="What happened to a job, as a list or live",
    responses={
        **problems(404, 422),
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    },
)
async def read_events(
    request: Request,
    settings: SettingsDep,
    job: JobDep,
    after: Annotated[
        int, Query(ge=0, le=2**31 - 1, description="Only events after this number.")
    ] = 0,
    limit: Limit = 50,
    accept: Annotated[
        str, Header(description="`text/event-stream`: live, until the job ends.")
    ] = "application/json",
    last_event_id: Annotated[
        str | None, Header(description="The `id` of the last event that was received.")
    ] = None,
) -> Response:
    """With `Accept: text/event-stream` the events come as they happen, by Server-Sent
    Events; a client that reconnects with `Last-Event-ID` misses and repeats nothing."""
    # async: a stream waits for events without holding a thread.
    if "text/event-stream" not in accept:
        return await run_in_threadpool(_list_events, job, after, limit)
    if last_event_id is not None and last_event_id.isdecimal():
        after = int(last_event_id[:9])
    headers = dict(reversed(request.headers.raw))  # the first of each name
    secret = read_secret(headers, request.scope.get("client"), settings)
    return StreamingResponse(
        jobs.hub.follow(job.id, after, secret),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _list_events(job: Job, after: int, limit: int) -> Response:
    with db.reading() as session:
        events = session.scalars(
            sa.select(Event)
            .where(Event.job_id == job.id, Event.seq > after)
            .order_by(Event.seq)
            .limit(limit + 1)
        ).all()
    page = EventPage(
        data=[jobs.EventRead.of(event) for event in events[:limit]],
        next_after=events[limit - 1].seq if len(events) > limit else None,
    )
    return JSONResponse(page.model_dump(mode="json"))
