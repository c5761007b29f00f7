"""Whether this worker's machine is fit to take jobs."""

import logging
import subprocess
import sys
import tempfile
import threading

log = logging.getLogger(__name__)

TEST_BYTES = 16 * 2**20
FIRST_PAUSE = 5.0
MAX_PAUSE = 60.0


class Health:
    """After a fault no job is taken until a pause is over and a test succeeds."""

    def __init__(self) -> None:
        self._n_faults = 0
        self._is_doubted = False

    def report_fault(self) -> None:
        """An attempt met a fault that was not its job's."""
        self._n_faults += 1
        self._is_doubted = True

    def report_success(self) -> None:
        self._n_faults = 0

    def wait_until_fit(self, stopping: threading.Event) -> bool:
        """Whether a job may be taken; False once the worker has to stop."""
        n_failed = 0
        while self._is_doubted and not stopping.is_set():
            n_doublings = min(self._n_faults - 1 + n_failed, 10)
            stopping.wait(min(FIRST_PAUSE * 2**n_doublings, MAX_PAUSE))
            fault = find_fault()
            if fault is None:
                self._is_doubted = False
            else:
                n_failed += 1
                log.error("this worker takes no job, and tests again soon: %s", fault)
        return not stopping.is_set()


def find_fault() -> Exception | None:
    """Try what a child process needs: a folder to write to, and a process."""
    try:
        with tempfile.TemporaryDirectory(prefix="lometab-test-") as folder:
            with open(f"{folder}/test", "wb") as file:
                file.write(bytes(TEST_BYTES))
            subprocess.run([sys.executable, "-S", "-c", ""], check=True, timeout=60)
    except (OSError, MemoryError, subprocess.SubprocessError) as error:
        return error
    return None
