"""What routes ask for: sessions, the row that an id names, loaded predictors."""

import threading
from collections import OrderedDict
from functools import cache
from typing import Annotated, TypeVar

import sqlalchemy as sa
from fastapi import Depends, Path
from sqlalchemy.orm import Session

from app import blobs, db
from app.auth import Asker, Reader, Writer
from app.db import get_read_session, get_session
from app.errors import NotFound
from app.models import Dataset, Job, ModelAlias, TrainedModel
from app.schemas import Id
from app.settings import Settings, get_settings
from lometab.predictor import Predictor

SettingsDep = Annotated[Settings, Depends(get_settings)]
SessionDep = Annotated[Session, Depends(get_session)]
ReadSessionDep = Annotated[Session, Depends(get_read_session)]

# The row that an id names, in the caller's workspace alone: another one's is a 404.
# Those to be changed come with the session of the request, the others with none.

Row = TypeVar("Row", Dataset, Job, TrainedModel)

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
_WORDS: dict[type, str] = {Dataset: "dataset", Job: "job", TrainedModel: "model"}


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


def get_model_to_ask(caller: Asker, model_id: ModelId) -> TrainedModel:
    with db.reading() as session:
        return find_model(session, model_id, caller.workspace_id)


def get_dataset_to_change(
    session: SessionDep, caller: Writer, dataset_id: DatasetId
) -> Dataset:
    return get_or_404(session, Dataset, dataset_id, caller.workspace_id)


def get_job_to_change(session: SessionDep, caller: Writer, job_id: JobId) -> Job:
    return get_or_404(session, Job, job_id, caller.workspace_id)


def get_model_to_change(
    session: SessionDep, caller: Writer, model_id: ModelId
) -> TrainedModel:
    return find_model(session, model_id, caller.workspace_id)


def find_model(session: Session, reference: str, workspace_id: str) -> TrainedModel:
    """The model with an id, or a version or an alias of a name."""
    name, at, which = reference.rpartition("@")
    if not at:
        return get_or_404(session, TrainedModel, reference, workspace_id)
    statement = sa.select(TrainedModel).where(
        TrainedModel.workspace_id == workspace_id, TrainedModel.name == name
    )
    if which.isdecimal() and len(which) < 10:
        statement = statement.where(TrainedModel.version == int(which))
    else:
        statement = statement.join(
            ModelAlias, ModelAlias.model_id == TrainedModel.id
        ).where(
            ModelAlias.workspace_id == workspace_id,
            ModelAlias.name == name,
            ModelAlias.alias == which,
        )
    model = session.scalar(statement)
    if model is None:
        raise NotFound(f"there is no model {reference!r}")
    return model


DatasetDep = Annotated[Dataset, Depends(get_dataset)]
JobDep = Annotated[Job, Depends(get_job)]
ModelDep = Annotated[TrainedModel, Depends(get_model)]
AskedModelDep = Annotated[TrainedModel, Depends(get_model_to_ask)]
ChangedDatasetDep = Annotated[Dataset, Depends(get_dataset_to_change)]
ChangedJobDep = Annotated[Job, Depends(get_job_to_change)]
ChangedModelDep = Annotated[TrainedModel, Depends(get_model_to_change)]


class Predictors:
    """The predictors in use, the least recently used dropped first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, Predictor] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}

    def get(self, model: TrainedModel) -> Predictor:
        """The model's predictor; of many who ask at once, one loads, others wait."""
        with self._lock:
            if model.id in self._loaded:
                self._loaded.move_to_end(model.id)
                return self._loaded[model.id]
            loading = self._loading.setdefault(model.id, threading.Lock())
        with loading:
            with self._lock:
                if model.id in self._loaded:
                    return self._loaded[model.id]
            predictor = Predictor(
                blobs.read(model.workspace_id, model.onnx_sha256),
                providers=self._settings.ort_providers,
                threads=self._settings.ort_threads,
            )
            with self._lock:
                self._loaded[model.id] = predictor
                self._loading.pop(model.id, None)
                while len(self._loaded) > self._settings.cached_models:
                    self._loaded.popitem(last=False)
        return predictor


@cache
def get_predictors() -> Predictors:
    return Predictors(get_settings())


PredictorsDep = Annotated[Predictors, Depends(get_predictors)]
