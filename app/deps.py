"""What routes ask for: sessions, the row that an id names, loaded predictors."""

import threading
from collections import OrderedDict
from functools import cache
from typing import Annotated, TypeVar

import sqlalchemy as sa
from fastapi import Depends, Path
from sqlalchemy.orm import Session

from app import blobs
from app.db import get_read_session, get_session
from app.errors import NotFound
from app.models import DEFAULT_WORKSPACE, Job, TrainedModel
from app.settings import Settings, get_settings
from lometab.predictor import Predictor

SettingsDep = Annotated[Settings, Depends(get_settings)]
SessionDep = Annotated[Session, Depends(get_session)]
ReadSessionDep = Annotated[Session, Depends(get_read_session)]


def get_workspace_id() -> str:
    return DEFAULT_WORKSPACE


WorkspaceDep = Annotated[str, Depends(get_workspace_id)]


Row = TypeVar("Row", Job, TrainedModel)


def get_or_404(session: Session, table: type[Row], id_: str, workspace_id: str) -> Row:
    row = session.scalar(
        sa.select(table).where(table.id == id_, table.workspace_id == workspace_id)
    )
    if row is None:
        raise NotFound(f"there is no {_WORDS[table]} {id_!r}")
    return row


_WORDS: dict[type, str] = {Job: "job", TrainedModel: "model"}


def get_job(
    session: ReadSessionDep, workspace_id: WorkspaceDep, job_id: Annotated[str, Path()]
) -> Job:
    return get_or_404(session, Job, job_id, workspace_id)


def get_model(
    session: ReadSessionDep,
    workspace_id: WorkspaceDep,
    model_id: Annotated[str, Path()],
) -> TrainedModel:
    return get_or_404(session, TrainedModel, model_id, workspace_id)


JobDep = Annotated[Job, Depends(get_job)]
ModelDep = Annotated[TrainedModel, Depends(get_model)]


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
