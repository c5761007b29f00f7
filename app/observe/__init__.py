"""What operators see of the service: logs, request ids, metrics."""

from app.observe import metrics, traces
from app.observe.context import about
from app.observe.exchange import CONTENT_TYPE as METRICS_TYPE
from app.observe.exchange import Reporting, render_all
from app.observe.logs import (
    Formatter,
    JsonFormatter,
    configure_logging,
    describe_error,
    escape,
)
from app.observe.metrics import Gauge
from app.observe.requests import ENDLESS, HEADER, ROUTE, WHOSE, Observed, write_lines

__all__ = [
    "ENDLESS",
    "HEADER",
    "METRICS_TYPE",
    "ROUTE",
    "WHOSE",
    "Formatter",
    "Gauge",
    "JsonFormatter",
    "Observed",
    "Reporting",
    "about",
    "configure_logging",
    "describe_error",
    "escape",
    "metrics",
    "render_all",
    "traces",
    "write_lines",
]
