"""Jobs: asking for a model, and what became of it."""

from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app import blobs, db, jobs
from app.deps import JobDep, ReadSessionDep, SettingsDep, WorkspaceDep
from app.errors import Conflict, Invalid, from_validation
from app.models import FINISHED, Dataset, Job, Report, TrainedModel, new_id
from app.queue import enqueue_training
from app.schemas import JobCreate, JobRead, Problem
from app.settings import Settings
from app.uploads import Upload, receive
from lometab.data import Schema, infer_schema, read_csv
from lometab.splits import split_rows

router = APIRouter(prefix="/jobs", tags=["jobs"])

NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no such job."}
}
NOT_READY: dict[int | str, dict[str, Any]] = {
    **NOT_FOUND,
    409: {"model": Problem, "description": "The job has no report yet, or failed."},
}


@router.post(
    "",
    status_code=202,
    response_model=JobRead,
    summary="Train a model on a CSV",
    responses={
        413: {"model": Problem, "description": "The file is too large."},
        415: {"model": Problem, "description": "The body is not multipart."},
        422: {"model": Problem, "description": "The file or the config is wrong."},
    },
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
                }
            },
        }
    },
)
async def create_job(
    request: Request,
    response: Response,
    settings: SettingsDep,
    workspace_id: WorkspaceDep,
) -> JobRead:
    """Send the CSV as the part `file` and the settings as the part `config`.

    Everything that can be checked is checked before the answer: the file, the target,
    the split and every setting. The answer shows what was made of them.
    """
    # async: the body is counted while it arrives, instead of being spooled unseen.
    upload = await receive(request, max_bytes=settings.max_upload_bytes)
    try:
        job = await run_in_threadpool(_create_job, upload, settings, workspace_id)
    finally:
        upload.close()
    response.headers["Location"] = f"/jobs/{job.id}"
    return job


def _create_job(upload: Upload, settings: Settings, workspace_id: str) -> JobRead:
    body = _parse_config(upload)
    if upload.file is None:
        raise Invalid("the part `file` with the CSV is missing", code="missing_file")
    table = read_csv(upload.file.read())
    reserved = [body.split.column] if body.split.column else []
    schema = infer_schema(
        table,
        target=body.target,
        task=body.task,
        columns=body.columns,
        reserved=reserved,
    )
    split_rows(table, schema, body.split)
    upload.file.seek(0)
    sha256 = blobs.store(workspace_id, upload.file)
    with db.writing() as session:
        dataset_id = _find_or_add_dataset(
            session,
            workspace_id=workspace_id,
            sha256=sha256,
            filename=upload.filename,
            size=upload.file.tell(),
            n_rows=len(table[body.target]),
            columns=list(table),
        )
        job = Job(
            id=new_id("job"),
            workspace_id=workspace_id,
            dataset_id=dataset_id,
            kind=body.kind,
            queue=_choose_queue(session, body.device, settings),
            config=_resolve(body, schema),
            schema=schema.to_dict(),
            progress={"epoch": 0, "max_epochs": body.hyperparameters.max_epochs},
        )
        session.add(job)
        session.commit()
    enqueue_training(job.id, job.queue)
    return _read_job(job, None)


def _parse_config(upload: Upload) -> JobCreate:
    if "config" not in upload.fields:
        raise Invalid(
            'the part `config` is missing; it is JSON such as {"target": "price"}',
            code="missing_config",
        )
    try:
        return JobCreate.model_validate_json(upload.fields["config"])
    except ValidationError as error:
        raise from_validation(error, JobCreate.setting_names()) from None


def _find_or_add_dataset(session: Session, **values: Any) -> str:
    """One dataset for the same bytes: the id of the one that is there, or a new one."""
    db.insert_unless_exists(
        session, Dataset, id=new_id("ds"), created_at=db.now(session), **values
    )
    return session.scalars(
        sa.select(Dataset.id).where(
            Dataset.workspace_id == values["workspace_id"],
            Dataset.sha256 == values["sha256"],
        )
    ).one()


def _choose_queue(session: Session, device: str, settings: Settings) -> str:
    if device != "auto":
        return device
    heard_within = 2 * settings.sweep_seconds
    has_gpu = jobs.count_workers(session, "gpu", heard_within=heard_within) > 0
    return "gpu" if has_gpu else "cpu"


def _resolve(body: JobCreate, schema: Schema) -> dict[str, Any]:
    """The config with every preset and guess spelled out."""
    config = body.model_dump(mode="json")
    return {
        **config,
        "task": schema.task,
        "split": asdict(body.split),
        "hyperparameters": asdict(body.hyperparameters),
    }


def _read_job(job: Job, model_id: str | None) -> JobRead:
    schema = Schema.from_dict(job.schema)
    kinds = dict.fromkeys(schema.numeric, "numeric")
    kinds |= dict.fromkeys(schema.categorical, "categorical")
    kinds |= dict.fromkeys(schema.datetime, "datetime")
    kinds |= {name: f"ignored: {why}" for name, why in schema.ignored.items()}
    links = {"self": f"/jobs/{job.id}"}
    if model_id is not None:
        links |= {kind: f"/jobs/{job.id}/{kind}" for kind in REPORTS}
        links |= {"model": f"/models/{model_id}"}
    progress = {"best_epoch": None, "best_score": None, "eta_seconds": None}
    return JobRead.model_validate(
        {
            **{name: getattr(job, name) for name in _SAME},
            "progress": {**progress, **job.progress},
            "model_id": model_id,
            "columns": kinds,
            "links": links,
        }
    )


REPORTS = ("diversity", "calibration", "report")
_SAME = JobRead.model_fields.keys() - {"progress", "model_id", "columns", "links"}


@router.get(
    "/{job_id}",
    response_model=JobRead,
    summary="Status, phase and progress of a job",
    responses=NOT_FOUND,
)
def read_job(job: JobDep, session: ReadSessionDep) -> JobRead:
    model_id = session.scalar(
        sa.select(TrainedModel.id).where(TrainedModel.job_id == job.id)
    )
    return _read_job(job, model_id)


@router.get(
    "/{job_id}/diversity",
    summary="How diverse the members are on the test part",
    responses=NOT_READY,
)
def read_diversity(job: JobDep, session: ReadSessionDep) -> dict[str, Any]:
    """Classification: pairwise KL and disagreement, with the K x K matrices.
    Regression: the ambiguity, in target units squared and relative to the target's
    variance. With one member there is no diversity, and the numbers are null."""
    return _read_report(job, "diversity", session)


@router.get(
    "/{job_id}/calibration",
    summary="How far the ensemble's confidence can be trusted",
    responses=NOT_READY,
)
def read_calibration(job: JobDep, session: ReadSessionDep) -> dict[str, Any]:
    """Classification: expected calibration error with its 15 bins, Brier score and
    negative log-likelihood. Regression: coverage and width of intervals."""
    return _read_report(job, "calibration", session)


@router.get(
    "/{job_id}/report",
    summary="Scores of the ensemble and of each member",
    responses=NOT_READY,
)
def read_report(job: JobDep, session: ReadSessionDep) -> dict[str, Any]:
    return _read_report(job, "report", session)


def _read_report(job: Job, kind: str, session: Session) -> dict[str, Any]:
    report = session.get(Report, (job.id, kind))
    if report is not None:
        return report.body
    if job.status in FINISHED:
        raise Conflict(
            f"the job ended as {job.status} and has no {kind} report",
            code="no_report",
            job_status=job.status,
        )
    raise Conflict(
        f"the {kind} report is not ready: the job is {job.status}",
        code="report_not_ready",
        headers={"Retry-After": "2"},
        job_status=job.status,
    )
