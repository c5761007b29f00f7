"""Whether the service lives, and whether it can work."""

import sqlalchemy as sa
from fastapi import APIRouter

from app.deps import ReadSessionDep
from app.models import Job
from app.routes.responses import problems

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process answers")
def read_health() -> dict[str, str]:
    """Says nothing of the database or of workers."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    summary="The database answers and has our tables",
    responses={503: problems()[503]},
)
def read_readiness(session: ReadSessionDep) -> dict[str, str]:
    """For a load balancer: whether this process can take requests."""
    session.execute(sa.select(Job.id).limit(1))
    return {"status": "ready"}
