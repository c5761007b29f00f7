"""The two ways to run the service, and a running service on either."""

import os
import re
import shutil
import signal
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

import httpx
import psutil
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import SCOPES, create_key
from app.storage.db import make_engine, migrate
from tests.support.servers import S3, Postgres, Redis, wait_until

StackName = Literal["embedded", "production"]

# Short, so that what a test breaks heals while the test waits.
QUICK = {
    "LOMETAB_LEASE_SECONDS": "4",
    "LOMETAB_REAPER_SECONDS": "1",
    "LOMETAB_TRAINING_THREADS": "1",
}


def _migrate(url: str) -> None:
    engine = make_engine(url)
    migrate(engine)
    engine.dispose()


class Stack:
    """A migrated database and an empty broker of its own, for one test."""

    def __init__(
        self,
        name: StackName,
        folder: Path,
        environment: dict[str, str],
        url: str,
        key: str | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.folder = folder
        self.environment = environment
        self.url = url

    def query(self, statement: str, **parameters: Any) -> list[Any]:
        engine = make_engine(self.url)
        try:
            with engine.begin() as connection:
                result = connection.execute(sa.text(statement), parameters)
                return list(result) if result.returns_rows else []
        finally:
            engine.dispose()


class Stacks:
    """Makes stacks: copies of a template that was migrated once.

    Postgres and Redis are started by the first stack that needs them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.n_made = 0
        self.store = os.environ.get("TEST_BLOB_STORE", "database")
        self._servers: list[Postgres | Redis | S3] = []

    @cached_property
    def postgres(self) -> Postgres:
        """The server, with the template in it."""
        server = Postgres()
        self._servers.append(server)
        with server.connect() as connection:
            connection.execute("CREATE DATABASE template_lometab")
        _migrate(server.url("template_lometab"))
        return server

    @cached_property
    def redis(self) -> Redis:
        server = Redis()
        self._servers.append(server)
        return server

    @cached_property
    def s3(self) -> S3:
        server = S3()
        self._servers.append(server)
        return server

    def choose_store(self, folder: Path) -> dict[str, str]:
        """Where files are kept, as TEST_BLOB_STORE says: database, local or
        s3."""
        if self.store == "s3":
            return self.s3.environment(folder.name)
        if self.store == "local":
            return {"LOMETAB_BLOB_STORE": str(folder / "blobs")}
        return {}

    @cached_property
    def sqlite_template(self) -> Path:
        path = self.folder / "template.db"
        _migrate(f"sqlite:///{path}")
        return path

    def close(self) -> None:
        for server in self._servers:
            server.remove()

    def make(self, name: StackName) -> Stack:
        self.n_made += 1
        folder = self.folder / f"stack-{self.n_made}"
        folder.mkdir()
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("LOMETAB_")},
            **QUICK,
            "LOMETAB_DATA_DIR": str(folder),
            **self.choose_store(folder),
        }
        if name == "embedded":
            shutil.copy(self.sqlite_template, folder / "lometab.db")
            return Stack(name, folder, environment, f"sqlite:///{folder}/lometab.db")
        database = f"stack_{self.n_made}"
        with self.postgres.connect() as connection:
            connection.execute(f"CREATE DATABASE {database} TEMPLATE template_lometab")
        url = self.postgres.url(database)
        environment |= {
            "LOMETAB_DATABASE_URL": url,
            "LOMETAB_BROKER_URL": self.redis.url(self.n_made % 16),
        }
        return Stack(name, folder, environment, url, self._make_key(url))

    def _make_key(self, url: str) -> str:
        engine = make_engine(url)
        with Session(engine) as session, session.begin():
            _, secret = create_key(
                session, workspace_id="default", name="test", scopes=SCOPES
            )
        engine.dispose()
        return secret


class Service:
    """`lometab serve`, or parts of it, as real processes on a stack."""

    started: ClassVar[dict[str, "Service"]] = {}
    """By their addresses, for whoever knows nothing else of one."""

    def __init__(self, stack: Stack, command: str = "serve") -> None:
        """Start it; the command `api` starts no worker."""
        self.stack = stack
        n_before = len(list(stack.folder.glob("*.log")))
        self.log_path = stack.folder / f"service-{n_before}.log"
        self.log: IO[bytes] = self.log_path.open("wb")
        self.process = self._start("-m", "app.cli", command, "--port", "0")
        self.address = self._read_address()
        self.started[self.address] = self
        self.client = self.make_client()

    def make_client(self) -> httpx.Client:
        headers = (
            {"Authorization": f"Bearer {self.stack.key}"} if self.stack.key else {}
        )
        return httpx.Client(base_url=self.address, timeout=60, headers=headers)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env={**self.stack.environment, "LOMETAB_EXIT_WITH_PARENT": "true"},
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def read_log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def _read_address(self) -> str:
        def find() -> re.Match[str] | None:
            assert self.process.poll() is None, self.read_log()
            return re.search(r"http://[\d.]+:\d+", self.read_log())

        address: re.Match[str] = wait_until(find, seconds=60, what="the service starts")
        return address[0]

    def processes(self) -> list[psutil.Process]:
        """The service's process and all below it."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def find_process(self, word: str) -> psutil.Process | None:
        for process in self.processes():
            try:
                if word in process.cmdline():
                    return process
            except psutil.NoSuchProcess:
                continue
        return None

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.log.close()
        return code
