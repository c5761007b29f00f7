"""A job is never lost, never run twice, and can be stopped: real kills."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.support.servers import wait_until
from tests.support.services import (
    TINY,
    find_child,
    post_job,
    read_events,
    read_job,
    wait_for_end,
)
from tests.support.stacks import Service, Stack
from tests.support.tables import make_csv

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

# Long enough to be disturbed, and every epoch has its checkpoint.
LONG = {**TINY, "max_epochs": 40, "patience": None}
# The label says too much of the target, and is not in the rows to predict.
TABLE = "\n".join(line.rpartition(",")[0] for line in make_csv(1500).split("\n"))


@pytest.fixture
def stack(stack: Stack) -> Stack:
    stack.environment["LOMETAB_CHECKPOINT_SECONDS"] = "0"
    return stack


def wait_for_epoch(service: Service, job_id: str, epoch: int) -> None:
    wait_until(
        lambda: read_job(service, job_id)["progress"]["epoch"] >= epoch,
        seconds=90,
        what=f"epoch {epoch}\n{service.read_log()}",
    )


def predict(service: Service, job: dict[str, Any]) -> Any:
    rows = [{"size": i / 3, "colour": "red", "weight": 5 - i} for i in range(9)]
    answer = service.client.post(
        f"/models/{job['model_id']}/predict", json={"rows": rows}
    )
    return answer.json()["predictions"]


def test_verbs(service: Service, stack: Stack) -> None:
    ask = service.client.post
    longer = {**LONG, "max_epochs": 1000}  # it must not be over before it is stopped
    job = post_job(service.client, TABLE, hyperparameters=longer)
    assert ask(f"/jobs/{job['id']}/retry").status_code == 409
    wait_for_epoch(service, job["id"], 3)
    child = find_child(service)

    # Cancel: nothing is kept, and the child is gone within seconds.
    answer = ask(f"/jobs/{job['id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelling")
    wait_until(
        lambda: read_job(service, job["id"])["status"] == "cancelled",
        seconds=10,
        what="the job is cancelled",
    )
    assert not child.is_running()
    for verb in ("cancel", "stop"):
        refused = ask(f"/jobs/{job['id']}/{verb}")
        assert refused.status_code == 409
        assert refused.json()["job_status"] == "cancelled"
    assert stack.query("SELECT count(*) FROM models") == [(0,)]

    # Retry: it goes on from its checkpoint.
    assert ask(f"/jobs/{job['id']}/retry").status_code == 202
    wait_until(
        lambda: "resumed" in [e["type"] for e in read_events(service, job["id"])],
        seconds=60,
        what="the job is resumed",
    )

    # Stop: the best epoch so far is kept.
    wait_until(
        lambda: read_job(service, job["id"])["phase"] == "training",
        seconds=60,
        what="training",
    )
    assert ask(f"/jobs/{job['id']}/stop").status_code == 202
    ended = wait_for_end(service, job["id"])
    assert (ended["status"], ended["stopped_early"]) == ("succeeded", True)
    assert (ended["attempt"], ended["progress"]["epoch"] < 1000) == (2, True)
    assert len(predict(service, ended)) == 9
    for verb in ("cancel", "stop", "retry"):
        assert ask(f"/jobs/{job['id']}/{verb}").status_code == 409
    assert stack.query("SELECT count(*) FROM blobs") == [(2,)]  # data and model


def test_a_budget_of_time_keeps_the_best(shared_service: Service) -> None:
    forever = {**LONG, "max_epochs": 10_000}
    job = post_job(
        shared_service.client, TABLE, hyperparameters=forever, max_runtime_seconds=3
    )
    ended = wait_for_end(shared_service, job["id"])
    assert (ended["status"], ended["stopped_early"]) == ("succeeded", True)


def test_disturbed_jobs_end_as_if_undisturbed(service: Service) -> None:
    """With the training rows in a file on the one stack, in memory on the other."""
    storage = "file" if service.stack.name == "embedded" else "memory"
    config = {"hyperparameters": LONG, "storage": storage}
    calm = post_job(service.client, TABLE, **config)
    assert calm["estimate"]["storage"] == storage
    expected = predict(service, wait_for_end(service, calm["id"]))
    for number, word in ((signal.SIGKILL, "lost"), (signal.SIGTERM, "released")):
        job = post_job(service.client, TABLE, **config)
        worker, child = service.find_process("worker.tasks"), find_child(service)
        assert worker is not None
        wait_for_epoch(service, job["id"], 5)  # at once: a busy machine is slow to look
        worker.send_signal(number)
        psutil.wait_procs([child], timeout=15)
        assert not child.is_running(), "the training process outlived its worker"
        ended = wait_for_end(service, job["id"], seconds=120)
        assert (ended["status"], ended["attempt"]) == ("succeeded", 2), ended["error"]
        events = read_events(service, job["id"])
        (resumed,) = [event for event in events if event["type"] == "resumed"]
        assert resumed["data"]["epoch"] >= 4
        assert word in [event["type"] for event in events]
        assert predict(service, ended) == expected


def read_stream(lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    """The numbers and types of the events in a stream."""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            assert fields["event"] == json.loads(fields["data"])["type"]
            yield int(fields["id"]), fields["event"]
            fields = {}


def test_streams_miss_and_repeat_nothing(shared_service: Service) -> None:
    job = post_job(
        shared_service.client, TABLE, hyperparameters={**LONG, "max_epochs": 20}
    )
    url = f"/jobs/{job['id']}/events"
    seen: list[tuple[int, str]] = []
    while not seen or seen[-1][1] not in ("succeeded", "failed"):
        headers = {"Accept": "text/event-stream"}
        if seen:
            headers["Last-Event-ID"] = str(seen[-1][0])
        with (
            shared_service.make_client() as client,
            client.stream("GET", url, headers=headers, timeout=60) as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            for number, event in enumerate(read_stream(response.iter_lines())):
                seen.append(event)
                if number == 4:  # hang up, and come back
                    break
    listed = [
        (event["seq"], event["type"])
        for event in read_events(shared_service, job["id"])
    ]
    assert seen == listed
    assert [kind for _, kind in seen].count("epoch") == 20


def test_many_streams_are_fed_at_once(shared_service: Service) -> None:
    job = post_job(shared_service.client, make_csv(100))
    results: list[list[tuple[int, str]]] = []

    def follow() -> None:
        with (
            shared_service.make_client() as client,
            client.stream(
                "GET",
                f"/jobs/{job['id']}/events",
                headers={"Accept": "text/event-stream"},
                timeout=90,
            ) as response,
        ):
            results.append(list(read_stream(response.iter_lines())))

    threads = [threading.Thread(target=follow) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == 50
    assert all(result == results[0] for result in results)
    assert results[0][-1][1] == "succeeded"


@pytest.fixture
def second_worker(stack: Stack) -> Iterator[Callable[..., psutil.Process]]:
    """Starts one more worker on the stack."""
    started: list[subprocess.Popen[bytes]] = []

    def start(queue: str = "cpu", **environment: str) -> psutil.Process:
        with (stack.folder / "second-worker.txt").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "worker"],
                env={
                    **stack.environment,
                    "LOMETAB_WORKER_QUEUE": queue,
                    "LOMETAB_EXIT_WITH_PARENT": "true",
                    **environment,
                },
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return psutil.Process(process.pid)

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def suspend_outside_a_write(process: psutil.Process, stack: Stack) -> None:
    """Freeze a process, but not while it holds SQLite's one lock for writing: then
    nobody could write until it goes on. (Postgres ends such a transaction itself.)"""
    while True:
        process.suspend()
        if stack.name != "embedded":
            return
        database = sqlite3.connect(stack.folder / "lometab.db", timeout=1)
        try:
            database.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            process.resume()
            time.sleep(0.1)
        finally:
            database.close()


def test_frozen_worker_cannot_publish(
    service: Service,
    stack: Stack,
    second_worker: Callable[..., psutil.Process],
) -> None:
    longer = {**LONG, "max_epochs": 150}  # it must not end before it is frozen
    job = post_job(service.client, TABLE, hyperparameters=longer)
    wait_for_epoch(service, job["id"], 2)
    find_child(service).suspend()
    worker = service.find_process("worker.tasks")
    assert worker is not None
    suspend_outside_a_write(worker, stack)
    second_worker()
    ended = wait_for_end(service, job["id"], seconds=120)
    assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
    before = stack.query("SELECT * FROM models")
    for process in service.processes():
        process.resume()
    time.sleep(5)
    assert stack.query("SELECT * FROM models") == before
    assert read_job(service, job["id"]) == ended


def test_one_message_three_times_is_one_run(
    service: Service,
    stack: Stack,
    second_worker: Callable[..., psutil.Process],
) -> None:
    second_worker()
    wait_until(
        lambda: stack.query("SELECT count(*) FROM workers")[0][0] == 2,
        seconds=30,
        what="two workers",
    )
    job = post_job(service.client, make_csv(300), hyperparameters=LONG)
    code = f"""
from app import jobs
for _ in range(3):
    assert jobs.notify({job["id"]!r}, "cpu")
"""
    subprocess.run([sys.executable, "-c", code], env=stack.environment, check=True)
    ended = wait_for_end(service, job["id"])
    assert (ended["status"], ended["attempt"]) == ("succeeded", 1)
    time.sleep(2)
    kinds = [event["type"] for event in read_events(service, job["id"])]
    assert kinds.count("running") == 1
    assert stack.query("SELECT count(*) FROM models") == [(1,)]


DIE_BEFORE_NOTIFYING = """
import os, sys
from fastapi.testclient import TestClient
from app import jobs
from app.main import app
jobs.notify_of = lambda *_: os._exit(9)
client = TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 1))
if sys.argv[1]:
    client.headers["Authorization"] = "Bearer " + sys.argv[1]
client.post("/jobs", files={"file": ("t.csv", sys.argv[2])},
            data={"config": sys.argv[3]})
"""


def test_api_killed_before_it_notifies(service: Service, stack: Stack) -> None:
    config = json.dumps({"target": "y", "hyperparameters": TINY})
    died = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", DIE_BEFORE_NOTIFYING),
            *(stack.key or "", make_csv(60), config),
        ],
        env={**os.environ, **stack.environment},
        check=False,
    )
    assert died.returncode == 9
    ((job_id,),) = stack.query("SELECT id FROM jobs")
    assert wait_for_end(service, job_id)["status"] == "succeeded"


def test_too_large_a_child_is_out_of_memory(
    service: Service, second_worker: Callable[..., psutil.Process]
) -> None:
    """The worker of the other queue has less memory than the API knows of."""
    job = post_job(service.client, make_csv(60), device="gpu")
    second_worker("gpu", LOMETAB_MAX_TRAINING_BYTES=str(100 * 2**20))
    ended = wait_for_end(service, job["id"])
    assert (ended["status"], ended["attempt"]) == ("failed", 1)
    assert ended["error"]["code"] == "out_of_memory"
    assert "100 MiB" in ended["error"]["detail"]
    assert "were expected" in ended["error"]["detail"]


def test_too_large_a_job_is_refused(
    stack: Stack, start_service: Callable[..., Service]
) -> None:
    stack.environment["LOMETAB_MAX_TRAINING_BYTES"] = str(100 * 2**20)
    response = start_service("api").client.post(
        "/jobs",
        files={"file": ("t.csv", make_csv(60))},
        data={"config": json.dumps({"target": "y"})},
    )
    assert response.status_code == 422
    assert response.json()["code"] == "too_much_memory"


def test_client_that_hangs_up_costs_nothing(shared_service: Service) -> None:
    endless = {**LONG, "max_epochs": 10_000}
    job = post_job(shared_service.client, TABLE, hyperparameters=endless)
    url = f"/jobs/{job['id']}/events"
    for _ in range(20):
        with (
            shared_service.make_client() as client,
            client.stream("GET", url, headers={"Accept": "text/event-stream"}) as r,
        ):
            assert r.status_code == 200
    assert shared_service.client.get("/healthz").status_code == 200
    shared_service.client.post(f"/jobs/{job['id']}/cancel").raise_for_status()
    wait_until(
        lambda: read_job(shared_service, job["id"])["status"] == "cancelled",
        seconds=15,
        what="the job is cancelled",
    )
