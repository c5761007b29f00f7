"""Figures of a job: training and reports of a model, or the runs of a sweep or search,
as SVG, PNG, or the Vega-Lite spec that both are drawn from."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
import sqlalchemy as sa
from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from app.api.deps import JobDep, ReadSessionDep
from app.api.reports import find_reports
from app.api.responses import IfNoneMatch, matches, problems
from app.api.sweeps import read_sweep, read_tune
from app.errors import NoFigure, Overloaded, ReportNotReady
from app.serving import choose_media_type
from app.storage import db
from app.storage.enums import EventType, JobKind
from app.storage.tables import Event, Job
from lometab.errors import suggest
from lometab.plots import (
    MAX_SCALE,
    NothingToDraw,
    RenderBusy,
    Theme,
    draw,
    list_figures,
    names_for,
    render,
)

router = APIRouter(prefix="/jobs", tags=["jobs"])

FigureFormat = Literal["svg", "png", "json"]
MEDIA_TYPES: dict[FigureFormat, str] = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/vnd.vegalite.v6+json",
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""An SVG is a document: opened by itself it may load and run nothing."""
MAX_EPOCHS = 5000
"""Epochs of a job without a report that are drawn."""


class FigureRead(BaseModel):
    """A figure, and where it is."""

    name: str
    about: str = Field(description="What it shows.")
    why_absent: str | None = Field(description="Null if it can be drawn.")
    links: dict[str, str] = Field(description="svg, png and spec; empty if absent.")


class FiguresRead(BaseModel):
    """The figures of a job."""

    job_id: str
    figures: list[FigureRead]


FigureName = Annotated[
    str,
    Path(
        max_length=60,
        pattern=r"^[a-z][a-z-]*(\.(svg|png|json))?$",
        description="One of the list, and if wanted `.svg`, `.png` or `.json` (the "
        "spec), which comes before `format` and `Accept`.",
        examples=["importance", "training.png"],
    ),
]


@router.get(
    "/{job_id}/figures",
    response_model=FiguresRead,
    summary="Which figures a job has",
    responses=problems(404, 409, 422),
)
def read_figures(job: JobDep, session: ReadSessionDep) -> FiguresRead:
    """Of a model what its reports tell, of a sweep or tune job its runs so far, of a
    job that trains its epochs so far. What does not apply says why."""
    figures = [
        FigureRead(
            name=each.name,
            about=each.about,
            why_absent=each.why_absent,
            links={} if each.why_absent else _link(job, each.name),
        )
        for each in list_figures(_read_all(job, session))
    ]
    return FiguresRead(job_id=job.id, figures=figures)


def _link(job: Job, name: str) -> dict[str, str]:
    address = f"/jobs/{job.id}/figures/{name}"
    return {"svg": f"{address}.svg", "png": f"{address}.png", "spec": f"{address}.json"}


@router.get(
    "/{job_id}/figures/{figure}",
    summary="One figure: SVG, PNG, or its Vega-Lite spec",
    response_class=Response,
    responses={
        **problems(404, 406, 409, 422),
        200: {
            "content": {
                MEDIA_TYPES["svg"]: {"schema": {"type": "string"}},
                MEDIA_TYPES["png"]: {"schema": {"type": "string", "format": "binary"}},
                MEDIA_TYPES["json"]: {
                    "schema": {"type": "object"},
                    "example": {"data": {"values": [{"x": 1}]}, "mark": "point"},
                },
            }
        },
    },
)
def read_figure(
    job: JobDep,
    figure: FigureName,
    format: Annotated[
        FigureFormat | None, Query(description="By default what `Accept` asks for.")
    ] = None,
    theme: Annotated[Theme, Query(description="Colours of the page.")] = "light",
    scale: Annotated[
        float,
        Query(ge=0.1, le=MAX_SCALE, description="Pixels for each unit of a PNG."),
    ] = 2.0,
    accept: Annotated[str, Header()] = "*/*",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Drawn from the numbers of the reports, without a browser. The spec is complete:
    Vega-Embed draws it in a page, with `ast: true` under a policy without
    `unsafe-eval`."""
    name, _, extension = figure.partition(".")
    chosen = _choose_format(extension, format, accept)
    with db.reading() as session:  # which must not stand open while it is drawn
        reports = _read_all(job, session)
    spec = _draw(name, reports, theme)
    content = orjson.dumps(spec)
    about = f"{chosen} {scale if chosen == 'png' else ''} ".encode()
    etag = f'"{hashlib.sha256(about + content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Vary": "Accept", "Content-Security-Policy": _POLICY}
    if matches(etag, if_none_match):
        return Response(status_code=304, headers=headers)
    if chosen != "json":
        try:
            content = render(spec, chosen, scale=scale)
        except RenderBusy:
            raise Overloaded() from None
    return Response(content, media_type=MEDIA_TYPES[chosen], headers=headers)


def _choose_format(
    extension: str, format: FigureFormat | None, accept: str
) -> FigureFormat:
    for each in MEDIA_TYPES:
        if each == (extension or format):
            return each
    offered = {media_type: each for each, media_type in MEDIA_TYPES.items()}
    offered["application/json"] = "json"
    return offered[choose_media_type(accept, [*offered])]


def _draw(name: str, reports: Mapping[str, Any], theme: Theme) -> dict[str, Any]:
    known = names_for(reports)
    if name not in known:
        raise NoFigure(
            f"there is no figure {name!r}{suggest(name, known)}; there are: "
            + ", ".join(known)
        )
    try:
        return draw(name, reports, theme)
    except NothingToDraw as error:
        raise NoFigure(f"the figure {name!r} cannot be drawn: {error}") from None


def _read_all(job: Job, session: Session) -> dict[str, Any]:
    """What the figures of a job are drawn from."""
    if job.kind == JobKind.SWEEP:
        return {"sweep": read_sweep(job, session).model_dump(mode="json")}
    if job.kind == JobKind.TUNE:
        return {"tune": read_tune(job, session).model_dump(mode="json")}
    try:
        reports = find_reports(job, session)
    except ReportNotReady:
        curve = _read_epochs(job, session)
        if not curve:
            raise
        return {"report": {"task": job.config["task"], "curve": curve}}
    if not reports["report"].get("curve"):  # from before reports had it
        reports["report"] |= {"curve": _read_epochs(job, session)}
    return reports


def _read_epochs(job: Job, session: Session) -> list[dict[str, Any]]:
    """From the events: of several attempts at an epoch the last, of seeds the first."""
    found = session.scalars(
        sa.select(Event.data)
        .where(Event.job_id == job.id, Event.type == EventType.EPOCH)
        .order_by(Event.seq)
        .limit(MAX_EPOCHS)
    )
    epochs = {each["epoch"]: each for each in found if not each.get("seed")}
    return [epochs[epoch] for epoch in sorted(epochs)]
