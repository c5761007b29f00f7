"""The service that a command talks to: one by its address, or our own, in this process.

Without an address a command works on the data directory of this machine. Then the API
runs in a thread on a free port of the loopback address for as long as the command, and
workers beside it if the command trains: what `lometab serve` is, for one command.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lometab.client import Client, ClientError
from lometab.client.wire import find_url
from lometab.errors import DataError

if TYPE_CHECKING:
    import uvicorn

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="LOMETAB_URL",
        show_envvar=True,
        help="Address of a service; without one, this machine's data directory.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="LOMETAB_KEY", show_envvar=True, help="API key of the service."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Where this machine keeps data and models, if not in the usual place; or "
        "LOMETAB_DATA_DIR.",
    ),
]

START_SECONDS = 60.0


@contextmanager
def open_client(
    url: str | None, key: str | None, data_dir: Path | None, *, workers: int = 0
) -> Iterator[Client]:
    """A client of the service.

    Args:
        workers: how many train meanwhile, if it is our own.
    """
    if url is not None:
        try:
            find_url(url)
        except ClientError as error:
            raise DataError(str(error)) from error
        with Client(url, key) as client:
            yield client
        return
    with _run_locally(data_dir, workers) as address, Client(address) as client:
        yield client


@contextmanager
def _run_locally(data_dir: Path | None, n_workers: int) -> Iterator[str]:
    """The address of our own service, which ends with this block."""
    import uvicorn

    from app.cli.service import Workers, find_settings, make_config, open_listener
    from app.settings import override_settings
    from app.storage import db

    settings = find_settings(data_dir=data_dir)
    if not settings.is_embedded:
        raise ClientError(
            "LOMETAB_DATABASE_URL is set: that is a service's database. Name the "
            "service by --url or LOMETAB_URL"
        )
    settings = override_settings(
        host="127.0.0.1", port=0, root_path="", shutdown_seconds=5
    )
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)  # our own requests, and what was tidied up
    db.migrate()
    config = make_config(settings)
    server = uvicorn.Server(config)
    listener = open_listener(config)
    thread = threading.Thread(
        target=lambda: server.run(sockets=[listener]), name="api", daemon=True
    )
    with (settings.data_dir / "worker.log").open("ab") as output:
        workers = Workers(settings, n_workers, output)
        thread.start()
        workers.start()
        try:
            _wait_until_started(server, thread)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            workers.stop()
            server.should_exit = True
            thread.join(10)


def _wait_until_started(server: "uvicorn.Server", thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise ClientError("the API does not start here; see `lometab doctor`")
        time.sleep(0.02)
