"""The API process: it stores, enqueues and predicts, and never trains."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.errors import add_handlers
from app.request_id import RequestIdMiddleware
from app.routes import datasets, health, jobs, models
from app.schemas import JobCreate, JobCreateOnDataset
from lometab import __version__

app = FastAPI(
    title="LoMETab",
    version=__version__,
    description=(
        "Post a CSV, get a trained ensemble: its mean, every member's own output, and "
        "how diverse and how calibrated the members are."
    ),
)
app.include_router(datasets.router)
app.include_router(jobs.router)
app.include_router(models.router)
app.include_router(health.router)
add_handlers(app)
app.add_middleware(RequestIdMiddleware)


def openapi() -> dict[str, Any]:
    """The document, with the schemas of the two forms of `POST /jobs` added."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        schemas = document["components"]["schemas"]
        for body in (JobCreate, JobCreateOnDataset):
            schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[body.__name__] = schema
        app.openapi_schema = document
    return app.openapi_schema


app.openapi = openapi  # type: ignore[method-assign]
