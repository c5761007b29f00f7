"""Metrics for Prometheus, where they have no port of their own."""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from app.access import Reader
from app.api.deps import SettingsDep
from app.api.responses import problems
from app.errors import NotFound
from app.observe import METRICS_TYPE, render_all

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    summary="Metrics in Prometheus' format",
    responses=problems(404),
)
def read_metrics(_: Reader, settings: SettingsDep) -> PlainTextResponse:
    """Of the whole service, whatever workspace. So they are here only where requests
    need no key; else, and wherever `LOMETAB_METRICS_PORT` is set, at that port."""
    if settings.metrics_port or settings.keys_required:
        raise NotFound("metrics have a port of their own: LOMETAB_METRICS_PORT")
    return PlainTextResponse(render_all(), media_type=METRICS_TYPE)
