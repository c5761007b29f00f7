"""Counting requests over a sliding minute, in one process or in several.

A process decides by what it knows, so that no request waits for another machine. Where
there is Redis, processes tell each other what they let pass a few times a second; what
they let pass beyond a limit is what comes between two such exchanges.
"""

import logging
import math
from collections.abc import Sequence
from functools import cache
from time import monotonic
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

SECONDS = 60
_REDIS = ("redis://", "rediss://")
_WARN_SECONDS = 60.0


class Count(NamedTuple):
    """What a process let pass for a key, and is to tell others."""

    key_id: str
    minute: int
    n: int


class Total(NamedTuple):
    """What all processes let pass for a key, in a minute and in the one before."""

    key_id: str
    minute: int
    n: int
    n_before: int


class Window:
    """The requests of one key: those of this minute, and a share of the last one's."""

    def __init__(self) -> None:
        self.minute = 0
        self.n = self.n_before = 0
        self.n_untold = 0
        """Of `n`, those that other processes have not been told of."""

    def take(self, limit: int, now: float) -> bool:
        """Whether one more may pass; then it is counted."""
        self._turn(now)
        if self._count(now) + 1 > limit:
            return False
        self.n += 1
        self.n_untold += 1
        return True

    def remaining(self, limit: int, now: float) -> int:
        self._turn(now)
        return max(0, math.floor(limit - self._count(now)))

    def wait(self, limit: int, now: float) -> int:
        """Whole seconds after which one may pass, if no others do."""
        self._turn(now)
        passed = now % SECONDS
        if self.n + 1 <= limit:  # once enough of the last minute is out of sight
            share = (limit - 1 - self.n) / max(1, self.n_before)
            return max(1, math.ceil(SECONDS * (1 - share) - passed))
        share = min(1.0, (limit - 1) / max(1, self.n))
        return max(1, math.ceil(SECONDS - passed + SECONDS * (1 - share)))

    def tell(self, key_id: str) -> Count | None:
        """What others are to be told, which then counts as told."""
        if self.n_untold == 0:
            return None
        n, self.n_untold = self.n_untold, 0
        return Count(key_id, self.minute, n)

    def hear(self, total: Total) -> None:
        """What all processes let pass until now, us included."""
        if total.minute == self.minute:
            self.n = max(self.n, total.n + self.n_untold)
            self.n_before = max(self.n_before, total.n_before)

    def _turn(self, now: float) -> None:
        minute = int(now // SECONDS)
        if minute != self.minute:
            self.n_before = self.n if minute == self.minute + 1 else 0
            self.minute, self.n, self.n_untold = minute, 0, 0

    def _count(self, now: float) -> float:
        return self.n_before * (1 - (now % SECONDS) / SECONDS) + self.n


class SharedCounts:
    """Counts that all processes share, in Redis."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._warned_at = -math.inf

    def exchange(self, counts: Sequence[Count]) -> list[Total]:
        """Add ours, and get everybody's; nothing if Redis is away."""
        import redis

        pipe = self._client.pipeline(transaction=False)
        for key_id, minute, n in counts:
            pipe.incrby(_name(key_id, minute), n)
            pipe.expire(_name(key_id, minute), 3 * SECONDS)
            pipe.get(_name(key_id, minute - 1))
        try:
            answers = pipe.execute()
        except redis.RedisError as error:
            self._warn(error)
            return []
        return [
            Total(c.key_id, c.minute, int(answers[3 * i]), int(answers[3 * i + 2] or 0))
            for i, c in enumerate(counts)
        ]

    def _warn(self, error: Exception) -> None:
        if monotonic() - self._warned_at > _WARN_SECONDS:
            self._warned_at = monotonic()
            log.warning(
                "Redis is out of reach; until it answers, each process limits the "
                "requests of a key by what it sees itself: %s",
                error,
            )


def _name(key_id: str, minute: int) -> str:
    return f"lometab:requests:{key_id}:{minute}"


@cache
def get_shared_counts(url: str) -> SharedCounts | None:
    """Those in the broker, if it is a Redis."""
    if not url.startswith(_REDIS):
        return None
    import redis

    client = redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1)
    return SharedCounts(client)
