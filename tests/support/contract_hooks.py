"""What schemathesis should know about this API, and the document cannot say."""

from typing import Any

import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import RejectedPositiveData


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext,
    failure: Failure,
    case: schemathesis.Case,
    response: schemathesis.Response,
) -> bool:
    """Whether a failure counts. A cursor is opaque: one that is made up is refused."""
    is_made_up = b'"code":"bad_cursor"' in response.content
    return not (is_made_up and isinstance(failure, RejectedPositiveData))


for table_type in (
    "application/vnd.apache.arrow.stream",
    "application/vnd.apache.parquet",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
):
    schemathesis.serializer.alias(table_type, "application/octet-stream")

CSV = "alcohol,pH,quality\n" + "".join(
    f"{9 + i % 4}.5,{3 + i % 2},{3 + i % 7}\n" for i in range(60)
)
CONFIG = {"target": "quality", "preset": "fast", "hyperparameters": {"k": 2}}


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]
) -> None:
    """In the stateful phase, good uploads are of real tables: links lead on from what
    was made, and of made-up files nothing is made."""
    meta = case.meta
    if meta is None or meta.phase.name.value != "stateful":
        return
    if not meta.generation.mode.is_positive:
        return
    if case.operation.path in ("/datasets", "/jobs") and case.method == "POST":
        case.media_type = "multipart/form-data"
        case.body = {"file": CSV}
        if case.operation.path == "/jobs":
            case.body["config"] = CONFIG
