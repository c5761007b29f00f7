"""What routes ask for: sessions, the row that an id names, loaded predictors."""

from typing import Annotated, TypeVar

import sqlalchemy as sa
from fastapi import Depends, Path, Request
from fastapi.routing import APIRoute
from sqlalchemy.orm import Session

from app.access import Reader
from app.api.bodies.common import Id
from app.errors import Invalid, NotFound
from app.serving import Predictors, find_model, get_predictors
from app.settings import Settings, get_settings
from app.storage import db
from app.storage.db import get_read_session
from app.storage.tables import Dataset, Job, TrainedModel
from lometab.errors import suggest

SettingsDep = Annotated[Settings, Depends(get_settings)]
ReadSessionDep = Annotated[Session, Depends(get_read_session)]

# The row that an id names, in the caller's workspace alone: another one's is a 404.
# A route that changes one reads it in the transaction that does.

Row = TypeVar("Row", Dataset, Job)

DatasetId = Annotated[
    Id, Path(description="A dataset's id.", examples=["ds_0123456789ab"])
]
JobId = Annotated[Id, Path(description="A job's id.", examples=["job_0123456789ab"])]
ModelId = Annotated[
    str,
    Path(
        max_length=300,
        pattern=r"^[A-Za-z0-9._@-]+$",
        description="An id, or `name@version`, or `name@alias`.",
        examples=["mdl_0123456789ab", "churn@champion"],
    ),
]
_WORDS: dict[type, str] = {Dataset: "dataset", Job: "job"}


def get_or_404(session: Session, table: type[Row], id_: str, workspace_id: str) -> Row:
    row = session.scalar(
        sa.select(table).where(table.id == id_, table.workspace_id == workspace_id)
    )
    if row is None:
        raise NotFound(f"there is no {_WORDS[table]} {id_!r}")
    return row


def get_dataset(caller: Reader, dataset_id: DatasetId) -> Dataset:
    with db.reading() as session:
        return get_or_404(session, Dataset, dataset_id, caller.workspace_id)


def get_job(caller: Reader, job_id: JobId) -> Job:
    with db.reading() as session:
        return get_or_404(session, Job, job_id, caller.workspace_id)


def get_model(caller: Reader, model_id: ModelId) -> TrainedModel:
    with db.reading() as session:
        return find_model(session, model_id, caller.workspace_id)


def refuse_unknown_query(request: Request) -> None:
    """A parameter that a route does not know is a mistake, and is named."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.query_params:
        return
    operations = request.app.openapi()["paths"].get(route.path_format, {})
    operation = operations.get(request.method.lower(), {})
    known = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            told = f"; there are {', '.join(known)}" if known else ""
            raise Invalid(
                f"there is no query parameter {name!r}{suggest(name, known)}{told}"
            )


DatasetDep = Annotated[Dataset, Depends(get_dataset)]
JobDep = Annotated[Job, Depends(get_job)]
ModelDep = Annotated[TrainedModel, Depends(get_model)]
PredictorsDep = Annotated[Predictors, Depends(get_predictors)]
