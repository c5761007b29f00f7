"""A process that must not outlive its parent holds the parent's end of a pipe."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable


def watch_stdin(
    on_close: Callable[[], None], on_line: Callable[[str], None] | None = None
) -> None:
    """Hear in a thread what the parent says, line by line, and call `on_close` once
    standard input closes: the parent is gone, or wants us to be."""

    def watch() -> None:
        buffer = b""
        while content := os.read(0, 4096):
            *lines, buffer = (buffer + content).split(b"\n")
            for line in lines:
                if on_line is not None:
                    on_line(line.decode())
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
