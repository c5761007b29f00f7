"""What schemathesis should know about this API, and the document cannot say."""

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
):
    schemathesis.serializer.alias(table_type, "application/octet-stream")
