"""What keys do in this process: how many requests, how many at once, and when last.

All of it is counted in memory, in the event loop. `keep` tells the database and other
processes of it, apart from any request.
"""

import asyncio
import logging
from datetime import UTC, datetime
from time import time

from starlette.concurrency import run_in_threadpool

from app.access import audit
from app.access.callers import Caller
from app.access.keys import write_uses
from app.access.windows import SECONDS, Window, get_shared_counts
from app.errors import DATABASE_ERRORS, TooManyRequests
from app.settings import get_settings
from app.storage import db

log = logging.getLogger(__name__)

EXCHANGE_SECONDS = 0.25
WRITE_SECONDS = 60.0


class KeyUse:
    """One key in this process."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.ids = {"key_id": key_id}
        """For the log; with the workspace, once it is known."""
        self.rate = self.max_concurrent = 0  # no limit
        self.used_at = self.written_at = 0.0
        self.n_concurrent = 0
        self.window = Window()

    def learn(self, caller: Caller) -> None:
        """The limits of the key as the database has them."""
        self.ids = {"key_id": self.key_id, "workspace_id": caller.workspace_id}
        settings = get_settings()
        rate, most = caller.requests_per_minute, caller.max_concurrent
        self.rate = settings.key_requests_per_minute if rate is None else rate
        self.max_concurrent = settings.key_max_concurrent if most is None else most

    def enter(self) -> None:
        """Begin a request, or raise; one that has begun is ended by `leave`."""
        self.used_at = time()
        if self.max_concurrent and self.n_concurrent >= self.max_concurrent:
            raise TooManyRequests(
                f"this API key has {self.n_concurrent} requests under way, and the "
                f"limit is {self.max_concurrent}; wait until one of them ends",
                headers={"Retry-After": "1"},
            )
        if self.rate and not self.window.take(self.rate, self.used_at):
            wait = self.window.wait(self.rate, self.used_at)
            raise TooManyRequests(
                f"this API key may make {self.rate} requests a minute; ask again in "
                f"{wait} s",
                headers={"Retry-After": str(wait), **dict(self.headers())},
            )
        self.n_concurrent += 1

    def leave(self) -> None:
        self.n_concurrent -= 1

    def headers(self) -> list[tuple[str, str]]:
        """What every answer to the key tells of its limit, if it has one."""
        if not self.rate:
            return []
        now = time()
        left = self.window.remaining(self.rate, now)
        ends = SECONDS - int(now % SECONDS)
        return [
            ("RateLimit-Policy", f'"requests";q={self.rate};w={SECONDS}'),
            ("RateLimit", f'"requests";r={left};t={ends}'),
        ]


class Uses:
    """The keys that this process has seen."""

    def __init__(self) -> None:
        self._by_secret: dict[str, KeyUse] = {}
        self._by_id: dict[str, KeyUse] = {}

    def find(self, secret: str) -> KeyUse | None:
        """What is known of a key's limits. Whether it is active may change."""
        return self._by_secret.get(secret)

    def learn(self, secret: str, caller: Caller) -> KeyUse:
        """What a lookup of the key found; from any thread."""
        assert caller.key_id is not None
        use = self._by_secret.get(secret)
        if use is None:
            use = self._by_id.setdefault(caller.key_id, KeyUse(caller.key_id))
            self._by_secret[secret] = use
        use.learn(caller)
        return use

    def clear(self) -> None:
        self._by_secret.clear()
        self._by_id.clear()

    async def exchange(self) -> None:
        """Tell other processes of the requests that passed here, and hear of theirs."""
        shared = get_shared_counts(get_settings().celery_url)
        if shared is None:
            return
        limited = [use for use in [*self._by_id.values()] if use.rate]
        told = [use.window.tell(use.key_id) for use in limited]
        counts = [count for count in told if count is not None]
        if not counts:
            return
        for total in await run_in_threadpool(shared.exchange, counts):
            self._by_id[total.key_id].window.hear(total)

    async def write(self) -> None:
        """Keep when keys were last used."""
        fresh = [use for use in [*self._by_id.values()] if use.used_at > use.written_at]
        moments = {use.key_id: use.used_at for use in fresh}
        if not moments:
            return
        try:
            await run_in_threadpool(_write, moments)
        except DATABASE_ERRORS:
            return  # until the next time
        for use in fresh:
            use.written_at = moments[use.key_id]


def _write(moments: dict[str, float]) -> None:
    used_at = {id_: datetime.fromtimestamp(at, UTC) for id_, at in moments.items()}
    with db.transaction() as session:
        write_uses(session, used_at)


uses = Uses()


async def keep() -> None:
    """Runs beside the requests of a process."""
    write_at, clean_at = time() + WRITE_SECONDS, time() + audit.CLEAN_SECONDS / 6
    while True:
        await asyncio.sleep(EXCHANGE_SECONDS)
        now = time()
        try:
            await uses.exchange()
            if now > write_at:
                write_at = now + WRITE_SECONDS
                await uses.write()
            if now > clean_at:
                clean_at = now + audit.CLEAN_SECONDS
                await run_in_threadpool(audit.remove_old)
        except Exception:
            log.exception("uses of keys were not written; we try again")
            await asyncio.sleep(10)
