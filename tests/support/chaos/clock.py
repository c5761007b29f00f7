"""A process of ours whose clock jumps: it is as much off as a file says.

python -m tests.support.chaos.clock FILE worker
"""

import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import time_machine

from worker.tasks import main as run_worker

LOOK_SECONDS = 0.2
_START = time.monotonic()
_NOW = datetime.now(UTC)


def follow(path: Path) -> None:
    """Set the clock anew whenever the file says another number of seconds."""
    known = 0.0
    travel: time_machine.travel | None = None
    while True:
        off = float(path.read_text() or 0)
        if off != known:
            known = off
            if travel is not None:
                travel.stop()
            elapsed = timedelta(seconds=time.monotonic() - _START)
            travel = time_machine.travel(_NOW + elapsed + timedelta(seconds=off))
            travel.start()
        time.sleep(LOOK_SECONDS)


def main() -> None:
    path = Path(sys.argv[1])
    threading.Thread(target=follow, args=(path,), daemon=True).start()
    run_worker()


if __name__ == "__main__":
    main()
