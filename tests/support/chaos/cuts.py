"""The connection to the database is cut at each step of what is done with it.

Between us and Postgres stands a proxy that counts what we send. What is to be done is
done again and again, each time cut one message later: before the server hears the
message, and after, when its answer is lost. Then it is asked for again, as a worker
or a client would, and must have been done once.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import jobs
from app.jobs import queue
from app.main import app
from app.settings import get_settings
from app.storage import db
from app.storage.tables import Dataset, Event, Job, TrainedModel
from tests.support.fake_child import MODEL, SCORES, add_job, read
from tests.support.http import make_key
from tests.support.jobs import expire
from tests.support.stacks import Stack
from tests.support.tables import make_csv
from worker import record
from worker.record import DATABASE_AWAY, Record

OWNER = "me"
REPORTS = {"report": SCORES}


class Proxy:
    """Hands on what it gets, and cuts all connections at the message it is told."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._n_left: int | None = None
        self._is_heard = self._was_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, n: int, *, is_heard: bool) -> None:
        """Cut at the n-th message from now; if it is heard, its answer is not."""
        self._n_left, self._is_heard, self._was_cut = n, is_heard, False

    def disarm(self) -> bool:
        """Whether there was a cut."""
        self._n_left = None
        return self._was_cut

    def close(self) -> None:
        self._listener.close()
        self._cut()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                with self._lock:
                    self._pairs.append((client, server))
                for run in (self._hand_on, self._hand_back):
                    arguments = (client, server)
                    threading.Thread(target=run, args=arguments, daemon=True).start()

    def _hand_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while content := client.recv(2**20):
                if self._is_last():
                    if self._is_heard:
                        server.sendall(content)
                        server.settimeout(1)
                        server.recv(1, socket.MSG_PEEK)  # it has done what we asked
                    self._was_cut = True
                    self._cut()
                    return
                server.sendall(content)
        self._drop(client, server)

    def _is_last(self) -> bool:
        with self._lock:
            if self._n_left is None:
                return False
            self._n_left -= 1
            return self._n_left == 0

    def _hand_back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                server.recv(1, socket.MSG_PEEK)
                with self._lock:
                    is_lost = self._n_left == 0
                if is_lost:
                    return  # the answer to the last message
                content = server.recv(2**20)
                if not content:
                    break
                client.sendall(content)
        self._drop(client, server)

    def _cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self._drop(*pair)

    def _drop(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@dataclass
class Step:
    """Something that is done in one or more transactions."""

    prepare: Callable[[], Any]
    do: Callable[[Any], None]
    """What may be cut; it raises as DATABASE_AWAY, or not at all."""
    settle: Callable[[Any], None]
    """What is done next by whoever was cut, and must hold after it."""


def cut_everywhere(proxy: Proxy, step: Step) -> int:
    """How many places there were."""
    n_cuts = 0
    for is_heard in (False, True):
        n = 0
        was_cut = True
        while was_cut:
            n += 1
            subject = step.prepare()
            proxy.arm(n, is_heard=is_heard)
            with suppress(*DATABASE_AWAY):
                step.do(subject)
            was_cut = proxy.disarm()
            n_cuts += was_cut
            step.settle(subject)
    return n_cuts


@contextmanager
def cut_off(stack: Stack, port: int) -> Iterator[Proxy]:
    """This process uses the stack, its database through a proxy."""
    proxy = Proxy(port)
    url = sa.make_url(stack.url).set(port=proxy.port)
    engine = db.make_engine(url.render_as_string(hide_password=False))
    get_settings.cache_clear()
    queue.get_celery.cache_clear()
    with (
        patch.dict(os.environ, stack.environment),
        patch.object(db, "get_engine", lambda: engine),
    ):
        yield proxy
        db.dispose_predict_engine()
        engine.dispose()
    proxy.close()
    get_settings.cache_clear()
    queue.get_celery.cache_clear()


# What is cut


def hold() -> Job:
    job = add_job()
    held = record.claim(get_settings(), OWNER, job.id)
    assert held is not None
    return held


def end(job: Job) -> None:
    """As a worker does it, which asks again until it is told."""
    mine = Record(job)
    if not mine.finish(MODEL, REPORTS, {}):
        mine.end_cancelled()
    with db.reading() as session:
        now = session.get_one(Job, job.id)
        assert now.status == "succeeded", now.status
        for table, where in (
            (TrainedModel, TrainedModel.job_id == job.id),
            (Event, sa.and_(Event.job_id == job.id, Event.type == "succeeded")),
        ):
            n = session.scalar(
                sa.select(sa.func.count()).select_from(table).where(where)
            )
            assert n == 1, (table, n)


def claim_again(job: Job) -> None:
    """Nobody knows of the claim, if it was made: its lease runs out."""
    if read(job).status == "running":
        with db.transaction() as session:
            expire(session, job)
        with db.transaction() as session:
            jobs.requeue_stalled(session, max_attempts=1000)
    held = record.claim(get_settings(), OWNER, job.id)
    assert held is not None and held.attempt <= 2
    end(held)


CHECKPOINT = bytes(range(256))


def keep_again(job: Job) -> None:
    later = CHECKPOINT[::-1]
    assert Record(job).keep_checkpoint(later, 2)
    assert Record(read(job)).read_checkpoint() == later
    end(job)


def make_steps() -> dict[str, Step]:
    peer = ("127.0.0.1", 1)
    client = TestClient(app, "http://127.0.0.1", client=peer)
    client.headers["Authorization"] = f"Bearer {make_key()}"
    table = {"file": ("t.csv", make_csv(60))}
    other = {"file": ("t.csv", make_csv(61))}  # of which no job is made
    grid = {"target": "y", "kind": "sweep", "sweep": {"grid": {"rank": [1, 2]}}}

    def upload(files: Any = other) -> str:
        answer = client.post("/datasets", files=files)
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    def sweep() -> str:
        answer = client.post("/jobs", json={**grid, "dataset_id": upload(table)})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def ask(method: str, path: str, *statuses: int, **options: Any) -> int:
        answer = client.request(method, path, **options)
        assert answer.status_code in statuses, answer.text
        return answer.status_code

    def settle_sweep(id_: str) -> None:
        """It may have been done though we were not told: then there are two."""
        ask("POST", f"/jobs/{id_}/promote", 202, json={"cell": 0})
        with db.reading() as session:
            where = Job.promoted_from == id_
            made = session.scalars(sa.select(Job).where(where)).all()
        assert 1 <= len(made) <= 2
        for each in (id_, *(job.id for job in made)):
            ask("POST", f"/jobs/{each}/cancel", 200, 202)

    def settle_upload(id_: str) -> None:
        ask("DELETE", f"/datasets/{id_}", 204, 404)
        with db.reading() as session:
            assert session.get(Dataset, id_) is None

    def make_model() -> str:
        job = hold()
        end(job)
        with db.reading() as session:
            where = TrainedModel.job_id == job.id
            return session.scalars(sa.select(TrainedModel.id).where(where)).one()

    def settle_model(id_: str) -> None:
        ask("DELETE", f"/models/{id_}", 204, 404)
        with db.reading() as session:
            assert session.get(TrainedModel, id_) is None

    return {
        "claim": Step(
            add_job,
            lambda job: (record.claim(get_settings(), OWNER, job.id), None)[1],
            claim_again,
        ),
        "checkpoint": Step(
            hold,
            lambda job: (Record(job).keep_checkpoint(CHECKPOINT, 1), None)[1],
            keep_again,
        ),
        "finish": Step(
            hold, lambda job: (Record(job).finish(MODEL, REPORTS, {}), None)[1], end
        ),
        "promote": Step(
            sweep,
            lambda id_: (
                ask("POST", f"/jobs/{id_}/promote", 202, 503, json={"cell": 0}),
                None,
            )[1],
            settle_sweep,
        ),
        "upload": Step(
            lambda: None,
            lambda _: (ask("POST", "/datasets", 200, 201, 503, files=other), None)[1],
            lambda _: settle_upload(upload()),
        ),
        "delete a dataset": Step(
            upload,
            lambda id_: (ask("DELETE", f"/datasets/{id_}", 204, 503), None)[1],
            settle_upload,
        ),
        "delete a model": Step(
            make_model,
            lambda id_: (ask("DELETE", f"/models/{id_}", 204, 503), None)[1],
            settle_model,
        ),
    }
