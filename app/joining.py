"""Requests that arrive while a run is under way share the next one."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Place(Generic[Item]):
    """An item, and the future that its request awaits."""

    __slots__ = ("is_done", "item")

    def __init__(self, item: Item, is_done: "asyncio.Future[None]") -> None:
        self.item = item
        self.is_done = is_done


_Run = tuple[asyncio.AbstractEventLoop, str | None, list[_Place[Item]]]


class Lanes(Generic[Item]):
    """Runs of items in threads; in each lane one run at a time.

    An item whose lane is idle is run at once and alone. One that comes while a run is
    under way waits, and all that wait go into the next run together: nobody waits for
    company, and the more is asked, the more is shared.

    Args:
        run: takes items of one lane, and returns how many of the first it has dealt
            with; the others come again in the next run.
        threads: how many runs are under way at a time.
        joined: whether there are lanes; otherwise each item has a run of its own.

    To be used from one event loop; only `run` is called in other threads.
    """

    def __init__(
        self, run: Callable[[list[Item]], int], *, threads: int, joined: bool
    ) -> None:
        self._run = run
        self._joined = joined
        # Not an executor, whose futures nobody would look at.
        self._runs: SimpleQueue[_Run[Item]] = SimpleQueue()
        for i in range(threads):
            name = f"predict-{i}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._waiting: dict[str, deque[_Place[Item]]] = {}
        self.n_items = 0
        """How many items wait or are being run."""

    async def pass_through(self, lane: str, item: Item) -> None:
        """Returns when the item was run."""
        loop = asyncio.get_running_loop()
        place = _Place(item, loop.create_future())
        self.n_items += 1
        try:
            if not self._joined:
                self._runs.put((loop, None, [place]))
            elif lane in self._waiting:
                self._waiting[lane].append(place)
            else:
                self._waiting[lane] = deque()
                self._runs.put((loop, lane, [place]))
            await place.is_done
        finally:
            self.n_items -= 1

    def _work(self) -> None:
        """What each thread does: one run after the other."""
        while True:
            loop, lane, places = self._runs.get()
            error: BaseException | None = None
            n_done = len(places)
            try:
                n_done = self._run([place.item for place in places])
            except BaseException as raised:
                error = raised
            if not loop.is_closed():
                done = (loop, lane, places, n_done, error)
                loop.call_soon_threadsafe(self._go_on, *done)
            del loop, places  # while it waits, it keeps nobody's body

    def _go_on(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: str | None,
        places: list[_Place[Item]],
        n_done: int,
        error: BaseException | None,
    ) -> None:
        """The next run of the lane first, then the answers of the last one."""
        if lane is not None:
            waiting = self._waiting[lane]
            waiting.extendleft(reversed(places[n_done:]))
            if waiting:
                self._waiting[lane] = deque()
                self._runs.put((loop, lane, [*waiting]))
            else:
                del self._waiting[lane]
        for place in places[:n_done]:
            if place.is_done.done():  # its client has gone
                continue
            if error is None:
                place.is_done.set_result(None)
            else:
                place.is_done.set_exception(error)
