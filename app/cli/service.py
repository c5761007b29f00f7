"""The commands that run the service: serve, api, worker, migrate."""

import gc
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from app.cli.connection import DataDir
from app.cli.output import complain
from lometab.errors import DataError, MissingPackage

if TYPE_CHECKING:
    import uvicorn

    from app.settings import Settings

log = logging.getLogger("app.cli")

STOP_SECONDS = 15.0

Host = Annotated[
    str | None,
    typer.Option(help="Address to listen on; one that others can reach needs keys."),
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="0 takes a free port.")
]
RootPath = Annotated[
    str | None, typer.Option(help="What a proxy puts before our paths, as /lometab.")
]


def add(cli: typer.Typer) -> None:
    for command in (serve, api, worker, migrate, bootstrap, dashboard):
        cli.command()(command)


def serve(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Jobs that are trained at a time.")
    ] = 1,
    root_path: RootPath = None,
) -> None:
    """Run the API and workers together until Ctrl-C.

    Options stand in for the variables LOMETAB_HOST, LOMETAB_PORT and LOMETAB_DATA_DIR.
    """
    from app.observe import configure_logging, traces

    _begin_loading()
    settings = find_settings(
        host=host, port=port, data_dir=data_dir, root_path=root_path
    )
    configure_logging()
    traces.check()
    migrate()
    settings = _protect(settings)
    typer.echo(f"Data directory: {settings.data_dir}")
    with _metrics_folder(settings) as settings:
        Server(settings, workers).run()


def worker(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Say whether the worker of this host is heard of; then end."
        ),
    ] = False,
) -> None:
    """Run one worker: it trains one job at a time from the queue it is set to.

    LOMETAB_WORKER_QUEUE says which queue: cpu or gpu.
    """
    if check:
        _check_worker(find_stored(None))
        return
    settings = find_settings()
    os.execve(sys.executable, worker_command(), settings.environment())


def _check_worker(settings: "Settings") -> None:
    """For the health check of a container, whose name no other worker has."""
    from app import jobs
    from app.storage import db

    with db.reading() as session:
        alive = jobs.list_workers(session, heard_within=3 * settings.reaper_seconds)
    host, queue = socket.gethostname(), settings.worker_queue
    found = [each.id for each, _ in alive if (each.host, each.queue) == (host, queue)]
    if not found:
        complain(f"no worker of the queue '{queue}' on {host} is heard of")
        raise typer.Exit(1)
    typer.echo(f"{', '.join(found)}: heard of")


def api(
    host: Host = None,
    port: Port = None,
    processes: Annotated[int, typer.Option(min=1, help="API processes.")] = 1,
    root_path: RootPath = None,
) -> None:
    """Run the API alone; workers run beside it by `lometab worker`."""
    import uvicorn

    from app.observe import configure_logging, traces

    _begin_loading()
    settings = find_settings(host=host, port=port, root_path=root_path)
    configure_logging()
    traces.check()  # a process that uvicorn starts could not say so in a sentence
    _check_database()
    settings = _protect(settings)
    config = make_config(settings)
    listener = open_listener(config)
    typer.echo(_describe(listener, settings))
    with _metrics_folder(settings):
        if processes == 1:
            uvicorn.Server(config).run(sockets=[listener])
        else:  # uvicorn opens it again, for all of them
            port = listener.getsockname()[1]
            listener.close()
            gc.enable()  # each of them loads the application, but not this one
            uvicorn.run(**{**list_options(settings), "port": port}, workers=processes)


def _begin_loading() -> None:
    """What is loaded stays, so nothing need look for garbage in it meanwhile.

    Once all is loaded, `app.main` has the collector go on.
    """
    gc.disable()
    from lometab.table import leave_out_pandas

    leave_out_pandas()


@contextmanager
def _metrics_folder(settings: "Settings") -> Iterator["Settings"]:
    """Where the processes that we start leave their counts for one another."""
    from app.settings import override_settings

    if settings.metrics_dir is not None:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="lometab-metrics-") as folder:
        yield override_settings(metrics_dir=Path(folder))


def migrate(data_dir: DataDir = None) -> None:
    """Bring the database to the newest revision."""
    from app.storage.db import migrate as migrate_database

    find_settings(data_dir=data_dir)
    migrate_database()


def bootstrap() -> None:
    """Make the tables, and the first API key if there is none; it is shown once.

    For deployments, before anything else starts; it may run again at any time.
    """
    from app import access as auth
    from app.storage import db

    migrate()
    with db.transaction() as session:
        if auth.has_keys(session):
            typer.echo("The tables are there, and so is an API key.")
            return
        _, secret = auth.create_key(
            session, workspace_id="default", name="bootstrap", scopes=auth.SCOPES
        )
    typer.echo(f"The first API key, shown this once: {secret}")


def dashboard(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0 takes a free port.")
    ] = 8080,
    data_dir: DataDir = None,
) -> None:
    """Show the searches of tune jobs in Optuna's dashboard, on this machine alone.

    It needs the package optuna-dashboard.
    """
    from wsgiref.simple_server import make_server

    try:
        from optuna_dashboard import wsgi
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "this needs another package: pip install optuna-dashboard"
        ) from error
    from app.jobs import search

    find_stored(data_dir)
    with make_server("127.0.0.1", port, wsgi(search.get_storage())) as server:
        typer.echo(f"Optuna's dashboard: http://127.0.0.1:{server.server_port}")
        server.serve_forever()


def find_settings(**given: Any) -> "Settings":
    """The settings of this process and its children: options come before variables.

    Variables that look like ours and are not are named.
    """
    from app.settings import list_unknown, override_settings

    for warning in list_unknown():
        complain(warning)
    known = {name: value for name, value in given.items() if value is not None}
    settings = override_settings(**known)
    return override_settings(data_dir=settings.data_dir.absolute())


def find_stored(data_dir: Path | None) -> "Settings":
    """The settings, where there must be something to ask for: to open a database that
    is not there would make an empty one."""
    settings = find_settings(data_dir=data_dir)
    if has_nothing(settings):
        raise DataError(
            f"nothing is stored in {settings.data_dir} yet; is it somewhere else? "
            "Name the place by --data-dir or LOMETAB_DATA_DIR"
        )
    return settings


def has_nothing(settings: "Settings") -> bool:
    """Whether this machine has stored nothing yet: there is no database to ask."""
    return settings.is_embedded and not (settings.data_dir / "lometab.db").exists()


def worker_command() -> list[str]:
    """Without the folder we are in on the path: it may hold a `worker` of its own."""
    return [sys.executable, "-P", "-m", "worker.tasks"]


def make_config(settings: "Settings") -> "uvicorn.Config":
    import uvicorn

    return uvicorn.Config(**list_options(settings))


def list_options(settings: "Settings") -> dict[str, Any]:
    """How uvicorn shall run the API."""
    return {
        "app": "app.main:app",
        "host": settings.host,
        "port": settings.port,
        "log_level": "warning",
        "access_log": False,  # we log requests ourselves
        "http": "app.protocol:Protocol",
        "timeout_keep_alive": settings.keep_alive_seconds,
        "timeout_graceful_shutdown": settings.shutdown_seconds,
        "log_config": None,  # as configured: no message can forge a line
        "root_path": settings.root_path,
    }


def open_listener(config: "uvicorn.Config") -> socket.socket:
    """Listen, or raise the OSError that uvicorn would only log before it ends."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError:
        listener.close()
        raise
    listener.listen(config.backlog)
    listener.set_inheritable(True)
    return listener


def _describe(listener: socket.socket, settings: "Settings") -> str:
    host, port = listener.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    path = settings.root_path
    return f"LoMETab listens on http://{host}:{port}{path} (docs at {path}/docs)"


def _check_database() -> None:
    """End here if the tables are not this version's; each process checks again."""
    from sqlalchemy.exc import OperationalError

    from app.storage import db

    try:
        with db.reading() as session:
            db.check_revision(session)
    except db.WrongRevision as error:
        complain(f"the API does not start: {error}")
        raise typer.Exit(1) from None
    except OperationalError as error:  # it may come back
        log.error("the database is out of reach: %s", error.orig)


def _protect(settings: "Settings") -> "Settings":
    """Where other machines can reach us, requests must carry a key; so there must be
    one."""
    from app import access as auth
    from app.settings import override_settings
    from app.storage import db

    try:
        found = socket.getaddrinfo(settings.host, None)
    except socket.gaierror as error:
        raise typer.BadParameter(
            f"{settings.host!r} is no address of this machine: {error.strerror}",
            param_hint="--host",
        ) from None
    addresses = {info[4][0] for info in found}
    if all(auth.is_loopback(str(address)) for address in addresses):
        return settings
    with db.reading() as session:
        if not auth.has_keys(session):
            raise typer.BadParameter(
                f"{settings.host} can be reached from other machines, and there is no "
                f"API key yet: make one by `{_name_command('keys create', settings)}`, "
                "or listen on 127.0.0.1",
                param_hint="--host",
            )
    return override_settings(require_keys=True)


def _name_command(command: str, settings: "Settings") -> str:
    """So that it acts on the same data."""
    from app.settings import find_data_dir

    is_usual = settings.data_dir.absolute() == find_data_dir().absolute()
    if is_usual or not settings.is_embedded:
        return f"lometab {command}"
    return f"lometab {command} --data-dir {shlex.quote(str(settings.data_dir))}"


class Workers:
    """Workers beside this process; one that dies is started again after a pause."""

    def __init__(
        self, settings: "Settings", n: int, output: IO[bytes] | None = None
    ) -> None:
        self._settings, self._n, self._output = settings, n, output
        self.stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, name=f"worker-{i}") for i in range(n)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def _keep(self) -> None:
        pause = 0.5
        while not self.stopping.is_set():
            started_at = time.monotonic()
            process = subprocess.Popen(
                worker_command(),
                env=self._settings.environment(exit_with_parent=True),
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,  # Ctrl-C is for us; we hand it on in order
            )
            while process.poll() is None and not self.stopping.wait(0.2):
                pass
            if process.poll() is None:
                _stop(process)
                return
            if time.monotonic() - started_at > 60:
                pause = 0.5
            log.error(
                "the worker ended with exit code %s; it is started again in %s s",
                process.returncode,
                pause,
            )
            self.stopping.wait(pause)
            pause = min(2 * pause, 30.0)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Server:
    """The API in this process, and workers beside it."""

    def __init__(self, settings: "Settings", n_workers: int = 1) -> None:
        self.settings = settings
        self.workers = Workers(settings, n_workers)

    def run(self) -> None:
        import uvicorn

        from app.lifeline import end_with_parent

        config = make_config(self.settings)
        server = uvicorn.Server(config)

        def stop(*_: object) -> None:
            self.workers.stopping.set()
            server.should_exit = True  # it may not have heard: it is about to begin

        # uvicorn takes these signals over while it runs and raises them again at its
        # end, when the worker is still to be stopped.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        if self.settings.exit_with_parent:
            end_with_parent()
        listener = open_listener(config)
        self.workers.start()
        try:
            if not self.workers.stopping.is_set():
                typer.echo(_describe(listener, self.settings))
                server.run(sockets=[listener])
        finally:
            self.workers.stop()
