"""Workers: which are alive, and what they do."""

import datetime as dt

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app import jobs
from app.access import Reader
from app.api.deps import ReadSessionDep, SettingsDep
from app.api.responses import problems
from app.storage.enums import Queue

router = APIRouter(tags=["jobs"])


class WorkerRead(BaseModel):
    """A worker that has been heard of lately."""

    id: str
    queue: Queue
    host: str | None = Field(description="The name of its machine or container.")
    device: str | None = Field(description="What it trains on: `cpu` or `cuda`.")
    version: str | None = Field(description="Of LoMETab there.")
    heartbeat_at: dt.datetime
    threads: int | None = Field(description="CPU threads of a training process there.")
    memory_bytes: int | None = Field(description="What such a process may take.")
    is_busy: bool = Field(description="It has a job, of whatever workspace.")
    job_ids: list[str] = Field(description="Those of the caller's workspace.")


class WorkersRead(BaseModel):
    """All workers that are alive."""

    data: list[WorkerRead]


@router.get(
    "/workers",
    response_model=WorkersRead,
    summary="Which workers are alive, and what they do",
    responses=problems(),
)
def list_workers(
    session: ReadSessionDep, caller: Reader, settings: SettingsDep
) -> WorkersRead:
    """Those that were heard of within the last two rounds of heartbeats."""
    alive = jobs.list_workers(session, heard_within=2 * settings.reaper_seconds)
    return WorkersRead(
        data=[
            WorkerRead(
                id=worker.id,
                queue=worker.queue,
                host=worker.host,
                device=worker.device,
                version=worker.version,
                heartbeat_at=worker.heartbeat_at,
                threads=worker.threads,
                memory_bytes=worker.memory_bytes,
                is_busy=bool(held),
                job_ids=[id_ for id_, whose in held if whose == caller.workspace_id],
            )
            for worker, held in alive
        ]
    )
