"""Two API processes keep the limit of a key together, through Redis."""

import time
from collections.abc import Callable

import httpx
import pytest
from sqlalchemy.orm import Session

from app.access import SCOPES, create_key
from app.storage.db import make_engine
from tests.support.stacks import Service, Stack

pytestmark = pytest.mark.processes
LIMIT = 40


def make_limited_key(stack: Stack) -> str:
    engine = make_engine(stack.url)
    with Session(engine) as session, session.begin():
        _, secret = create_key(
            session,
            workspace_id="default",
            name="limited",
            scopes=SCOPES,
            requests_per_minute=LIMIT,
        )
    engine.dispose()
    return secret


@pytest.mark.parametrize("stack", ["production"], indirect=True)
def test_two_processes_keep_one_limit(
    stack: Stack, start_service: Callable[..., Service]
) -> None:
    services = [start_service("api"), start_service("api")]
    headers = {"Authorization": f"Bearer {make_limited_key(stack)}"}
    clients = [httpx.Client(base_url=each.address) for each in services]
    statuses = []
    for _ in range(LIMIT):
        for client in clients:
            statuses.append(client.get("/models", headers=headers).status_code)
            time.sleep(0.025)
    for client in clients:
        client.close()
    n_passed = statuses.count(200)
    assert n_passed + statuses.count(429) == 2 * LIMIT
    # Each alone would have let all of them pass. Two exchanges are a quarter of a
    # second apart, in which some twenty requests come at most.
    assert LIMIT <= n_passed <= LIMIT + 20
    # What keys did is written when a process ends, if not before.
    for service in services:
        service.stop()
    (row,) = stack.query("SELECT last_used_at FROM api_keys WHERE name = 'limited'")
    assert row[0] is not None
