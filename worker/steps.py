"""The rows of each part, and the seconds of each phase, of a child's work."""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it loads more than the messages need
    from lometab.table import PartName, Parts


class Taken:
    """The rows of each part, as `features` and `target` give them."""

    def __init__(self, x_num: Any, x_cat: Any, y: Any, parts: "Parts") -> None:
        self.x_num, self.x_cat, self.y, self.parts = x_num, x_cat, y, parts

    def __call__(self, part: "PartName") -> tuple[Any, Any, Any]:
        rows = self.parts[part]
        return self.x_num[rows], self.x_cat[rows], self.y[rows]

    def find(self, part: "PartName") -> tuple[Any, Any, Any] | None:
        return self(part) if part in self.parts else None


class Clock:
    """Seconds of each phase, from `preparing` on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase, self._began = "preparing", time.perf_counter()

    def start(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[self._phase] = round(now - self._began, 3)
        self._phase, self._began = phase, now

    def stop(self) -> dict[str, float]:
        self.start("")
        return self.seconds
