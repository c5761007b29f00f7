"""`POST /invocations`, as MLflow's scoring server takes it."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from app.answering import PredictOptions
from app.errors import AppError
from app.serving.neighbours import (
    Answered,
    Asked,
    check_rows,
    write_columns,
    write_json,
)
from app.serving.rows import check_lists
from lometab.answers import flatten
from lometab.errors import DataError, suggest
from lometab.table import clip

FORMS = ("dataframe_split", "dataframe_records", "inputs", "instances")


class Invocation:
    """One request: rows in one of MLflow's forms, `params` as predict's options."""

    def read(self, body: bytes, headers: Mapping[bytes, bytes]) -> Asked:
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        if content_type.partition(";")[0].strip().lower() == "text/csv":
            return Asked(content_type, body, {"exclude": ["members"]})
        found = _parse(body)
        if not isinstance(found, dict):
            raise DataError(
                f"the body must be an object with one of {', '.join(FORMS)}"
            )
        forms = [name for name in FORMS if name in found]
        unknown = [name for name in found if name not in (*FORMS, "params")]
        if len(forms) != 1 or unknown:
            hint = suggest(unknown[0], FORMS) if unknown else ""
            raise DataError(
                f"the body must have one of {', '.join(FORMS)}, and perhaps params, "
                f"however: {', '.join(clip(name) for name in [*found][:20])}{hint}"
            )
        rows = _read_rows(forms[0], found[forms[0]])
        return Asked("application/json", rows, _read_params(found))

    def write(self, answer: dict[str, Any]) -> Answered:
        columns = flatten(answer)
        rows = [
            dict(zip(columns, row, strict=True))
            for row in zip(*columns.values(), strict=True)
        ]
        return Answered("application/json", orjson.dumps({"predictions": rows}))

    def explain(self, error: AppError) -> Mapping[str, str]:
        code = "BAD_REQUEST" if error.status < 500 else "INTERNAL_ERROR"
        return {"error_code": code, "message": error.detail}


_NAN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|NaN', re.DOTALL)
"""A text, to its end wherever that is, or what stands for a missing number."""


def _parse(body: bytes) -> Any:
    """JSON, in which MLflow's own client writes NaN for what is missing."""
    check_lists(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body:
            raise DataError(f"the body is no JSON: {error}") from None
    try:
        return orjson.loads(_without_nan(body))
    except orjson.JSONDecodeError as error:
        raise DataError(f"the body is no JSON: {error}") from None


def _without_nan(body: bytes) -> bytearray:
    """With null in the place of each NaN that is in no text."""
    view, written, start = memoryview(body), bytearray(), 0
    for match in _NAN.finditer(body):
        if match[0] == b"NaN":
            written += view[start : match.start()]
            written += b"null"
            start = match.end()
    written += view[start:]
    return written


def _read_params(found: Mapping[str, Any]) -> dict[str, Any]:
    params = found.get("params") or {}
    known = [*PredictOptions.model_fields]
    if not isinstance(params, dict):
        raise DataError("params must be an object")
    for name in params:
        if name not in known:
            hint = suggest(name, known)
            raise DataError(f"there is no parameter {clip(name)!r}{hint}")
    wanted = "include" in params or "exclude" in params
    return {**params} if wanted else {**params, "exclude": ["members"]}


def _read_rows(form: str, value: Any) -> bytes:
    """As predict takes them; it says what is wrong with the rest."""
    if form == "dataframe_split":
        if not isinstance(value, dict):
            raise DataError("dataframe_split must be an object of columns and data")
        _check(value.get("data"))
        return write_json({name: value.get(name) for name in ("columns", "data")})
    if form in ("inputs", "instances") and isinstance(value, dict):
        columns = {
            name: each if isinstance(each, list) else [each]
            for name, each in value.items()
        }
        if len({len(each) for each in columns.values()}) > 1:
            raise DataError(f"all columns of {form} must have as many values")
        return write_columns(columns, _cut)
    _check(value)
    return write_json({"rows": value})


def _check(rows: Any) -> None:
    if isinstance(rows, list):
        check_rows(len(rows))


def _cut(values: list[Any], start: int, stop: int) -> list[Any]:
    return [_only(value) for value in values[start:stop]]


def _only(value: Any) -> Any:
    """A tensor of shape (N, 1) is a column too."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
