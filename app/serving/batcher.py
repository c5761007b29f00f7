"""Requests that arrive while a run is under way share the next one."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Waiting(NamedTuple, Generic[Item, Result]):
    """An item, and the future that its request awaits."""

    item: Item
    future: "asyncio.Future[Result]"


_Run = tuple[asyncio.AbstractEventLoop, Hashable, list[_Waiting[Item, Result]]]


class Batcher(Generic[Item, Result]):
    """Runs of items in threads; of each key one run at a time.

    An item whose key is idle is run at once and alone. One that comes while a run is
    under way waits, and all that wait go into the next run together: nobody waits for
    company, and the more is asked, the more is shared.

    Args:
        run: takes items of one key, and returns what came of the first of them, a
            result or an error for each; the others come again in the next run. If it
            raises, its items are run again, one by one: an error is for its own item.
        threads: how many runs are under way at a time.
        is_shared: otherwise each item has a run of its own.

    To be used from one event loop; only `run` is called in other threads.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], list[Result | Exception]],
        *,
        threads: int,
        is_shared: bool,
    ) -> None:
        self._run = run
        self._is_shared = is_shared
        # Not an executor, whose futures nobody would look at.
        self._runs: SimpleQueue[_Run[Item, Result]] = SimpleQueue()
        for i in range(threads):
            name = f"predict-{i}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._waiting: dict[Hashable, deque[_Waiting[Item, Result]]] = {}

    async def submit(self, key: Hashable, item: Item) -> Result:
        """What came of the item; its error is raised."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting[Item, Result](item, loop.create_future())
        if not self._is_shared:
            self._runs.put((loop, None, [waiting]))
        elif key in self._waiting:
            self._waiting[key].append(waiting)
        else:
            self._waiting[key] = deque()
            self._runs.put((loop, key, [waiting]))
        return await waiting.future

    def _work(self) -> None:
        """What each thread does: one run after the other."""
        while True:
            loop, key, batch = self._runs.get()
            results = self._run_safely([each.item for each in batch])
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._go_on, loop, key, batch, results)
            del loop, batch, results  # while it waits, it keeps nobody's body

    def _run_safely(self, items: list[Item]) -> list[Result | Exception]:
        try:
            return self._run(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
        return [result for item in items for result in self._run_safely([item])]

    def _go_on(
        self,
        loop: asyncio.AbstractEventLoop,
        key: Hashable,
        batch: list[_Waiting[Item, Result]],
        results: list[Result | Exception],
    ) -> None:
        """The next run of the key first, then the answers of the last one."""
        if key is not None:
            waiting = self._waiting[key]
            waiting.extendleft(reversed(batch[len(results) :]))
            if waiting:
                self._waiting[key] = deque()
                self._runs.put((loop, key, [*waiting]))
            else:
                del self._waiting[key]
        for (_, future), result in zip(batch, results, strict=False):
            if future.done():  # its client has gone
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
