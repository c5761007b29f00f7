"""A child process hears its supervisor, and ends when that is gone."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable


def follow_supervisor(on_line: Callable[[str], None]) -> None:
    """Take in a thread what the supervisor sends, line by line; end this process at
    once when standard input closes: the supervisor is gone, or wants us to be."""

    def follow() -> None:
        # Not sys.stdin: its lock, held here, would break the end of the interpreter.
        buffer = b""
        while content := os.read(0, 65536):
            *lines, buffer = (buffer + content).split(b"\n")
            for line in lines:
                on_line(line.decode())
        os._exit(1)

    threading.Thread(target=follow, name="lifeline", daemon=True).start()


def die_with_parent(parent: int) -> None:
    """Be killed by the kernel when the parent ends: at once, even while computing.

    Linux alone has this; `follow_supervisor` serves elsewhere. The parent is checked
    because it may have ended before this call.
    """
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
