"""Packages that are not everybody's: which extra brings each."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lometab.errors import MissingPackage

EXTRAS = {
    "cli": ("rich", "typer"),
    "table": ("duckdb", "flatbuffers", "openpyxl", "pyarrow"),
    "train": ("onnx", "safetensors", "sklearn", "torch"),
    "serve": (
        *("alembic", "celery", "fastapi", "fastapi_offline", "httptools", "kombu"),
        *("obstore", "optuna", "orjson"),
        *("psutil", "psycopg", "pydantic", "pydantic_settings", "python_multipart"),
        *("redis", "sqlalchemy", "starlette", "uvicorn", "uvloop"),
    ),
    "plots": ("vl_convert",),
    "mlflow": ("mlflow", "pandas"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    "catboost": ("catboost",),
}
"""The modules of each extra, as in pyproject.toml; `all` is all but catboost."""
_EXTRA_OF = {module: extra for extra, found in EXTRAS.items() for module in found}


def explain_missing(error: ModuleNotFoundError) -> MissingPackage | None:
    """One sentence that names the extra; None if the module is of none."""
    name = error.name or ""
    known = (each for each in _EXTRA_OF if f"{name}.".startswith(f"{each}."))
    module = next(known, None)
    if module is None:
        return None
    extra = _EXTRA_OF[module]
    return MissingPackage(
        f"this needs the package {module}, which the extra `{extra}` brings: "
        f"pip install 'lometab[{extra}]'"
    )


def is_tracked() -> bool:
    """Whether `MLFLOW_TRACKING_URI` says where runs are to be logged."""
    return bool(os.environ.get("MLFLOW_TRACKING_URI"))


def is_installed(module: str) -> bool:
    """Without importing it; the packages above it may be."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def naming_extras() -> Iterator[None]:
    """Raise MissingPackage in place of ModuleNotFoundError for what an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = explain_missing(error)
        if missing is None:
            raise
        raise missing from error
