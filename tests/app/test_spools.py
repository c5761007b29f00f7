"""Bodies of tables that arrive slowly hold nobody up but their own caller."""

import asyncio
from typing import Any

import pytest

from app.errors import BodyTooSlow, Overloaded
from app.serving.bodies import Spools
from app.settings import Settings

SETTINGS = Settings(table_queue=2, predict_body_seconds=0.2)


class Slow:
    """A client that sends the rest of its body when it is told to."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def receive(self) -> Any:
        await self.goes_on.wait()
        return {"type": "http.request", "body": b"x,y\n1,2\n", "more_body": False}


async def receive_at_once() -> Any:
    return {"type": "http.request", "body": b"x,y\n1,2\n", "more_body": False}


async def take(spools: Spools, secret: str | None, receive: Any) -> bytes:
    async with spools.take(secret, receive, 1000) as path:
        return path.read_bytes()


def test_a_slow_caller_holds_only_places_of_its_own() -> None:
    async def main() -> None:
        spools = Spools(SETTINGS.model_copy(update={"predict_body_seconds": 60.0}))
        slow = Slow()
        waiting = [
            asyncio.create_task(take(spools, "a", slow.receive)) for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="being received"):
            await take(spools, "a", receive_at_once)
        for secret in ("b", None):
            assert await take(spools, secret, receive_at_once) == b"x,y\n1,2\n"
        slow.goes_on.set()
        assert await asyncio.gather(*waiting) == [b"x,y\n1,2\n"] * 2
        assert await take(spools, "a", receive_at_once)
        assert not spools._by_caller

    asyncio.run(main())


def test_all_slow_callers_together_are_bounded() -> None:
    async def main() -> None:
        spools = Spools(SETTINGS.model_copy(update={"predict_body_seconds": 60.0}))
        slow = Slow()
        waiting = [
            asyncio.create_task(take(spools, str(i), slow.receive)) for i in range(8)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await take(spools, "another", receive_at_once)
        slow.goes_on.set()
        await asyncio.gather(*waiting)

    asyncio.run(main())


def test_a_body_arrives_in_time_or_not_at_all() -> None:
    async def main() -> None:
        spools = Spools(SETTINGS)
        with pytest.raises(BodyTooSlow, match=r"longer than 0\.2 s"):
            await take(spools, "a", Slow().receive)
        assert not spools._by_caller

    asyncio.run(main())
