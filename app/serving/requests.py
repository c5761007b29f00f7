"""A predict request as it arrived, all but its body."""

import re
from collections.abc import Mapping
from time import perf_counter
from typing import NamedTuple

from starlette.types import Scope

from app.answering import read_query
from app.errors import Invalid
from app.serving.bodies import check_length, choose_media_type, read_content_type
from app.serving.rows import Kind
from app.settings import Settings

BATCHED_BYTES = 2**16
"""A larger body is a table of its own."""
_IS_REFERENCE = re.compile(r"[A-Za-z0-9._@-]{1,300}")


class PredictRequest(NamedTuple):
    """The first stage: what is asked, by whom, and in which formats."""

    secret: str | None
    reference: str
    """The model: an id, `name@version` or `name@alias`."""
    kind: Kind
    charset: str
    media_type: str
    """Of the answer."""
    query: Mapping[str, str]
    length: int | None
    """Of the body, if the client tells."""
    received_at: float

    @property
    def is_small(self) -> bool:
        """A workbook never is: a few kilobytes of it may be long to read."""
        is_short = self.length is not None and self.length <= BATCHED_BYTES
        return is_short and self.kind != "xlsx"


def read_request(scope: Scope, reference: str, settings: Settings) -> PredictRequest:
    """What the head of the request says; an AppError if it cannot be answered."""
    # Without the framework's objects, which take as long as a small model.
    headers = dict(reversed(scope["headers"]))  # the first of each name
    if not _IS_REFERENCE.fullmatch(reference):
        raise Invalid(f"this is no id of a model: {reference!r}")
    kind, charset = read_content_type(
        headers.get(b"content-type", b"").decode("latin-1"),
        headers.get(b"content-encoding", b"identity"),
    )
    return PredictRequest(
        secret=scope["state"]["secret"],
        reference=reference,
        kind=kind,
        charset=charset,
        media_type=choose_media_type(headers.get(b"accept", b"*/*").decode("latin-1")),
        query=read_query(scope["query_string"]),
        length=check_length(headers.get(b"content-length"), find_limit(kind, settings)),
        received_at=perf_counter(),
    )


def find_limit(kind: Kind, settings: Settings) -> int:
    """How many bytes a body may have."""
    is_json = kind in ("json", "lines")
    return settings.max_json_bytes if is_json else settings.max_predict_bytes
