"""The `lometab` command."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from app.settings import (
    Settings,
    configure_logging,
    get_settings,
    override_settings,
)
from lometab import __version__

log = logging.getLogger(__name__)

cli = typer.Typer(
    help="Train tabular ensembles over REST, and serve every member.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

STOP_SECONDS = 15.0


@cli.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="Loopback address to listen on.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 takes a free port.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the database and the queue are kept.")
    ] = None,
) -> None:
    """Run the API and a worker together until Ctrl-C.

    Options stand in for the variables LOMETAB_HOST, LOMETAB_PORT and LOMETAB_DATA_DIR.
    """
    given = {"host": host, "port": port, "data_dir": data_dir}
    settings = override_settings(
        **{name: value for name, value in given.items() if value is not None}
    )
    settings = override_settings(data_dir=settings.data_dir.absolute())
    _refuse_open_address(settings.host)
    configure_logging()
    Server(settings).run()


@cli.command()
def worker() -> None:
    """Run one worker: it trains one job at a time from the queue it is set to.

    LOMETAB_WORKER_QUEUE says which queue: cpu or gpu.
    """
    os.execv(sys.executable, _worker_command(get_settings()))


@cli.command()
def migrate() -> None:
    """Bring the database to the newest revision."""
    from app.db import migrate as migrate_database

    migrate_database()


@cli.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _worker_command(settings: Settings) -> list[str]:
    return [
        *(sys.executable, "-m", "celery", "--quiet", "--app", "worker.tasks", "worker"),
        *("--pool", "solo", "--queues", settings.worker_queue),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        *("--loglevel", "WARNING"),
    ]


def _refuse_open_address(host: str) -> None:
    """Without keys only this machine may talk to the service."""
    addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    if not all(ip_address(address).is_loopback for address in addresses):
        raise typer.BadParameter(
            f"{host} can be reached from other machines, and requests are not "
            "authenticated: listen on 127.0.0.1 and put a proxy with authentication "
            "in front",
            param_hint="--host",
        )


class Server:
    """The API in this process and a worker beside it, which is restarted if it dies."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = threading.Event()

    def run(self) -> None:
        # uvicorn takes these signals over while it runs and raises them again at its
        # end, when the worker is still to be stopped.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.stopping.set())
        if self.settings.exit_with_parent:
            threading.Thread(target=_follow_parent, daemon=True).start()
        migrate()
        config = uvicorn.Config(
            "app.main:app",
            host=self.settings.host,
            port=self.settings.port,
            log_level="warning",
            timeout_graceful_shutdown=5,
        )
        listener = config.bind_socket()
        listener.listen(config.backlog)
        host, port = listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        supervisor = threading.Thread(target=self._keep_worker, name="supervisor")
        supervisor.start()
        try:
            if not self.stopping.is_set():
                typer.echo(f"LoMETab listens on http://{host}:{port} (docs at /docs)")
                uvicorn.Server(config).run(sockets=[listener])
        finally:
            self.stopping.set()
            supervisor.join()

    def _keep_worker(self) -> None:
        """Start the worker, again after a pause if it ends, until we stop."""
        pause = 0.5
        while not self.stopping.is_set():
            started_at = time.monotonic()
            process = subprocess.Popen(
                _worker_command(self.settings),
                env=self.settings.environment(exit_with_parent=True),
                stdin=subprocess.PIPE,
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


def _follow_parent() -> None:
    """Stop as if asked to, once standard input closes: the parent is gone."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    cli()


if __name__ == "__main__":
    main()
