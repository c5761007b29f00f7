"""A process that must not outlive its parent holds the parent's end of a pipe."""

import os
import signal
import threading


def end_with_parent() -> None:
    """Stop as if asked to, once standard input closes: the parent is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
