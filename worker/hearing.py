"""Whether the broker's messages still reach this worker, and what if they do not.

Celery may lose its connection without noticing: an acknowledgement that fails is only
logged, and its event loop then waits at a socket that is gone. Jobs are not lost by
that, but this worker would never take another one. So whoever notifies also looks
whether anything was heard since, and if not has Celery connect anew.
"""

import logging
import signal
import threading

from worker.identity import busy

log = logging.getLogger(__name__)

MAX_UNHEARD = 3
"""Notifications that may go by without any being heard: others take some of them."""


class Unheard(ConnectionError):
    """Raised in Celery's event loop, which connects anew."""


class Hearing:
    """What was sent and what was heard: one thread sends, another one hears."""

    def __init__(self) -> None:
        self._n_heard = self._n_known = self._n_unheard = 0

    def note_heard(self) -> None:
        self._n_heard += 1

    def note_sent(self) -> bool:
        """Whether so much was sent since anything was heard that something is wrong."""
        if self._n_known != self._n_heard:
            self._n_known, self._n_unheard = self._n_heard, 0
        self._n_unheard += 1
        if self._n_unheard <= MAX_UNHEARD:
            return False
        self._n_unheard = 0
        return True


hearing = Hearing()


def listen_for_reconnect() -> None:
    """Have the main thread, where Celery waits, connect anew when it is told to."""
    signal.signal(signal.SIGUSR2, _connect_anew)


def reconnect() -> None:
    if signal.getsignal(signal.SIGUSR2) is not _connect_anew:
        return  # Celery is not in this process
    log.warning("no notification reaches this worker: it connects to the broker anew")
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR2)


def _connect_anew(*_: object) -> None:
    if busy.is_set():  # it has heard something meanwhile
        return
    raise Unheard("notifications were sent, and none was heard")
