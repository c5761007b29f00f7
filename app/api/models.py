"""Models: what a job made, and what it answers."""

import base64
import secrets
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.orm import Session, defer

from app import jobs, webhooks
from app.access import Reader, Writer
from app.api.bodies.changes import Change
from app.api.bodies.common import Page
from app.api.bodies.jobs import JobRead
from app.api.bodies.models import (
    AliasWrite,
    InputColumn,
    ModelRead,
    ModelSummary,
    PruneRequest,
)
from app.api.deps import (
    ModelDep,
    ModelId,
    PredictorsDep,
    ReadSessionDep,
)
from app.api.model_facts import read_facts
from app.api.once import KeyHeader, Lock, create_once, keep
from app.api.paging import After, Before, Cursor, Limit, has_tag, link_next, read_page
from app.api.responses import IfNoneMatch, matches, problems
from app.errors import NotFound, PreconditionFailed
from app.serving import find_model
from app.storage import blobs, db
from app.storage.enums import WebhookEvent
from app.storage.tables import Job, ModelAlias, TrainedModel
from lometab.errors import DataError
from lometab.evaluation import Effects
from lometab.explain import measure_effects

router = APIRouter(prefix="/models", tags=["models"])

MAX_EFFECTS = 10
"""Columns whose effects are measured for one request."""

NamePath = Annotated[jobs.Name, Path(description="The name of a line of models.")]
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
    request: Request,
    response: Response,
    session: ReadSessionDep,
    caller: Reader,
    name: Annotated[
        jobs.Name | None, Query(description="Only versions of this.")
    ] = None,
    tag: Annotated[jobs.Tag | None, Query(description="Only those with it.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    created_after: After = None,
    created_before: Before = None,
) -> Page[ModelSummary]:
    """Newest first, in pages."""
    # Not all its metadata, which has histograms and categories of each column.
    told = [TrainedModel.facts[key].as_json().label(key) for key in _TOLD]
    statement = (
        sa.select(TrainedModel, *told)
        .where(TrainedModel.workspace_id == caller.workspace_id)
        .options(defer(TrainedModel.facts))
    )
    if name is not None:
        statement = statement.where(TrainedModel.name == name)
    if tag is not None:
        statement = statement.where(has_tag(session, TrainedModel.tags, tag))
    rows, next_cursor = read_page(
        session,
        statement,
        TrainedModel,
        limit=limit,
        cursor=cursor,
        created_after=created_after,
        created_before=created_before,
    )
    response.headers.update(link_next(request, next_cursor))
    aliases = _find_aliases(session, [model for model, *_ in rows])
    return Page(
        data=[
            ModelSummary(
                **_summarise(model, aliases[model.id]),
                **dict(zip(_TOLD, values, strict=True)),
            )
            for model, *values in rows
        ],
        next_cursor=next_cursor,
    )


_TOLD = ("task", "target", "k")
"""What a summary takes from the metadata."""


def _find_aliases(session: Session, models: list[TrainedModel]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {model.id: [] for model in models}
    for alias in session.scalars(
        sa.select(ModelAlias)
        .where(ModelAlias.model_id.in_(found))
        .order_by(ModelAlias.alias)
    ):
        found[alias.model_id].append(alias.alias)
    return found


def _summary(model: TrainedModel, aliases: list[str]) -> ModelSummary:
    told = {name: (model.facts or {}).get(name) for name in _TOLD}
    return ModelSummary(**_summarise(model, aliases), **told)


def _summarise(model: TrainedModel, aliases: list[str]) -> dict[str, Any]:
    """All but what its metadata tells."""
    names = ModelSummary.model_fields.keys() - {*_TOLD, "aliases", "links"}
    return {
        **{name: getattr(model, name) for name in names},
        "aliases": aliases,
        "links": {
            "self": f"/models/{model.id}",
            "job": f"/jobs/{model.job_id}",
            "onnx": f"/models/{model.id}/onnx",
            "predict": f"/models/{model.id}/predict",
            "card": f"/models/{model.id}/card",
            "figures": f"/jobs/{model.job_id}/figures",
            "prune": f"/models/{model.id}/prune",
            "monitor": f"/models/{model.id}/monitor",
        },
    }


@router.get(
    "/{model_id}",
    response_model=ModelRead,
    summary="What a model takes, answers, and comes from",
    responses=problems(404, 422),
)
def read_model(model: ModelDep, session: ReadSessionDep) -> ModelRead:
    """The columns it takes, its classes and scores, and the data and settings that it
    was trained with."""
    facts = read_facts(model)
    job = session.get_one(Job, model.job_id)
    summary = _summarise(model, _find_aliases(session, [model])[model.id])
    return ModelRead(
        **summary,
        **{name: facts[name] for name in _TOLD},
        classes=facts["classes"],
        columns=_input_columns(facts),
        warnings=facts.get("warnings", []),
        lineage={
            "dataset_id": job.dataset_id,
            "dataset_sha256": facts.get("dataset_sha256"),
            "split": job.config["split"],
            "rows": facts.get("rows"),
            "hyperparameters": job.config["hyperparameters"],
            "library": facts.get("library"),
        },
    )


def _input_columns(facts: dict[str, Any]) -> list[InputColumn]:
    numeric = [
        InputColumn(
            name=name,
            kind="datetime" if name in facts["datetime"] else "numeric",
            range=facts["ranges"].get(name),
            categories=None,
        )
        for name in facts["numeric"]
    ]
    categorical = [
        InputColumn(
            name=name,
            kind="categorical",
            range=None,
            categories=facts["levels"][name],
            n_rare=facts.get("rare", {}).get(name, 0),
        )
        for name in facts["categorical"]
    ]
    return numeric + categorical


@router.patch(
    "/{model_id}",
    response_model=ModelSummary,
    summary="Change a model's name, tags or description",
    responses=problems(400, 404, 409, 422),
)
def change_model(caller: Writer, model_id: ModelId, body: Change) -> ModelSummary:
    """With another `name` it becomes the newest version of that; while an alias stands
    for it, the answer is a 409. Its job keeps its own words."""
    with db.transaction() as session:
        model = find_model(session, model_id, caller.workspace_id)
        if "name" in body.model_fields_set:
            jobs.rename_model(session, model, body.name)
        body.apply(model, without="name")
        aliases = _find_aliases(session, [model])[model.id]
    return _summary(model, aliases)


@router.delete(
    "/{model_id}",
    status_code=204,
    summary="Delete a model",
    responses=problems(404, 422),
)
def delete_model(caller: Writer, model_id: ModelId) -> None:
    """Its aliases go with it, and its file unless another model has the same."""
    with db.transaction() as session:
        model = find_model(session, model_id, caller.workspace_id)
        session.execute(sa.delete(ModelAlias).where(ModelAlias.model_id == model.id))
        session.delete(model)
        session.flush()
        blobs.remove_unused(session, model.workspace_id, model.onnx_sha256)


@router.post(
    "/{model_id}/prune",
    status_code=202,
    response_model=JobRead,
    summary="Make a model of fewer of its members",
    responses=problems(400, 404, 409, 422, 429),
)
def prune(
    caller: Writer,
    model_id: ModelId,
    body: PruneRequest,
    idempotency_key: KeyHeader = None,
) -> Response:
    """A job that chooses members on the validation rows, cuts the others out of the
    ONNX file, calibrates what is left and reports on it; nothing is trained. The report
    has cost, size and score before and after (`pruning`). With an `Idempotency-Key` the
    same request can be sent again without a second job."""

    def create(lock: Lock | None) -> JobRead:
        with db.transaction() as session:
            model = find_model(session, model_id, caller.workspace_id)
            made = jobs.prune_model(session, model, **body.model_dump())
            answer = JobRead.of(made, None)
            keep(session, lock, answer)
        jobs.notify_of(made)
        return answer

    return create_once(body, ("prune", model_id), caller, idempotency_key, create)


@router.put(
    "/{name}/aliases/{alias}",
    response_model=ModelSummary,
    summary="Point an alias at a version",
    responses=problems(400, 404, 412, 422),
)
def write_alias(
    caller: Writer,
    response: Response,
    name: NamePath,
    alias: AliasPath,
    body: AliasWrite,
    if_match: Annotated[
        str | None,
        Header(description="The id of the model that the alias must be of, quoted."),
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="`*`: only if there is no such alias yet.")
    ] = None,
) -> ModelSummary:
    """Then `name@alias` stands for that model wherever an id does. With `If-Match` it
    is moved only if nobody moved it meanwhile: else the answer is a 412."""
    key = {"workspace_id": caller.workspace_id, "name": name, "alias": alias}
    with db.transaction() as session:
        before = session.get(ModelAlias, tuple(key.values()), with_for_update=True)
        _check_unchanged(before, if_match, if_none_match)
        model = find_model(session, f"{name}@{body.version}", caller.workspace_id)
        previous = None if before is None else before.model_id
        session.merge(ModelAlias(**key, model_id=model.id))
        if previous != model.id:
            _announce(session, model, alias, previous)
        aliases = _find_aliases(session, [model])[model.id]
    response.headers["ETag"] = f'"{model.id}"'
    return _summary(model, aliases)


def _announce(
    session: Session, model: TrainedModel, alias: str, previous: str | None
) -> None:
    """Tell webhooks that an alias has come to point at a model."""
    webhooks.announce(
        session,
        model.workspace_id,
        WebhookEvent.MODEL_PROMOTED,
        {
            "model_id": model.id,
            "name": model.name,
            "version": model.version,
            "alias": alias,
            "previous_model_id": previous,
        },
        key=f"{model.id}/{alias}/{secrets.token_hex(8)}",
    )


def _check_unchanged(
    before: ModelAlias | None, if_match: str | None, if_none_match: str | None
) -> None:
    """Raise if the alias is not what the caller takes it for."""
    tag = None if before is None else f'"{before.model_id}"'
    found = "there is none" if before is None else f"it is of {before.model_id}"
    if if_match is not None and (tag is None or not matches(tag, if_match)):
        raise PreconditionFailed(f"the alias is not what If-Match says: {found}")
    if if_none_match is not None and tag is not None and matches(tag, if_none_match):
        raise PreconditionFailed(f"the alias is there already: {found}")


@router.delete(
    "/{name}/aliases/{alias}",
    status_code=204,
    summary="Remove an alias",
    responses=problems(404, 422),
)
def delete_alias(caller: Writer, name: NamePath, alias: AliasPath) -> None:
    """The model that it points at stays."""
    with db.transaction() as session:
        found = session.get(ModelAlias, (caller.workspace_id, name, alias))
        if found is None:
            raise NotFound(f"there is no alias {name}@{alias}")
        session.delete(found)


@router.get(
    "/{model_id}/effects",
    response_model=Effects,
    summary="How the answer moves with some columns",
    responses=problems(404, 422),
)
def read_effects(
    model: ModelDep,
    predictors: PredictorsDep,
    columns: Annotated[
        str,
        Query(
            min_length=1,
            max_length=2000,  # within the limit on addresses, in any script
            description="Names of columns, a comma between two; one with a comma in "
            "its name is a JSON list of it. At most 10.",
            examples=["alcohol,pH"],
        ),
    ],
) -> Effects:
    """Partial dependence on the training rows that are kept with the model: the mean
    answer if every row had this value, by every member, and for single rows."""
    predictor = predictors.get(model)
    if predictor.background is None:
        raise DataError(
            "this model has no training rows with it to follow: it was trained with "
            "`keep_rows` false, or before they were kept; its report may have `effects`"
        )
    return measure_effects(
        predictor.run, predictor.background, _read_names(columns), predictor.classes
    )


def _read_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = TypeAdapter(list[str]).validate_json(text)
        except ValidationError:
            pass  # then it is a name that begins so
    names = [*dict.fromkeys(names)]
    if len(names) > MAX_EFFECTS:
        raise DataError(f"ask for at most {MAX_EFFECTS} columns, not {len(names)}")
    return names


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
        _read_chunks(model),
        media_type="application/octet-stream",
        headers=headers,
    )


def _read_chunks(model: TrainedModel) -> Iterator[bytes]:
    """The file, of which the first chunk is read before the answer begins.

    Damage that is found later breaks the answer off: no client takes it for whole.
    """
    try:
        chunks = blobs.chunks(model.workspace_id, model.onnx_sha256)
        first = next(chunks, b"")
    except KeyError:
        raise NotFound(f"the model {model.id!r} was deleted") from None
    return chain([first], chunks)
