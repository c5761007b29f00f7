"""Which requests are answered in the event loop itself.

The way to a thread and back takes a fifth of the time of one row for a small model
(docs/decisions/0012-predict-paths.md). Whatever may take longer than that way goes to a
thread, and so does all that could share a run.
"""

from time import perf_counter

from app.serving.predictors import Predictors
from app.serving.requests import PredictRequest
from app.settings import Settings

_BODY_BYTES = 2048
_N_BRACKETS = 8
"""Opening ones, of either kind: a handful of rows without nesting."""
_MODEL_BYTES = 8 * 2**20
_ALONE_SECONDS = 0.005


class QuickRequests:
    """Tells which ones take well below a millisecond and come from one client alone."""

    def __init__(self, settings: Settings, predictors: Predictors) -> None:
        self._settings = settings
        self._predictors = predictors
        self._client: object = None
        self._asked_at = 0.0

    def allow(self, request: PredictRequest, body: bytes, client: object) -> bool:
        return self._is_alone(client) and self._is_short(request, body)

    def _is_alone(self, client: object) -> bool:
        """Whether no other connection has asked for a while."""
        now = perf_counter()
        is_alone = client == self._client or now > self._asked_at + _ALONE_SECONDS
        self._client, self._asked_at = client, now
        return is_alone

    def _is_short(self, request: PredictRequest, body: bytes) -> bool:
        """A few rows for a small model that is loaded, the database in this process."""
        if request.kind != "json" or len(body) > _BODY_BYTES:
            return False
        if b"explain" in body or "explain" in request.query:
            return False
        predictor = self._predictors.find(request.reference)
        return (
            predictor is not None
            and predictor.folded_bytes <= _MODEL_BYTES
            and body.count(b"{") + body.count(b"[") <= _N_BRACKETS
            and self._settings.is_embedded
        )
