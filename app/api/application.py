"""FastAPI with all routes, handlers of errors, and the OpenAPI document."""

from threading import Lock
from typing import Any

from fastapi import Depends, FastAPI

from app.api import (
    audit,
    cards,
    datasets,
    figures,
    health,
    jobs,
    limits,
    metrics,
    models,
    monitor,
    neighbours,
    plans,
    predict,
    predictions,
    reports,
    session,
    sweeps,
    usage,
    webhooks,
    workers,
)
from app.api.deps import refuse_unknown_query
from app.api.handlers import add_handlers
from app.api.openapi import make_document
from lometab import __version__


def make_api(lifespan: Any) -> FastAPI:
    api = FastAPI(
        lifespan=lifespan,
        title="LoMETab",
        version=__version__,
        description=(
            "Post a CSV, get a trained ensemble: its mean, every member's own output, "
            "and how diverse and how calibrated the members are. Every error is "
            "problem+json (RFC 9457) with a stable `code`."
        ),
        dependencies=[Depends(refuse_unknown_query)],
        docs_url=None,  # the page has a reference that needs no internet
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    routers = (
        *(predict, datasets, plans, jobs, reports, figures, sweeps, cards, models),
        *(predictions, monitor, webhooks, workers, session, limits, usage, audit),
        *(health, metrics, neighbours),
    )
    for room in routers:
        api.include_router(room.router)
    add_handlers(api)

    making = Lock()

    def openapi() -> dict[str, Any]:
        # Requests in threads ask for it, and pydantic makes schemas in one alone.
        with making:
            if api.openapi_schema is None:
                api.openapi_schema = make_document(api)
            return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]
    return api
