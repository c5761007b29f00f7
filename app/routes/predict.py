"""Predict: what client apps call all day.

Each layer costs: this router is the first to be tried, and the route reads the key by
itself, without a dependency.
"""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app import examples
from app.auth import bearer, check_without_key, read_key
from app.bodies import check_length, choose_answer, read_content_type, spool
from app.deps import ModelId
from app.errors import Invalid
from app.predicting import JOINED_BYTES, Question, Serving, get_serving, read_query
from app.routes.responses import path_parameter, problems, query_parameters
from app.schemas import PredictOptions, PredictResponse
from app.settings import get_settings

router = APIRouter(tags=["models"])
MODEL_ID = path_parameter("model_id", ModelId)
_IS_ID = re.compile(r"[A-Za-z0-9._@-]{1,300}")

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
BINARY = {"type": "string", "format": "binary"}


@router.post(
    "/models/{model_id}/predict",
    operation_id="predict",
    response_model=PredictResponse,
    summary="Mean, members and uncertainty for each row",
    responses={
        **problems(404, 406, 413, 415, 422),
        200: {"content": {ARROW: {"schema": BINARY}}},
    },
    openapi_extra={
        "security": [{bearer.scheme_name: []}],
        "parameters": [MODEL_ID, *query_parameters(PredictOptions)],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/PredictRows"},
                            {"$ref": "#/components/schemas/PredictMatrix"},
                        ]
                    },
                    "examples": examples.ROWS,
                },
                "text/csv": {
                    "schema": {"type": "string"},
                    "example": "alcohol,pH\n9.4,3.51\n",
                },
                ARROW: {"schema": BINARY, "example": "(a stream of record batches)"},
                PARQUET: {"schema": BINARY, "example": "(a Parquet file)"},
            },
        },
    },
)
async def predict(request: Request) -> Response:
    """Rows come as JSON, as a CSV with a header, as an Arrow stream or as Parquet, and
    predictions go, by `Accept`, as JSON, CSV or Arrow; with the latter two, the head of
    the answer is in the header `Lometab-Head`. Large tables are answered in a stream.

    Cells that are null or mean missing are fine; columns that the model does not
    know are ignored with a warning; a column absent from every row is an error unless
    `missing_columns` is `fill`. Intervals and sets hold the truth with the probability
    `coverage`, however good the model is: they are split-conformal, by the validation
    rows. `Server-Timing` tells the milliseconds it took to parse the rows, wait in the
    queue, run the model and encode the answer; of a stream, its beginning."""
    # async: the body is read, and shared runs are awaited, without holding a thread.
    model_id = request.path_params["model_id"]
    if not _IS_ID.fullmatch(model_id):
        raise Invalid(f"this is no id of a model: {model_id!r}")
    serving = get_serving()
    settings = serving.settings
    secret = read_key(request)
    if secret is None:
        check_without_key(request, get_settings())
    kind, charset = read_content_type(request)
    question = Question(
        secret=secret,
        reference=model_id,
        kind=kind,
        charset=charset,
        accept=choose_answer(request.headers.get("accept", "*/*")),
        query=read_query(request),
    )
    limit = settings.max_json_bytes if kind == "json" else settings.max_predict_bytes
    length = check_length(request, limit)
    try:
        if length is not None and length <= JOINED_BYTES:
            question.body = await request.body()
            await serving.answer(question, request.scope["client"])
            if not question.is_long:
                return Response(
                    question.content,
                    media_type=question.accept,
                    headers=question.headers,
                )
            return await stream(serving, question, AsyncExitStack())
        await serving.find(question)
        async with AsyncExitStack() as resources:
            spooled = spool(request, limit)
            question.body = await resources.enter_async_context(spooled)
            return await stream(serving, question, resources.pop_all())
    except ClientDisconnect:
        return Response(status_code=400)  # nobody will see it


async def stream(
    serving: Serving, question: Question, resources: AsyncExitStack
) -> Response:
    try:
        pieces = await serving.stream(question)
    except BaseException:
        await resources.aclose()
        raise
    return TableResponse(
        pieces,
        resources,
        media_type=question.accept,
        headers=question.headers,
    )


class TableResponse(StreamingResponse):
    """A stream that lets its resources go, however it ends."""

    def __init__(
        self, pieces: AsyncIterator[bytes], resources: AsyncExitStack, **options: Any
    ) -> None:
        super().__init__(pieces, **options)
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources:
            await super().__call__(scope, receive, send)
