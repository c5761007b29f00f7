"""The API process: it stores, enqueues and predicts, and never trains.

`app` is what a server loads, from the outside in: request ids and the log, the manners
of HTTP, the guard, and the dispatcher, which gives predict its own app and all else to
FastAPI.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from app import jobs
from app.access import INFER, INVOCATIONS, keep, uses
from app.api import make_api, serve_neighbour
from app.errors import DATABASE_ERRORS
from app.guard import PREDICT, Guard, find_path
from app.manners import Manners
from app.monitor import get_collector
from app.observe import (
    ROUTE,
    Gauge,
    Observed,
    Reporting,
    configure_logging,
    metrics,
    traces,
    write_lines,
)
from app.page import router as page
from app.serving import get_predict, get_predictors
from app.settings import get_settings
from app.storage import db, scratch
from lometab.predictor import find_providers

log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    configure_logging()  # each API process is a process of its own
    traces.begin("lometab-api")
    asked = get_settings().ort_providers
    got = find_providers(asked)
    log.info("ONNX Runtime computes on %s; asked for was %s", got, asked)
    if got[:1] != asked[:1]:
        log.warning(
            "predict falls back to %s: %s could not be used; see `lometab doctor`",
            *(got[0], asked[0]),
        )
    await run_in_threadpool(_check_database)
    keeping = asyncio.create_task(keep())
    reporting = Reporting()
    reporting.start()
    with scratch.use_own_folder():
        yield
    keeping.cancel()
    await run_in_threadpool(reporting.stop)
    await run_in_threadpool(get_collector().close)
    await uses.write()
    write_lines()
    await run_in_threadpool(traces.end)


def _check_database() -> None:
    """Refuse to start on tables that are not this version's.

    A database that is away may come back: until then `/readyz` says so.
    """
    try:
        with db.reading() as session:
            db.check_revision(session)
    except DATABASE_ERRORS as error:
        log.error("the database is out of reach: %s", getattr(error, "orig", error))


def _read_gauges() -> list[Gauge]:
    """None while the database is away: what is counted is told all the same."""
    try:
        with db.reading() as session:
            heard_within = 2 * get_settings().reaper_seconds
            return [*jobs.read_gauges(session, heard_within=heard_within)]
    except DATABASE_ERRORS as error:
        log.warning("metrics lack the queue: %s", getattr(error, "orig", error))
        return []


metrics.shared_gauges(_read_gauges)
metrics.gauge(
    "lometab_model_cache_bytes",
    "Memory of the models that are loaded, about.",
    lambda: get_predictors().n_bytes,
)
metrics.gauge(
    "lometab_model_cache_models",
    "Models that are loaded.",
    lambda: len(get_predictors()),
)
metrics.gauge(
    "lometab_predict_requests",
    "Small predict requests under way.",
    lambda: get_predict().n_small,
)
metrics.gauge(
    "lometab_predict_tables",
    "Large tables that are received, computed or sent.",
    lambda: get_predict().n_tables,
)
api = make_api(lifespan)
api.include_router(page)


async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
    """Predict is asked all day, and FastAPI's layers take longer than a model."""
    if scope["type"] == "http" and scope["method"] == "POST":
        path = find_path(scope)
        found = PREDICT.fullmatch(path)
        if found is not None:
            scope[ROUTE] = "/models/{model_id}/predict"
            await get_predict()(scope, receive, send, found["model_id"])
            return
        if found := INFER.fullmatch(path) or INVOCATIONS.fullmatch(path):
            scope[ROUTE] = "/infer" if found.re is INFER else "/invocations"
            await serve_neighbour(scope, receive, send, found.groupdict())
            return
    await api(scope, receive, send)


app = Observed(Manners(Guard(dispatch)))
# What is loaded by now stays: neither a collection nor the exit need look through it.
gc.freeze()
gc.enable()  # `lometab serve` has it wait until here
