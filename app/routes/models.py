"""Models: what a job made, and what it answers."""

import base64
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from app import blobs
from app.auth import Reader, Writer
from app.deps import (
    ChangedModelDep,
    ModelDep,
    PredictorsDep,
    ReadSessionDep,
    SessionDep,
    find_model,
)
from app.errors import NotFound
from app.models import Job, ModelAlias, TrainedModel
from app.paging import After, Before, Cursor, Limit, read_page
from app.routes.responses import IfNoneMatch, matches, problems
from app.schemas import (
    AliasWrite,
    InputColumn,
    ModelRead,
    ModelSummary,
    Name,
    Page,
)
from lometab.predictor import Predictor

router = APIRouter(prefix="/models", tags=["models"])

NamePath = Annotated[Name, Path(description="The name of a line of models.")]
AliasPath = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,99}$",
        description="It begins with a letter: a number would be a version.",
        examples=["champion"],
    ),
]


@router.get(
    "",
    response_model=Page[ModelSummary],
    summary="List models",
    responses=problems(422),
)
def list_models(
    session: ReadSessionDep,
    caller: Reader,
    name: Annotated[Name | None, Query(description="Only versions of this.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    created_after: After = None,
    created_before: Before = None,
) -> Page[ModelSummary]:
    """Newest first, in pages."""
    statement = sa.select(TrainedModel).where(
        TrainedModel.workspace_id == caller.workspace_id
    )
    if name is not None:
        statement = statement.where(TrainedModel.name == name)
    rows, next_cursor = read_page(
        session,
        statement,
        TrainedModel,
        limit=limit,
        cursor=cursor,
        created_after=created_after,
        created_before=created_before,
    )
    models = [row for (row,) in rows]
    aliases = _find_aliases(session, models)
    return Page(
        data=[ModelSummary(**_summarise(m, aliases[m.id])) for m in models],
        next_cursor=next_cursor,
    )


def _find_aliases(session: Session, models: list[TrainedModel]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {model.id: [] for model in models}
    for alias in session.scalars(
        sa.select(ModelAlias)
        .where(ModelAlias.model_id.in_(found))
        .order_by(ModelAlias.alias)
    ):
        found[alias.model_id].append(alias.alias)
    return found


def _summarise(model: TrainedModel, aliases: list[str]) -> dict[str, Any]:
    names = ModelSummary.model_fields.keys() - {"aliases", "links"}
    return {
        **{name: getattr(model, name) for name in names},
        "aliases": aliases,
        "links": {
            "self": f"/models/{model.id}",
            "job": f"/jobs/{model.job_id}",
            "onnx": f"/models/{model.id}/onnx",
            "predict": f"/models/{model.id}/predict",
        },
    }


@router.get(
    "/{model_id}",
    response_model=ModelRead,
    summary="What a model takes, answers, and comes from",
    responses=problems(404, 422),
)
def read_model(
    model: ModelDep, session: ReadSessionDep, predictors: PredictorsDep
) -> ModelRead:
    """The columns it takes, its classes and scores, and the data and settings that it
    was trained with."""
    predictor = predictors.get(model)
    job = session.get_one(Job, model.job_id)
    facts = predictor.metadata
    return ModelRead(
        **_summarise(model, _find_aliases(session, [model])[model.id]),
        task=predictor.task,
        target=predictor.target,
        classes=None if predictor.classes is None else list(predictor.classes),
        k=predictor.k,
        columns=_input_columns(predictor),
        lineage={
            "dataset_id": job.dataset_id,
            "dataset_sha256": facts.get("dataset_sha256"),
            "split": job.config["split"],
            "hyperparameters": job.config["hyperparameters"],
            "library": facts.get("library"),
        },
    )


def _input_columns(predictor: Predictor) -> list[InputColumn]:
    facts = predictor.metadata
    numeric = [
        InputColumn(
            name=name,
            kind="datetime" if name in predictor.datetime else "numeric",
            range=facts["ranges"].get(name),
            categories=None,
        )
        for name in predictor.numeric
    ]
    categorical = [
        InputColumn(
            name=name,
            kind="categorical",
            range=None,
            categories=facts["levels"][name],
        )
        for name in predictor.categorical
    ]
    return numeric + categorical


@router.delete(
    "/{model_id}",
    status_code=204,
    summary="Delete a model",
    responses=problems(404, 422),
)
def delete_model(model: ChangedModelDep, session: SessionDep) -> None:
    """Its aliases go with it, and its file unless another model has the same."""
    session.execute(sa.delete(ModelAlias).where(ModelAlias.model_id == model.id))
    session.delete(model)
    session.flush()
    blobs.remove_unused(session, model.workspace_id, model.onnx_sha256)
    session.commit()


@router.put(
    "/{name}/aliases/{alias}",
    response_model=ModelSummary,
    summary="Point an alias at a version",
    responses=problems(400, 404, 422),
)
def write_alias(
    session: SessionDep,
    caller: Writer,
    name: NamePath,
    alias: AliasPath,
    body: AliasWrite,
) -> ModelSummary:
    """Then `name@alias` stands for that model wherever an id does."""
    model = find_model(session, f"{name}@{body.version}", caller.workspace_id)
    key = {"workspace_id": caller.workspace_id, "name": name, "alias": alias}
    session.merge(ModelAlias(**key, model_id=model.id))
    session.commit()
    return ModelSummary(**_summarise(model, _find_aliases(session, [model])[model.id]))


@router.delete(
    "/{name}/aliases/{alias}",
    status_code=204,
    summary="Remove an alias",
    responses=problems(404, 422),
)
def delete_alias(
    session: SessionDep, caller: Writer, name: NamePath, alias: AliasPath
) -> None:
    """The model that it points at stays."""
    found = session.get(ModelAlias, (caller.workspace_id, name, alias))
    if found is None:
        raise NotFound(f"there is no alias {name}@{alias}")
    session.delete(found)
    session.commit()


@router.get(
    "/{model_id}/onnx",
    summary="The self-contained ONNX file",
    response_class=Response,
    responses={
        **problems(404, 422),
        200: {
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"}
                }
            }
        },
    },
)
def read_onnx(model: ModelDep, if_none_match: IfNoneMatch = None) -> Response:
    """Raw rows in, mean and members out; it needs nothing but ONNX Runtime."""
    digest = base64.b64encode(bytes.fromhex(model.onnx_sha256)).decode()
    headers = {
        "ETag": f'"{model.onnx_sha256}"',
        "Repr-Digest": f"sha-256=:{digest}:",
        "Content-Disposition": f'attachment; filename="{model.id}.onnx"',
    }
    if matches(headers["ETag"], if_none_match):
        return Response(status_code=304, headers=headers)
    return StreamingResponse(
        blobs.chunks(model.workspace_id, model.onnx_sha256),
        media_type="application/octet-stream",
        headers=headers,
    )
