"""The API process: it stores, enqueues and predicts, and never trains.

`app` is what a server loads, from the outside in: request ids and the log, the manners
of HTTP, the guard, and the dispatcher, which gives predict its own app and all else to
FastAPI.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from app.access import INFER, INVOCATIONS, keep, uses
from app.api import make_api, serve_neighbour
from app.errors import DATABASE_ERRORS
from app.guard import PREDICT, Guard, find_path
from app.manners import Manners
from app.monitor import get_collector
from app.observe import Observed, configure_logging, write_lines
from app.page import router as page
from app.serving import get_predict
from app.settings import get_settings
from app.storage import db, scratch
from lometab.predictor import find_providers

log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    configure_logging()  # each API process is a process of its own
    asked = get_settings().ort_providers
    got = find_providers(asked)
    log.info("ONNX Runtime computes on %s; asked for was %s", got, asked)
    await run_in_threadpool(_check_database)
    keeping = asyncio.create_task(keep())
    with scratch.use_own_folder():
        yield
    keeping.cancel()
    await run_in_threadpool(get_collector().close)
    await uses.write()
    write_lines()


def _check_database() -> None:
    """Refuse to start on tables that are not this version's.

    A database that is away may come back: until then `/readyz` says so.
    """
    try:
        with db.reading() as session:
            db.check_revision(session)
    except DATABASE_ERRORS as error:
        log.error("the database is out of reach: %s", getattr(error, "orig", error))


api = make_api(lifespan)
api.include_router(page)


async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
    """Predict is asked all day, and FastAPI's layers take longer than a model."""
    if scope["type"] == "http" and scope["method"] == "POST":
        path = find_path(scope)
        found = PREDICT.fullmatch(path)
        if found is not None:
            await get_predict()(scope, receive, send, found["model_id"])
            return
        if found := INFER.fullmatch(path) or INVOCATIONS.fullmatch(path):
            await serve_neighbour(scope, receive, send, found.groupdict())
            return
    await api(scope, receive, send)


app = Observed(Manners(Guard(dispatch)))
