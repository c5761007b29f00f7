"""Traces: from a request through its job's row to a worker's attempt and epochs."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.cli.service import worker_command
from app.observe import traces
from app.observe.traces import AttemptTrace
from app.settings import get_settings
from app.storage import db
from app.storage.tables import Job
from lometab.errors import MissingPackage
from lometab.extras import is_installed
from tests.support.models import ROWS, succeed
from tests.support.services import post_job, wait_for_end
from tests.support.spans import SENT, recorded, trace_id
from tests.support.stacks import Service, Stack
from tests.support.tables import make_csv

ROOT = Path(__file__).parents[2]


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


def test_predict_is_seen(
    client: TestClient, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_settings(), "traces_predict_share", 1.0)
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


UNSAMPLED = SENT.removesuffix("01") + "00"
CHOICES = {None: None, SENT: True, UNSAMPLED: False, "nonsense": None}
"""Whether a predict request is traced, by its `traceparent`; None: by lot."""


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_which_predict_requests_are_traced(
    client: TestClient,
    spans: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
) -> None:
    path = f"/models/{succeed(client, 'y')['model_id']}/predict"
    monkeypatch.setattr(get_settings(), "traces_predict_share", share)
    for given, chosen in CHOICES.items():
        spans.clear()
        headers = {} if given is None else {"traceparent": given}
        answer = client.post(path, json={"rows": ROWS[:1]}, headers=headers)
        assert answer.status_code == 200
        is_traced = share == 1 if chosen is None else chosen
        assert len(spans.get_finished_spans()) == is_traced, given
        if is_traced and chosen:
            (span,) = spans.get_finished_spans()
            assert trace_id(span) == SENT.split("-")[1]


def test_a_request_that_breaks_has_its_span_ended(spans: InMemorySpanExporter) -> None:
    for is_leaf in (False, True):
        with pytest.raises(OSError, match="broken"):
            with traces.request_span("POST", None, is_leaf=is_leaf):
                raise OSError("broken")
    assert len(spans.get_finished_spans()) == 2


def test_without_the_extra_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_settings(), "traces", True)
    monkeypatch.setitem(
        __import__("sys").modules,
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        None,
    )
    with pytest.raises(MissingPackage, match=r"lometab\[otel\]"):
        traces.begin("test")


def test_off_nothing_is_made() -> None:
    assert not traces.is_on()
    assert traces.current_traceparent() is None
    attempt = AttemptTrace(SENT, {}, Job(created_at=None).created_at)
    attempt.begin_phase("training")
    attempt.end_epoch(1)
    attempt.end("succeeded")


EXPORTER = "opentelemetry.exporter.otlp.proto.http"
WITHOUT_IT = f"import sys; sys.modules['{EXPORTER}.trace_exporter'] = None"


@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [
        ["-m", "app.cli", "api", "--port", "0"],
        ["-m", "app.cli", "api", "--port", "0", "--processes", "2"],
        ["-m", "app.cli", "serve", "--port", "0"],
        worker_command()[1:],
    ],
    ids=["api", "api of two processes", "serve", "worker"],
)
def test_without_the_extra_no_process_starts(
    command: list[str], tmp_path: Path
) -> None:
    engine = db.make_engine(f"sqlite:///{tmp_path}/lometab.db")
    db.migrate(engine)
    engine.dispose()
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_IT)
    done = subprocess.run(
        [sys.executable, *command],
        env={
            "LOMETAB_DATA_DIR": str(tmp_path),
            "LOMETAB_TRACES": "true",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode not in (0, None)
    assert "pip install 'lometab[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


class Sink(BaseHTTPRequestHandler):
    """A collector that keeps what it is sent."""

    received: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.received.append((self.path, self.rfile.read(length)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


@pytest.fixture
def sink() -> Iterator[HTTPServer]:
    Sink.received = []
    server = HTTPServer(("127.0.0.1", 0), Sink)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(
    not is_installed(EXPORTER), reason="needs pip install 'lometab[otel]'"
)
@pytest.mark.both_databases
def test_spans_of_api_and_worker_reach_a_collector(
    stack: Stack, start_service: Callable[..., Service], sink: HTTPServer
) -> None:
    """By the real exporter, over HTTP: one trace from the request to the epochs."""
    stack.environment |= {
        "LOMETAB_TRACES": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink.server_port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    service = start_service()
    service.client.headers["traceparent"] = SENT
    job = post_job(service.client, make_csv())
    assert wait_for_end(service, job["id"])["status"] == "succeeded"
    assert service.stop() == 0  # what is left is sent
    assert {path for path, _ in Sink.received} == {"/v1/traces"}
    found: dict[str, set[str]] = {}
    for _, body in Sink.received:
        for of_process in ExportTraceServiceRequest.FromString(body).resource_spans:
            (name,) = (
                each.value.string_value
                for each in of_process.resource.attributes
                if each.key == "service.name"
            )
            found.setdefault(name, set()).update(
                span.name
                for scope in of_process.scope_spans
                for span in scope.spans
                if span.trace_id.hex() == SENT.split("-")[1]
            )
    assert "POST /jobs" in found["lometab-api"]
    assert found["lometab-worker"] >= {"job queued", "job attempt", "job epoch"}
