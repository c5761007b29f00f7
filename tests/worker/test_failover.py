"""Redis fails over: the worker stays, and takes messages again."""

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO

import psutil
import pytest
import redis
from celery import Celery

from tests.support.servers import wait_until
from tests.support.services import TINY, post_job, wait_for_end
from tests.support.stacks import Service, Stack, Stacks
from tests.support.tables import make_csv

pytestmark = pytest.mark.processes
N_ATTEMPTS = 12


@pytest.fixture
def log(stack: Stack) -> Iterator[IO[bytes]]:
    with (stack.folder / "worker.log").open("w+b") as file:
        yield file


@pytest.fixture
def worker(stack: Stack, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli", "worker"],
        env={**stack.environment, "LOMETAB_EXIT_WITH_PARENT": "true"},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("stack", ["production"], indirect=True)
def test_a_worker_outlives_a_failover(
    stack: Stack, stacks: Stacks, log: IO[bytes], worker: subprocess.Popen[bytes]
) -> None:
    def has_taken_all() -> bool:
        assert worker.poll() is None, "the worker has ended"
        return client.llen("cpu") == 0

    def knows() -> bool:
        assert worker.poll() is None, "the worker has ended"
        log.seek(0)
        return log.read().count(b"read only replica") > N_ATTEMPTS

    count_descriptors = psutil.Process(worker.pid).num_fds
    url = stack.environment["LOMETAB_BROKER_URL"]
    notify = Celery("test", broker=url).send_task
    with redis.Redis.from_url(url) as client:
        notify("train", [None], queue="cpu")
        wait_until(has_taken_all, seconds=60, what="the worker is there")
        n_before = count_descriptors()
        client.replicaof("127.0.0.1", "1")  # what was the primary is none any more
        try:
            wait_until(knows, seconds=60, what="the worker was told")
        finally:
            client.replicaof("NO", "ONE")
        notify("train", [None], queue="cpu")
        wait_until(has_taken_all, seconds=60, what="it takes messages again")
    # Its attempts to connect have left nothing open.
    assert count_descriptors() < n_before + N_ATTEMPTS / 2


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["production"], indirect=True)
def test_a_worker_hears_again_after_redis_was_restarted(
    service: Service, stacks: Stacks
) -> None:
    """After the second time Celery waits at a socket that is gone, and says nothing."""

    def train() -> str:
        ignored = {"label": "ignore"}
        job = post_job(
            service.client, make_csv(), columns=ignored, hyperparameters=TINY
        )
        return str(wait_for_end(service, job["id"])["status"])

    for _ in range(2):
        assert train() == "succeeded"
        stacks.redis.stop()
        time.sleep(1)
        stacks.redis.start()
    assert train() == "succeeded"
