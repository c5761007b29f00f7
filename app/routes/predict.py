"""Predict: what client apps call all day.

Each layer costs: small questions are answered before the framework hears of them. The
route is for the others, for errors, and for the document.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from time import perf_counter
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
from app.predicting import JOINED_BYTES, Question, get_serving, read_query
from app.request_id import ID_HEADER, RequestIdMiddleware, find_id, log_end
from app.routes.responses import path_parameter, problems, query_parameters
from app.schemas import PredictOptions, PredictResponse
from app.settings import get_settings

router = APIRouter(tags=["models"])
MODEL_ID = path_parameter("model_id", ModelId)
_PATH = re.compile("/models/(?P<model_id>[^/]+)/predict")
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


async def answer_first(scope: Scope, receive: Receive, send: Send) -> bool:
    """Answer a small question before the framework hears of it; whether it was one.

    Whatever else came of it stays in the scope for `Answer`: an error, to be raised
    where all errors are told, or the question, to be answered in a stream.
    """
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    found = _PATH.fullmatch(scope["path"])
    if found is None:
        return False
    if get_serving().is_full:  # nothing is spent on it
        await REFUSAL(scope, receive, send)
        return True
    scope["started_at"] = perf_counter()
    scope["path_params"] = found.groupdict()
    try:
        question = scope["question"] = await ask(scope, receive)
    except Exception as error:  # `Answer` raises it again
        scope["error"] = error
        return False
    if question.is_long:
        return False
    request_id = find_id(scope)
    await send_whole(question, request_id, send)
    log_end(scope, 200, request_id)
    return True


REFUSAL = RequestIdMiddleware(problem(Overloaded()))


class Answer(Response):
    """The response to a request that `answer_first` did not answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            if "error" in scope:
                raise scope.pop("error")
            question = scope.get("question") or await ask(scope, receive)
            if question.is_long:
                response = await stream(question, Request(scope, receive))
            else:  # it came below a root path
                response = Response(
                    question.content,
                    media_type=question.accept,
                    headers=question.headers,
                )
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody will see it
        await response(scope, receive, send)


ANSWER = Answer()


async def ask(scope: Scope, receive: Receive) -> Question:
    """The question; answered, unless it is a long one."""
    # Without the framework's objects, which take as long as a small model.
    headers = dict(reversed(scope["headers"]))  # the first of each name
    question = read_question(scope, headers)
    serving = get_serving()
    length = check_length(
        headers.get(b"content-length"), serving.find_limit(question.kind)
    )
    if length is None or length > JOINED_BYTES:
        question.is_long = True
    else:
        question.body = await read_body(receive)
        await serving.answer(question, scope["client"])
    return question


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


async def send_whole(question: Question, request_id: str, send: Send) -> None:
    headers = [
        (b"content-length", b"%d" % len(question.content)),
        (b"content-type", _CONTENT_TYPES[question.accept]),
        (ID_HEADER, request_id.encode()),
    ]
    for name, value in question.headers.items():
        headers.append((name.lower().encode(), value.encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": question.content})


async def stream(question: Question, request: Request) -> Response:
    serving = get_serving()
    async with AsyncExitStack() as resources:
        if not question.body:
            await serving.find(question)
            spooled = spool(request, serving.find_limit(question.kind))
            question.body = await resources.enter_async_context(spooled)
        return TableResponse(
            await serving.stream(question),
            resources.pop_all(),
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
