"""The API process: it stores, enqueues and predicts, and never trains."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from app.errors import add_handlers
from app.openapi import make_document
from app.request_id import RequestIdMiddleware, write_lines
from app.routes import datasets, health, jobs, models, predict, reports, sweeps
from app.settings import configure_logging, get_settings
from lometab import __version__
from lometab.predictor import find_providers

log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    configure_logging()  # each API process is a process of its own
    asked = get_settings().ort_providers
    got = find_providers(asked)
    log.info("ONNX Runtime computes on %s; asked for was %s", got, asked)
    yield
    write_lines()


class Service(FastAPI):
    """FastAPI, before which predict is tried: its layers take longer than a model."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not await predict.answer_first(scope, receive, send):
            await super().__call__(scope, receive, send)


app = Service(
    lifespan=lifespan,
    title="LoMETab",
    version=__version__,
    description=(
        "Post a CSV, get a trained ensemble: its mean, every member's own output, and "
        "how diverse and how calibrated the members are. Every error is problem+json "
        "(RFC 9457) with a stable `code`."
    ),
    generate_unique_id_function=lambda route: route.name,
)
app.include_router(predict.router)
app.include_router(datasets.router)
app.include_router(jobs.router)
app.include_router(reports.router)
app.include_router(sweeps.router)
app.include_router(models.router)
app.include_router(health.router)
add_handlers(app)
app.add_middleware(RequestIdMiddleware)


def openapi() -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = make_document(app)
    return app.openapi_schema


app.openapi = openapi  # type: ignore[method-assign]
