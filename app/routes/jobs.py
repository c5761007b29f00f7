"""Jobs: asking for a model, and what became of it."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app import blobs, datasets, db, idempotency, jobs, sweeps
from app.auth import Caller, Reader, Writer
from app.deps import (
    ChangedJobDep,
    JobDep,
    ReadSessionDep,
    SessionDep,
    SettingsDep,
    get_or_404,
)
from app.errors import (
    BadMultipart,
    JobHasModel,
    JobIsPart,
    JobNotFinished,
    TooMuchMemory,
    UnsupportedMediaType,
    WrongJobStatus,
    from_validation,
)
from app.events import hub
from app.models import (
    FINISHED,
    PARENTS,
    Attempt,
    Dataset,
    Event,
    Job,
    Report,
    TrainedModel,
    new_id,
)
from app.paging import After, Before, Cursor, Limit, read_page
from app.planning import list_sizes, make_children
from app.queue import enqueue_training
from app.routes.responses import problems
from app.schemas import (
    EstimateRead,
    EventPage,
    EventRead,
    Id,
    JobCreate,
    JobCreateOnDataset,
    JobRead,
    JobSettings,
    JobStatus,
    Page,
    Progress,
)
from app.settings import Settings
from app.uploads import Upload, read_body, receive
from lometab.data import (
    BY_CALLER,
    BY_SPLIT,
    Schema,
    features,
    infer_schema,
    target,
)
from lometab.estimate import estimate
from lometab.profile import find_leaks
from lometab.splits import Parts, split_rows
from lometab.tables import Table

router = APIRouter(prefix="/jobs", tags=["jobs"])

MAX_CONFIG_BYTES = 2**20
MAX_BELLS = 8
"""How many workers are told at once of a sweep; others hear of it on their patrol."""
IMPORTED_BYTES = 400 * 10**6
"""What a training process takes before it has any data."""
FLOPS_PER_SECOND = 2e10
"""What one core does of these products: enough for a guess of the time."""


@router.post(
    "",
    status_code=202,
    response_model=JobRead,
    summary="Train a model",
    responses=problems(404, 409, 413, 415, 422),
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
                        },
                    },
                    "encoding": {"config": {"contentType": "application/json"}},
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
    idempotency_key: idempotency.KeyHeader = None,
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
    if "config" not in upload.fields:
        raise BadMultipart(
            'the part `config` is missing; it is JSON such as {"target": "price"}'
        )
    body = _parse(JobCreate, upload.fields["config"])
    if upload.path is None:
        raise BadMultipart("the part `file` is missing")

    def create() -> JobRead:
        dataset = datasets.ingest(
            upload, caller.workspace_id, body.read_options, settings
        )
        return _create_job(body, dataset, settings, key)

    return _create_once(body, upload.sha256, caller, key, create)


def _create_on_dataset(
    content: bytes, settings: Settings, caller: Caller, key: str | None
) -> Response:
    body = _parse(JobCreateOnDataset, content)
    with db.reading() as session:
        dataset = get_or_404(session, Dataset, body.dataset_id, caller.workspace_id)

    def create() -> JobRead:
        return _create_job(body, dataset, settings, key)

    return _create_once(body, dataset.sha256, caller, key, create)


def _parse(kind: type[JobSettings], content: bytes) -> Any:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise from_validation(error, kind.setting_names()) from None


def _create_once(
    body: JobSettings,
    sha256: str,
    caller: Caller,
    key: str | None,
    create: Callable[[], JobRead],
) -> Response:
    """Create the job, or give the answer that the same request got before."""
    if key is None:
        return _accepted(create().model_dump(mode="json"))
    workspace_id = caller.workspace_id
    config = body.model_dump(mode="json", exclude={"dataset_id"})
    with db.writing() as session:
        first = idempotency.begin(
            session, workspace_id, key, idempotency.fingerprint(config, sha256)
        )
    if first is not None:
        return _accepted(first, {"Idempotent-Replayed": "true"})
    try:
        return _accepted(create().model_dump(mode="json"))
    except BaseException:
        with db.writing() as session:
            idempotency.abandon(session, workspace_id, key)
        raise


def _accepted(job: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    location = {"Location": job["links"]["self"]}
    return JSONResponse(job, 202, headers={**location, **(headers or {})})


def _create_job(
    body: JobSettings, dataset: Dataset, settings: Settings, key: str | None
) -> JobRead:
    """Check the data against the settings, write the rows, ring the bell."""
    table = datasets.open_table(dataset)
    schema = infer_schema(
        table,
        target=body.target,
        task=body.task,
        columns=body.columns,
        reserved=[body.split.column] if body.split.column else [],
        missing=datasets.read_options(dataset).missing,
        verdicts=datasets.read_verdicts(dataset),
        drop_missing_target=body.drop_missing_target,
        describe_rows=partial(datasets.describe_rows, dataset),
    )
    _refuse_infinite(table, schema, dataset)
    parts = split_rows(table, schema, body.split)
    warnings = [
        *_warn(schema, dataset, parts),
        *_warn_of_classes(table, schema, parts),
        *find_leaks(table, schema),
    ]
    expected = _estimate(dataset, schema, body)
    if 0 < settings.max_training_bytes < expected.memory_bytes:
        raise TooMuchMemory(
            f"training would take about {expected.memory_bytes >> 20} MiB where "
            f"{settings.max_training_bytes >> 20} MiB are allowed; try a smaller k, "
            "d_block, batch_size or n_bins"
        )
    with db.writing() as session:
        job = Job(
            id=new_id("job"),
            workspace_id=dataset.workspace_id,
            dataset_id=dataset.id,
            kind=body.kind,
            name=body.name,
            tags=body.tags,
            queue=_choose_queue(session, body.device, settings),
            config=_resolve(body, schema),
            schema=schema.to_dict(),
            estimate=expected.model_dump(),
            progress={"epoch": 0, "max_epochs": body.hyperparameters.max_epochs},
        )
        if body.kind == "train":
            jobs.add(session, job, warnings)
        else:
            children = make_children(job, body)
            sweeps.add(session, job, children, warnings)
        answer = read_job_row(job, None)
        if key is not None:
            idempotency.keep(
                session, dataset.workspace_id, key, answer.model_dump(mode="json")
            )
        session.commit()
    if body.kind == "train":
        enqueue_training(job.id, job.queue)
    else:
        for _ in range(min(len(children), MAX_BELLS)):
            enqueue_training(None, job.queue)
    return answer


def _refuse_infinite(table: Table, schema: Schema, dataset: Dataset) -> None:
    """Read the columns that may hold infinite numbers; whoever finds one tells."""
    known = {c["name"] for c in dataset.profile["columns"] if c["range"] is not None}
    doubtful = [name for name in schema.numeric if name not in known]
    features(table, replace(schema, numeric=tuple(doubtful), categorical=()))


def _warn(schema: Schema, dataset: Dataset, parts: Parts) -> Iterator[str]:
    """What we decided without having been told to."""
    yield from dataset.reading["warnings"]
    for name, why in schema.ignored.items():
        if why not in (BY_CALLER, BY_SPLIT):
            yield f"column {name!r} is not used: {why}"
    n_left_out = dataset.n_rows - sum(map(len, parts.values()))
    if n_left_out:
        yield f"{n_left_out} rows without a target are left out"


def _warn_of_classes(table: Table, schema: Schema, parts: Parts) -> Iterator[str]:
    """Classes that a given split leaves out of a part, which then says nothing of
    them."""
    if schema.classes is None:
        return
    y = target(table, schema)
    for name in ("val", "test"):
        absent = set(range(len(schema.classes))) - set(y[parts[name]].tolist())
        if absent:
            classes = ", ".join(repr(schema.classes[i]) for i in sorted(absent)[:5])
            more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
            yield f"the part {name} has no row of the class {classes}{more}"


def _estimate(dataset: Dataset, schema: Schema, body: JobSettings) -> EstimateRead:
    """Of the job, or of the largest of its runs."""
    levels = datasets.count_levels(dataset, schema.categorical)
    n_rows = dataset.n_rows
    expected = max(
        (
            estimate(
                schema,
                n_rows,
                config,
                cardinalities=levels,
                split=body.split,
                is_file=True,
                has_checkpoints=True,
            )
            for config in list_sizes(body)
        ),
        key=lambda each: each.job_bytes,
    )
    # Members of further seeds are there when the file is made and checked.
    n_seeds = body.tune.seeds if body.tune is not None else body.n_seeds
    further = (n_seeds - 1) * expected.serving_bytes
    return EstimateRead(
        n_parameters=n_seeds * expected.n_parameters,
        memory_bytes=IMPORTED_BYTES + expected.job_bytes + further,
        serving_bytes=n_seeds * expected.serving_bytes,
        flops_per_epoch=expected.flops_per_epoch,
        seconds_per_epoch=round(expected.flops_per_epoch / FLOPS_PER_SECOND, 3),
    )


def _choose_queue(session: Session, device: str, settings: Settings) -> str:
    if device != "auto":
        return device
    heard_within = 2 * settings.patrol_seconds
    has_gpu = jobs.count_workers(session, "gpu", heard_within=heard_within) > 0
    return "gpu" if has_gpu else "cpu"


def _resolve(body: JobSettings, schema: Schema) -> dict[str, Any]:
    """The config with every preset and guess spelled out."""
    apart = {"dataset_id", "read_options", "name", "tags"}
    apart |= {"sweep", "tune"} - {body.kind}
    config = body.model_dump(mode="json", exclude=apart)
    return {
        **config,
        "task": schema.task,
        "split": asdict(body.split),
        "hyperparameters": asdict(body.hyperparameters),
    }


def read_job_row(job: Job, model_id: str | None) -> JobRead:
    schema = job.schema
    kinds = dict.fromkeys(schema["numeric"], "numeric")
    kinds |= dict.fromkeys(schema["categorical"], "categorical")
    kinds |= dict.fromkeys(schema["datetime"], "datetime")
    kinds |= {name: f"ignored: {why}" for name, why in schema["ignored"].items()}
    links = {"self": f"/jobs/{job.id}", "dataset": f"/datasets/{job.dataset_id}"}
    if job.kind in PARENTS:
        links |= {job.kind: f"/jobs/{job.id}/{job.kind}"}
        links |= {"children": f"/jobs?parent_id={job.id}"}
    elif job.status == "succeeded" and job.outcome is None:
        links |= {kind: f"/jobs/{job.id}/{kind}" for kind in REPORTS}
    if job.parent_id is not None:
        links |= {"parent": f"/jobs/{job.parent_id}"}
    if model_id is not None:
        links |= {"model": f"/models/{model_id}"}
    progress = dict.fromkeys(Progress.model_fields)
    return JobRead.model_validate(
        {
            **{name: getattr(job, name) for name in _SAME},
            "progress": {**progress, **job.progress},
            "stopped_early": bool(job.is_stop_wished and job.status == "succeeded"),
            "notice": None,
            "model_id": model_id,
            "columns": kinds,
            "links": links,
        }
    )


REPORTS = ("diversity", "calibration", "report")
_SAME = JobRead.model_fields.keys() - {
    "progress",
    "stopped_early",
    "notice",
    "model_id",
    "columns",
    "links",
}


@router.get(
    "", response_model=Page[JobRead], summary="List jobs", responses=problems(422)
)
def list_jobs(
    session: ReadSessionDep,
    caller: Reader,
    status: Annotated[JobStatus | None, Query(description="Only those.")] = None,
    kind: Annotated[
        Literal["train", "sweep", "tune"] | None, Query(description="Only those.")
    ] = None,
    dataset_id: Annotated[Id | None, Query(description="Only those on it.")] = None,
    parent_id: Annotated[
        Id | None, Query(description="The runs of a sweep or tune job.")
    ] = None,
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
    ):
        if value is not None:
            statement = statement.where(column == value)
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
        data=[read_job_row(job, model_id) for job, model_id in rows],
        next_cursor=next_cursor,
    )
    # Written here: FastAPI would check a page of 100 once more.
    return Response(page.model_dump_json(), media_type="application/json")


@router.get(
    "/{job_id}",
    response_model=JobRead,
    summary="Status, phase and progress of a job",
    responses=problems(404, 422),
)
def read_job(job: JobDep, session: ReadSessionDep, settings: SettingsDep) -> JobRead:
    """Ask again until `status` is an end; then `links` leads to reports and model."""
    answer = read_job_row(job, _find_model_id(session, job))
    if job.status == "queued":
        heard_within = 2 * settings.patrol_seconds
        if not jobs.count_workers(session, job.queue, heard_within=heard_within):
            answer.notice = f"no worker of the queue {job.queue!r} is heard of"
    return answer


def _find_model_id(session: Session, job: Job) -> str | None:
    if job.kind in PARENTS:
        return sweeps.find_model_id(session, job)
    return session.scalar(
        sa.select(TrainedModel.id).where(TrainedModel.job_id == job.id)
    )


@router.delete(
    "/{job_id}",
    status_code=204,
    summary="Delete a job that has ended, and its reports",
    responses=problems(404, 409, 422),
)
def delete_job(job: ChangedJobDep, session: SessionDep) -> None:
    """Before the end, or while its model lives, the answer is a 409."""
    sweeps.lock_row(session, job)  # and its children after it
    if job.status not in FINISHED:
        raise JobNotFinished(
            f"the job is {job.status}; it can be deleted when it has ended",
            job_status=job.status,
        )
    model_id = _find_model_id(session, job)
    if model_id is not None:
        raise JobHasModel(f"the job made {model_id}; delete the model first")
    if job.parent_id is not None:
        raise JobIsPart(f"the job is a part of {job.parent_id}; delete that")
    _delete(session, [Job.parent_id == job.id])
    _delete(session, [Job.id == job.id])
    session.commit()
    if job.kind == "tune":
        from app.tuning import delete_study  # Optuna: not for each API process

        delete_study(job.id)


def _delete(session: Session, which: list[sa.ColumnElement[bool]]) -> None:
    """Those jobs and all that is about them; the caller commits."""
    rows = session.execute(
        sa.select(Job.id, Job.workspace_id, Job.checkpoint_sha256).where(*which)
    ).all()
    ids = sa.select(Job.id).where(*which).scalar_subquery()
    for table in (Report, Attempt, Event):
        session.execute(sa.delete(table).where(table.job_id.in_(ids)))
    session.execute(sa.delete(Job).where(*which))
    for _, workspace_id, sha256 in rows:
        if sha256 is not None:
            blobs.remove_unused(session, workspace_id, sha256)


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    response_model=JobRead,
    summary="End a job and keep nothing",
    responses=problems(404, 409, 422),
)
def cancel_job(job: ChangedJobDep, session: SessionDep) -> JobRead:
    """A queued job is cancelled at once; a running one as soon as its worker hears of
    it, within seconds. With a sweep or tune job, all its runs are cancelled."""
    return _ask(job, session, "cancel", "cancelled")


@router.post(
    "/{job_id}/stop",
    status_code=202,
    response_model=JobRead,
    summary="Stop training and keep the best epoch so far",
    responses=problems(404, 409, 422),
)
def stop_job(job: ChangedJobDep, session: SessionDep) -> JobRead:
    """The job ends its epoch, is evaluated and exported, and succeeds. A sweep begins
    no further cell; a tune job no further trial, and refits its winner."""
    return _ask(job, session, "stop", "stopped")


@router.post(
    "/{job_id}/retry",
    status_code=202,
    response_model=JobRead,
    summary="Run a failed or cancelled job again",
    responses=problems(404, 409, 422),
)
def retry_job(job: ChangedJobDep, session: SessionDep) -> JobRead:
    """It goes on from its checkpoint if one is still kept. Of a sweep or tune job,
    those runs are tried again that have not succeeded."""
    if job.parent_id is not None:
        parent = session.get_one(Job, job.parent_id)
        sweeps.lock_row(session, parent)
        if parent.status in FINISHED:
            raise JobIsPart(f"the job is a part of {parent.id}, which has ended")
    answer = _ask(job, session, "retry", "tried again")
    enqueue_training(None if job.kind in PARENTS else job.id, job.queue)
    return answer


def _ask(job: Job, session: Session, verb: str, participle: str) -> JobRead:
    moved = getattr(sweeps if job.kind in PARENTS else jobs, verb)(session, job)
    if moved and job.parent_id is not None:
        sweeps.follow(session, job)
    session.refresh(job)
    if not moved:
        raise WrongJobStatus(
            f"a job that is {job.status} cannot be {participle}", job_status=job.status
        )
    return read_job_row(job, None)


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
    return StreamingResponse(
        hub.follow(job.id, after),
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
        data=[EventRead.of(event) for event in events[:limit]],
        next_after=events[limit - 1].seq if len(events) > limit else None,
    )
    return JSONResponse(page.model_dump(mode="json"))
