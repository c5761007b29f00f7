"""Other people's protocols for predict: the Open Inference Protocol, and MLflow's.

`app.serving` answers `infer` and `invocations`; here is what they say of themselves.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Path
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.types import Receive, Scope, Send

from app.access import LOCAL, Reader, bearer, check_scope, find_caller
from app.api import examples
from app.api.deps import ModelId, ReadSessionDep
from app.api.responses import path_parameter, problems
from app.errors import NotFound
from app.serving import (
    Invocation,
    OpenInference,
    answer,
    check_length,
    describe_model,
    find_model,
    find_newest,
    get_predictors,
)
from app.settings import get_settings
from app.storage import db
from app.storage.tables import TrainedModel
from lometab import __version__

router = APIRouter(tags=["neighbours"])
ModelName = Annotated[
    str,
    Path(
        max_length=300,
        pattern=r"^[A-Za-z0-9._@-]+$",
        description="A model's id, `name@version`, `name@alias`, or a name alone: its "
        "newest version.",
        examples=["churn"],
    ),
]
Version = Annotated[
    str,
    Path(
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="A version of the name, or an alias.",
        examples=["1"],
    ),
]
NAME, VERSION = (
    path_parameter("name", ModelName),
    path_parameter("version", Version),
)
_REFUSED = problems(404, 413, 415, 422)


async def serve(
    scope: Scope, receive: Receive, send: Send, found: Mapping[str, str | None]
) -> None:
    """Answer `infer`, or, if the path has no name, `invocations`."""
    check_length(scope)
    name, version = found.get("name"), found.get("version")
    reference = await run_in_threadpool(_find, found, scope["state"]["secret"])
    neighbour = Invocation() if name is None else OpenInference(name, version)
    await answer(scope, receive, send, reference, neighbour)


def _find(found: Mapping[str, str | None], secret: str | None) -> str:
    """The model that is meant. Strangers, and those who may not ask it, are refused
    before their body is read."""
    with db.as_predict():
        return _find_as_predict(found, secret)


def _find_as_predict(found: Mapping[str, str | None], secret: str | None) -> str:
    caller = LOCAL
    if secret is not None:
        caller = find_caller(secret)
        check_scope(caller.scopes, "predict")
    name, version = found.get("name"), found.get("version")
    reference = found.get("model_id") or get_settings().invocations_model
    if name is not None:
        reference = name if version is None else f"{name}@{version}"
    if not reference:
        raise NotFound(
            "no model is set to answer here: post to /models/{id}/invocations, or set "
            "LOMETAB_INVOCATIONS_MODEL"
        )
    with db.reading() as session:
        if name is not None:
            reference = find_newest(session, reference, caller.workspace_id)
        find_model(session, reference, caller.workspace_id)
    return reference


# ----------------------------------------------------------------------------
# What the OpenAPI document has of them


_INFER: dict[str, Any] = {
    "security": [{bearer.scheme_name: []}],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["inputs"]},
                "example": examples.INFER,
            }
        },
    },
}


@router.post(
    "/v2/models/{name}/infer",
    operation_id="infer",
    summary="Predict by the Open Inference Protocol",
    responses=_REFUSED,
    openapi_extra={**_INFER, "parameters": [NAME]},
)
def infer() -> dict[str, Any]:
    """An input tensor for each column, with the shape [N] or [N, 1]; `mean`, `members`,
    `label` and the others as outputs, in JSON or as bytes behind it. `parameters` may
    have `coverage`, `calibrated` and `missing_columns`. An error has its sentence in
    `error` too."""
    raise AssertionError("app.serving answers")


@router.post(
    "/v2/models/{name}/versions/{version}/infer",
    operation_id="infer_version",
    summary="The same by one version of a name",
    responses=_REFUSED,
    openapi_extra={**_INFER, "parameters": [NAME, VERSION]},
)
def infer_version() -> dict[str, Any]:
    """`version` is a number or an alias."""
    raise AssertionError("app.serving answers")


_INVOKE: dict[str, Any] = {
    "security": [{bearer.scheme_name: []}],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object"},
                "example": examples.INVOCATION,
            },
            "text/csv": {
                "schema": {"type": "string"},
                "example": "alcohol,pH\n9.4,3.51\n",
            },
        },
    },
}


@router.post(
    "/models/{model_id}/invocations",
    operation_id="invoke",
    summary="Predict as MLflow's scoring server does",
    responses=_REFUSED,
    openapi_extra={**_INVOKE, "parameters": [path_parameter("model_id", ModelId)]},
)
def invoke() -> dict[str, Any]:
    """`dataframe_split`, `dataframe_records`, `inputs` or `instances`, or a CSV;
    `params` are the options of predict. A prediction for each row, without members
    unless `params` says `include` or `exclude`."""
    raise AssertionError("app.serving answers")


@router.post(
    "/invocations",
    operation_id="invoke_default",
    summary="The same by the model that LOMETAB_INVOCATIONS_MODEL names",
    responses=_REFUSED,
    openapi_extra=_INVOKE,
)
def invoke_default() -> dict[str, Any]:
    """MLflow's clients know one model behind an address."""
    raise AssertionError("app.serving answers")


# ----------------------------------------------------------------------------
# Metadata and health


@router.get("/ping", summary="The process answers, as MLflow asks")
async def ping() -> dict[str, str]:
    """The same as `/healthz`."""
    return {"status": "ok"}


@router.get("/v2", summary="What speaks the Open Inference Protocol here")
async def read_server() -> dict[str, Any]:
    """Name, version and extensions."""
    return {
        "name": "lometab",
        "version": __version__,
        "extensions": ["binary_tensor_data"],
    }


@router.get("/v2/health/live", summary="The process answers, as KServe asks")
async def read_live() -> dict[str, bool]:
    """The same as `/healthz`."""
    return {"live": True}


@router.get(
    "/v2/health/ready",
    summary="The database answers, as KServe asks",
    responses={503: problems()[503]},
)
def read_ready(session: ReadSessionDep) -> dict[str, bool]:
    """The same as `/readyz`."""
    from app.api.health import read_readiness

    read_readiness(session, get_settings())
    return {"ready": True}


@router.get(
    "/v2/models/{name}",
    summary="Inputs and outputs of a model, as tensors",
    responses=problems(404, 422),
)
def read_tensors(
    caller: Reader, session: ReadSessionDep, name: ModelName
) -> dict[str, Any]:
    """By the Open Inference Protocol."""
    return _describe(session, name, None, caller.workspace_id)


@router.get(
    "/v2/models/{name}/versions/{version}",
    summary="The same of one version of a name",
    responses=problems(404, 422),
)
def read_tensors_of_version(
    caller: Reader, session: ReadSessionDep, name: ModelName, version: Version
) -> dict[str, Any]:
    """`version` is a number or an alias."""
    return _describe(session, name, version, caller.workspace_id)


@router.get(
    "/v2/models/{name}/ready",
    summary="Whether a model can be asked",
    responses=problems(404, 422),
)
def read_model_ready(
    caller: Reader, session: ReadSessionDep, name: ModelName
) -> dict[str, Any]:
    """It is loaded if it is not yet."""
    return _load(session, name, None, caller.workspace_id)


@router.get(
    "/v2/models/{name}/versions/{version}/ready",
    summary="The same of one version of a name",
    responses=problems(404, 422),
)
def read_version_ready(
    caller: Reader, session: ReadSessionDep, name: ModelName, version: Version
) -> dict[str, Any]:
    """`version` is a number or an alias."""
    return _load(session, name, version, caller.workspace_id)


def _get(
    session: Session, name: str, version: str | None, workspace_id: str
) -> TrainedModel:
    if version is not None:
        return find_model(session, f"{name}@{version}", workspace_id)
    reference = find_newest(session, name, workspace_id)
    return find_model(session, reference, workspace_id)


def _describe(
    session: Session, name: str, version: str | None, workspace_id: str
) -> dict[str, Any]:
    model = _get(session, name, version, workspace_id)
    versions = session.scalars(
        sa.select(TrainedModel.version)
        .where(
            TrainedModel.workspace_id == workspace_id,
            TrainedModel.name == model.name,
            TrainedModel.name.is_not(None),
        )
        .order_by(TrainedModel.version)
    )
    facts = get_predictors().get(model).metadata
    return describe_model(name, [str(each) for each in versions], facts)


def _load(
    session: Session, name: str, version: str | None, workspace_id: str
) -> dict[str, Any]:
    get_predictors().get(_get(session, name, version, workspace_id))
    return {"name": name, "ready": True}
