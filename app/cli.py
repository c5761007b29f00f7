"""The `lometab` command."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
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
    configure_logging()
    migrate()
    Server(_protect(settings)).run()


@cli.command()
def worker() -> None:
    """Run one worker: it trains one job at a time from the queue it is set to.

    LOMETAB_WORKER_QUEUE says which queue: cpu or gpu.
    """
    os.execv(sys.executable, _worker_command(get_settings()))


@cli.command()
def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 takes a free port.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="API processes.")] = 1,
) -> None:
    """Run the API alone; workers run beside it by `lometab worker`."""
    given = {"host": host, "port": port}
    settings = override_settings(
        **{name: value for name, value in given.items() if value is not None}
    )
    settings = _protect(settings)
    configure_logging()
    uvicorn.run(
        "app.main:app",
        host=settings.host,
        port=settings.port,
        workers=processes,
        log_level="warning",
        access_log=False,  # we log requests ourselves
        http="app.wire:Protocol",
        timeout_graceful_shutdown=5,
    )


@cli.command()
def migrate() -> None:
    """Bring the database to the newest revision."""
    from app.db import migrate as migrate_database

    migrate_database()


keys = typer.Typer(help="API keys.", no_args_is_help=True)
cli.add_typer(keys, name="keys")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for.")] = "default",
    workspace: Annotated[str, typer.Option(help="Where it acts.")] = "default",
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write or predict; all if not given.")
    ] = None,
) -> None:
    """Make a key and print it. It is shown this once and kept nowhere."""
    from app import auth, db

    unknown = set(scope or ()) - set(auth.SCOPES)
    if unknown:
        raise typer.BadParameter(
            f"a scope is one of {', '.join(auth.SCOPES)}, however: {unknown.pop()}"
        )
    migrate()
    with db.writing() as session:
        chosen = [each for each in auth.SCOPES if not scope or each in scope]
        _, secret = auth.create_key(
            session, workspace_id=workspace, name=name, scopes=chosen
        )
    typer.echo(secret)


@keys.command("list")
def list_keys() -> None:
    """Show the keys there are, without the keys themselves."""
    from app import auth, db

    with db.reading() as session:
        for key in auth.list_keys(session):
            state = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else "active"
            scopes = ",".join(key.scopes)
            typer.echo(
                f"{key.id}  ...{key.hint}  {key.workspace_id}  {key.name}  {scopes}  "
                f"{state}"
            )


@keys.command("revoke")
def revoke_key(id_: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Make a key useless at once."""
    from app import auth, db

    with db.writing() as session:
        if not auth.revoke_key(session, id_):
            raise typer.BadParameter(f"there is no active key {id_!r}")


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


def _protect(settings: Settings) -> Settings:
    """Where other machines can reach us, requests must carry a key; so there must be
    one."""
    from app import auth, db

    addresses = {info[4][0] for info in socket.getaddrinfo(settings.host, None)}
    if all(auth.is_loopback(str(address)) for address in addresses):
        return settings
    with db.reading() as session:
        if not auth.has_keys(session):
            raise typer.BadParameter(
                f"{settings.host} can be reached from other machines, and there is no "
                "API key yet: make one by `lometab keys create`, or listen on "
                "127.0.0.1",
                param_hint="--host",
            )
    return override_settings(require_keys=True)


class Server:
    """The API in this process and a worker beside it, which is restarted if it dies."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = threading.Event()

    def run(self) -> None:
        config = uvicorn.Config(
            "app.main:app",
            host=self.settings.host,
            port=self.settings.port,
            log_level="warning",
            access_log=False,  # we log requests ourselves
            http="app.wire:Protocol",
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)

        def stop(*_: object) -> None:
            self.stopping.set()
            server.should_exit = True  # it may not have heard: it is about to begin

        # uvicorn takes these signals over while it runs and raises them again at its
        # end, when the worker is still to be stopped.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        if self.settings.exit_with_parent:
            threading.Thread(target=_follow_parent, daemon=True).start()
        listener = config.bind_socket()
        listener.listen(config.backlog)
        host, port = listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        supervisor = threading.Thread(target=self._keep_worker, name="supervisor")
        supervisor.start()
        try:
            if not self.stopping.is_set():
                typer.echo(f"LoMETab listens on http://{host}:{port} (docs at /docs)")
                server.run(sockets=[listener])
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
