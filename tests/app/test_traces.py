"""Traces: from a request through its job's row to a worker's attempt and epochs."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.observe import traces
from app.observe.traces import AttemptTrace
from app.settings import get_settings
from app.storage import db
from app.storage.tables import Job
from tests.support.models import ROWS, succeed
from tests.support.spans import SENT, recorded, trace_id


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded() as exporter:
        yield exporter


def test_a_job_is_one_trace_with_its_request(
    client: TestClient, spans: InMemorySpanExporter
) -> None:
    client.headers["traceparent"] = SENT
    job_id = succeed(client, "y")["id"]
    del client.headers["traceparent"]
    posted = next(s for s in spans.get_finished_spans() if s.name == "POST /jobs")
    assert trace_id(posted) == SENT.split("-")[1]
    assert posted.parent is not None
    assert f"{posted.parent.span_id:016x}" == SENT.split("-")[2]
    with db.reading() as session:
        job = session.get_one(Job, job_id)
    assert job.traceparent is not None
    assert job.traceparent.split("-")[1:2] == SENT.split("-")[1:2]
    spans.clear()
    attempt = AttemptTrace(job.traceparent, {"job.id": job.id}, job.created_at)
    attempt.begin_phase("training")
    attempt.end_epoch(1)
    attempt.end_epoch(2)
    attempt.begin_phase("exporting")
    attempt.end("succeeded")
    found = spans.get_finished_spans()
    assert {trace_id(span) for span in found} == {SENT.split("-")[1]}
    ids = {span.context.span_id: span.name for span in found if span.context}
    below = [(s.name, ids.get(s.parent.span_id)) for s in found if s.parent]
    assert sorted(below, key=str) == [
        ("job attempt", None),  # below the request
        ("job epoch", "job training"),
        ("job epoch", "job training"),
        ("job exporting", "job attempt"),
        ("job preparing", "job attempt"),
        ("job queued", None),
        ("job training", "job attempt"),
    ]
    first, second = [span for span in found if span.name == "job epoch"]
    assert first.end_time == second.start_time


def test_predict_is_seen(client: TestClient, spans: InMemorySpanExporter) -> None:
    model_id = succeed(client, "y")["model_id"]
    spans.clear()
    path = f"/models/{model_id}/predict"
    assert client.post(path, json={"rows": ROWS[:1]}).status_code == 200
    assert client.post(path, json={"rows": "none"}).status_code == 422
    good, bad = spans.get_finished_spans()
    assert good.name == bad.name == "POST /models/{model_id}/predict"
    assert good.attributes is not None and bad.attributes is not None
    assert good.attributes["http.response.status_code"] == 200
    assert bad.attributes["http.response.status_code"] == 422


def test_without_the_extra_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "traces", True)
    monkeypatch.setitem(
        __import__("sys").modules,
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        None,
    )
    with pytest.raises(traces.MissingExtra, match=r"lometab\[otel\]"):
        traces.begin("test")


def test_off_nothing_is_made() -> None:
    assert not traces.is_on()
    assert traces.current_traceparent() is None
    attempt = AttemptTrace(SENT, {}, Job(created_at=None).created_at)
    attempt.begin_phase("training")
    attempt.end_epoch(1)
    attempt.end("succeeded")
