"""Predict: what client apps call all day.

Each layer costs: its requests go past the routing and all that FastAPI does for a
route, which is here to be documented, and the key is read without a dependency.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app import examples
from app.auth import bearer, check_without_key, read_key
from app.bodies import (
    check_length,
    choose_answer,
    read_body,
    read_content_type,
    spool,
)
from app.deps import ModelId
from app.errors import Invalid, Overloaded, problem
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
_CONTENT_TYPES = {
    "application/json": b"application/json",
    "text/csv": b"text/csv; charset=utf-8",
    ARROW: ARROW.encode(),
}


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
async def predict() -> Response:
    """Rows come as JSON, as a CSV with a header, as an Arrow stream or as Parquet, and
    predictions go, by `Accept`, as JSON, CSV or Arrow; with the latter two, the head of
    the answer is in the header `Lometab-Head`. Large tables are answered in a stream.

    Cells that are null or mean missing are fine; columns that the model does not
    know are ignored with a warning; a column absent from every row is an error unless
    `missing_columns` is `fill`. Intervals and sets hold the truth with the probability
    `coverage`, however good the model is: they are split-conformal, by the validation
    rows. `Server-Timing` tells the milliseconds it took to parse the rows, wait in the
    queue, run the model and encode the answer; of a stream, its beginning."""
    return ANSWER


class Answer(Response):
    """A response that reads the request by itself. Where it matters, it does so without
    the framework's objects, which take longer than a small model."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        serving = get_serving()
        headers = dict(reversed(scope["headers"]))  # the first of each name
        question = read_question(scope, headers)
        settings = serving.settings
        is_json = question.kind == "json"
        limit = settings.max_json_bytes if is_json else settings.max_predict_bytes
        length = check_length(headers.get(b"content-length"), limit)
        try:
            if length is not None and length <= JOINED_BYTES:
                question.body = await read_body(receive)
                await serving.answer(question, scope["client"])
                if not question.is_long:
                    await send_whole(question, send)
                    return
                response = await stream(serving, question, AsyncExitStack())
            else:
                await serving.find(question)
                async with AsyncExitStack() as resources:
                    spooled = spool(Request(scope, receive), limit)
                    question.body = await resources.enter_async_context(spooled)
                    response = await stream(serving, question, resources.pop_all())
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody will see it
        await response(scope, receive, send)


ANSWER = Answer()


def read_question(scope: Scope, headers: Mapping[bytes, bytes]) -> Question:
    """All but the body."""
    model_id = scope["path_params"]["model_id"]
    if not _IS_ID.fullmatch(model_id):
        raise Invalid(f"this is no id of a model: {model_id!r}")
    secret = read_key(headers.get(b"authorization", b"").decode("latin-1"))
    if secret is None:
        check_without_key(Request(scope), get_settings())
    kind, charset = read_content_type(
        headers.get(b"content-type", b"").decode("latin-1"),
        headers.get(b"content-encoding", b"identity"),
    )
    return Question(
        secret=secret,
        reference=model_id,
        kind=kind,
        charset=charset,
        accept=choose_answer(headers.get(b"accept", b"*/*").decode("latin-1")),
        query=read_query(scope["query_string"]),
    )


async def send_whole(question: Question, send: Send) -> None:
    headers = [
        (b"content-length", b"%d" % len(question.content)),
        (b"content-type", _CONTENT_TYPES[question.accept]),
    ]
    for name, value in question.headers.items():
        headers.append((name.lower().encode(), value.encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": question.content})


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


async def refuse_or_answer(scope: Scope, receive: Receive, send: Send) -> None:
    """A request too many is refused before anything is spent on it."""
    answer = problem(Overloaded()) if get_serving().is_full else ANSWER
    await answer(scope, receive, send)
