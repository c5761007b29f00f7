"""What every request passes before anything is done for it.

Headers and bodies are bounded, and a caller is known before a body is read: nobody
without a key can make the service hold more than a few kilobytes. A key's own limits
are kept, changes are recorded, and what the service raises at whatever place, it
answers as a problem.
"""

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import (
    LOCAL,
    MAX_JSON_BODY,
    PREDICT,
    RULES,
    Caller,
    Headers,
    KeyUse,
    Rule,
    check_space,
    find_caller,
    read_secret,
    record_change,
    uses,
)
from app.access import find_rule as find_rule_of
from app.errors import (
    BadRequest,
    HeadersTooLarge,
    TooLarge,
    send_problem,
    tell_neighbours,
    to_app_error,
)
from app.observe import WHOSE
from app.settings import Settings, get_settings
from app.storage import db

__all__ = ["MAX_JSON_BODY", "PREDICT", "RULES", "Guard", "find_path", "find_rule"]

_SAFE = ("GET", "HEAD", "OPTIONS")


class Guard:
    """An ASGI app in front of another one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_begun = False
        use: KeyUse | None = None

        async def send_on(message: Message) -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                if use is not None and use.rate:
                    _tell_limit(message, use)
                if _is_change(scope, message):
                    await _record(scope, message)
            await send(message)

        try:
            settings = get_settings()
            rule, headers = admit(scope, settings)
            found = await identify(scope, headers, rule, settings)
            if found is not None:
                scope[WHOSE] = found.ids
                found.enter()
                use = found
            receive = await bound_body(scope, headers, rule, settings, receive)
            await self.app(scope, receive, send_on)
        except ClientDisconnect:
            pass  # nobody is there to be told
        except Exception as error:
            if is_begun:
                raise
            told = to_app_error(error, scope.get("request_id", "-"))
            await send_problem(tell_neighbours(told, scope["path"]), send_on)
        finally:
            if use is not None:
                use.leave()


def admit(scope: Scope, settings: Settings) -> tuple[Rule, Headers]:
    """The rule of a request, and its headers unless they are too large."""
    n_bytes = len(scope["path"]) + len(scope["query_string"])
    n_bytes += sum([len(name) + len(value) for name, value in scope["headers"]])
    if n_bytes > settings.max_header_bytes:
        raise HeadersTooLarge(
            f"address and headers have {n_bytes} bytes, and the limit is "
            f"{settings.max_header_bytes}"
        )
    return find_rule(scope), dict(reversed(scope["headers"]))  # the first of each name


async def identify(
    scope: Scope, headers: Headers, rule: Rule, settings: Settings
) -> KeyUse | None:
    """Who calls, for the route; and what its key does here, if it has one."""
    is_predict = not rule.needs_caller and rule.limit is not None
    if not rule.needs_caller and not is_predict:
        return None
    secret = read_secret(headers, scope.get("client"), settings)
    state = scope.setdefault("state", {})
    state["secret"], state["caller"] = secret, LOCAL
    if secret is None:
        return None
    if is_predict:  # which looks for its caller itself: here its limits are of interest
        use = uses.find(secret)
        if use is not None:
            return use
    state["caller"] = caller = await run_in_threadpool(_find_caller, secret, is_predict)
    return uses.learn(secret, caller)


def _find_caller(secret: str, is_predict: bool) -> Caller:
    """For predict by its own connections: it goes on while others wait for a table."""
    if not is_predict:
        return find_caller(secret)
    with db.as_predict():
        return find_caller(secret)


async def bound_body(
    scope: Scope, headers: Headers, rule: Rule, settings: Settings, receive: Receive
) -> Receive:
    """How to receive the body: no more of it than the rule allows."""
    if scope["method"] in _SAFE or (rule.limit is not None and not rule.needs_caller):
        return receive
    limit = MAX_JSON_BODY if rule.limit is None else rule.limit(settings)
    length = _read_length(headers)
    if length > limit:
        raise _too_large(limit)
    if rule.stores:
        check_space(settings, length)
    if rule.limit is not None:
        return receive  # the route counts what comes without a length
    return _replay(await _read(receive, limit), receive)


def find_rule(scope: Scope) -> Rule:
    return find_rule_of(scope["method"], find_path(scope))


def find_path(scope: Scope) -> str:
    """The path as routes have it: without what a proxy put before it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _tell_limit(message: Message, use: KeyUse) -> None:
    pairs = [(name.lower().encode(), v.encode()) for name, v in use.headers()]
    message["headers"] = [*message.get("headers", ()), *pairs]


def _is_change(scope: Scope, message: Message) -> bool:
    """Whether a route of FastAPI's changed something; predict is none of them."""
    return (
        hasattr(scope.get("route"), "path")
        and message.get("status", 500) < 400
        and scope["method"] not in _SAFE
        and not PREDICT.fullmatch(find_path(scope))
    )


async def _record(scope: Scope, message: Message) -> None:
    """Keep a change in the audit, before its caller hears that it was made."""
    await run_in_threadpool(
        record_change,
        scope["state"]["caller"],
        scope["method"],
        scope["route"].path,
        _find_target(scope, message),
        message["status"],
        scope.get("request_id"),
    )


def _find_target(scope: Scope, message: Message) -> str | None:
    """What was made, by the header Location, or what the path names."""
    for name, value in message.get("headers", ()):
        if name.lower() == b"location":
            return str(value.decode("latin-1").rpartition("/")[2])
    return "/".join(map(str, scope.get("path_params", {}).values())) or None


def _read_length(headers: Headers) -> int:
    try:
        return int(headers.get(b"content-length", b"0"))
    except ValueError:
        raise BadRequest("Content-Length must be a number") from None


async def _read(receive: Receive, limit: int) -> bytes:
    """The whole body, unless it is too large."""
    pieces: list[bytes] = []
    n_bytes, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        n_bytes += len(pieces[-1])
        if n_bytes > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body that was read, and then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request is larger than the limit of {limit} bytes")
