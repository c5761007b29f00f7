"""What operators see of an attempt: its spans, and its lines in the log."""

from datetime import timedelta

import pytest

from app import jobs
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
    add_job(created_at=utc_now() - timedelta(days=10), traceparent=SENT)
    with db.transaction() as session:
        assert jobs.release(session, claim(session))
    with recorded() as spans:
        run_one()
    (queued,) = [each for each in spans.get_finished_spans() if "queued" in each.name]
    assert queued.start_time is not None and queued.end_time is not None
    assert queued.end_time - queued.start_time < 60e9
