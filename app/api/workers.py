"""Workers: which are alive, what they do, and what waits for them."""

import datetime as dt

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.access import Reader
from app.api.deps import ReadSessionDep, SettingsDep
from app.api.responses import problems
from app.jobs import list_waiting
from app.jobs import list_workers as find_workers
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
    alive = find_workers(session, heard_within=2 * settings.reaper_seconds)
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


class WaitingRead(BaseModel):
    """A queued job, and what is before it."""

    job_id: str
    queue: Queue
    ahead: int = Field(
        description="Jobs that will begin before it, those of other workspaces "
        "included: workspaces take turns."
    )
    starts_in_seconds: float | None = Field(
        description="At the latest, if every run before it goes on to its last epoch; "
        "null if nobody can tell, as without workers."
    )
    why: str = Field(description="Why it waits.")


class QueueRead(BaseModel):
    """What waits, the next job first."""

    data: list[WaitingRead]


@router.get(
    "/queue",
    response_model=QueueRead,
    summary="What waits, behind how many, and until when",
    responses=problems(),
)
def read_queue(
    session: ReadSessionDep, caller: Reader, settings: SettingsDep
) -> QueueRead:
    """Queued jobs of the workspace in the order in which they will begin: jobs on their
    own before the runs of sweeps and tune jobs, at most 500."""
    heard_within = 2 * settings.reaper_seconds
    found = list_waiting(session, caller.workspace_id, heard_within=heard_within)
    return QueueRead(
        data=[
            WaitingRead(
                job_id=each.job_id,
                queue=each.queue,
                ahead=each.ahead,
                starts_in_seconds=each.starts_in_seconds,
                why=each.why,
            )
            for each in found
        ]
    )
