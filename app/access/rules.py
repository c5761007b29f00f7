"""What holds for the requests of each route, before the route hears of them."""

import re
from collections.abc import Callable
from typing import NamedTuple

from app.settings import Settings

MAX_JSON_BODY = 2**20
"""Bytes of a body that the framework reads whole."""


class Rule(NamedTuple):
    """What holds for the requests of a route."""

    methods: tuple[str, ...]
    path: re.Pattern[str]
    needs_caller: bool = True
    """The caller is found here, before the route begins."""
    limit: Callable[[Settings], int] | None = None
    """The route reads the body itself, piece by piece, up to so many bytes."""
    stores: bool = False
    """It fills the disk, and is refused when that is nearly full."""

    def holds(self, method: str, path: str) -> bool:
        return method in self.methods and self.path.fullmatch(path) is not None


_READS = ("GET", "HEAD")
PREDICT = re.compile("/models/(?P<model_id>[^/]+)/predict")
INFER = re.compile(r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
INVOCATIONS = re.compile("(?:/models/(?P<model_id>[^/]+))?/invocations")
RULES = (
    # Finds caller and model by one query, and counts its body by its type.
    Rule(("POST",), PREDICT, needs_caller=False, limit=lambda s: s.max_predict_bytes),
    Rule(("POST",), INFER, needs_caller=False, limit=lambda s: s.max_json_bytes),
    Rule(("POST",), INVOCATIONS, needs_caller=False, limit=lambda s: s.max_json_bytes),
    Rule(
        ("POST",),
        re.compile("/datasets|/jobs"),
        limit=lambda s: s.max_upload_bytes,
        stores=True,
    ),
    Rule(("POST",), re.compile("/jobs/[^/]+/(retry|promote)"), stores=True),
    Rule(("POST",), re.compile("/models/[^/]+/prune"), stores=True),
    Rule(
        ("POST",),
        re.compile("/models/[^/]+/predictions"),
        limit=lambda s: s.max_upload_bytes,
        stores=True,
    ),
    Rule(
        _READS,
        re.compile("/healthz|/readyz|/version|/ping|/v2|/v2/health/(live|ready)"),
        needs_caller=False,
    ),
    # The page has nothing of anybody's in it: what it shows, it asks for.
    Rule(_READS, re.compile("/|/page/.+"), needs_caller=False),
    Rule(_READS, re.compile(r"/docs.*|/redoc|/openapi\.json"), needs_caller=False),
    Rule(_READS, re.compile("/help(/.*)?"), needs_caller=False),
)
"""The first that holds counts; all other requests fall under ANY."""
ANY = Rule((), re.compile(""))


def find_rule(method: str, path: str) -> Rule:
    return next((rule for rule in RULES if rule.holds(method, path)), ANY)
