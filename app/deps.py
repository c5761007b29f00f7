"""What routes ask for: sessions, the row that an id names, loaded predictors."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
import sqlalchemy as sa
from fastapi import Depends, Path
from sqlalchemy.orm import Session

from app import blobs, db
from app.auth import UNKNOWN_KEY, Reader, Writer, check_scope, hash_key
from app.db import get_read_session, get_session
from app.errors import NotFound, Unauthorized
from app.models import (
    DEFAULT_WORKSPACE,
    ApiKey,
    Dataset,
    Job,
    ModelAlias,
    TrainedModel,
)
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
ChangedDatasetDep = Annotated[Dataset, Depends(get_dataset_to_change)]
ChangedJobDep = Annotated[Job, Depends(get_job_to_change)]
ChangedModelDep = Annotated[TrainedModel, Depends(get_model_to_change)]


# ----------------------------------------------------------------------------
# Predict: who asks and which model, by one query


class AskedModel(NamedTuple):
    """What serving a model takes of its row."""

    id: str
    workspace_id: str
    onnx_sha256: str


_SERVED = (TrainedModel.id, TrainedModel.workspace_id, TrainedModel.onnx_sha256)
_IS_MEANT: dict[str, sa.ColumnElement[bool]] = {
    "id": TrainedModel.id == sa.bindparam("id"),
    "version": sa.and_(
        TrainedModel.name == sa.bindparam("name"),
        TrainedModel.version == sa.bindparam("version"),
    ),
    "alias": TrainedModel.id
    == sa.select(ModelAlias.model_id)
    .where(
        ModelAlias.workspace_id == TrainedModel.workspace_id,
        ModelAlias.name == sa.bindparam("name"),
        ModelAlias.alias == sa.bindparam("alias"),
    )
    .scalar_subquery(),
}
# Made once: making a statement takes longer than asking it.
_WITHOUT_KEY = {
    how: sa.select(sa.null(), *_SERVED).where(
        TrainedModel.workspace_id == sa.bindparam("workspace_id"), is_meant
    )
    for how, is_meant in _IS_MEANT.items()
}
_WITH_KEY = {
    how: sa.select(ApiKey.scopes, *_SERVED)
    .outerjoin_from(
        ApiKey,
        TrainedModel,
        sa.and_(TrainedModel.workspace_id == ApiKey.workspace_id, is_meant),
    )
    .where(ApiKey.sha256 == sa.bindparam("sha256"), ApiKey.revoked_at.is_(None))
    for how, is_meant in _IS_MEANT.items()
}


def find_asked_model(secret: str | None, reference: str) -> AskedModel:
    """The model that a key may ask; without a key, one of the default workspace.

    What was found holds until anything is written. To ask whether anything was takes
    SQLite half the time.
    """
    version = db.find_version()
    if version is None:
        return _find_asked_model(secret, reference)
    if version != _found.version or len(_found.models) > _N_FOUND:
        _found.version, _found.models = version, {}
    model = _found.models.get((secret, reference))
    if model is None:
        model = _find_asked_model(secret, reference)
        _found.models[secret, reference] = model
    return model


class _Found(threading.local):
    """What this thread's connection found, and at which version of the database."""

    def __init__(self) -> None:
        self.version: object = None
        self.models: dict[tuple[str | None, str], AskedModel] = {}


_N_FOUND = 1000
_found = _Found()


def _find_asked_model(secret: str | None, reference: str) -> AskedModel:
    name, at, which = reference.rpartition("@")
    parameters: dict[str, str | int]
    if not at:
        how, parameters = "id", {"id": reference}
    elif which.isdecimal() and len(which) < 10:
        how, parameters = "version", {"name": name, "version": int(which)}
    else:
        how, parameters = "alias", {"name": name, "alias": which}
    if secret is None:
        parameters["workspace_id"] = DEFAULT_WORKSPACE
        row = _fetch(_WITHOUT_KEY[how], parameters)
    else:
        parameters["sha256"] = hash_key(secret)
        row = _fetch(_WITH_KEY[how], parameters)
        if row is None:
            raise Unauthorized(UNKNOWN_KEY)
        check_scope(row[0], "predict")
    if row is None or row[1] is None:
        raise NotFound(f"there is no model {reference!r}")
    return AskedModel(*row[1:])


def _fetch(
    statement: sa.Select[*tuple[Any, ...]], parameters: dict[str, str | int]
) -> Sequence[Any] | None:
    """The first row, asked by the driver itself: a fifth of the time it takes else."""
    connection = db.get_kept_connection()
    sql, names = _compile(statement, connection.dialect)
    driver = connection.dialect.loaded_dbapi
    values = parameters if names is None else [parameters[name] for name in names]
    try:
        cursor = connection.connection.cursor()
        cursor.execute(sql, values)
        row = cursor.fetchone()
        cursor.close()
    except driver.Error:  # perhaps the server was started anew
        db.drop_kept_connection()
        return db.get_kept_connection().execute(statement, parameters).first()
    if row is None or not isinstance(row[0], str | bytes):
        return row
    return (orjson.loads(row[0]), *row[1:])  # JSON is a text in SQLite


@cache
def _compile(
    statement: sa.Select[*tuple[Any, ...]], dialect: sa.Dialect
) -> tuple[str, Sequence[str] | None]:
    """The SQL, and the order of its parameters if they go by their places."""
    compiled = statement.compile(dialect=dialect)
    return str(compiled), compiled.positiontup


class Predictors:
    """The predictors in use; above a number of bytes, the least recently used goes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, Predictor] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}
        self._n_bytes = 0

    def find(self, id_: str) -> Predictor | None:
        """The predictor of a model's id, if it is loaded."""
        return self._loaded.get(id_)

    def get(self, model: TrainedModel | AskedModel) -> Predictor:
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
            try:
                predictor = self._load(model)
                with self._lock:
                    self._keep(model.id, predictor)
            finally:
                with self._lock:
                    self._loading.pop(model.id, None)
        return predictor

    def _load(self, model: TrainedModel | AskedModel) -> Predictor:
        try:
            content = blobs.read(model.workspace_id, model.onnx_sha256)
        except KeyError:
            raise NotFound(f"the model {model.id!r} was deleted") from None
        return Predictor(
            content,
            providers=self._settings.ort_providers,
            threads=self._settings.ort_threads,
        )

    def _keep(self, id_: str, predictor: Predictor) -> None:
        self._loaded[id_] = predictor
        self._n_bytes += predictor.folded_bytes
        limit = self._settings.model_cache_bytes
        while self._n_bytes > limit and len(self._loaded) > 1:
            _, oldest = self._loaded.popitem(last=False)
            self._n_bytes -= oldest.folded_bytes


@cache
def get_predictors() -> Predictors:
    return Predictors(get_settings())


PredictorsDep = Annotated[Predictors, Depends(get_predictors)]
