"""Whether the service lives, and whether it can work."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.api.deps import ReadSessionDep
from app.api.responses import problems
from app.errors import ERRORS, Unavailable, document_html
from app.storage import db

router = APIRouter(tags=["health"])


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
    summary="The database answers and has our tables",
    responses={503: problems()[503]},
)
def read_readiness(session: ReadSessionDep) -> dict[str, str]:
    """For a load balancer: whether this process can take requests."""
    try:
        db.check_revision(session)
    except db.WrongRevision as error:
        raise Unavailable(str(error), headers={"Retry-After": "5"}) from error
    return {"status": "ready"}
