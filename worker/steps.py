"""The seconds of each phase of a child's work."""

import time


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
