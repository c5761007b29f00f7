"""A process that must not outlive its parent holds the parent's end of a pipe."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable


def watch_stdin(on_close: Callable[[], None]) -> None:
    """Call `on_close` in a thread once standard input closes: the parent is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        on_close()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def die_with_parent(parent: int) -> None:
    """Be killed by the kernel when the parent ends: at once, even while computing.

    Linux alone has this; `watch_stdin` serves elsewhere. The parent is checked because
    it may have ended before this call.
    """
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
