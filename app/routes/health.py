"""Whether the service lives, and whether it can work."""

import sqlalchemy as sa
from fastapi import APIRouter

from app.deps import ReadSessionDep
from app.models import Job

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process answers")
def read_health() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="The database answers and has our tables")
def read_readiness(session: ReadSessionDep) -> dict[str, str]:
    session.execute(sa.select(Job.id).limit(1))
    return {"status": "ready"}
