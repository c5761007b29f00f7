"""Predictions of whole tables: a job of the workers, and the file that it makes."""

import base64
import re
from collections.abc import Iterator
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from app import jobs, predictions
from app.access import Caller, Writer
from app.answering import MEDIA_TYPES
from app.api.bodies.jobs import JobRead
from app.api.bodies.predictions import (
    FaultPage,
    FaultRead,
    PredictionCreate,
    PredictionOnDataset,
)
from app.api.deps import (
    JobDep,
    ModelId,
    PredictorsDep,
    ReadSessionDep,
    SettingsDep,
    get_or_404,
)
from app.api.once import KeyHeader, Lock, create_once, keep
from app.api.paging import Limit
from app.api.responses import IfNoneMatch, matches, problems
from app.datasets import Upload, read_body, receive
from app.errors import (
    RangeNotSatisfiable,
    ResultGone,
    UnsupportedMediaType,
    WrongJobKind,
    from_validation,
)
from app.predictions import PredictionSettings
from app.serving import Predictors, find_model
from app.settings import Settings
from app.storage import blobs, db
from app.storage.enums import JobKind
from app.storage.tables import Dataset, Job, PredictionFault, TrainedModel

router = APIRouter(tags=["predictions"])

MAX_CONFIG_BYTES = 2**20
_PIECE = 2**18
_BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/models/{model_id}/predictions",
    status_code=202,
    response_model=JobRead,
    summary="Predict a table of any size",
    responses=problems(404, 409, 413, 415, 422, 429),
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
                            "config": {"$ref": "#/components/schemas/PredictionCreate"},
                        },
                    },
                    "encoding": {"config": {"contentType": "application/json"}},
                },
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/PredictionOnDataset"}
                },
            },
        }
    },
)
async def create_prediction(
    request: Request,
    settings: SettingsDep,
    predictors: PredictorsDep,
    caller: Writer,
    model_id: ModelId,
    idempotency_key: KeyHeader = None,
) -> Response:
    """Send a file (CSV, Parquet, Arrow, JSON lines, Excel; packed or not) as the part
    `file` and what to answer as the part `config` of `multipart/form-data`; or JSON
    with the `dataset_id` of a table that was uploaded before. The options are those of
    predict.

    The answer is a job that workers share, chunk by chunk; follow it as any other, and
    fetch `GET /jobs/{id}/result` when it has succeeded. The result has a row for each
    row of the table, in its order.
    """
    # async: the body is counted while it arrives, instead of being spooled unseen.
    about = (settings, predictors, caller, model_id, idempotency_key)
    content_type = request.headers.get("content-type", "")
    if content_type.startswith("multipart/form-data"):
        await run_in_threadpool(_find_model, caller, model_id)  # before the body
        upload = await receive(request, max_bytes=settings.max_upload_bytes)
        try:
            return await run_in_threadpool(_create_from_file, upload, *about)
        finally:
            await run_in_threadpool(upload.close)
    if content_type.split(";")[0].strip() == "application/json":
        body = await read_body(request, max_bytes=MAX_CONFIG_BYTES)
        return await run_in_threadpool(_create_on_dataset, body, *about)
    raise UnsupportedMediaType(
        "send multipart/form-data with the parts `file` and `config` (JSON), or "
        "application/json with a `dataset_id`"
    )


def _find_model(caller: Caller, model_id: str) -> TrainedModel:
    with db.reading() as session:
        return find_model(session, model_id, caller.workspace_id)


def _create_from_file(
    upload: Upload,
    settings: Settings,
    predictors: Predictors,
    caller: Caller,
    model_id: str,
    key: str | None,
) -> Response:
    upload.check("config")
    body = _parse(PredictionCreate, upload.fields.get("config", b"{}"))
    model = _find_model(caller, model_id)

    def create(lock: Lock | None) -> JobRead:
        predictor = predictors.get(model)
        dataset = predictions.receive_table(
            upload, caller.workspace_id, body, predictor, settings
        )
        return _create_job(model, predictors, dataset, body, settings, lock)

    return create_once(body, (upload.sha256, model.id), caller, key, create)


def _create_on_dataset(
    content: bytes,
    settings: Settings,
    predictors: Predictors,
    caller: Caller,
    model_id: str,
    key: str | None,
) -> Response:
    body = _parse(PredictionOnDataset, content)
    model = _find_model(caller, model_id)
    with db.reading() as session:
        dataset = get_or_404(session, Dataset, body.dataset_id, caller.workspace_id)

    def create(lock: Lock | None) -> JobRead:
        return _create_job(model, predictors, dataset, body, settings, lock)

    data = (dataset.sha256, dataset.options_sha256, model.id)
    return create_once(body, data, caller, key, create)


def _parse(kind: type[PredictionSettings], content: bytes) -> Any:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        names = {name: name for name in kind.model_fields}
        raise from_validation(error, names) from None


def _create_job(
    model: TrainedModel,
    predictors: Predictors,
    dataset: Dataset,
    body: PredictionSettings,
    settings: Settings,
    lock: Lock | None,
) -> JobRead:
    plan = predictions.plan_prediction(
        model, predictors.get(model), dataset, body, settings
    )
    with db.transaction() as session:
        job = jobs.create_prediction(session, plan)
        answer = JobRead.of(job, None)
        keep(session, lock, answer)
    jobs.notify_of(job)
    return answer


# ----------------------------------------------------------------------------
# What it made


@router.get(
    "/jobs/{job_id}/result",
    summary="The file that a prediction job made",
    response_class=Response,
    responses={
        **problems(404, 409, 410, 416, 422),
        200: {
            "content": {
                media_type.partition(";")[0]: _BINARY
                for media_type in MEDIA_TYPES.values()
            }
        },
        206: {"description": "A part of it, by `Range`."},
    },
)
def read_result(
    job: JobDep,
    range_: Annotated[
        str | None,
        Header(alias="Range", description="One range of bytes, as `bytes=1000-`."),
    ] = None,
    if_range: Annotated[
        str | None, Header(description="The `ETag` that a range must be of.")
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """A row for each row of the table, in its order; of a row that was skipped, the id
    alone. A download that broke off goes on with `Range` and `If-Range`; the sha256 of
    the whole is the `ETag`, and in `Repr-Digest`."""
    sha256 = jobs.find_result(job)
    assert job.outcome is not None
    output, size = job.outcome["output"], job.outcome["size"]
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    headers = {
        "ETag": f'"{sha256}"',
        "Repr-Digest": f"sha-256=:{digest}:",
        "Accept-Ranges": "bytes",
        "Content-Disposition": f'attachment; filename="{job.id}.{output}"',
    }
    if matches(headers["ETag"], if_none_match):
        return Response(status_code=304, headers=headers)
    start, stop, status = 0, size, 200
    if range_ is not None and if_range in (None, headers["ETag"]):
        found = _read_range(range_, size)
        if found is not None:
            (start, stop), status = found, 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    headers["Content-Length"] = str(stop - start)
    return StreamingResponse(
        _read_pieces(job, sha256, start, stop),
        status,
        media_type=MEDIA_TYPES[output],
        headers=headers,
    )


def _read_range(text: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last; None: it is to be passed over."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", text.replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None  # another unit, several ranges, or none
    if not found[1]:
        start, stop = max(0, size - int(found[2])), size
    else:
        start = int(found[1])
        stop = min(int(found[2]) + 1, size) if found[2] else size
        if found[2] and int(found[2]) < start:
            return None
    if start >= stop:
        raise RangeNotSatisfiable(
            f"the file has {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, stop


def _read_pieces(job: Job, sha256: str, start: int, stop: int) -> Iterator[bytes]:
    """Some bytes of the file. That it is there is known before the answer begins."""
    try:
        file = blobs.BlobFile(job.workspace_id, sha256)
    except KeyError:
        raise ResultGone() from None

    def read() -> Iterator[bytes]:
        file.seek(start)
        n_left = stop - start
        while n_left:
            piece = file.read(min(_PIECE, n_left))
            assert piece
            n_left -= len(piece)
            yield piece

    return read()


@router.get(
    "/jobs/{job_id}/faults",
    response_model=FaultPage,
    summary="Rows that a prediction job could not answer",
    responses=problems(404, 409, 422),
)
def list_faults(
    job: JobDep,
    session: ReadSessionDep,
    after: Annotated[
        int, Query(ge=0, le=2**53, description="Only rows after this number.")
    ] = 0,
    limit: Limit = 50,
) -> FaultPage:
    """With `on_error` set to `skip`, and as far as the job is. All are counted in
    `n_faults`; of a chunk with very many, the first 1000 are listed."""
    if job.kind != JobKind.PREDICT:
        raise WrongJobKind(
            f"a job of the kind '{job.kind}' has no faults of rows; prediction jobs do"
        )
    rows = session.scalars(
        sa.select(PredictionFault)
        .where(PredictionFault.job_id == job.id, PredictionFault.row > after)
        .order_by(PredictionFault.row)
        .limit(limit + 1)
    ).all()
    return FaultPage(
        data=[
            FaultRead(row=each.row, column=each.column, detail=each.detail)
            for each in rows[:limit]
        ],
        next_after=rows[limit - 1].row if len(rows) > limit else None,
    )
