"""What benchmarks share: a real API process to measure."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from record import ROOT

sys.path.append(str(ROOT))

from tests.support.servers import free_port, wait_until


@contextmanager
def running_api(
    folder: Path, settings: Mapping[str, str], processes: int = 1
) -> Iterator[tuple[str, psutil.Process]]:
    """An API of so many processes; its address and itself. Its log is in the folder."""
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(folder), **settings}
    command = [sys.executable, "-m", "app.cli"]
    subprocess.run([*command, "migrate"], env=environment, cwd=ROOT, check=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "api", "--port", str(port), "--processes", str(processes)],
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        address = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: is_ready(address), seconds=300, what="the API answers")
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz").status_code == 200
    except httpx.TransportError:
        return False
