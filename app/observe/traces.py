"""Traces by OpenTelemetry, off unless the settings say so: the extra `otel` brings it.

One trace goes from a request through the row of its job to the attempts of workers and
the epochs of their children. The child knows nothing of it: its supervisor has the
times from its messages. Attributes are ids and names of ours; never a key, never data.
Where spans go, OpenTelemetry's own variables say (OTEL_EXPORTER_OTLP_ENDPOINT).
"""

import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from time import time_ns
from typing import TYPE_CHECKING, Any

from app.settings import get_settings
from lometab.errors import MissingPackage

if TYPE_CHECKING:  # FastAPI brings the API of it, the extra the rest
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer

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
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    return _write(context) if context.is_valid else None


def _write(context: "SpanContext") -> str:
    ids = f"{context.trace_id:032x}-{context.span_id:016x}"
    return f"00-{ids}-{context.trace_flags:02x}"


def read_trace_id(traceparent: str) -> str:
    return traceparent.split("-")[1]


def _read(traceparent: str | None) -> "Context | None":
    if traceparent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )

    return TraceContextTextMapPropagator().extract({_HEADER: traceparent})


def is_chosen(traceparent: str | None) -> bool:
    """Whether a predict request is traced: as its caller says, or by lot.

    It is asked before anything is made: a span takes a twentieth of the time of a small
    model's answer.
    """
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent is not None else None
    if found is None:
        return random.random() < get_settings().traces_predict_share
    return bool(int(found[1], 16) & _SAMPLED)


_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})")
_SAMPLED = 1


@contextmanager
def request_span(
    method: str, traceparent: str | None, *, is_leaf: bool = False
) -> "Iterator[RequestSpan]":
    """Around a request.

    Args:
        is_leaf: nothing below it makes spans of its own, and so need not find it.
    """
    assert _tracer is not None
    from opentelemetry.trace import SpanKind, use_span

    span = _tracer.start_span(
        method,
        context=_read(traceparent),
        kind=SpanKind.SERVER,
        attributes={"http.request.method": method},
    )
    found = RequestSpan(span)
    if is_leaf:
        try:
            yield found
        finally:
            span.end()
    else:
        with use_span(span, end_on_exit=True):
            yield found


class RequestSpan:
    """The span of a request, to be named by its route once that is known."""

    def __init__(self, span: "Span") -> None:
        self._span = span
        self.traceparent = _write(span.get_span_context())

    def end(self, method: str, route: str, status: int) -> None:
        self._span.update_name(f"{method} {route}")
        self._span.set_attributes(
            {"http.route": route, "http.response.status_code": status}
        )


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
