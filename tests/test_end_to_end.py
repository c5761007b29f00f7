"""The whole service as real processes, on both stacks, in fair weather and foul."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.servers import Redis, wait_until
from tests.support.services import TINY, post_job, wait_for_end
from tests.support.stacks import Service, Stack, Stacks
from tests.support.tables import make_csv

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]


def processes_with_data_in(folder: Path) -> list[str]:
    """Command lines of the processes that run on a data directory below a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            data_dir = process.environ().get("LOMETAB_DATA_DIR", "")
            if data_dir.startswith(str(folder)):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_from_csv_to_prediction(shared_service: Service, table_csv: str) -> None:
    by_target = {
        target: post_job(
            shared_service.client, table_csv, target, columns={other: "ignore"}
        )
        for target, other in (("y", "label"), ("label", "y"))
    }
    jobs = {t: wait_for_end(shared_service, job["id"]) for t, job in by_target.items()}
    for job in jobs.values():
        assert job["status"] == "succeeded", job["error"]
        assert job["attempt"] == 1
        assert job["progress"]["epoch"] == 3

    rows = [{"size": 9.5, "colour": "red", "weight": 2}, {"size": "1", "colour": None}]
    diversity = shared_service.client.get(jobs["y"]["links"]["diversity"]).json()
    assert diversity["k"] == 4
    assert diversity["ambiguity"]["mean"] > 0
    assert [each["epoch"] for each in diversity["trajectory"]] == [1, 2, 3]
    calibration = shared_service.client.get(jobs["y"]["links"]["calibration"]).json()
    assert calibration["conformal_intervals"]
    answer = shared_service.client.post(
        f"/models/{jobs['y']['model_id']}/predict", json={"rows": rows}
    ).json()
    assert answer["k"] == 4
    for each in answer["predictions"]:
        assert len(each["members"]) == 4
        assert each["mean"] == pytest.approx(sum(each["members"]) / 4, abs=1e-4)
        assert each["member_std"] > 0

    diversity = shared_service.client.get(jobs["label"]["links"]["diversity"]).json()
    assert diversity["pairwise_kl"]["mean"] > 0
    assert len(diversity["disagreement"]["matrix"]) == 4
    calibration = shared_service.client.get(
        jobs["label"]["links"]["calibration"]
    ).json()
    assert calibration["n_bins"] == 15
    assert sum(each["count"] for each in calibration["bins"]) == diversity["n_rows"]
    answer = shared_service.client.post(
        f"/models/{jobs['label']['model_id']}/predict", json={"rows": rows}
    ).json()
    assert answer["classes"] == ["high", "low"]
    for each in answer["predictions"]:
        assert sum(each["mean"]) == pytest.approx(1, abs=1e-5)
        assert each["label"] == answer["classes"][each["mean"][1] > each["mean"][0]]

    refused = shared_service.client.post(
        f"/models/{jobs['y']['model_id']}/predict", json={"rows": [{"sise": 1}]}
    )
    assert refused.status_code == 422
    assert "size" in refused.json()["detail"]
    onnx = shared_service.client.get(f"/models/{jobs['y']['model_id']}/onnx")
    assert onnx.status_code == 200 and len(onnx.content) > 1000
    if sys.platform == "linux":  # elsewhere others may not look
        loaded = psutil.Process(shared_service.process.pid).memory_maps()
        assert not [each.path for each in loaded if "/pandas/" in each.path]


def test_another_process_repeats_an_answer(
    start_service: Callable[..., Service],
) -> None:
    """The answer to an Idempotency-Key is in the database, not in a process."""
    one, other = start_service("api"), start_service("api")
    settings = {"target": "y", "hyperparameters": TINY}
    first, again = (
        service.client.post(
            "/jobs",
            files={"file": ("t.csv", make_csv(60))},
            data={"config": json.dumps(settings)},
            headers={"Idempotency-Key": "the-same"},
        )
        for service in (one, other)
    )
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert len(other.client.get("/jobs").json()["data"]) == 1


def test_failed_training_is_told(shared_service: Service) -> None:
    """Huge weights and a learning rate of 1: the loss is not a number at once."""
    settings = {"lr": 1.0, "sigma_init": 10, "n_blocks": 8, "rank": 64}
    job = post_job(
        shared_service.client, make_csv(200), hyperparameters={**TINY, **settings}
    )
    ended = wait_for_end(shared_service, job["id"])
    assert (ended["status"], ended["attempt"]) == ("failed", 1)
    assert ended["error"]["code"] == "diverged"
    assert "learning rate 1" in ended["error"]["detail"]
    response = shared_service.client.get(f"/jobs/{job['id']}/diversity")
    assert response.status_code == 409
    assert response.json()["code"] == "no_report"


def test_killed_training_process_is_a_lost_attempt(service: Service) -> None:
    job = post_job(
        service.client,
        make_csv(2000),
        hyperparameters={**TINY, "max_epochs": 30},
    )
    child = wait_until(
        lambda: service.find_process("worker.train"), seconds=60, what="a child"
    )
    child.kill()
    ended = wait_for_end(service, job["id"], seconds=180)
    assert (ended["status"], ended["attempt"]) == ("succeeded", 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopping_leaves_nothing_behind(
    start_service: Callable[[], Service], stack: Stack, number: signal.Signals
) -> None:
    service = start_service()
    settings = {**TINY, "max_epochs": 40, "patience": None}
    job = post_job(service.client, make_csv(2000), hyperparameters=settings)
    wait_until(lambda: service.find_process("worker.train"), seconds=60, what="a child")
    service.stop(number)
    wait_until(
        lambda: not processes_with_data_in(stack.folder),
        seconds=20,
        what="all processes end",
    )
    if number != signal.SIGKILL:  # an orderly stop gives the job back
        (row,) = stack.query("SELECT status, lost_attempts FROM jobs")
        assert tuple(row) == ("queued", 0)
        assert stack.query("SELECT * FROM workers") == []
    again = start_service()
    assert wait_for_end(again, job["id"], seconds=120)["status"] == "succeeded"


@pytest.mark.processes
@pytest.mark.timing
def test_broker_down(
    stacks: Stacks, table_csv: str, request: pytest.FixtureRequest
) -> None:
    """202 within 3 s without Redis; the job runs when Redis is back."""
    stack = stacks.make("production")
    redis = Redis()
    request.addfinalizer(redis.remove)
    stack.environment["LOMETAB_BROKER_URL"] = redis.url()
    service = Service(stack)
    request.addfinalizer(service.stop)
    before = post_job(service.client, table_csv)
    assert wait_for_end(service, before["id"])["status"] == "succeeded"
    # A worker that is about to end a job takes the next one without a message.
    wait_until(
        lambda: service.find_process("worker.train") is None,
        seconds=30,
        what="the worker is idle",
    )
    time.sleep(1)
    redis.stop()
    started_at = time.monotonic()
    job = post_job(service.client, table_csv)
    assert time.monotonic() - started_at < 3
    time.sleep(2)
    assert service.client.get(f"/jobs/{job['id']}").json()["status"] == "queued"
    redis.start()
    assert wait_for_end(service, job["id"])["status"] == "succeeded"


@pytest.mark.processes
@pytest.mark.timing
def test_broker_folder_away(
    stacks: Stacks, table_csv: str, request: pytest.FixtureRequest
) -> None:
    """The same for the folders of the embedded default."""
    stack = stacks.make("embedded")
    service = Service(stack)
    request.addfinalizer(service.stop)
    wait_until(
        lambda: stack.query("SELECT * FROM workers"), seconds=30, what="a worker"
    )
    messages = stack.folder / "broker" / "messages"
    messages.rename(messages.with_name("away"))
    started_at = time.monotonic()
    job = post_job(service.client, table_csv)
    assert time.monotonic() - started_at < 3
    if not messages.exists():
        messages.with_name("away").rename(messages)
    assert wait_for_end(service, job["id"])["status"] == "succeeded"


def test_500_jobs_from_20_clients(service: Service, stack: Stack) -> None:
    worker = wait_until(
        lambda: service.find_process("worker.tasks"), seconds=30, what="a worker"
    )
    worker.suspend()  # the question is whether any is lost, not how fast they train
    tables = [make_csv(40, seed=i) for i in range(5)]

    def post_25(client_number: int) -> list[str]:
        with service.make_client() as client:
            return [
                post_job(client, tables[(client_number + i) % 5])["id"]
                for i in range(25)
            ]

    with ThreadPoolExecutor(20) as pool:
        ids = [id_ for ids in pool.map(post_25, range(20)) for id_ in ids]
    assert len(set(ids)) == 500
    rows = stack.query("SELECT id, dataset_id FROM jobs")
    assert Counter(id_ for id_, _ in rows) == Counter(ids)
    assert len({dataset for _, dataset in rows}) == 5
    assert stack.query("SELECT count(*) FROM datasets") == [(5,)]
    worker.resume()
    wait_until(
        lambda: (
            stack.query("SELECT count(*) FROM jobs WHERE status = 'succeeded'")[0][0]
            >= 2
        ),
        seconds=90,
        what="jobs run",
    )


@pytest.mark.processes
def test_a_stop_just_before_the_server_begins_is_heard(tmp_path: Path) -> None:
    """Between our handlers of signals and uvicorn's."""
    service = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "LOMETAB_DATA_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with service:
        assert service.stdout is not None
        assert any(b"listens" in line for line in service.stdout)
        service.terminate()
        try:
            assert service.wait(30) in (0, -signal.SIGTERM)
        finally:
            service.kill()
    wait_until(
        lambda: not processes_with_data_in(tmp_path),
        seconds=20,
        what="all processes end",
    )


@pytest.mark.parametrize("after_seconds", [0.2, 1.0, 2.5, 7.0])
@pytest.mark.processes
def test_interrupted_demo_leaves_nothing_behind(
    tmp_path: Path, after_seconds: float
) -> None:
    """Ctrl-C: the whole foreground process group gets SIGINT."""
    demo = subprocess.Popen(
        [sys.executable, "examples/demo.py"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # Where the tests run in the background, it would inherit to ignore it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        time.sleep(after_seconds)
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.wait(30) in (130, 1, -signal.SIGINT, 0)
    finally:
        demo.kill()
    wait_until(
        lambda: not processes_with_data_in(tmp_path),
        seconds=20,
        what="all processes end",
    )
    assert list(tmp_path.iterdir()) == []
