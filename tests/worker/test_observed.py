"""What operators see of an attempt: its spans, and its lines in the log."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
from celery.signals import worker_init

from app import jobs
from app.observe import JsonFormatter, traces
from app.storage import db
from app.storage.tables import utc_now
from tests.support.fake_child import FakeChild, add_job, claim, write_model
from tests.support.spans import SENT, recorded
from worker import tasks
from worker.child import Children

pytestmark = pytest.mark.usefixtures("sqlite")


def run_one() -> None:
    children = Children(lambda: FakeChild([write_model]))
    try:
        assert tasks.run_training(None, children)
    finally:
        children.end()


def test_the_span_of_the_queue_begins_when_the_job_last_came_to_it() -> None:
    add_job(created_at=utc_now() - timedelta(days=10))
    with db.transaction() as session:
        assert jobs.release(session, claim(session))
    with recorded() as spans:
        run_one()
    (queued,) = [each for each in spans.get_finished_spans() if "queued" in each.name]
    assert queued.start_time is not None and queued.end_time is not None
    assert queued.end_time - queued.start_time < 60e9


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the worker's loggers write, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("worker")
    logger.addHandler(handler)
    before, _ = logger.level, logger.setLevel("INFO")
    yield stream
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_lines_of_an_attempt_name_the_trace_of_its_request(
    written: io.StringIO,
) -> None:
    with recorded(), traces.request_span("POST", SENT):
        first = add_job()
    run_one()
    second = add_job()
    run_one()
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    begun = [each for each in lines if "attempt 1 begins" in each["message"]]
    assert [each["job_id"] for each in begun] == [first.id, second.id]
    for line in lines:
        assert (line["attempt"], line["workspace_id"]) == (1, "default")
        is_first = line["job_id"] == first.id
        assert line.get("trace_id") == (SENT.split("-")[1] if is_first else None)


def test_what_goes_wrong_as_a_worker_starts_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Celery would log it, and go on without heartbeats."""

    def fail() -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(tasks, "configure_logging", fail)  # before anything is done
    with pytest.raises(SystemExit) as raised:
        worker_init.send(sender=None)
    assert raised.value.code == 1


FAILING = """
from worker import tasks

def fail():
    raise OSError("no more threads")

tasks.reporting.start = fail
tasks.main()
"""


@pytest.mark.processes
def test_such_a_worker_ends_as_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING],
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "this worker does not start" in done.stderr
