"""Which model is meant: by its id, or by `name@version` or `name@alias`."""

import threading
from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import (
    LOCAL,
    check_scope,
    hash_key,
    read_caller,
    select_caller,
    uses,
)
from app.errors import NotFound
from app.storage import db
from app.storage.tables import ApiKey, ModelAlias, TrainedModel


class ServedModel(NamedTuple):
    """What serving a model takes of its row."""

    id: str
    workspace_id: str
    onnx_sha256: str


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
"""How a reference is held against a model, by what kind of reference it is."""


def _read_reference(reference: str) -> tuple[str, dict[str, Any]]:
    """Its kind, and the parameters of its condition."""
    name, at, which = reference.rpartition("@")
    if not at:
        return "id", {"id": reference}
    if which.isdecimal() and len(which) < 10:
        return "version", {"name": name, "version": int(which)}
    return "alias", {"name": name, "alias": which}


def find_model(session: Session, reference: str, workspace_id: str) -> TrainedModel:
    kind, parameters = _read_reference(reference)
    model = session.scalar(
        sa.select(TrainedModel).where(
            TrainedModel.workspace_id == workspace_id, _IS_MEANT[kind]
        ),
        parameters,
    )
    if model is None:
        raise _not_found(reference, workspace_id)
    return model


def find_newest(session: Session, name: str, workspace_id: str) -> str:
    """A reference to the newest version of a name; an id or a reference is itself."""
    if "@" in name or name.startswith("mdl_"):
        return name
    version = session.scalar(
        sa.select(sa.func.max(TrainedModel.version)).where(
            TrainedModel.workspace_id == workspace_id, TrainedModel.name == name
        )
    )
    if version is None:
        raise _not_found(name, workspace_id)
    return f"{name}@{version}"


# Predict is asked all day: caller and model by one query, made once, on a connection
# that is kept.

_SERVED = (TrainedModel.id, TrainedModel.workspace_id, TrainedModel.onnx_sha256)
_WITHOUT_KEY = {
    kind: sa.select(*_SERVED).where(
        TrainedModel.workspace_id == LOCAL.workspace_id, is_meant
    )
    for kind, is_meant in _IS_MEANT.items()
}
_WITH_KEY = {
    kind: select_caller(*_SERVED).outerjoin_from(
        ApiKey,
        TrainedModel,
        sa.and_(TrainedModel.workspace_id == ApiKey.workspace_id, is_meant),
    )
    for kind, is_meant in _IS_MEANT.items()
}


def find_served(secret: str | None, reference: str) -> ServedModel:
    """The model that a key may ask; without a key, one of the default workspace.

    On SQLite, what was found holds until anything is written, by whomever: to ask for
    that takes a tenth of the time. It holds a second at most, as time changes too.
    """
    version, now = db.find_version(), monotonic()
    if version is None:
        return _find_served(secret, reference)
    if version != _found.version or now > _found.until:
        _found.version, _found.until, _found.models = version, now + _HELD_SECONDS, {}
    model = _found.models.get((secret, reference))
    if model is None:
        model = _find_served(secret, reference)
        if len(_found.models) < _N_HELD:
            _found.models[secret, reference] = model
    return model


class _Found(threading.local):
    """What this thread's connection found, and at which version of the database."""

    def __init__(self) -> None:
        self.version: object = None
        self.until = 0.0
        self.models: dict[tuple[str | None, str], ServedModel] = {}


_HELD_SECONDS = 1.0
_N_HELD = 1000
_found = _Found()


def _find_served(secret: str | None, reference: str) -> ServedModel:
    kind, parameters = _read_reference(reference)
    workspace_id = LOCAL.workspace_id
    if secret is None:
        row = _fetch(_WITHOUT_KEY[kind], parameters)
    else:
        row = _fetch(_WITH_KEY[kind], {**parameters, "sha256": hash_key(secret)})
        caller, row = read_caller(row)
        uses.learn(secret, caller)
        check_scope(caller.scopes, "predict")
        workspace_id = caller.workspace_id
    if row is None or row[0] is None:
        raise _not_found(reference, workspace_id)
    return ServedModel(*row)


def _fetch(
    statement: sa.Select[*tuple[Any, ...]], parameters: dict[str, Any]
) -> Sequence[Any] | None:
    try:
        return db.get_kept_connection().execute(statement, parameters).first()
    except sa.exc.DBAPIError:  # perhaps the server was started anew
        db.drop_kept_connection()
        return db.get_kept_connection().execute(statement, parameters).first()


def _not_found(reference: str, workspace_id: str) -> NotFound:
    sentence = f"there is no model {reference!r}"
    if not reference.startswith("job_"):
        return NotFound(sentence)
    with db.reading() as session:
        model_id = session.scalar(
            sa.select(TrainedModel.id).where(
                TrainedModel.job_id == reference,
                TrainedModel.workspace_id == workspace_id,
            )
        )
    if model_id is None:
        return NotFound(
            f"{sentence}: a job that has succeeded has its model in `model_id`"
        )
    return NotFound(f"{sentence}: it is that of a job, whose model is {model_id!r}")
