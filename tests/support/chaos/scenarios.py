"""Single faults at the worst moment. Each gives the stack that it was played on, whose
database is examined after it."""

import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import redis as redis_client

from tests.support.chaos import predictions
from tests.support.chaos.cuts import cut_everywhere, cut_off, make_steps
from tests.support.chaos.field import HYPERPARAMETERS, SHORT
from tests.support.chaos.volumes import full, small_volume
from tests.support.servers import Postgres, wait_until
from tests.support.services import TINY, post_job, read_job
from tests.support.services import wait_for_end as wait_at_most
from tests.support.stacks import Service, Stack, StackName, Stacks
from tests.support.tables import make_csv

Scenario = Callable[[Stacks], Stack]
TABLE = make_csv(600)
JOB: dict[str, Any] = {
    "columns": {"label": "ignore"},
    "hyperparameters": HYPERPARAMETERS,
}


def make_stack(stacks: Stacks, name: StackName = "production") -> Stack:
    stack = stacks.make(name)
    scratch = stack.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    stack.environment |= {**SHORT, "TMPDIR": str(scratch)}
    return stack


@contextmanager
def running(stack: Stack) -> Iterator[Service]:
    service = Service(stack)
    try:
        assert service.client.get("/healthz").status_code == 200
        yield service
    finally:
        service.stop()


def upload(client: httpx.Client, table: str | bytes) -> httpx.Response:
    return client.post("/datasets", files={"file": ("t.csv", table)})


def wait_for_end(service: Service, job_id: str) -> dict[str, Any]:
    """However busy the machine is."""
    return wait_at_most(service, job_id, seconds=600)


def is_training(service: Service, job_id: str) -> bool:
    return bool(read_job(service, job_id)["progress"]["epoch"] >= 2)


# Disks


def spool_full(stacks: Stacks) -> Stack:
    """Uploads are refused while there is no room for them, and then taken."""
    stack = make_stack(stacks)
    with small_volume(stack.folder / "scratch", 16) as volume:
        stack.environment["LOMETAB_MIN_FREE_BYTES"] = "0"
        with running(stack) as service:
            with full(volume):
                for _ in range(3):
                    answer = upload(service.client, make_csv(20_000))
                    assert answer.status_code in (503, 507), answer.text
                assert service.client.get("/healthz").status_code == 200
            wait_until(
                lambda: upload(service.client, TABLE).status_code in (200, 201),
                seconds=60,
                what="uploads are taken again",
            )
            ended = wait_for_end(service, post_job(service.client, TABLE, **JOB)["id"])
            assert ended["status"] == "succeeded", ended
    return stack


def scratch_full(stacks: Stacks) -> Stack:
    """No job fails for it; all are done once there is room."""
    stack = make_stack(stacks)
    with small_volume(stack.folder / "scratch", 64) as volume:
        stack.environment["LOMETAB_MIN_FREE_BYTES"] = "0"
        with running(stack) as service:
            made = [post_job(service.client, TABLE, **JOB)["id"] for _ in range(3)]
            wait_until(
                lambda: is_training(service, made[0]), seconds=300, what="it trains"
            )
            with full(volume):
                time.sleep(10)
                states = [read_job(service, id_)["status"] for id_ in made]
                assert "failed" not in states, states
            for id_ in made:
                ended = wait_for_end(service, id_)
                assert ended["status"] == "succeeded", ended
    return stack


def sqlite_full(stacks: Stacks) -> Stack:
    """What cannot be stored is refused, what was stored stays."""
    stack = stacks.make("embedded")
    database = stack.folder / "lometab.db"
    content = database.read_bytes()
    with ExitStack() as held:
        volume = held.enter_context(small_volume(stack.folder / "disk", 32))
        (volume / "lometab.db").write_bytes(content)
        stack.environment |= {
            **SHORT,
            "LOMETAB_DATA_DIR": str(volume),
            "LOMETAB_MIN_FREE_BYTES": "0",
        }
        stack.url = f"sqlite:///{volume}/lometab.db"
        _fill_database(stack, volume)
        # For the examination, which comes when the disk is gone.
        for path in volume.glob("lometab.db*"):
            (stack.folder / path.name).write_bytes(path.read_bytes())
    stack.environment["LOMETAB_DATA_DIR"] = str(stack.folder)
    return stack


def postgres_full(stacks: Stacks) -> Stack:
    stack = make_stack(stacks)
    stack.environment["LOMETAB_MIN_FREE_BYTES"] = "0"
    with (
        tempfile.TemporaryDirectory(prefix="lometab-disk-") as name,
        small_volume(Path(name), 400) as folder,
    ):
        Path(name).chmod(0o755)  # Postgres may run as nobody
        server = Postgres(folder / "postgres")
        try:
            _move(stack, server)
            _fill_database(stack, folder)
            # Its rows go to the server that stays, to be examined there.
            target = stacks.make("production")
            _copy(server, stack, stacks.postgres, target)
        finally:
            server.remove()
    return target


def _move(stack: Stack, server: Postgres) -> None:
    """The stack's database is one of this server."""
    with server.connect() as connection:
        connection.execute("CREATE DATABASE lometab")
    stack.url = server.url("lometab")
    stack.environment["LOMETAB_DATABASE_URL"] = stack.url
    for command in (["migrate"], ["keys", "create", "test"]):
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", *command],
            env=stack.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.key = done.stdout.strip() or stack.key


def _copy(source: Postgres, stack: Stack, target: Postgres, other: Stack) -> None:
    """All rows of one database into another one, which has none."""
    name = stack.url.rpartition("/")[2]
    tables = _list_tables(source, name)
    with (
        source.connect(name) as reading,
        target.connect(other.url.rpartition("/")[2]) as writing,
    ):
        writing.execute("SET session_replication_role = replica")  # in any order
        for table in tables:
            writing.execute(f'DELETE FROM "{table}"')
            with (
                reading.cursor().copy(f'COPY "{table}" TO STDOUT') as rows,
                writing.cursor().copy(f'COPY "{table}" FROM STDIN') as written,
            ):
                for row in rows:
                    written.write(row)


def _list_tables(server: Postgres, database: str) -> list[str]:
    with server.connect(database) as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        )
        return [row[0] for row in rows]


def _fill_database(stack: Stack, volume: Path) -> None:
    with running(stack) as service:
        kept = upload(service.client, TABLE)
        assert kept.status_code == 201, kept.text
        job = post_job(service.client, TABLE, **JOB)
        wait_until(
            lambda: is_training(service, job["id"]), seconds=300, what="it trains"
        )
        with full(volume):
            for i in range(3):
                answer = upload(service.client, make_csv(20_000, seed=i))
                assert answer.status_code in (500, 503, 507), answer.text
                assert "INSERT" not in answer.text
            time.sleep(3)
        wait_until(
            lambda: upload(service.client, make_csv(50)).status_code in (200, 201),
            seconds=120,
            what="uploads are taken again",
        )
        ended = wait_for_end(service, job["id"])
        assert ended["status"] == "succeeded", ended
        path = f"/datasets/{kept.json()['id']}"
        assert service.client.get(path).json()["n_rows"] == 600


# Connections


def connection_cut(stacks: Stacks) -> Stack:
    """At each step of claim, checkpoint, finish, promote, upload and delete."""
    stack = stacks.make("production")
    with cut_off(stack, stacks.postgres.port) as proxy:
        for step in make_steps().values():
            assert cut_everywhere(proxy, step) > 5
    return stack


# Uploads


def api_killed_in_upload(stacks: Stacks) -> Stack:
    """Whatever part of an upload was there, nothing is left of it, and it can be sent
    again."""
    stack = make_stack(stacks)
    table = make_csv(60_000).encode()
    for share in (0.1, 0.5, 0.95, 1.0):
        service = Service(stack)
        _send_part(service, table, share)
        if share == 1.0:
            time.sleep(random.uniform(0, 0.3))  # while it is stored
        service.stop(signal.SIGKILL)
    with running(stack) as service:
        answer = upload(service.client, table)
        assert answer.status_code in (200, 201), answer.text
        assert answer.json()["n_rows"] == 60_000
    return stack


def _send_part(service: Service, table: bytes, share: float) -> None:
    """The head of an upload, and some of its body."""
    address = urlsplit(service.address)
    head = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
    body = head + table + b"\r\n--b--\r\n"
    lines = [
        "POST /datasets HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {service.stack.key}",
        "Content-Type: multipart/form-data; boundary=b",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection((address.hostname, address.port or 80)) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        client.sendall(body[: int(share * len(body))])
        time.sleep(0.3)


def same_bytes_at_once(stacks: Stacks) -> Stack:
    """Uploaded by some and deleted by others: what is acknowledged is whole."""
    stack = make_stack(stacks)
    counts: Counter[str] = Counter()
    with running(stack) as service:
        deadline = time.monotonic() + 20

        def run() -> None:
            with service.make_client() as client:
                while time.monotonic() < deadline:
                    answer = upload(client, TABLE)
                    counts[f"upload {answer.status_code}"] += 1
                    path = f"/datasets/{answer.json().get('id')}"
                    counts[f"delete {client.delete(path).status_code}"] += 1

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        known = {"upload 200", "upload 201", "delete 204", "delete 404"}
        assert {*counts} <= known, counts
        job = post_job(service.client, TABLE, **JOB)
        assert wait_for_end(service, job["id"])["status"] == "succeeded"
    return stack


# Clocks, versions, bits


def clock_jumps(stacks: Stacks) -> Stack:
    """A worker's clock goes a day ahead, and back: its job is done once."""
    stack = make_stack(stacks)
    with running(stack) as service:
        worker = service.find_process("worker.tasks")
        assert worker is not None
        worker.suspend()  # so that the other one takes the job
        clock = stack.folder / "clock"
        clock.write_text("0")
        other = subprocess.Popen(
            [sys.executable, "-m", "tests.support.chaos.clock", str(clock)],
            env={**stack.environment, "LOMETAB_EXIT_WITH_PARENT": "true"},
            stdin=subprocess.PIPE,
        )
        try:
            job = post_job(service.client, make_csv(1500), **JOB)
            wait_until(
                lambda: is_training(service, job["id"]), seconds=300, what="it trains"
            )
            for off in (86_400, -86_400, 0):
                clock.write_text(str(off))
                time.sleep(2)
            worker.resume()
            ended = wait_for_end(service, job["id"])
            assert ended["status"] == "succeeded", ended
            assert other.poll() is None
        finally:
            other.terminate()
            other.wait(60)
            assert other.stdin is not None
            other.stdin.close()
    return stack


def mixed_versions(stacks: Stacks) -> Stack:
    """Somebody migrates to a later version, which does not go with this one, beneath a
    running service: what runs goes on, nothing new begins, and messages of another
    version harm nobody."""
    stack = make_stack(stacks)
    broker = redis_client.Redis.from_url(stack.environment["LOMETAB_BROKER_URL"])
    with running(stack) as service, broker:
        (head,) = stack.query("SELECT version_num FROM lometab_version")[0]
        job = post_job(service.client, make_csv(1500), **JOB)
        wait_until(
            lambda: is_training(service, job["id"]), seconds=300, what="it trains"
        )
        stack.query(
            "UPDATE lometab_version "
            "SET version_num = 'later', compatible_since = 'later'"
        )
        assert service.client.get("/readyz").status_code == 503
        for command in ("api", "worker"):
            done = subprocess.run(
                [sys.executable, "-m", "app.cli", command],
                env=stack.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=60,
                text=True,
            )
            assert done.returncode == 1 and "later" in done.stdout, done
        for message in _odd_messages():
            broker.lpush("cpu", message)
        stack.query("UPDATE lometab_version SET version_num = :head", head=head)
        assert wait_for_end(service, job["id"])["status"] == "succeeded"
        second = post_job(service.client, TABLE, **JOB)
        assert wait_for_end(service, second["id"])["status"] == "succeeded"
        assert service.client.get("/readyz").status_code == 200
    return stack


def _odd_messages() -> Iterator[str]:
    """An unknown task, other arguments, and no message at all."""
    properties = {
        "delivery_info": {"exchange": "", "routing_key": "cpu"},
        "delivery_tag": "x",
        "body_encoding": "utf-8",
    }
    for task, arguments in (("renamed", []), ("train", ["a", "b", "c"])):
        yield json.dumps(
            {
                "body": json.dumps([arguments, {}, {}]),
                "content-encoding": "utf-8",
                "content-type": "application/json",
                "headers": {"lang": "py", "task": task, "id": "1", "root_id": "1"},
                "properties": properties,
            }
        )


def flipped_bits(stacks: Stacks) -> Stack:
    """Of a table, a checkpoint and a model: each is found, told as our fault, and
    mended by what is asked for again."""
    stack = make_stack(stacks)
    with running(stack) as service:
        client = service.client
        longer = {**HYPERPARAMETERS, "max_epochs": 300}
        job = post_job(client, TABLE, columns=JOB["columns"], hyperparameters=longer)
        wait_until(lambda: _has_checkpoint(stack), seconds=300, what="a checkpoint")
        worker = service.find_process("worker.tasks")
        assert worker is not None
        worker.kill()
        _flip(stack, "SELECT checkpoint_sha256 FROM jobs")
        assert client.post(f"/jobs/{job['id']}/stop").status_code == 202
        ended = wait_for_end(service, job["id"])
        assert ended["status"] == "succeeded", ended  # without the checkpoint
        path = f"/models/{ended['model_id']}/onnx"
        _flip(stack, "SELECT onnx_sha256 FROM models")
        with client.stream("GET", path) as answer:
            assert answer.status_code == 500
        _flip(stack, "SELECT table_sha256 FROM datasets")
        assert upload(client, TABLE).status_code in (200, 201)  # which mends it
        again = post_job(client, TABLE, columns=JOB["columns"], hyperparameters=TINY)
        assert wait_for_end(service, again["id"])["status"] == "succeeded"
        assert client.delete(f"/models/{ended['model_id']}").status_code == 204
    return stack


def _has_checkpoint(stack: Stack) -> bool:
    rows = stack.query("SELECT id FROM jobs WHERE checkpoint_sha256 IS NOT NULL")
    return bool(rows)


def _flip(stack: Stack, which: str) -> None:
    """One bit of the first chunk of each such blob."""
    n = stack.query(
        "UPDATE blob_chunks SET content = set_bit(content, 777, 1 - "
        "get_bit(content, 777)) FROM blobs WHERE blob_chunks.index = 0 AND "
        "blobs.generation = blob_chunks.generation AND blobs.sha256 IN "
        f"({which}) RETURNING 1"
    )
    assert n, "nothing was flipped"


# The end


def sigterm_under_load(stacks: Stacks) -> Stack:
    """Answers that have begun are whole, what was acknowledged is there, and the next
    service goes on with the job."""
    stack = make_stack(stacks)
    answers: list[int] = []
    kept: list[str] = []
    service = Service(stack)
    first = post_job(service.client, TABLE, **JOB)
    model = wait_for_end(service, first["id"])["model_id"]
    second = post_job(service.client, make_csv(1500), **JOB)
    wait_until(
        lambda: is_training(service, second["id"]), seconds=300, what="it trains"
    )

    def run(seed: int) -> None:
        with service.make_client() as client:
            for i in range(10_000):
                try:
                    rows = [{"size": 1.0, "colour": "red", "weight": 1.0}] * 2000
                    path = f"/models/{model}/predict"
                    answer = client.post(path, json={"rows": rows})
                    answers.append(len(answer.json()["predictions"]))
                    made = upload(client, make_csv(200, seed=1000 * seed + i))
                    if made.status_code in (200, 201):
                        kept.append(made.json()["id"])
                except httpx.TransportError:
                    return

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    assert service.stop(signal.SIGTERM) == 0
    for thread in threads:
        thread.join()
    assert answers and {*answers} == {2000}
    with running(stack) as again:
        for id_ in kept:
            assert again.client.get(f"/datasets/{id_}").status_code == 200
        assert wait_for_end(again, second["id"])["status"] == "succeeded"
    return stack


SCENARIOS: dict[str, Scenario] = {
    "the spool's disk is full": spool_full,
    "the scratch disk of a worker is full": scratch_full,
    "the disk of SQLite is full": sqlite_full,
    "the disk of Postgres is full": postgres_full,
    "the connection is cut at each step": connection_cut,
    "the API is killed in an upload": api_killed_in_upload,
    "the same bytes are uploaded and deleted at once": same_bytes_at_once,
    "a worker's clock jumps": clock_jumps,
    "versions are mixed": mixed_versions,
    "bits are flipped": flipped_bits,
    "SIGTERM under load": sigterm_under_load,
    **predictions.SCENARIOS,
}
