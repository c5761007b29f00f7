"""Traces by OpenTelemetry, off unless the settings say so: the extra `otel` brings it.

One trace goes from a request through the row of its job to the attempts of workers and
the epochs of their children. The child knows nothing of it: its supervisor has the
times from its messages. Attributes are ids and names of ours; never a key, never data.
Where spans go, OpenTelemetry's own variables say (OTEL_EXPORTER_OTLP_ENDPOINT).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from time import time_ns
from typing import TYPE_CHECKING, Any

from app.settings import get_settings
from lometab.errors import MissingPackage

if TYPE_CHECKING:  # FastAPI brings the API of it, the extra the rest
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

_HEADER = "traceparent"
_tracer: "Tracer | None" = None


def check() -> None:
    """See that traces can be made, if the settings want them.

    Raises:
        MissingPackage: OpenTelemetry is not installed; the message says what to do.
    """
    if not get_settings().traces:
        return
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace.export  # noqa: F401
    except ImportError as error:
        raise MissingPackage(
            "LOMETAB_TRACES is set, and OpenTelemetry's exporter is not installed: "
            f"pip install 'lometab[otel]' ({error})"
        ) from error


def begin(service: str) -> None:
    """Trace this process, if the settings want it.

    Raises:
        MissingPackage: see `check`.
    """
    if not get_settings().traces:
        return
    check()
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)  # FastAPI's own spans go there, too
    use(provider)


def use(provider: Any | None) -> None:
    """Make spans by this provider; None: make none."""
    global _tracer
    _tracer = None if provider is None else provider.get_tracer("lometab")


def is_on() -> bool:
    return _tracer is not None


def end() -> None:
    """Send what is left."""
    if _tracer is None:
        return
    from opentelemetry import trace

    shutdown = getattr(trace.get_tracer_provider(), "shutdown", None)
    if shutdown is not None:
        shutdown()


def current_traceparent() -> str | None:
    """The span that we are in, as W3C Trace Context has it."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_HEADER)


def read_trace_id(traceparent: str) -> str:
    return traceparent.split("-")[1]


def _read(traceparent: str | None) -> "Context | None":
    if traceparent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )

    return TraceContextTextMapPropagator().extract({_HEADER: traceparent})


@contextmanager
def request_span(method: str, traceparent: str | None) -> "Iterator[Span]":
    """Around a request; to be named by its route once that is known."""
    assert _tracer is not None
    from opentelemetry.trace import SpanKind

    with _tracer.start_as_current_span(
        method, context=_read(traceparent), kind=SpanKind.SERVER
    ) as span:
        span.set_attribute("http.request.method", method)
        yield span


def end_request(span: "Span", method: str, route: str, status: int) -> None:
    span.update_name(f"{method} {route}")
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)


class AttemptTrace:
    """The spans of one attempt at a job; none if traces are off."""

    def __init__(
        self,
        traceparent: str | None,
        attributes: Mapping[str, str | int],
        queued_at: datetime,
    ) -> None:
        """Begin: how long it was queued, and the attempt itself.

        Args:
            traceparent: the request that the job came of.
        """
        self._span: Span | None = None
        self._phase: Span | None = None
        if _tracer is None:
            return
        before = _read(traceparent)
        now = time_ns()
        begun = min(now, int(queued_at.timestamp() * 1e9))
        queued = _tracer.start_span(
            "job queued", before, attributes=attributes, start_time=begun
        )
        queued.end(now)
        self._span = _tracer.start_span("job attempt", before, attributes=attributes)
        self._epoch_at = now
        self.begin_phase("preparing")

    def begin_phase(self, phase: str) -> None:
        if _tracer is None or self._span is None:
            return
        from opentelemetry.trace import set_span_in_context

        if self._phase is not None:
            self._phase.end()
        self._inside = set_span_in_context(self._span)
        self._phase = _tracer.start_span(f"job {phase}", self._inside)
        self._inside = set_span_in_context(self._phase)
        self._epoch_at = time_ns()

    def end_epoch(self, epoch: int) -> None:
        if _tracer is None or self._phase is None:
            return
        span = _tracer.start_span(
            "job epoch",
            self._inside,
            attributes={"epoch": epoch},
            start_time=self._epoch_at,
        )
        self._epoch_at = time_ns()
        span.end(self._epoch_at)

    def end(self, how: str) -> None:
        for span in (self._phase, self._span):
            if span is not None:
                span.set_attribute("ended", how)
                span.end()
        self._phase = self._span = None
