"""Jobs of a service that runs as real processes."""

import json
from typing import Any

import httpx
import psutil

from tests.support.servers import wait_until
from tests.support.stacks import Service

TINY = {
    "k": 4,
    "rank": 2,
    "n_blocks": 1,
    "d_block": 16,
    "n_bins": 8,
    "d_embedding": 4,
    "max_epochs": 3,
    "batch_size": 32,
}


def post_job(
    client: httpx.Client,
    content: str,
    target: str = "y",
    filename: str = "table.csv",
    **config: Any,
) -> dict[str, Any]:
    config = {"target": target, "hyperparameters": TINY, **config}
    response = client.post(
        "/jobs",
        files={"file": (filename, content)},
        data={"config": json.dumps(config)},
    )
    assert response.status_code == 202, response.text
    job: dict[str, Any] = response.json()
    return job


def read_job(service: Service, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = service.client.get(f"/jobs/{job_id}").json()
    return job


def wait_for_end(service: Service, job_id: str, seconds: float = 90) -> dict[str, Any]:
    def read() -> dict[str, Any] | None:
        job = read_job(service, job_id)
        return job if job["status"] in ("succeeded", "failed") else None

    ended: dict[str, Any] = wait_until(
        read, seconds=seconds, what=f"{job_id} ends\n{service.read_log()}"
    )
    return ended


def read_events(service: Service, job_id: str) -> list[dict[str, Any]]:
    """All events of a job, whose numbers have no gap."""
    events: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = service.client.get(f"/jobs/{job_id}/events?after={after}&limit=100")
        events += page.json()["data"]
        after = page.json()["next_after"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    return events


def find_child(service: Service) -> psutil.Process:
    """The training process, once there is one."""
    child: psutil.Process = wait_until(
        lambda: service.find_process("worker.train"), seconds=60, what="a child"
    )
    return child
