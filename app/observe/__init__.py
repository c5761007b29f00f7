"""What operators see of the service: logs and request ids."""

from app.observe.logs import Formatter, configure_logging, describe_error, escape
from app.observe.requests import ENDLESS, HEADER, Observed, write_lines

__all__ = [
    "ENDLESS",
    "HEADER",
    "Formatter",
    "Observed",
    "configure_logging",
    "describe_error",
    "escape",
    "write_lines",
]
