"""Prediction jobs done by the worker's own code in this process, and their results."""

import shutil
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from app import jobs
from app.settings import get_settings
from app.storage import db
from app.storage.tables import Job
from worker import record, train
from worker.child import Children
from worker.health import Health
from worker.messages import BASE, DATA, Done, Failed, Message, Order, Spec
from worker.predict import Prediction
from worker.supervise import Attempt


class AnsweringChild:
    """What the process of a worker does, at once and in this one."""

    def __init__(self) -> None:
        self._sent: list[Message] = []
        self._exit_code = 0
        self._prediction = Prediction(self.folder)

    @cached_property
    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="lometab-fake-"))

    def start(self, spec: Spec) -> None:
        try:
            self._prediction.run(spec, self._sent.append, set())
            self._sent.append(Done())
        except Exception as error:
            self._sent.append(Failed(train.failure_code(error), str(error)))
            self._exit_code = 1

    def send(self, order: Order) -> None: ...

    def receive(self, timeout: float) -> list[Message] | None:
        sent, self._sent = self._sent, []
        return sent or None

    def is_running(self) -> bool:
        return self._exit_code == 0

    def wait(self) -> bool:
        return True

    def end(self) -> int:
        return self._exit_code

    def count_bytes(self) -> int:
        return 0

    def read_last_line(self) -> str:
        return ""

    def clear(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in (DATA, BASE):
                path.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def take_part(children: Children) -> Job | None:
    """Claim the next job and see it through as a worker does.

    Its lease lasts: the thread that renews one has no part in a test's transaction.
    """
    settings = get_settings().model_copy(update={"lease_seconds": 3600.0})
    job = record.claim(settings, "me", None)
    if job is None:
        return None
    assert job.parent_id is not None
    record.begin_parent(job.parent_id)
    Attempt(job, settings, children, Health()).run()
    record.update_parent(job)
    return job


def work_off(between: Callable[[Job], None] = lambda _: None) -> list[Job]:
    """All jobs that wait, one after the other; with what happens after each."""
    done: list[Job] = []
    children = Children(AnsweringChild)
    try:
        while (job := take_part(children)) is not None:
            done.append(job)
            between(job)
    finally:
        children.end()
    return done


def read_row(job_id: str) -> Job:
    with db.reading() as session:
        return session.get_one(Job, job_id)


def cancel(job_id: str) -> None:
    with db.transaction() as session:
        assert jobs.cancel(session, session.get_one(Job, job_id))


def check_links(job: dict[str, Any]) -> None:
    assert job["links"]["result"] == f"/jobs/{job['id']}/result"
    assert job["links"]["faults"] == f"/jobs/{job['id']}/faults"
