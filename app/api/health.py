"""Whether the service lives, and whether it can work."""

from functools import cache
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from app import jobs
from app.api.deps import ReadSessionDep, SettingsDep
from app.api.responses import problems
from app.errors import ERRORS, Unavailable, document_html
from app.storage import db
from app.storage.enums import Queue
from lometab import __version__
from lometab.predictor import find_providers

router = APIRouter(tags=["health"])


class Readiness(BaseModel):
    """This process can take requests."""

    status: Literal["ready"]
    workers: dict[Queue, int] = Field(description="Those that are alive, by queue.")
    providers_asked: list[str] = Field(
        description="ONNX Runtime's execution providers as the settings have them."
    )
    providers: list[str] = Field(
        description="Those it computes on: it falls back to the CPU without an error."
    )


@router.get("/healthz", summary="The process answers")
async def read_health() -> dict[str, str]:
    """Says nothing of the database or of workers."""
    # async: it needs no thread, so it answers while all of them are taken.
    return {"status": "ok"}


@router.get(ERRORS, include_in_schema=False)
async def read_errors() -> HTMLResponse:
    """Where the `type` of a problem leads."""
    return HTMLResponse(document_html())


@router.get(
    "/readyz",
    response_model=Readiness,
    summary="The database answers and has our tables",
    responses={422: problems(422)[422], 503: problems()[503]},
)
def read_readiness(
    session: ReadSessionDep,
    settings: SettingsDep,
    worker: Annotated[
        bool, Query(description="A worker has to be alive, too: 503 if none is.")
    ] = False,
) -> Readiness:
    """For a load balancer: whether this process can take requests."""
    try:
        db.check_revision(session)
    except db.WrongRevision as error:
        raise Unavailable(str(error), headers={"Retry-After": "5"}) from error
    heard_within = 2 * settings.reaper_seconds
    n_workers = {
        queue: jobs.count_workers(session, queue, heard_within=heard_within)
        for queue in Queue
    }
    if worker and not any(n_workers.values()):
        raise Unavailable("no worker is heard of", headers={"Retry-After": "5"})
    return Readiness(
        status="ready",
        workers=n_workers,
        providers_asked=settings.ort_providers,
        providers=list_providers(tuple(settings.ort_providers)),
    )


@cache
def list_providers(asked: tuple[str, ...]) -> list[str]:
    """Found out once: it does not change while a process lives."""
    return find_providers(asked)


class Version(BaseModel):
    """What runs here."""

    version: str = Field(description="Of LoMETab.")
    revision: str = Field(description="Of the tables that it needs.")


@router.get("/version", response_model=Version, summary="Which version runs")
def read_version() -> Version:
    """To see during an upgrade which processes are new."""
    return Version(version=__version__, revision=db.find_head())
