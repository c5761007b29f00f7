"""Counts of several processes, each in a file that the others read.

A process writes its file anew from time to time and when it ends. The counts of one
that died stay, so that no counter falls; its gauges are gone with it.
"""

import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from app.observe.metrics import Snapshot, render, take_snapshot
from app.settings import get_settings

log = logging.getLogger(__name__)

WRITE_SECONDS = 1.0
BIND_SECONDS = 5.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ENDED = "ended.json"
_MOST_FILES = 64
"""Of processes that ended; beyond, they are added up into one."""


class Exchange:
    """The folder of one service, as one of its processes sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / f"{os.getpid()}.json"

    def write(self) -> None:
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(take_snapshot()), encoding="utf-8")
        temporary.replace(self.path)

    def read_others(self) -> list[Snapshot]:
        """What all other processes counted, those that ended included."""
        with self._locked(fcntl.LOCK_EX):
            self._add_up_ended()
            found = []
            for path in self.folder.glob("*.json"):
                if path == self.path:
                    continue
                snapshot: Snapshot = json.loads(path.read_text(encoding="utf-8"))
                if not _is_alive(path):
                    snapshot["gauges"] = {}
                found.append(snapshot)
            return found

    def _add_up_ended(self) -> None:
        ended = [
            path
            for path in self.folder.glob("*.json")
            if path.name != _ENDED and not _is_alive(path)
        ]
        if len(ended) <= _MOST_FILES:
            return
        sums: dict[str, dict[tuple[str, ...], list[float]]] = {}
        for path in [*ended, self.folder / _ENDED]:
            if not path.exists():
                continue
            counted = json.loads(path.read_text(encoding="utf-8"))["counted"]
            for name, all_series in counted.items():
                known = sums.setdefault(name, {})
                for labels, series in all_series:
                    before = known.get(tuple(labels), [0.0] * len(series))
                    known[tuple(labels)] = [
                        a + b for a, b in zip(before, series, strict=True)
                    ]
        total = {name: [*known.items()] for name, known in sums.items()}
        text = json.dumps({"counted": total, "gauges": {}})
        (self.folder / _ENDED).write_text(text, encoding="utf-8")
        for path in ended:
            path.unlink()

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, kind)
            yield


def _is_alive(path: Path) -> bool:
    if not path.stem.isdecimal():
        return False
    try:
        os.kill(int(path.stem), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def render_all() -> str:
    """The metrics of all processes of this service on this machine."""
    folder = get_settings().metrics_dir
    return render(Exchange(folder).read_others() if folder is not None else ())


class Reporting:
    """What a process does for its metrics besides counting: a thread that writes its
    file and, where it has a port of its own, answers there.

    Of several processes one has the port; if it ends, another takes it over.
    """

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        settings = get_settings()
        if settings.metrics_dir is None and not settings.metrics_port:
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The last counts are written: they outlive this process."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join()
        self._thread = None

    def _run(self) -> None:
        settings = get_settings()
        folder = settings.metrics_dir
        exchange = Exchange(folder) if folder is not None else None
        n_rounds = 0
        try:
            while True:
                try:
                    if settings.metrics_port and n_rounds % int(BIND_SECONDS) == 0:
                        self._bind(settings.metrics_host, settings.metrics_port)
                    if exchange is not None:
                        exchange.write()
                except OSError as error:
                    log.warning("metrics are not written: %s", error)
                n_rounds += 1
                if self._stopping.wait(WRITE_SECONDS):
                    break
            if exchange is not None:
                exchange.write()
        finally:
            if self._server is not None:
                self._server.shutdown()
                self._server.server_close()
                self._server = None

    def _bind(self, host: str, port: int) -> None:
        if self._server is not None:
            return
        try:
            self._server = ThreadingHTTPServer((host, port), _Handler)
        except OSError as error:
            if not self._stopping.is_set():
                log.debug("another process answers at port %s: %s", port, error)
            return
        threading.Thread(
            target=self._server.serve_forever, name="metrics-http", daemon=True
        ).start()


class _Handler(BaseHTTPRequestHandler):
    """Answers `GET /metrics` and nothing else."""

    timeout = 10

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        try:
            content = render_all().encode()
        except Exception:
            log.exception("metrics cannot be told")
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)
